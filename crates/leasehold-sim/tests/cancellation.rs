//! Every public future dropped at each of its await points, over the whole client and a cluster: afterwards nothing of it
//! is left. The points are found by counting polls, so that a new await is covered without anybody thinking of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::future::Future;
use std::time::Duration;

use leasehold::etcd::Etcd;
use leasehold::mvcc::{DeleteRequest, Txn};
use leasehold::runtime::{Instant, Runtime};
use leasehold::{DistributedLock, EtcdExt, Mutex, Remote, Session, Ttl};
use leasehold_sim::cluster::{Cluster, LinkFaults, Truth};
use leasehold_sim::{ClockError, Node, Seeded};
use leasehold_testbed::cut;

/// Much longer than the clean-up may take: nothing here may be left to the end of a lease.
const TTL: u64 = 300;
/// What the clean-up may take, late requests included.
const CLEAN_UP: Duration = Duration::from_secs(45);

const GOOD: LinkFaults = LinkFaults { delay: Duration::from_millis(5), ..LinkFaults::NONE };
const LOSING: LinkFaults = LinkFaults { lose_reply: 250, lose_request: 100, ..GOOD };
const LATE: LinkFaults = LinkFaults { late: 300, max_late: Duration::from_secs(6), ..GOOD };

/// What a scene plays with.
struct Stage {
    remote: Remote,
    session: Session,
    node: Node,
}

impl Stage {
    fn mutex(&self) -> Mutex {
        Mutex::new(&self.session, "lock".parse().unwrap())
    }

    fn distributed(&self) -> DistributedLock {
        DistributedLock::new(self.remote.clone(), "plain", "me", ttl()).unwrap()
    }

    /// A lock that is held, on whatever network.
    async fn held(&self) -> leasehold::Guard {
        loop {
            if let Ok(guard) = self.mutex().lock().await {
                return guard;
            }
            let now = self.node.now();
            self.node.runtime().sleep_until(now + Duration::from_millis(100)).await;
        }
    }
}

fn ttl() -> Ttl {
    Ttl::seconds(TTL).unwrap()
}

async fn ends<T>(future: impl Future<Output = T>, polls: usize) -> bool {
    cut(future, polls).await.is_some()
}

/// Plays a scene with each number of polls until its call ends by itself.
fn at_every_point(scene: impl AsyncFn(&Stage, usize) -> bool) {
    for (network, seeds) in [(GOOD, 2), (LOSING, 6), (LATE, 6)] {
        for seed in 0..seeds {
            for polls in 1.. {
                assert!(polls < 2000, "it never ends");
                if once(seed * 10_000 + polls as u64, network, polls, &scene) {
                    break;
                }
            }
        }
    }
}

fn once(seed: u64, network: LinkFaults, polls: usize, scene: &impl AsyncFn(&Stage, usize) -> bool) -> bool {
    let seeded = Seeded::new(seed).limit(Duration::from_secs(3600));
    let cluster = Cluster::new(&seeded, 3, |_| ClockError::NONE);
    let (world, node) = (seeded.notes(), seeded.node("node", ClockError::NONE));
    let (remote, _) = cluster.client(&node);
    seeded.block_on(async {
        let session = Session::builder(remote.clone()).ttl(ttl()).open().await.unwrap();
        cluster.change_links(None, None, |_| network);
        let stage = Stage { remote, session, node: node.clone() };
        let ended = scene(&stage, polls).await;
        cluster.change_links(None, None, |_| LinkFaults::NONE);
        let keys = || cluster.with_truth(Truth::keys);
        // The lock is free while the session lives.
        let end = world.now() + CLEAN_UP;
        while !keys().is_empty() {
            assert!(world.now() < end, "dropped after {polls} polls: {:?} are left", keys());
            world.sleep_until(world.now() + Duration::from_millis(100)).await;
        }
        // And late copies bring nothing back.
        world.sleep_until(world.now() + LATE.max_late * 2).await;
        assert!(keys().is_empty(), "dropped after {polls} polls: {:?} came back", keys());
        let Stage { remote, session, .. } = stage;
        let _ = session.close().await;
        drop(session);
        let end = world.now() + CLEAN_UP;
        while !cluster.leases().is_empty() || node.tasks().iter().any(|task| *task != "watch stream") {
            let (leases, tasks) = (cluster.leases(), node.tasks());
            assert!(world.now() < end, "dropped after {polls} polls: {leases:?}, {tasks:?} are left");
            world.sleep_until(world.now() + Duration::from_millis(100)).await;
        }
        remote.close().await;
        world.sleep_until(world.now() + Duration::from_secs(1)).await;
        assert_eq!((cluster.watches(), node.tasks()), (0, vec![]), "dropped after {polls} polls");
        ended
    })
}

#[test]
fn opening_a_session_can_be_dropped() {
    at_every_point(async |stage, polls| {
        ends(Session::builder(stage.remote.clone()).ttl(ttl()).open(), polls).await
    });
}

#[test]
fn lock_can_be_dropped() {
    at_every_point(async |stage, polls| ends(stage.mutex().lock(), polls).await);
}

#[test]
fn lock_behind_a_holder_can_be_dropped() {
    at_every_point(async |stage, polls| {
        let held = stage.held().await;
        let (runtime, until) = (stage.node.runtime(), stage.node.now() + Duration::from_millis(200));
        let releases = async move {
            runtime.sleep_until(until).await;
            drop(held);
        };
        stage.node.runtime().spawn("release", Box::pin(releases)).detach();
        ends(stage.mutex().lock(), polls).await
    });
}

#[test]
fn lock_timeout_can_be_dropped() {
    at_every_point(async |stage, polls| {
        let _held = stage.held().await;
        ends(stage.mutex().lock_timeout(Duration::from_millis(50)), polls).await
    });
}

#[test]
fn try_lock_can_be_dropped() {
    at_every_point(async |stage, polls| ends(stage.mutex().try_lock(), polls).await);
    at_every_point(async |stage, polls| {
        let _held = stage.held().await;
        ends(stage.mutex().try_lock(), polls).await
    });
}

#[test]
fn release_can_be_dropped() {
    at_every_point(async |stage, polls| ends(stage.held().await.release(), polls).await);
}

#[test]
fn what_a_guard_asks_can_be_dropped() {
    at_every_point(async |stage, polls| ends(stage.held().await.verify(), polls).await);
    at_every_point(async |stage, polls| {
        let guard = stage.held().await;
        ends(guard.txn(Txn::new().then(DeleteRequest::key("other"))), polls).await
    });
    at_every_point(async |stage, polls| {
        let guard = stage.held().await;
        let work = stage.node.runtime().sleep_until(stage.node.now() + Duration::from_millis(300));
        ends(guard.run_while_held(work), polls).await
    });
}

#[test]
fn what_is_asked_of_a_lock_can_be_dropped() {
    at_every_point(async |stage, polls| {
        let _held = stage.held().await;
        ends(stage.mutex().holder(), polls).await
    });
    at_every_point(async |stage, polls| {
        let _held = stage.held().await;
        ends(stage.mutex().queue(), polls).await
    });
}

#[test]
fn close_can_be_dropped() {
    at_every_point(async |stage, polls| {
        let _held = stage.held().await;
        ends(stage.session.close(), polls).await
    });
}

#[test]
fn the_exercises_lock_can_be_dropped() {
    at_every_point(async |stage, polls| ends(stage.distributed().lock(), polls).await);
    at_every_point(async |stage, polls| ends(stage.distributed().try_lock(), polls).await);
    at_every_point(async |stage, polls| {
        let lock = stage.distributed();
        while !lock.try_lock().await.unwrap_or(false) {}
        ends(lock.unlock(), polls).await
    });
}

#[test]
fn plain_operations_can_be_dropped() {
    at_every_point(async |stage, polls| {
        let lease = stage.session.lease_id().unwrap();
        let ended = ends(stage.remote.put_if_not_exists("key", "value", lease), polls).await;
        // It may be carried out later: that is the caller's to know.
        let late = stage.node.now() + Duration::from_secs(8);
        stage.node.runtime().sleep_until(late).await;
        while stage.remote.delete("key").await.is_err() {}
        ended
    });
}

#[test]
fn a_watch_can_be_dropped() {
    use futures_util::StreamExt;
    at_every_point(async |stage, polls| {
        let request = leasehold::mvcc::WatchRequest::range(leasehold::mvcc::KeyRange::prefix("lock/"));
        let mut updates = stage.remote.watch(request);
        ends(updates.next(), polls).await
    });
}

#[test]
fn a_guard_dropped_when_its_world_has_ended_harms_nobody() {
    let seeded = Seeded::new(1);
    let cluster = Cluster::new(&seeded, 3, |_| ClockError::NONE);
    let node = seeded.node("node", ClockError::NONE);
    let (remote, _) = cluster.client(&node);
    let guard = seeded.block_on(async {
        let session = Session::builder(remote.clone()).ttl(ttl()).open().await.unwrap();
        Mutex::new(&session, "lock".parse().unwrap()).lock().await.unwrap()
    });
    drop(seeded);
    assert!(guard.valid_until() > Instant::ZERO);
    drop(guard);
}
