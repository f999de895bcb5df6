//! One member of three that is of no use, in every way there is: it costs a bounded delay, and no call that another member
//! could answer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::LocalBoxFuture;
use leasehold::etcd::{Etcd, WatchUpdate};
use leasehold::mvcc::{KeyRange, RangeRequest, WatchRequest};
use leasehold::runtime::{Runtime, before};
use leasehold::{DistributedLock, EtcdExt, Guard, LeaseId, TryLock, Ttl};
use leasehold_sim::cluster::LinkFaults;
use leasehold_testbed::join;

use crate::scene::{Client, Scene, TTL, holds, open, play};

type Trouble = fn(&Scene, usize);

/// What may be wrong with a member.
const TROUBLES: [(&str, Trouble); 7] = [
    ("dead", |scene, member| scene.cluster.kill(member)),
    ("frozen", |scene, member| scene.cluster.freeze(member)),
    ("without its peers", |scene, member| scene.cluster.isolate(member)),
    ("out of reach", |scene, member| scene.cluster.cut(None, Some(member), true, true)),
    ("deaf", |scene, member| scene.cluster.cut(None, Some(member), true, false)),
    ("dumb", |scene, member| scene.cluster.cut(None, Some(member), false, true)),
    ("slow", |scene, member| {
        let delay = Duration::from_millis(1500);
        scene
            .cluster
            .change_links(None, Some(member), |faults| faults.and(LinkFaults { delay, ..LinkFaults::NONE }));
    }),
];

type Story = fn(&Client, Guard) -> LocalBoxFuture<'_, ()>;

macro_rules! stories {
    ($($name:literal: |$a:ident, $held:ident| $story:expr;)*) => {
        &[$(($name, |$a, $held| Box::pin(async move { let $held = $held; $story }))),*]
    };
}

/// What another member can always answer; each is told by a client that holds one lock, while another is
/// held by somebody else.
#[rustfmt::skip]
const STORIES: &[(&str, Story)] = stories! {
    "a read": |a, _held| { a.remote.range(RangeRequest::key("k")).await.unwrap(); };
    "verifying a hold": |_a, held| held.verify().await.unwrap();
    "a release": |_a, held| held.release().await.unwrap();
    "opening a session": |a, _held| { open(&a.remote).await.unwrap(); };
    "closing a session": |a, _held| a.session.close().await.unwrap();
    "a lock": |a, _held| assert!(holds(&a.mutex("lock").lock().await.unwrap()));
    "a lock in time": |a, _held| drop(a.mutex("lock").lock_timeout(TTL * 2).await.unwrap().unwrap());
    "a try": |a, _held| drop(a.mutex("lock").try_lock().await.unwrap().acquired().unwrap());
    "a try of what is held": |a, _held| {
        assert!(matches!(a.mutex("busy").try_lock().await.unwrap(), TryLock::Busy(_)));
    };
    "who holds": |a, _held| { a.mutex("busy").holder().await.unwrap().unwrap(); };
    "who waits": |a, _held| assert_eq!(a.mutex("busy").queue().await.unwrap().len(), 1);
    "a distributed lock": |a, _held| {
        let lock = DistributedLock::new(a.remote.clone(), "key", "a", Ttl::seconds(TTL.as_secs()).unwrap()).unwrap();
        assert!(lock.try_lock().await.unwrap());
        assert!(lock.unlock().await.unwrap());
        lock.lock().await.unwrap();
        assert!(lock.unlock().await.unwrap());
    };
};

/// An election, and a silent member's share of each of a few calls.
const DELAY: Duration = Duration::from_secs(10);

#[test]
fn a72_b24_no_call_fails_that_another_member_could_answer() {
    for (trouble, disturb) in TROUBLES {
        for (story, tell) in STORIES {
            play(9, async |scene| {
                let (a, b) = (scene.client("a").await, scene.client("b").await);
                let _busy = b.lock("busy").await;
                // The connections stand.
                let held = a.lock("held").await;
                let member = (scene.seeded.seed() % 3) as usize;
                if *story == "closing a session" && scene.cluster.leader() == Some(member) {
                    // It waits for less time than an election may take.
                    scene.cluster.move_leader((member + 1) % 3);
                    scene.seconds(1).await;
                }
                disturb(scene, member);
                let begun = scene.now();
                let told = before(&scene.world, begun + DELAY, tell(&a, held)).await;
                assert!(told.is_some(), "{trouble}, {story}: not within {DELAY:?}");
            });
        }
    }
}

#[test]
fn a26_a27_b07_b24_a_holder_keeps_its_lock_verifies_and_releases_it() {
    for (trouble, disturb) in TROUBLES {
        play(9, async |scene| {
            let (a, b) = (scene.client("a").await, scene.client("b").await);
            let held = a.lock("lock").await;
            let waiting = b.waits("lock");
            scene.pass(Duration::from_millis(1000 + 130 * scene.seeded.seed())).await;
            let member = (scene.seeded.seed() % 3) as usize;
            disturb(scene, member);
            scene.pass(TTL * 4).await;
            assert!(holds(&held), "{trouble}");
            held.verify().await.unwrap_or_else(|error| panic!("{trouble}: {error}"));
            held.release().await.unwrap_or_else(|error| panic!("{trouble}: {error}"));
            let (next, _) = scene.within(DELAY, waiting).await;
            assert!(holds(&next.unwrap()), "{trouble}");
        });
    }
}

#[test]
fn b03_a_watch_goes_on_where_it_stood() {
    for (trouble, disturb) in TROUBLES {
        play(9, async |scene| {
            let (a, b) = (scene.client("a").await, scene.client("b").await);
            let mut updates = a.remote.watch(WatchRequest::range(KeyRange::key("k")));
            assert!(matches!(updates.next().await, Some(Ok(WatchUpdate::Confirmed(_)))));
            disturb(scene, (scene.seeded.seed() % 3) as usize);
            let mut told = Vec::new();
            for value in 0..5_u8 {
                scene.seconds(1).await;
                // A write of unknown outcome may be made twice here: it is the watch that is asked to miss nothing.
                while b.remote.put("k", vec![value], LeaseId::NONE).await.is_err() {}
            }
            let listen = async {
                while told.last() != Some(&4) {
                    if let WatchUpdate::Events { events, .. } = updates.next().await.unwrap().unwrap() {
                        told.extend(events.iter().map(|event| event.kv.value[0]));
                    }
                }
            };
            scene.within(DELAY, listen).await;
            told.dedup();
            assert_eq!(told, [0, 1, 2, 3, 4], "{trouble}");
        });
    }
}

/// B13, C08: what fails for a moment is asked again, however many wait.
#[test]
fn c08_two_hundred_waiters_all_win_while_connections_break() {
    play(2, async |scene| {
        let clients = [scene.client("a").await, scene.client("b").await, scene.client("c").await];
        let held = clients[0].lock("lock").await;
        let tokens = Arc::new(Mutex::new(vec![held.token()]));
        let waits: Vec<_> = (0..200)
            .map(|turn| {
                let (client, tokens) = (&clients[turn % 3], tokens.clone());
                let mutex = client.mutex("lock");
                join(&*client.node.runtime(), "waits", async move {
                    let guard = mutex.lock().await.unwrap_or_else(|error| panic!("{turn}: {error}"));
                    tokens.lock().unwrap().push(guard.token());
                })
            })
            .collect();
        scene.seconds(1).await;
        let (cluster, world) = (scene.cluster.clone(), scene.world.clone());
        let breaks = join(&scene.world, "breaks", async move {
            for turn in 0.. {
                cluster.break_connections(Some(1 + turn % 3), None);
                world.sleep_until(world.true_now() + Duration::from_millis(100)).await;
            }
        });
        held.release().await.unwrap_or_default();
        for waiting in waits {
            scene.within(Duration::from_secs(600), waiting).await;
        }
        let tokens = tokens.lock().unwrap().clone();
        assert_eq!(tokens.len(), 201);
        assert!(tokens.is_sorted());
        drop(breaks);
    });
}
