//! Waiters that have died, given up, or wait at a member that has gone dumb.

use std::time::Duration;

use futures_util::StreamExt;
use leasehold::LossCause;
use leasehold::etcd::{Etcd, WatchUpdate};
use leasehold::mvcc::{Key, KeyRange, WatchRequest};
use leasehold_sim::Random;
use leasehold_sim::cluster::Cluster;

use crate::scene::{SLACK, TTL, holds, play};

#[test]
fn a01_a_waiter_whose_lease_died_never_wins() {
    play(10, async |scene| {
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let held = a.lock("lock").await;
        let waiting = b.waits("lock");
        scene.seconds(1).await;
        b.revoke(scene);
        held.release().await.unwrap();
        let (told, _) = scene.within(Duration::from_secs(2), waiting).await;
        assert_eq!(told.unwrap_err().loss(), Some(LossCause::LeaseGone));
        assert_eq!(scene.queued("lock"), 0);
    });
}

#[test]
fn a03_a_waiter_whose_lease_died_is_told_while_the_holder_holds_on() {
    play(10, async |scene| {
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let held = a.lock("lock").await;
        let waiting = b.waits("lock");
        scene.seconds(1).await;
        b.revoke(scene);
        let (told, took) = scene.within(Duration::from_secs(1), waiting).await;
        assert_eq!(told.unwrap_err().loss(), Some(LossCause::LeaseGone), "{took:?}");
        assert!(holds(&held));
    });
}

#[test]
fn a47_a_waiter_whose_key_was_deleted_never_wins() {
    play(10, async |scene| {
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let held = a.lock("lock").await;
        let waiting = b.waits("lock");
        scene.seconds(1).await;
        let own = b.mutex("lock").queue().await.unwrap().pop().unwrap();
        assert_eq!(Some(own.lease), b.session.lease_id());
        scene.cluster.delete(own.key);
        let (told, _) = scene.within(Duration::from_secs(2), waiting).await;
        assert_eq!(told.unwrap_err().loss(), Some(LossCause::KeyDeleted));
        held.release().await.unwrap();
        scene.seconds(1).await;
        assert_eq!(scene.queued("lock"), 0);
    });
}

#[test]
fn a75_of_two_waiters_the_one_whose_lease_lives_wins() {
    play(10, async |scene| {
        let [a, b, c] = [scene.client("a").await, scene.client("b").await, scene.client("c").await];
        let held = a.lock("lock").await;
        let second = b.waits("lock");
        scene.seconds(1).await;
        let third = c.waits("lock");
        scene.seconds(1).await;
        b.revoke(scene);
        held.release().await.unwrap();
        assert!(scene.within(Duration::from_secs(2), second).await.0.is_err());
        assert!(holds(&scene.within(Duration::from_secs(2), third).await.0.unwrap()));
    });
}

#[test]
fn c10_a_waiter_that_slept_beyond_its_lease_is_told_and_can_come_again() {
    play(10, async |scene| {
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let held = a.lock("lock").await;
        let waiting = b.waits("lock");
        scene.seconds(1).await;
        b.node.pause();
        scene.pass(TTL * 2).await;
        b.node.resume();
        assert!(scene.within(Duration::from_secs(2), waiting).await.0.is_err());
        held.release().await.unwrap();
        let (again, _) = scene.within(Duration::from_secs(5), b.mutex("lock").lock()).await;
        assert!(holds(&again.unwrap()));
    });
}

/// The lock is given up while something is wrong with a member: each of the three in its turn, for the waiter is at one.
fn goes_on_at_another(trouble: fn(&Cluster, usize)) {
    play(9, async |scene| {
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let held = a.lock("lock").await;
        let waiting = b.waits("lock");
        scene.seconds(1).await;
        trouble(&scene.cluster, (scene.seeded.seed() % 3) as usize);
        let _ = held.release().await;
        let (told, _) = scene.within(TTL + SLACK, waiting).await;
        assert!(holds(&told.unwrap()));
    });
}

#[test]
fn a38_a_waiter_at_a_frozen_member_goes_on_at_another() {
    goes_on_at_another(Cluster::freeze);
}

#[test]
fn a40_a_waiter_at_a_member_without_a_leader_goes_on_at_another() {
    goes_on_at_another(Cluster::isolate);
}

#[test]
fn a39_a_wait_at_a_dumb_cluster_ends() {
    play(6, async |scene| {
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let _held = a.lock("lock").await;
        let waiting = b.waits("lock");
        scene.seconds(1).await;
        (0..3).for_each(|at| scene.cluster.freeze(at));
        // With a bound of the caller's, and with the lease's own.
        let at_most = Duration::from_secs(2);
        let (timed, _) = scene
            .within(at_most + Duration::from_secs(2), async { b.mutex("other").lock_timeout(at_most).await })
            .await;
        assert!(timed.is_err() || timed.unwrap().is_none());
        assert!(scene.within(TTL, waiting).await.0.is_err());
    });
}

#[test]
fn c16_who_gave_up_leaves_no_ghost_in_the_queue() {
    play(3, async |scene| {
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let mut random = Random::new(scene.seeded.seed());
        let held = a.lock("lock").await;
        let waits: Vec<_> = (0..50)
            .map(|_| {
                let mutex = b.mutex("lock");
                let at_most = Duration::from_millis(900 + random.next() % 200);
                leasehold_testbed::join(&*b.node.runtime(), "waits", async move {
                    mutex.lock_timeout(at_most).await.unwrap().is_some()
                })
            })
            .collect();
        scene.seconds(1).await;
        held.release().await.unwrap();
        for wait in waits {
            wait.await;
        }
        scene.seconds(1).await;
        assert_eq!(scene.queued("lock"), 0);
    });
}

#[test]
fn c22_waits_that_were_cancelled_leave_no_watch() {
    play(1, async |scene| {
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let held = a.lock("lock").await;
        scene.seconds(1).await;
        let before = scene.cluster.watches();
        for _ in 0..1000 {
            assert!(b.mutex("lock").lock_timeout(Duration::from_millis(10)).await.unwrap().is_none());
        }
        scene.seconds(1).await;
        assert_eq!((scene.cluster.watches(), scene.queued("lock")), (before, 1));
        held.release().await.unwrap();
    });
}

#[test]
fn c32_a_waiter_and_an_observer_hear_on_after_all_members_were_restarted() {
    play(6, async |scene| {
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let held = a.lock("lock").await;
        let waiting = b.waits("lock");
        let mut updates = b.remote.watch(WatchRequest::range(KeyRange::prefix("lock/")).deletes_only());
        scene.seconds(1).await;
        (0..3).for_each(|at| scene.cluster.kill(at));
        scene.pass(Duration::from_millis(300)).await;
        (0..3).for_each(|at| scene.cluster.start(at));
        let _ = held.release().await;
        let (told, _) = scene.within(TTL + SLACK, waiting).await;
        assert!(holds(&told.unwrap()));
        let seen = async {
            loop {
                if let WatchUpdate::Events { events, .. } = updates.next().await.unwrap().unwrap() {
                    break events[0].kv.key.clone();
                }
            }
        };
        let key: Key = scene.within(TTL + SLACK, seen).await.0;
        assert!(key.as_bytes().starts_with(b"lock/"));
    });
}
