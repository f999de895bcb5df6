//! Clusters that are away, without a quorum, or change their leader all the time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use leasehold::etcd::Etcd;
use leasehold::mvcc::RangeRequest;
use leasehold::runtime::Instant;
use leasehold::{Session, Ttl};
use leasehold_testbed::join;

use crate::scene::{SLACK, TTL, holds, play};

#[test]
fn a31_each_new_leader_gives_a_dead_holder_its_whole_time_anew() {
    play(3, async |scene| {
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let held = a.lock("lock").await;
        a.node.kill();
        drop(held);
        let waiting = b.waits("lock");
        for step in 0..10 {
            scene.pass(TTL * 3 / 5).await;
            scene.cluster.move_leader((step + 1) % 3);
            assert_eq!(scene.queued("lock"), 2, "the dead one's key stands as long as leaders change");
        }
        let (told, took) = scene.within(TTL + SLACK, waiting).await;
        assert!(holds(&told.unwrap()), "{took:?}");
    });
}

#[test]
fn a37_without_a_quorum_the_holder_stops_and_nobody_starts() {
    play(6, async |scene| {
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let held = a.lock("lock").await;
        let waiting = b.waits("lock");
        scene.seconds(1).await;
        (0..2).for_each(|at| scene.cluster.freeze(at));
        scene.pass(TTL).await;
        assert!(!holds(&held));
        scene.seconds(25).await;
        (0..2).for_each(|at| scene.cluster.thaw(at));
        assert!(waiting.await.is_err(), "a wait ends with its lease");
        for client in [&a, &b] {
            let (again, _) = scene.within(TTL * 2 + SLACK * 2, client.mutex("lock").lock()).await;
            let again = again.unwrap();
            assert!(again.token() > held.token());
            again.release().await.unwrap();
        }
    });
}

/// C26: a process that outlived its servers by minutes is as good as new.
#[test]
fn c03_c26_after_an_outage_of_any_length_one_holds_and_one_alone() {
    for (half_ttls, seeds) in [(1, 6), (2, 6), (6, 4), (60, 2)] {
        play(seeds, async |scene| {
            let (a, b) = (scene.client("a").await, scene.client("b").await);
            let held = a.lock("lock").await;
            let waiting = b.waits("lock");
            scene.seconds(1).await;
            scene.outage(TTL / 2 * half_ttls).await;
            scene.seconds(1).await;
            let told = if holds(&held) {
                drop(waiting);
                None
            } else {
                Some(scene.within(TTL * 2 + SLACK, waiting).await.0)
            };
            if let Some(Ok(next)) = &told {
                assert!(!(holds(&held) && holds(next)));
            }
            // Whoever was told an error comes again, and gets it.
            drop((held, told));
            let (again, _) = scene.within(TTL * 2 + SLACK, b.mutex("lock").lock()).await;
            assert!(holds(&again.unwrap()));
        });
    }
}

/// B23: and twenty programs that lock again whenever they have lost, work again as soon as there is an etcd.
#[test]
fn b23_after_an_outage_of_two_ttls_all_who_come_again_work_again() {
    play(3, async |scene| {
        let mut clients = Vec::new();
        for n in 0..20 {
            clients.push(scene.client(&format!("c{n}")).await);
        }
        let turns = Arc::new(Mutex::new(vec![Instant::ZERO; clients.len()]));
        let losses = Arc::new(Mutex::new(0));
        let work: Vec<_> = clients
            .iter()
            .enumerate()
            .map(|(n, client)| {
                let (mutex, runtime) = (client.mutex(&format!("lock{n}")), client.node.runtime());
                let (turns, losses, world) = (turns.clone(), losses.clone(), scene.world.clone());
                join(&*client.node.runtime(), "works", async move {
                    loop {
                        // By policy: whatever has happened, it comes again.
                        let Ok(guard) = mutex.lock().await else {
                            runtime.sleep_until(runtime.now() + Duration::from_millis(200)).await;
                            continue;
                        };
                        while holds(&guard) {
                            turns.lock().unwrap()[n] = world.true_now();
                            runtime.sleep_until(runtime.now() + Duration::from_millis(100)).await;
                        }
                        *losses.lock().unwrap() += 1;
                    }
                })
            })
            .collect();
        scene.pass(TTL * 2).await;
        assert_eq!(*losses.lock().unwrap(), 0);
        scene.outage(TTL * 2).await;
        let back = scene.now();
        scene.pass(TTL * 2 + SLACK).await;
        let idle: Vec<_> = turns.lock().unwrap().iter().map(|last| last.since(back)).collect();
        let recent = TTL * 2 + SLACK - Duration::from_secs(1);
        assert!(idle.iter().all(|last| *last >= recent), "{idle:?}");
        assert_eq!(*losses.lock().unwrap(), 20, "each loss is told once");
        drop(work);
    });
}

/// A26, B24: renewal survives every election that is shorter than what is left of the lease.
#[test]
fn a26_b24_the_leader_is_killed_twice_a_minute_for_ten_minutes_and_the_lock_is_kept() {
    play(4, async |scene| {
        let a = scene.client("a").await;
        let twelve = Ttl::seconds(12).unwrap();
        let session = Session::builder(a.remote.clone()).ttl(twelve).open().await.unwrap();
        let held = leasehold::Mutex::new(&session, "lock".parse().unwrap()).lock().await.unwrap();
        for turn in 0..20 {
            scene.seconds(27).await;
            let killed = scene.cluster.leader().unwrap();
            scene.cluster.kill(killed);
            scene.seconds(3).await;
            scene.cluster.start(killed);
            assert!(holds(&held), "after {turn} leaders");
        }
        held.verify().await.unwrap();
    });
}

#[test]
fn d03_an_outage_of_about_the_ttl_never_makes_two() {
    for percent in [90, 100, 110] {
        play(60, async |scene| {
            let (a, b) = (scene.client("a").await, scene.client("b").await);
            let held = a.lock("lock").await;
            let waiting = b.waits("lock");
            let offset = scene.seeded.seed() * 37;
            scene.pass(Duration::from_millis(500 + offset)).await;
            scene.outage(TTL * percent / 100).await;
            // At the instant at which the next one starts the first must have stopped.
            if let Some(Ok(next)) =
                leasehold::runtime::before(&scene.world, scene.now() + TTL * 2, waiting).await
            {
                assert!(holds(&next));
                assert!(!holds(&held), "{percent} %");
                assert!(next.token() > held.token());
            }
        });
    }
}

#[test]
fn d41_what_a_member_without_peers_still_shows_proves_nothing() {
    play(9, async |scene| {
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let held = a.lock("lock").await;
        scene.seconds(1).await;
        let member = (scene.seeded.seed() % 3) as usize;
        // The holder reaches this one alone, and it reaches nobody.
        (0..3)
            .filter(|at| *at != member)
            .for_each(|at| scene.cluster.cut(Some(a.number), Some(at), true, true));
        scene.cluster.isolate(member);
        let waiting = b.waits("lock");
        let (next, _) = scene.within(TTL * 2 + SLACK, waiting).await;
        let next = next.unwrap();
        assert!(!holds(&held) && holds(&next));
        let stale = RangeRequest { serializable: true, ..RangeRequest::prefix("lock/") };
        let shown = scene.within(Duration::from_secs(10), a.remote.range(stale)).await.0;
        if let Ok(shown) = shown {
            assert!(shown.kvs.iter().any(|kv| kv.key == *held.key()), "it still shows the first as holder");
        }
        assert!(scene.within(Duration::from_secs(10), held.verify()).await.0.is_err());
    });
}

/// The last word that this client hears is that of a leader of yesterday, which gives it when it is woken: it renews a
/// lease that the cluster ends by another clock.
#[test]
fn a29_what_a_woken_leader_of_yesterday_renews_does_not_count() {
    let won = std::cell::Cell::new(0);
    for step in 0..40 {
        play(4, async |scene| {
            let leader = scene.cluster.leader().unwrap();
            let (a, b) = (scene.client_of("a", leader).await, scene.client("b").await);
            let held = a.lock("lock").await;
            let waiting = b.waits("lock");
            scene.pass(Duration::from_millis(3500 + 41 * step)).await;
            scene.cluster.freeze(leader);
            scene.pass(Duration::from_millis(2800 + 97 * step % 1100)).await;
            scene.cluster.thaw(leader);
            scene.pass(Duration::from_millis(300)).await;
            a.cut_off(scene);
            // The wait may have ended with its own lease while there was no leader.
            if let (Ok(next), _) = scene.within(TTL * 3, waiting).await {
                assert!(holds(&next));
                assert!(!holds(&held), "renewed by a leader of yesterday");
                won.set(won.get() + 1);
            }
        });
    }
    assert!(won.get() > 100, "{}", won.get());
}
