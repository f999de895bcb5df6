//! Every call ends, and none asks without a pause.

use super::*;

/// P7: those who wait for one grant share its failure.
#[test]
fn many_calls_against_a_black_hole_all_end_within_one_bound() {
    let mut world = World::new(1);
    let hole = Arc::new(AtomicBool::new(false));
    let silence = |clock: &Arc<dyn Runtime>| {
        let clock = clock.clone();
        async move {
            nap(&clock, seconds(5)).await;
            unknown()
        }
    };
    let (swallowed, clock) = (hole.clone(), world.runtime.clone());
    world.bent.grant = Arc::new(move |etcd, request| {
        let (call, silence) = (etcd.lease_grant(request), silence(&clock));
        if swallowed.load(SeqCst) { Box::pin(async move { Err(silence.await) }) } else { call }
    });
    let (swallowed, clock) = (hole.clone(), world.runtime.clone());
    world.bent.keep_alive = Arc::new(move |etcd, id| {
        let (call, silence) = (etcd.lease_keep_alive(id), silence(&clock));
        if swallowed.load(SeqCst) { Box::pin(async move { Err(silence.await) }) } else { call }
    });
    let (bent, runtime) = (world.bent.clone(), world.runtime.clone());
    world.seeded.block_on(async {
        let session = open(bent, 10).await;
        hole.store(true, SeqCst);
        nap(&runtime, seconds(15)).await;
        let mutex = || Mutex::new(&session, name("a"));
        let tries = (0..50).map(|_| {
            let mutex = mutex();
            async move { mutex.try_lock().await.map(drop) }
        });
        all_fail_within(seconds(10), &runtime, tries).await;
    });
}

/// Renewals and reads go on, writes are refused: that is an answer, and it ends the call.
#[test]
fn a_try_against_an_etcd_without_space_ends_with_its_refusal() {
    let mut world = World::new(1);
    world.bent.txn = Arc::new(|etcd, txn| {
        if puts(&txn) {
            Box::pin(std::future::ready(Err(refused(Code::ResourceExhausted))))
        } else {
            etcd.txn(txn)
        }
    });
    let bent = world.bent.clone();
    world.seeded.block_on(async {
        let session = open(bent, 10).await;
        let error = Mutex::new(&session, name("a")).try_lock().await.unwrap_err();
        assert_eq!(error.refusal().map(|no| no.code), Some(Code::ResourceExhausted), "{error}");
    });
}

/// B25, C09, D44: a watch that ends at once, in whatever way and however well it began, must neither end a wait nor turn
/// it into a stream of questions.
#[test]
fn a_wait_whose_watches_end_at_once_asks_now_and_then() {
    let gateway = || Error::Protocol { endpoint: "a gateway".into(), why: "no streams here".into() };
    let compacted = || Error::Compacted { compacted: Revision::new(3) };
    let cancelled = || refused(Code::Cancelled);
    let confirmed = || Ok(WatchUpdate::Confirmed(Revision::new(1)));
    for (distributed, kind) in [false, true].into_iter().flat_map(|kind| (0..8).map(move |end| (kind, end))) {
        let mut world = World::new(1);
        let asked = Arc::new(AtomicU64::new(0));
        world.bent.watch = Arc::new(move |_, _| {
            let end = match kind / 2 {
                0 => None,
                1 => Some(Err(compacted())),
                2 => Some(Err(gateway())),
                _ => Some(Err(cancelled())),
            };
            let begin = (kind % 2 == 1).then(confirmed);
            futures_util::stream::iter(begin.into_iter().chain(end)).boxed()
        });
        let (counted, clock) = (asked.clone(), world.runtime.clone());
        world.bent.range = Arc::new(move |etcd, request| {
            counted.fetch_add(1, SeqCst);
            let (call, clock) = (etcd.range(request), clock.clone());
            Box::pin(async move {
                nap(&clock, Duration::from_millis(1)).await;
                call.await
            })
        });
        let (counted, clock) = (asked.clone(), world.runtime.clone());
        world.bent.txn = Arc::new(move |etcd, txn| {
            counted.fetch_add(1, SeqCst);
            let (call, clock) = (etcd.txn(txn), clock.clone());
            Box::pin(async move {
                nap(&clock, Duration::from_millis(1)).await;
                call.await
            })
        });
        let (bent, runtime, store) = (world.bent.clone(), world.runtime.clone(), world.store.clone());
        world.seeded.block_on(async {
            let holding = Session::open(store.clone()).await.unwrap();
            let _guard = Mutex::new(&holding, name("a")).lock().await.unwrap();
            let theirs = DistributedLock::new(store, "key", "theirs", Ttl::default()).unwrap();
            assert!(theirs.try_lock().await.unwrap());
            let session = open(bent.clone(), 60).await;
            let (mutex, ours) = (
                Mutex::new(&session, name("a")),
                DistributedLock::new(bent, "key", "ours", Ttl::default()).unwrap(),
            );
            let waiting = join(&*runtime, "waiting", async move {
                if distributed { ours.lock().await } else { mutex.lock().await.map(drop) }
            });
            let ended = before(&*runtime, runtime.now() + seconds(10), waiting).await;
            assert!(ended.is_none(), "distributed {distributed}, kind {kind}: {ended:?}");
            let asked = asked.load(SeqCst);
            assert!(asked < 200, "distributed {distributed}, kind {kind}: {asked} questions in 10 s");
        });
    }
}

#[test]
fn a_try_does_not_wait_behind_another_tasks_wait_on_the_same_handle() {
    let world = World::new(1);
    let runtime = world.runtime.clone();
    world.seeded.block_on(async {
        let lock = |token: &'static str| {
            DistributedLock::new(world.store.clone(), "key", token, Ttl::default()).unwrap()
        };
        let (theirs, ours) = (lock("theirs"), Arc::new(lock("ours")));
        assert!(theirs.try_lock().await.unwrap());
        let waiting = ours.clone();
        let waiter = join(&*runtime, "waiter", async move { waiting.lock().await });
        nap(&runtime, seconds(1)).await;
        let asked = runtime.now();
        assert!(!ours.try_lock().await.unwrap());
        assert_eq!(runtime.now(), asked, "it waited");
        theirs.unlock().await.unwrap();
        waiter.await.unwrap();
    });
}

/// P7: those who wait for one try share its failure.
#[test]
fn many_tries_on_one_distributed_lock_end_within_one_bound() {
    let mut world = World::new(1);
    let clock = world.runtime.clone();
    world.bent.grant = Arc::new(move |_, _| {
        let clock = clock.clone();
        Box::pin(async move {
            nap(&clock, seconds(5)).await;
            Err(unknown())
        })
    });
    let (bent, runtime) = (world.bent.clone(), world.runtime.clone());
    world.seeded.block_on(async {
        let lock = Arc::new(DistributedLock::new(bent, "key", "token", Ttl::default()).unwrap());
        let tries = (0..20).map(|_| {
            let lock = lock.clone();
            async move { lock.try_lock().await.map(drop) }
        });
        all_fail_within(seconds(10), &runtime, tries).await;
    });
}

/// Calls begun at once, none of which can succeed.
async fn all_fail_within<F>(bound: Duration, runtime: &Arc<dyn Runtime>, calls: impl Iterator<Item = F>)
where
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    let began = runtime.now();
    let calls: Vec<_> = calls.map(|call| join(&**runtime, "call", call)).collect();
    for call in calls {
        assert!(call.await.is_err());
    }
    let took = runtime.now().since(began);
    assert!(took <= bound, "the last ended after {took:?}");
}

/// Leases are renewed, and no transaction is ever answered.
#[test]
fn a_try_ends_although_the_lease_lives_on() {
    let mut world = World::new(1);
    world.bent.txn = Arc::new(|_, _| Box::pin(std::future::ready(Err(unknown()))));
    let (bent, runtime) = (world.bent.clone(), world.runtime.clone());
    world.seeded.block_on(async {
        let session = open(bent.clone(), 10).await;
        let mutex = Mutex::new(&session, name("a"));
        let lock = DistributedLock::new(bent, "key", "token", Ttl::seconds(10).unwrap()).unwrap();
        let calls: [futures_util::future::BoxFuture<'static, Result<(), Error>>; 2] = [
            Box::pin(async move { mutex.try_lock().await.map(drop) }),
            Box::pin(async move { lock.try_lock().await.map(drop) }),
        ];
        all_fail_within(seconds(15), &runtime, calls.into_iter()).await;
    });
}

/// A73: one lease and one renewal at a time, however many locks a process holds.
#[test]
fn a73_ten_thousand_locks_of_a_process_are_one_lease_and_are_kept_by_a_renewal_every_third_of_it() {
    let mut world = World::new(1);
    let renewals = Arc::new(AtomicU64::new(0));
    let counted = renewals.clone();
    world.bent.keep_alive = Arc::new(move |etcd, id| {
        counted.fetch_add(1, SeqCst);
        etcd.lease_keep_alive(id)
    });
    let (bent, runtime) = (world.bent.clone(), world.runtime.clone());
    world.seeded.block_on(async {
        let session = open(bent, 15).await;
        let mut guards = Vec::new();
        for number in 0..10_000 {
            guards.push(Mutex::new(&session, name(&format!("lock{number}"))).lock().await.unwrap());
        }
        renewals.store(0, SeqCst);
        nap(&runtime, seconds(600)).await;
        assert!(guards.iter().all(|guard| guard.ensure_held(Duration::ZERO).is_ok()));
        assert_eq!(leasehold_testbed::embedded_leases(&world.store).len(), 1);
        let renewals = renewals.load(SeqCst);
        assert!((110..=125).contains(&renewals), "{renewals} renewals in 600 s of a TTL of 15 s");
    });
}

/// D44: who waits for an hour does not ask for an hour, whatever is compacted meanwhile.
#[test]
fn d44_fifty_waiters_ask_once_in_half_a_ttl_each_behind_a_hold_of_an_hour() {
    let mut world = World::new(1);
    let asked = Arc::new(AtomicU64::new(0));
    let (looks, reads) = (asked.clone(), asked.clone());
    world.bent.txn = Arc::new(move |etcd, txn| {
        looks.fetch_add(1, SeqCst);
        etcd.txn(txn)
    });
    world.bent.range = Arc::new(move |etcd, request| {
        reads.fetch_add(u64::from(request.range.start.as_bytes() != b"x"), SeqCst);
        etcd.range(request)
    });
    let (bent, runtime, store) = (world.bent.clone(), world.runtime.clone(), world.store.clone());
    world.seeded.block_on(async {
        let holding = open(Bent::new(Arc::new(store.clone())), 60).await;
        let guard = Mutex::new(&holding, name("a")).lock().await.unwrap();
        let session = open(bent, 60).await;
        let waits: Vec<_> = (0..50)
            .map(|_| {
                let mutex = Mutex::new(&session, name("a"));
                join(&*runtime, "waits", async move { mutex.lock().await.map(drop) })
            })
            .collect();
        nap(&runtime, seconds(60)).await;
        asked.store(0, SeqCst);
        for minute in 0..60_u64 {
            store.put("x", minute.to_string(), leasehold::LeaseId::NONE).await.unwrap();
            let revision = store.get("x").await.unwrap().unwrap().mod_revision;
            store.compact(revision).unwrap();
            nap(&runtime, seconds(60)).await;
        }
        let each = asked.load(SeqCst) / 50;
        // The session's renewals read, too: one in 20 s.
        assert!(each <= 125, "{each} questions of each waiter in an hour, with a TTL of 60 s");
        guard.release().await.unwrap();
        for waiting in waits {
            waiting.await.unwrap();
        }
    });
}
