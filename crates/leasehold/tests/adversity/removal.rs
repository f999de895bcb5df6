//! Keys go, whatever happens to their removal.

use super::*;

#[test]
fn the_end_of_max_hold_frees_the_lock_whoever_notices_it_first() {
    for seed in 0..40 {
        let world = World::new(seed);
        let (bent, runtime) = (world.bent.clone(), world.runtime.clone());
        world.seeded.block_on(async {
            let session = Session::builder(bent).max_hold(seconds(1)).open().await.unwrap();
            let mutex = Mutex::new(&session, name("a"));
            let guard = mutex.lock().await.unwrap();
            runtime.sleep_until(guard.valid_until()).await;
            assert_eq!(guard.ensure_held(Duration::ZERO), Err(LossCause::MaxHold));
            let next = mutex.lock_timeout(seconds(60)).await.unwrap();
            assert!(
                next.is_some(),
                "seed {seed}: the lock is still taken a minute after its limit of a second"
            );
        });
    }
}

#[test]
fn a_dropped_guards_key_goes_although_one_removal_got_an_odd_answer() {
    let protocol = Error::Protocol { endpoint: "a gateway".into(), why: "HTTP 404".into() };
    for odd in [protocol, refused(Code::Unauthenticated), refused(Code::PermissionDenied)] {
        let mut world = World::new(1);
        let strike = Arc::new(AtomicBool::new(false));
        let (once, answer) = (strike.clone(), odd.clone());
        world.bent.txn = Arc::new(move |etcd, txn| {
            if deletes(&txn) && once.swap(false, SeqCst) {
                return Box::pin(std::future::ready(Err(answer.clone())));
            }
            etcd.txn(txn)
        });
        let (bent, runtime) = (world.bent.clone(), world.runtime.clone());
        world.seeded.block_on(async {
            let session = open(bent.clone(), 10).await;
            // Another lock on the lease keeps it from simply being revoked.
            let _kept = Mutex::new(&session, name("kept")).lock().await.unwrap();
            let guard = Mutex::new(&session, name("a")).lock().await.unwrap();
            strike.store(true, SeqCst);
            drop(guard);
            nap(&runtime, seconds(1)).await;
            let other = open(bent, 10).await;
            let next = Mutex::new(&other, name("a")).lock_timeout(seconds(60)).await.unwrap();
            assert!(next.is_some(), "{odd}: a minute later nobody can take the lock");
        });
    }
}

#[test]
fn every_late_copy_is_removed_however_many_there_are() {
    let mut world = World::new(1);
    let late = Arc::new(AtomicBool::new(false));
    let (striking, clock) = (late.clone(), world.runtime.clone());
    world.bent.txn = Arc::new(move |etcd, txn| {
        if !puts(&txn) || !striking.load(SeqCst) {
            return etcd.txn(txn);
        }
        let (etcd, clock, told) = (etcd.clone(), clock.clone(), clock.clone());
        let copy = async move {
            nap(&clock, seconds(12)).await;
            let _ = etcd.txn(txn).await;
        };
        told.spawn("a late copy", Box::pin(copy)).detach();
        Box::pin(async move {
            nap(&told, Duration::from_millis(100)).await;
            Err(unknown())
        })
    });
    let (bent, runtime) = (world.bent.clone(), world.runtime.clone());
    world.seeded.block_on(async {
        let session = open(bent, 15).await;
        let kept = Mutex::new(&session, name("kept")).lock().await.unwrap();
        late.store(true, SeqCst);
        let attempts: Vec<_> = (0..100)
            .map(|n| {
                let mutex = Mutex::new(&session, name(&format!("late-{n}")));
                join(
                    &*runtime,
                    "attempt",
                    async move { mutex.lock_timeout(Duration::from_millis(150)).await },
                )
            })
            .collect();
        for attempt in attempts {
            let _ = attempt.await;
        }
        late.store(false, SeqCst);
        nap(&runtime, seconds(120)).await;
        assert_eq!(kept.ensure_held(Duration::ZERO), Ok(()));
        let keys = Dump::of_embedded(&world.store).keys;
        assert_eq!(keys.len(), 1, "{:?}", keys.keys());
    });
}

/// A key's name is used again only when no removal of the old one can be under way any more.
#[test]
fn an_evicted_holds_late_removal_does_not_cost_the_next_attempt_its_key() {
    let mut world = World::new(1);
    let strike = Arc::new(AtomicBool::new(true));
    let (once, clock) = (strike, world.runtime.clone());
    // The first removal is the keeper's, of the hold that went over its limit: it gets an odd answer, late.
    world.bent.txn = Arc::new(move |etcd, txn| {
        if !deletes(&txn) || !once.swap(false, SeqCst) {
            return etcd.txn(txn);
        }
        let clock = clock.clone();
        Box::pin(async move {
            nap(&clock, seconds(3)).await;
            Err(Error::Protocol { endpoint: "a gateway".into(), why: "HTTP 502".into() })
        })
    });
    let (bent, runtime) = (world.bent.clone(), world.runtime.clone());
    world.seeded.block_on(async {
        let ttl = Ttl::seconds(10).unwrap();
        let session = Session::builder(bent).ttl(ttl).max_hold(seconds(20)).open().await.unwrap();
        let mutex = Mutex::new(&session, name("a"));
        let old = mutex.lock().await.unwrap();
        assert_eq!(old.lost().wait().await, LossCause::MaxHold);
        nap(&runtime, Duration::from_millis(100)).await;
        old.release().await.unwrap();
        let new = mutex.lock().await.unwrap();
        nap(&runtime, seconds(12)).await;
        assert_eq!(new.ensure_held(Duration::ZERO), Ok(()));
        let other = Session::open(world.store.clone()).await.unwrap();
        assert!(Mutex::new(&other, name("a")).try_lock().await.unwrap().acquired().is_none(), "two hold it");
    });
}

/// A gateway passed the request on and spoilt the answer: what it did must be undone, as if no answer had come.
#[test]
fn an_entry_that_is_answered_with_nonsense_leaves_nothing() {
    for distributed in [false, true] {
        let mut world = World::new(1);
        let spoilt = Arc::new(AtomicBool::new(true));
        let spoils = spoilt.clone();
        world.bent.txn = Arc::new(move |etcd, txn| {
            if !puts(&txn) || !spoils.load(SeqCst) {
                return etcd.txn(txn);
            }
            let call = etcd.txn(txn);
            Box::pin(async move {
                call.await?;
                Err(Error::Protocol { endpoint: "a gateway".into(), why: "HTTP 404".into() })
            })
        });
        let (bent, runtime, store) = (world.bent.clone(), world.runtime.clone(), world.store.clone());
        world.seeded.block_on(async {
            // The lease lives on, and would keep what is left for long.
            let session = open(bent.clone(), 120).await;
            let lock = DistributedLock::new(bent, "a/plain", "me", Ttl::seconds(120).unwrap()).unwrap();
            if distributed {
                assert!(lock.try_lock().await.is_err());
            } else {
                assert!(Mutex::new(&session, name("a")).lock().await.is_err());
            }
            spoilt.store(false, SeqCst);
            let end = runtime.now() + seconds(5);
            while !Dump::take(&store, "a/", &[]).await.is_empty() {
                assert!(runtime.now() < end, "the key stays");
                nap(&runtime, Duration::from_millis(50)).await;
            }
            // Renewed, it brings nothing back.
            nap(&runtime, seconds(100)).await;
            assert!(Dump::take(&store, "a/", &[]).await.is_empty());
        });
    }
}

#[test]
fn a_grant_that_is_answered_with_nonsense_leaves_no_lease() {
    let mut world = World::new(1);
    world.bent.grant = Arc::new(|etcd, request| {
        let call = etcd.lease_grant(request);
        Box::pin(async move {
            call.await?;
            Err(Error::Protocol { endpoint: "a gateway".into(), why: "HTTP 404".into() })
        })
    });
    let (bent, runtime, store) = (world.bent.clone(), world.runtime.clone(), world.store.clone());
    world.seeded.block_on(async {
        assert!(Session::builder(bent).ttl(Ttl::seconds(120).unwrap()).open().await.is_err());
        nap(&runtime, seconds(5)).await;
        assert!(Dump::of_embedded(&store).is_empty(), "{}", Dump::of_embedded(&store));
    });
}

/// Who gives up before the entry is answered removes it by the lease alone, since its creation is not known. A second copy
/// of that must not find a later attempt's key under the same name.
#[test]
fn a_name_that_was_removed_unseen_is_not_used_again() {
    let mut world = World::new(1);
    let slow = Arc::new(AtomicBool::new(true));
    let (runtime, slows) = (world.runtime.clone(), slow.clone());
    let removals = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = removals.clone();
    world.bent.txn = Arc::new(move |etcd, txn| {
        if deletes(&txn) {
            seen.lock().unwrap().push(txn.clone());
        }
        let (call, runtime) = (etcd.txn(txn.clone()), runtime.clone());
        let late = puts(&txn) && slows.swap(false, SeqCst);
        Box::pin(async move {
            let answer = call.await;
            if late {
                nap(&runtime, seconds(1)).await;
            }
            answer
        })
    });
    let (bent, store) = (world.bent.clone(), world.store.clone());
    world.seeded.block_on(async {
        let session = open(bent, 120).await;
        let mutex = Mutex::new(&session, name("a"));
        assert!(mutex.lock_timeout(Duration::from_millis(100)).await.unwrap().is_none());
        let guard = mutex.lock().await.unwrap();
        let copies = std::mem::take(&mut *removals.lock().unwrap());
        assert!(!copies.is_empty(), "the first attempt was removed");
        for copy in copies {
            store.txn(copy).await.unwrap();
        }
        guard.verify().await.unwrap();
    });
}
