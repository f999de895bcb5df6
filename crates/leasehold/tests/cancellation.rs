//! Every public future dropped at each of its polls, on a good network and on a rough one: afterwards nothing of it is
//! left, and the next one goes.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::sync::Arc;
use std::time::Duration;

use leasehold::etcd::Etcd;
use leasehold::mvcc::{PutRequest, Txn};
use leasehold::runtime::Runtime;
use leasehold::{DistributedLock, Embedded, LockName, Mutex, Session, Ttl};
use leasehold_sim::Seeded;
use leasehold_testbed::{Dump, Lossy, Rates, cut, join};

/// All that a dropped call may take to be cleaned up: late requests and retries. Much shorter than a lease lives, which
/// would clean up after anybody.
const CLEAN_UP: Duration = Duration::from_secs(30);
const TTL: u64 = 120;

/// Slow but sound: every call has several polls.
const SLOW: Rates = Rates { delays: 1000, max_delay: Duration::from_millis(40), ..Rates::NONE };

/// Every other request is late or its answer lost.
const HOSTILE: Rates = Rates { lost_replies: 200, late_requests: 300, ..Rates::ROUGH };

/// A world for one call.
struct World {
    runtime: Arc<dyn Runtime>,
    store: Embedded,
    etcd: Arc<dyn Etcd>,
    network: Lossy,
}

impl World {
    fn new(seeded: &Seeded) -> Self {
        let runtime = seeded.handle();
        let store = Embedded::new(runtime.clone(), Default::default());
        let network = Lossy::new(Arc::new(store.clone()));
        Self { runtime, store, etcd: Arc::new(network.clone()), network }
    }

    async fn session(&self) -> Session {
        Session::builder(self.etcd.clone()).ttl(Ttl::seconds(TTL).unwrap()).open().await.unwrap()
    }

    fn distributed(&self, token: &'static str) -> DistributedLock {
        DistributedLock::new(self.etcd.clone(), "distributed", token, Ttl::seconds(TTL).unwrap()).unwrap()
    }
}

fn name() -> LockName {
    "mutex".parse().unwrap()
}

async fn ends<T>(future: impl Future<Output = T>, polls: usize) -> bool {
    cut(future, polls).await.is_some()
}

/// Runs `scene` with a number of polls, for each number until the call in it ends by itself, on networks of several kinds. What it returns says whether it ended.
fn at_every_poll(scene: impl AsyncFn(&World, &Session, usize) -> bool) {
    let networks = [(SLOW, 2), (Rates::ROUGH, 20), (HOSTILE, 20)];
    for (rates, seeds) in networks {
        for seed in 0..seeds {
            for polls in 0.. {
                assert!(polls < 500, "it never ends");
                let seeded = Seeded::new(seed * 1000 + polls as u64).limit(Duration::from_secs(3600));
                let world = World::new(&seeded);
                let ended = seeded.block_on(async {
                    let session = world.session().await;
                    world.network.faults().set(rates);
                    let ended = scene(&world, &session, polls).await;
                    world.network.faults().calm();
                    the_next_one_goes(&world, polls).await;
                    // Once more when late requests have come.
                    world.runtime.sleep_until(world.runtime.now() + Rates::ROUGH.max_late).await;
                    the_next_one_goes(&world, polls).await;
                    drop(session);
                    nothing_is_left(&world, polls).await;
                    ended
                });
                // The store's own timer is all that still runs.
                drop(world);
                let left: Vec<_> =
                    seeded.tasks().into_iter().filter(|task| *task != "embedded etcd: expiry").collect();
                assert!(left.is_empty(), "dropped after {polls} polls: {left:?} still run");
                if ended {
                    break;
                }
            }
        }
    }
}

async fn the_next_one_goes(world: &World, polls: usize) {
    let session = world.session().await;
    let guard = Mutex::new(&session, name()).lock_timeout(CLEAN_UP).await.unwrap();
    let guard = guard.unwrap_or_else(|| {
        panic!("dropped after {polls} polls: the lock is not free:\n{}", Dump::of_embedded(&world.store))
    });
    guard.release().await.unwrap();
    session.close().await.unwrap();
    let next = world.distributed("next");
    let end = world.runtime.now() + CLEAN_UP;
    while !next.try_lock().await.unwrap() {
        assert!(world.runtime.now() < end, "dropped after {polls} polls: the key is not free");
        world.runtime.sleep_until(world.runtime.now() + Duration::from_millis(100)).await;
    }
    next.unlock().await.unwrap();
}

async fn nothing_is_left(world: &World, polls: usize) {
    let end = world.runtime.now() + CLEAN_UP;
    loop {
        let dump = Dump::of_embedded(&world.store);
        if dump.is_empty() && world.store.watch_count() == 0 {
            break;
        }
        let watches = world.store.watch_count();
        assert!(
            world.runtime.now() < end,
            "dropped after {polls} polls, this is left, and {watches} watches:\n{dump}"
        );
        world.runtime.sleep_until(world.runtime.now() + Duration::from_millis(100)).await;
    }
    // Tasks that only wait for their last delay to pass.
    world.runtime.sleep_until(world.runtime.now() + CLEAN_UP).await;
}

#[test]
fn opening_a_session() {
    at_every_poll(async |world, _, polls| {
        ends(Session::builder(world.etcd.clone()).ttl(Ttl::seconds(TTL).unwrap()).open(), polls).await
    });
}

#[test]
fn locking_what_is_free() {
    at_every_poll(async |_, session, polls| ends(Mutex::new(session, name()).lock(), polls).await);
}

#[test]
fn locking_with_a_timeout() {
    at_every_poll(async |_, session, polls| {
        ends(Mutex::new(session, name()).lock_timeout(Duration::from_millis(30)), polls).await
    });
}

#[test]
fn waiting_behind_a_holder_who_leaves() {
    at_every_poll(async |world, session, polls| {
        world.network.faults().calm();
        let holding = world.session().await;
        let guard = Mutex::new(&holding, name()).lock().await.unwrap();
        world.network.faults().set(SLOW);
        let (runtime, clock) = (world.runtime.clone(), world.runtime.clone());
        let leaving = join(&*runtime, "the holder", async move {
            clock.sleep_until(clock.now() + Duration::from_millis(250)).await;
            let _ = guard.release().await;
            let _ = holding.close().await;
        });
        let ended = ends(Mutex::new(session, name()).lock(), polls).await;
        leaving.await;
        ended
    });
}

#[test]
fn trying() {
    at_every_poll(async |_, session, polls| ends(Mutex::new(session, name()).try_lock(), polls).await);
}

#[test]
fn trying_a_busy_lock() {
    at_every_poll(async |world, session, polls| {
        let rates = world.network.faults().rates();
        world.network.faults().calm();
        let guard = Mutex::new(&world.session().await, name()).lock().await.unwrap();
        world.network.faults().set(rates);
        let ended = ends(Mutex::new(session, name()).try_lock(), polls).await;
        drop(guard);
        ended
    });
}

#[test]
fn releasing() {
    at_every_poll(async |world, session, polls| {
        let rates = world.network.faults().rates();
        world.network.faults().calm();
        let guard = Mutex::new(session, name()).lock().await.unwrap();
        world.network.faults().set(rates);
        ends(guard.release(), polls).await
    });
}

#[test]
fn verifying_and_writing_under_a_guard() {
    at_every_poll(async |world, session, polls| {
        let rates = world.network.faults().rates();
        world.network.faults().calm();
        let guard = Mutex::new(session, name()).lock().await.unwrap();
        world.network.faults().set(rates);
        let write = Txn::new().then(PutRequest::new("mutex/x/y", "").on(guard.lease()));
        let both = async { (guard.verify().await, guard.txn(write).await) };
        let ended = ends(both, polls).await;
        guard.release().await.unwrap_or_default();
        ended
    });
}

#[test]
fn closing_a_session() {
    at_every_poll(async |_, session, polls| {
        let guard = Mutex::new(session, name()).lock().await;
        let ended = ends(session.close(), polls).await;
        drop(guard);
        ended
    });
}

#[test]
fn trying_the_distributed_lock() {
    at_every_poll(async |world, _, polls| {
        let lock = world.distributed("ours");
        ends(lock.try_lock(), polls).await
    });
}

#[test]
fn waiting_for_the_distributed_lock() {
    at_every_poll(async |world, _, polls| {
        let rates = world.network.faults().rates();
        world.network.faults().calm();
        let (ours, theirs) = (world.distributed("ours"), world.distributed("theirs"));
        assert!(theirs.try_lock().await.unwrap());
        world.network.faults().set(rates);
        let (runtime, clock) = (world.runtime.clone(), world.runtime.clone());
        let leaving = join(&*runtime, "the holder", async move {
            clock.sleep_until(clock.now() + Duration::from_millis(250)).await;
            let _ = theirs.unlock().await;
        });
        let ended = ends(ours.lock(), polls).await;
        leaving.await;
        ended
    });
}

#[test]
fn unlocking_the_distributed_lock() {
    at_every_poll(async |world, _, polls| {
        let rates = world.network.faults().rates();
        world.network.faults().calm();
        let lock = world.distributed("ours");
        assert!(lock.try_lock().await.unwrap());
        world.network.faults().set(rates);
        ends(lock.unlock(), polls).await
    });
}

/// A20: the lease cannot be revoked, for another lock is held on it; so the key is removed again with each renewal.
#[test]
fn a_late_copy_that_brings_the_key_back_is_removed_while_the_lease_lives_on() {
    let seeded = Seeded::new(1).limit(Duration::from_secs(3600));
    let world = World::new(&seeded);
    seeded.block_on(async {
        let session = world.session().await;
        let kept = Mutex::new(&session, "kept".parse().unwrap()).lock().await.unwrap();
        let late = Rates { late_requests: 1000, max_late: Duration::from_secs(5), ..SLOW };
        world.network.faults().set(late);
        assert!(
            Mutex::new(&session, name()).lock_timeout(Duration::from_millis(300)).await.unwrap().is_none()
        );
        world.network.faults().calm();
        let (mut came_back, end) = (false, world.runtime.now() + Duration::from_secs(TTL));
        while world.runtime.now() < end {
            let keys = Dump::of_embedded(&world.store).keys;
            came_back |= keys.keys().any(|key| name().owns(key));
            world.runtime.sleep_until(world.runtime.now() + Duration::from_millis(10)).await;
        }
        assert!(came_back, "no copy came late: this run shows nothing");
        let keys = Dump::of_embedded(&world.store).keys;
        assert!(!keys.keys().any(|key| name().owns(key)), "{keys:?}");
        // What is on the lease is untouched, and new attempts go to another one.
        assert_eq!(kept.ensure_held(Duration::ZERO), Ok(()));
        let next = Mutex::new(&session, name()).lock().await.unwrap();
        assert_ne!(next.lease(), kept.lease());
        next.release().await.unwrap();
        kept.release().await.unwrap();
    });
}
