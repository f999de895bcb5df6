//! What an attack on the lock found, each as its whole kind: odd answers, lost answers, and calls in an unlucky order.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

#[path = "adversity/bent.rs"]
mod bent;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use futures_util::StreamExt;
use leasehold::etcd::Etcd;
use leasehold::mvcc::{Code, StoreError, TxnOp};
use leasehold::runtime::Runtime;
use leasehold::{
    DistributedLock, Embedded, Error, EtcdExt, LockName, LossCause, Mutex, Revision, Session, Ttl,
};
use leasehold_testbed::{Dump, Seeded, join};

use bent::{Bent, deletes, puts};

struct World {
    seeded: Seeded,
    runtime: Arc<dyn Runtime>,
    store: Embedded,
    bent: Bent,
}

impl World {
    fn new(seed: u64) -> Self {
        let seeded = Seeded::new(seed).limit(Duration::from_secs(7200));
        let runtime = seeded.handle();
        let store = Embedded::new(runtime.clone(), Default::default());
        let bent = Bent::new(Arc::new(store.clone()));
        Self { seeded, runtime, store, bent }
    }
}

async fn nap(runtime: &Arc<dyn Runtime>, length: Duration) {
    runtime.sleep_until(runtime.now() + length).await;
}

async fn open(etcd: Bent, ttl: u64) -> Session {
    Session::builder(etcd).ttl(Ttl::seconds(ttl).unwrap()).open().await.unwrap()
}

fn name(name: &str) -> LockName {
    name.parse().unwrap()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn unknown() -> Error {
    Error::OutcomeUnknown { operation: "do it", endpoint: "bent".into(), cause: "the answer was lost".into() }
}

fn refused(code: Code) -> Error {
    Error::Refused { operation: "do it", source: StoreError::new(code, "etcdserver: no") }
}

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
        let began = runtime.now();
        let tries: Vec<_> = (0..50)
            .map(|_| {
                let mutex = Mutex::new(&session, name("a"));
                join(&*runtime, "try", async move { mutex.try_lock().await.map(drop) })
            })
            .collect();
        for tried in tries {
            assert!(tried.await.is_err());
        }
        assert!(
            runtime.now().since(began) <= seconds(10),
            "the last ended after {:?}",
            runtime.now().since(began)
        );
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

/// A watch that a gateway ends at once must not turn a wait into a stream of questions.
#[test]
fn a_wait_whose_watches_end_at_once_asks_now_and_then() {
    let gateway = || Err(Error::Protocol { endpoint: "a gateway".into(), why: "no streams here".into() });
    let compacted = || Err(Error::Compacted { compacted: Revision::new(3) });
    for (distributed, kind) in [(false, 0), (false, 1), (true, 0), (true, 1), (true, 2)] {
        let mut world = World::new(1);
        let asked = Arc::new(AtomicU64::new(0));
        world.bent.watch = Arc::new(move |_, _| match kind {
            0 => futures_util::stream::empty().boxed(),
            1 => futures_util::stream::once(async move { compacted() }).boxed(),
            _ => futures_util::stream::once(async move { gateway() }).boxed(),
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
            nap(&runtime, seconds(10)).await;
            drop(waiting);
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
        let began = runtime.now();
        let tries: Vec<_> = (0..20)
            .map(|_| {
                let lock = lock.clone();
                join(&*runtime, "try", async move { lock.try_lock().await })
            })
            .collect();
        for tried in tries {
            assert!(tried.await.is_err());
        }
        assert!(
            runtime.now().since(began) <= seconds(10),
            "the last ended after {:?}",
            runtime.now().since(began)
        );
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
