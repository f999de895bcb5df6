//! Releases that fail, come twice, or come late.

use std::time::Duration;

use leasehold_sim::cluster::LinkFaults;
use leasehold_testbed::cut;

use crate::scene::{SLACK, TTL, holds, open, play};

#[test]
fn a07_a_release_whose_answer_was_lost_never_removes_the_next_hold_of_the_session() {
    play(20, async |scene| {
        let a = scene.client("a").await;
        let held = a.lock("lock").await;
        let token = held.token();
        let lost = LinkFaults { lose_reply: 1000, ..LinkFaults::NONE };
        scene.cluster.change_links(None, None, |faults| faults.and(lost));
        assert!(held.release().await.is_err());
        scene.cluster.change_links(None, None, |faults| faults.without(lost));
        let (again, _) = scene.within(Duration::from_secs(5), a.mutex("lock").lock()).await;
        let again = again.unwrap();
        assert!(again.token() > token);
        // The first release goes on in the background all the while.
        scene.pass(TTL * 2).await;
        again.verify().await.unwrap();
    });
}

#[test]
fn a20_a_release_that_failed_does_not_keep_the_lock_while_the_session_is_busy() {
    play(10, async |scene| {
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let held = a.lock("lock").await;
        a.cut_off(scene);
        // Less than the lease lives: it must not end by itself.
        let (released, _) = scene.within(Duration::from_secs(6), held.release()).await;
        a.reconnect(scene);
        let waiting = b.waits("lock");
        let others = async {
            loop {
                if let Ok(guard) = a.mutex("another").lock().await {
                    let _ = guard.release().await;
                }
                scene.pass(Duration::from_millis(50)).await;
            }
        };
        let next = async {
            let next = scene.within(TTL, waiting).await.0.unwrap();
            assert!(holds(&next), "after {released:?}");
        };
        leasehold::runtime::race::<(), ()>(next, others).await;
    });
}

#[test]
fn a56_a_release_at_a_member_without_peers_frees_the_lock_and_harms_no_other() {
    play(9, async |scene| {
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let (held, other) = (a.lock("lock").await, a.lock("other").await);
        let waiting = b.waits("lock");
        scene.seconds(1).await;
        let member = (scene.seeded.seed() % 3) as usize;
        scene.cluster.isolate(member);
        let _ = held.release().await;
        scene.pass(TTL / 2).await;
        scene.cluster.rejoin(member);
        let (next, _) = scene.within(TTL + SLACK, waiting).await;
        assert!(holds(&next.unwrap()));
        scene.pass(TTL).await;
        assert!(holds(&other) || other.lost().cause().is_some());
    });
}

#[test]
fn d33_a_release_and_a_close_with_a_renewal_on_the_wire_leave_nothing_that_renews() {
    play(10, async |scene| {
        let a = scene.client("a").await;
        let held = a.lock("lock").await;
        let lease = held.lease();
        let delay = Duration::from_millis(1000);
        scene.cluster.change_links(None, None, |faults| faults.and(LinkFaults { delay, ..LinkFaults::NONE }));
        // Renewals come every third of a TTL; one is under way for some of the seeds.
        scene.pass(TTL / 3 + Duration::from_millis(100 * scene.seeded.seed())).await;
        assert!(a.node.tasks().contains(&"keep a lease"), "{:?}", a.node.tasks());
        held.release().await.unwrap();
        let _ = a.session.close().await;
        scene.pass(TTL).await;
        assert!(!a.node.tasks().contains(&"keep a lease"), "{:?}", a.node.tasks());
        assert!(!scene.cluster.leases().contains(&lease));
    });
}

#[test]
fn d10_an_acquisition_aborted_at_any_point_leaves_nothing() {
    for lose_reply in [0, 300] {
        play(3, async |scene| {
            let a = scene.client("a").await;
            let faults = LinkFaults { lose_reply, delay: Duration::from_millis(20), ..LinkFaults::NONE };
            scene.cluster.change_links(None, None, |before| before.and(faults));
            for polls in 1..200 {
                let mutex = a.mutex("lock");
                let ended = cut(mutex.lock(), polls).await;
                let ended = ended.inspect(|told| assert!(told.is_ok() || lose_reply > 0)).is_some();
                let b = scene.client_free(&format!("b{polls}")).await;
                let (next, _) = scene.within(TTL, b.mutex("lock").lock_timeout(TTL)).await;
                next.unwrap().expect("the lock is free").release().await.unwrap();
                if ended {
                    break;
                }
            }
            assert_eq!(scene.queued("lock"), 0);
        });
    }
}

#[test]
fn b09_after_etcd_was_replaced_the_loss_names_it_and_a_new_session_works() {
    play(6, async |scene| {
        let a = scene.client("a").await;
        let held = a.lock("lock").await;
        scene.seconds(1).await;
        scene.cluster.restore(usize::MAX, true);
        let (cause, _) = scene.within(TTL, held.lost().wait()).await;
        assert_eq!(cause, leasehold::LossCause::ClusterChanged);
        let session = open(&a.remote).await.unwrap();
        let again = leasehold::Mutex::new(&session, "lock".parse().unwrap()).lock().await.unwrap();
        assert!(holds(&again));
    });
}
