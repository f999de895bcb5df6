//! How sessions, leases and histories end.

use super::*;

/// One lost answer retires a lease; it is still the session's.
#[test]
fn a_closed_session_loses_the_guards_and_waits_on_its_earlier_leases_too() {
    let mut world = World::new(1);
    let lose = Arc::new(AtomicBool::new(false));
    let once = lose.clone();
    world.bent.txn = Arc::new(move |etcd, txn| {
        let lost = puts(&txn) && once.swap(false, SeqCst);
        let call = etcd.txn(txn);
        Box::pin(async move {
            let answer = call.await;
            if lost { Err(unknown()) } else { answer }
        })
    });
    let (bent, runtime) = (world.bent.clone(), world.runtime.clone());
    world.seeded.block_on(async {
        let holding = open(bent.clone(), 10).await;
        let held = Mutex::new(&holding, name("held")).lock().await.unwrap();
        let session = open(bent, 10).await;
        let guard = Mutex::new(&session, name("a")).lock().await.unwrap();
        lose.store(true, SeqCst);
        let waiting = Mutex::new(&session, name("held"));
        let waiter = join(&*runtime, "waiter", async move { waiting.lock().await });
        nap(&runtime, seconds(1)).await;
        let later = Mutex::new(&session, name("c")).lock().await.unwrap();
        assert_ne!(guard.lease(), later.lease(), "the lost answer retired nothing: this run shows nothing");
        session.close().await.unwrap();
        for guard in [&guard, &later] {
            assert_eq!(guard.lost().cause(), Some(LossCause::Closed));
        }
        held.release().await.unwrap();
        assert_eq!(waiter.await.unwrap_err().loss(), Some(LossCause::Closed));
    });
}

#[test]
fn an_attempt_that_finds_its_lease_gone_goes_on_with_a_new_one() {
    let world = World::new(1);
    let (bent, runtime) = (world.bent.clone(), world.runtime.clone());
    world.seeded.block_on(async {
        let session = open(bent, 60).await;
        for step in 0..3 {
            world.store.lease_revoke(session.lease_id().unwrap()).await.unwrap();
            let mutex = Mutex::new(&session, name("a"));
            let guard = match step {
                0 => mutex.lock().await.unwrap(),
                1 => mutex.lock_timeout(seconds(5)).await.unwrap().unwrap(),
                _ => mutex.try_lock().await.unwrap().acquired().unwrap(),
            };
            guard.release().await.unwrap();
            nap(&runtime, seconds(1)).await;
        }
    });
}

/// What confirms a renewal is a read that the user may do.
#[test]
fn a_denied_attempt_does_not_cost_the_session_its_other_guards() {
    let mut world = World::new(1);
    let denied = || refused(Code::PermissionDenied);
    world.bent.txn = Arc::new(move |etcd, txn| {
        let secret = |op: &TxnOp| matches!(op, TxnOp::Put(put) if put.key.as_bytes().starts_with(b"secret"));
        if txn.success.iter().any(secret) { Box::pin(async move { Err(denied()) }) } else { etcd.txn(txn) }
    });
    world.bent.range = Arc::new(move |etcd, request| {
        let secret = request.range.start.as_bytes().starts_with(b"secret");
        if secret { Box::pin(async move { Err(denied()) }) } else { etcd.range(request) }
    });
    let (bent, runtime) = (world.bent.clone(), world.runtime.clone());
    world.seeded.block_on(async {
        let session = open(bent, 10).await;
        let guard = Mutex::new(&session, name("mine")).lock().await.unwrap();
        assert!(Mutex::new(&session, name("secret")).lock().await.is_err());
        nap(&runtime, seconds(30)).await;
        assert_eq!(guard.ensure_held(Duration::ZERO), Ok(()));
    });
}

#[test]
fn a_lease_lost_by_deadline_is_revoked_once_its_last_guard_goes() {
    let mut world = World::new(1);
    let cut = Arc::new(AtomicBool::new(false));
    let losing = cut.clone();
    // Renewals are carried out and their answers lost: the server keeps the lease alive.
    world.bent.keep_alive = Arc::new(move |etcd, id| {
        let (call, lost) = (etcd.lease_keep_alive(id), losing.load(SeqCst));
        Box::pin(async move {
            let answer = call.await;
            if lost { Err(unknown()) } else { answer }
        })
    });
    let (bent, runtime) = (world.bent.clone(), world.runtime.clone());
    world.seeded.block_on(async {
        let session = open(bent, 60).await;
        let guard = Mutex::new(&session, name("a")).lock().await.unwrap();
        cut.store(true, SeqCst);
        assert_eq!(guard.lost().wait().await, LossCause::Deadline);
        cut.store(false, SeqCst);
        drop(guard);
        nap(&runtime, seconds(5)).await;
        let left = Dump::of_embedded(&world.store);
        assert!(left.is_empty(), "{left}");
    });
}

/// P2: who goes on would be given tokens that were given out before.
#[test]
fn a_restored_etcd_is_told_as_that_and_gives_no_lower_token_within_a_session() {
    let mut world = World::new(1);
    let restored = Arc::new(AtomicBool::new(false));
    let backup = Embedded::new(world.runtime.clone(), Default::default());
    world.bent.replaced = Some((restored.clone(), Arc::new(backup.clone())));
    let (bent, runtime) = (world.bent.clone(), world.runtime.clone());
    world.seeded.block_on(async {
        let session = open(bent.clone(), 10).await;
        let mutex = Mutex::new(&session, name("a"));
        let distributed = DistributedLock::new(bent, "key", "token", Ttl::default()).unwrap();
        for _ in 0..20 {
            mutex.lock().await.unwrap().release().await.unwrap();
        }
        let guard = mutex.lock().await.unwrap();
        assert!(distributed.try_lock().await.unwrap());
        let fencing = distributed.fencing_token().unwrap();
        restored.store(true, SeqCst);
        assert_eq!(guard.lost().wait().await, LossCause::Restored);
        assert_eq!(distributed.lost().unwrap().wait().await, LossCause::Restored);
        for _ in 0..3 {
            let error = mutex.lock().await.unwrap_err();
            assert_eq!(error.loss(), Some(LossCause::Restored), "{error}");
            assert!(error.to_string().contains("--bump-revision"), "{error}");
            assert_eq!(distributed.try_lock().await.unwrap_err().loss(), Some(LossCause::Restored));
            nap(&runtime, seconds(20)).await;
        }
        // Once its revisions are above all that were seen, no token can come twice.
        for n in 0..200 {
            backup.put("filler", n.to_string(), Default::default()).await.unwrap();
        }
        let next = mutex.lock().await.unwrap();
        assert!(next.token() > guard.token());
        assert!(distributed.try_lock().await.unwrap());
        assert!(distributed.fencing_token().unwrap() > fencing);
    });
}

#[test]
fn closing_says_well_done_although_a_lost_guard_of_a_dead_lease_is_still_around() {
    let mut world = World::new(1);
    let cut = Arc::new(AtomicBool::new(false));
    let (renewals, reads) = (cut.clone(), cut.clone());
    world.bent.keep_alive = Arc::new(move |etcd, id| {
        if renewals.load(SeqCst) {
            Box::pin(std::future::ready(Err(unknown())))
        } else {
            etcd.lease_keep_alive(id)
        }
    });
    world.bent.range = Arc::new(move |etcd, request| {
        if reads.load(SeqCst) { Box::pin(std::future::ready(Err(unknown()))) } else { etcd.range(request) }
    });
    let (bent, runtime) = (world.bent.clone(), world.runtime.clone());
    world.seeded.block_on(async {
        let session = open(bent, 10).await;
        let guard = Mutex::new(&session, name("a")).lock().await.unwrap();
        cut.store(true, SeqCst);
        nap(&runtime, seconds(120)).await;
        cut.store(false, SeqCst);
        Mutex::new(&session, name("b")).lock().await.unwrap().release().await.unwrap();
        session.close().await.unwrap();
        assert_eq!(guard.lost().cause(), Some(LossCause::Deadline));
    });
}

#[test]
fn a_session_under_which_no_lock_could_be_held_is_refused() {
    let world = World::new(1);
    let bent = world.bent.clone();
    world.seeded.block_on(async {
        let error = Session::builder(bent).max_hold(Duration::ZERO).open().await.unwrap_err();
        assert!(error.to_string().contains("max_hold"), "{error}");
        assert!(Dump::of_embedded(&world.store).is_empty(), "a lease was granted all the same");
    });
}

/// A leader of yesterday answers renewals until it hears of the new one, and the cluster will not honour them. What tells
/// is a read that the whole cluster confirms: it shows a newer term, or it is not answered at all.
#[test]
fn a_renewal_counts_only_with_a_read_of_no_newer_term() {
    for read_is_answered in [true, false] {
        let mut world = World::new(1);
        let changed = Arc::new(AtomicBool::new(false));
        let newer = changed.clone();
        let read = move |etcd: &Arc<dyn Etcd>, request| {
            let (call, newer) = (etcd.range(request), newer.load(SeqCst));
            Box::pin(async move {
                if newer && !read_is_answered {
                    return std::future::pending().await;
                }
                let mut answer = call.await?;
                answer.header.raft_term += u64::from(newer);
                Ok(answer)
            }) as leasehold::etcd::Call<_>
        };
        world.bent.range = Arc::new(read);
        let (bent, runtime) = (world.bent.clone(), world.runtime.clone());
        world.seeded.block_on(async {
            let session = open(bent, 10).await;
            let guard = Mutex::new(&session, name("a")).lock().await.unwrap();
            nap(&runtime, seconds(20)).await;
            assert!(guard.ensure_held(Duration::ZERO).is_ok(), "renewed as long as both agree");
            changed.store(true, SeqCst);
            nap(&runtime, seconds(10)).await;
            assert_eq!(guard.ensure_held(Duration::ZERO), Err(LossCause::Deadline));
        });
    }
}

/// B05: etcd answers the renewal of a lease that is gone with no time left; a middleman may say so by a refusal.
#[test]
fn b05_a_refused_renewal_is_the_end_of_the_hold_only_if_the_lease_is_gone() {
    for gone in [true, false] {
        let mut world = World::new(1);
        world.bent.keep_alive = Arc::new(|_, _| Box::pin(std::future::ready(Err(refused(Code::NotFound)))));
        world.bent.watch = Arc::new(|_, _| futures_util::stream::pending().boxed());
        let (bent, runtime) = (world.bent.clone(), world.runtime.clone());
        world.seeded.block_on(async {
            let session = open(bent, 30).await;
            let guard = Mutex::new(&session, name("a")).lock().await.unwrap();
            if gone {
                world.store.lease_revoke(guard.lease()).await.unwrap();
            }
            nap(&runtime, seconds(11)).await;
            let expected = gone.then_some(LossCause::LeaseGone);
            assert_eq!(guard.lost().cause(), expected, "a third of its time, and the answer to one question");
        });
    }
}

/// A21: some members say so for a moment while they catch up (etcd#6978).
#[test]
fn a21_a_renewal_that_says_no_time_is_left_is_looked_into_before_the_loss_is_told() {
    let mut world = World::new(1);
    let answers = Arc::new(AtomicU64::new(0));
    let counted = answers.clone();
    world.bent.keep_alive = Arc::new(move |etcd, id| {
        let (call, number) = (etcd.lease_keep_alive(id), counted.fetch_add(1, SeqCst));
        Box::pin(async move {
            let mut answer = call.await?;
            if number % 2 == 0 {
                answer.ttl = 0;
            }
            Ok(answer)
        })
    });
    let (bent, runtime) = (world.bent.clone(), world.runtime.clone());
    world.seeded.block_on(async {
        let sessions = futures_util::future::join_all((0..100).map(|_| open(bent.clone(), 10))).await;
        nap(&runtime, seconds(600)).await;
        for session in &sessions {
            let guard = Mutex::new(session, name("a")).lock().await.unwrap();
            assert!(guard.ensure_held(Duration::ZERO).is_ok());
        }
        assert!(answers.load(SeqCst) > 1000);
    });
}

/// B07: a slow disk under etcd, as its clients see it.
#[test]
fn b07_renewals_of_which_every_third_fails_or_is_slow_lose_no_lock() {
    for failure in 0..3 {
        let mut world = World::new(1);
        let (answers, clock) = (Arc::new(AtomicU64::new(0)), world.runtime.clone());
        world.bent.keep_alive = Arc::new(move |etcd, id| {
            let (call, clock) = (etcd.lease_keep_alive(id), clock.clone());
            if answers.fetch_add(1, SeqCst) % 3 > 0 {
                return call;
            }
            Box::pin(async move {
                match failure {
                    0 => Err(unknown()),
                    1 => Err(Error::Unavailable {
                        operation: "renew a lease",
                        endpoints: "bent".into(),
                        cause: "no".into(),
                    }),
                    _ => {
                        nap(&clock, seconds(2)).await;
                        call.await
                    }
                }
            })
        });
        let (bent, runtime) = (world.bent.clone(), world.runtime.clone());
        world.seeded.block_on(async {
            let session = open(bent, 10).await;
            let guard = Mutex::new(&session, name("a")).lock().await.unwrap();
            for _ in 0..600 {
                nap(&runtime, seconds(1)).await;
                assert_eq!(guard.ensure_held(Duration::ZERO), Ok(()), "failure {failure}");
            }
        });
    }
}

#[test]
fn a_lease_whose_number_is_taken_is_asked_for_under_another() {
    for taken in [1, 3, 4] {
        let mut world = World::new(1);
        let asked = Arc::new(AtomicU64::new(0));
        let counted = asked.clone();
        world.bent.grant = Arc::new(move |etcd, request| {
            if counted.fetch_add(1, SeqCst) < taken {
                return Box::pin(std::future::ready(Err(refused(Code::FailedPrecondition))));
            }
            etcd.lease_grant(request)
        });
        let bent = world.bent.clone();
        let opened = world.seeded.block_on(Session::open(bent));
        assert_eq!((opened.is_ok(), asked.load(SeqCst)), (taken < 4, 4.min(taken + 1)));
    }
}
