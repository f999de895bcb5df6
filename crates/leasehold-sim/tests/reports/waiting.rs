//! Waiters that have died, given up, or wait at a member that has gone dumb.

use std::time::Duration;

use futures_util::StreamExt;
use leasehold::etcd::{Etcd, WatchUpdate};
use leasehold::mvcc::{Key, KeyRange, WatchRequest};
use leasehold::runtime::before;
use leasehold::{EtcdExt, LeaseId, LossCause, TryLock};
use leasehold_sim::Random;
use leasehold_sim::cluster::{Cluster, LinkFaults};
use leasehold_testbed::join;

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

#[test]
fn a15_a_try_over_a_slow_network_says_busy_and_leaves_nothing_or_that_nobody_answers() {
    play(2, async |scene| {
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let delay = Duration::from_millis(200);
        scene.cluster.change_links(None, None, |faults| faults.and(LinkFaults { delay, ..LinkFaults::NONE }));
        let held = a.lock("lock").await;
        for _ in 0..500 {
            assert!(
                matches!(b.mutex("lock").try_lock().await.unwrap(), TryLock::Busy(entry) if entry.key == *held.key())
            );
            assert_eq!(scene.queued("lock"), 1);
        }
        b.cut_off(scene);
        let error = b.mutex("lock").try_lock().await.unwrap_err();
        assert_ne!(error.kind(), leasehold::ErrorKind::Refused, "{error}");
        assert_eq!(scene.queued("lock"), 1);
        held.verify().await.unwrap();
    });
}

#[test]
fn b01_when_the_holder_stops_renewing_one_of_five_waiters_wins_and_the_others_wait_on() {
    play(6, async |scene| {
        let first = scene.client("first").await;
        let held = first.lock("lock").await;
        let mut others = Vec::new();
        for name in ["a", "b", "c", "d", "e"] {
            let client = scene.client(name).await;
            let mutex = client.mutex("lock");
            let waiting =
                join(&*client.node.runtime(), "waits", async move { mutex.lock_timeout(TTL * 20).await });
            others.push((client, waiting));
        }
        scene.seconds(30).await;
        first.node.pause();
        scene.pass(TTL * 4).await;
        let mut won = Vec::new();
        for (_, waiting) in &mut others {
            if let Some(told) = before(&scene.world, scene.now(), waiting).await {
                won.push(told.unwrap().unwrap());
            }
        }
        assert_eq!(won.len(), 1);
        assert!(holds(&won[0]) && won[0].token() > held.token());
        assert_eq!(scene.queued("lock"), 5);
    });
}

#[test]
fn b13_a_wait_outlasts_every_limit_on_calls() {
    play(4, async |scene| {
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let held = a.lock("lock").await;
        let waiting = b.waits("lock");
        // The longest call takes 5 s, and the lease of the waiter 5 s.
        scene.seconds(180).await;
        assert!(holds(&held));
        held.release().await.unwrap();
        assert!(holds(&scene.within(Duration::from_secs(1), waiting).await.0.unwrap()));
    });
}

#[test]
fn c06_a_release_between_the_look_and_the_watch_is_not_missed() {
    play(4, async |scene| {
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let delay = Duration::from_millis(300);
        scene.cluster.change_links(None, None, |faults| faults.and(LinkFaults { delay, ..LinkFaults::NONE }));
        let mut random = Random::new(scene.seeded.seed());
        for _ in 0..100 {
            let held = a.lock("lock").await;
            let waiting = b.waits("lock");
            scene.pass(Duration::from_millis(random.next() % 1500)).await;
            held.release().await.unwrap();
            // The news, or the confirmation of a watch that was late for it; the look; each there and back.
            let (next, _) = scene.within(Duration::from_secs(2), waiting).await;
            next.unwrap().release().await.unwrap();
        }
    });
}

/// Whatever is compacted away while a waiter hears nothing, be it stopped or cut off, it wins when its turn has come.
#[test]
fn a11_c09_d44_a_waiter_that_missed_what_was_compacted_wins_in_its_turn() {
    for stopped in [true, false] {
        play(9, async |scene| {
            let (a, b) = (scene.client("a").await, scene.client("b").await);
            let held = a.lock("lock").await;
            let waiting = b.waits("lock");
            scene.seconds(1).await;
            if stopped {
                b.node.pause()
            } else {
                b.cut_off(scene)
            }
            for _ in 0..20 {
                a.remote.put("elsewhere", "x", LeaseId::NONE).await.unwrap();
                scene.cluster.compact();
                scene.pass(TTL / 40).await;
            }
            if scene.seeded.seed() % 2 == 0 {
                // The end of what it waits for is in the history that is gone.
                held.release().await.unwrap();
                a.remote.put("elsewhere", "y", LeaseId::NONE).await.unwrap();
                scene.cluster.compact();
                if stopped { b.node.resume() } else { b.reconnect(scene) }
            } else {
                if stopped {
                    b.node.resume()
                } else {
                    b.reconnect(scene)
                }
                held.release().await.unwrap();
            }
            let (next, _) = scene.within(TTL, waiting).await;
            assert!(holds(&next.unwrap()), "stopped: {stopped}");
            assert_eq!(scene.queued("lock"), 1);
        });
    }
}
