//! Holders: what they are told, and that nobody else holds meanwhile.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use leasehold::mvcc::{PutRequest, Txn};
use leasehold::runtime::before;
use leasehold::{Guard, LossCause, Session, Ttl};
use leasehold_sim::cluster::LinkFaults;
use leasehold_sim::fault::{Kind, Weights};
use leasehold_sim::run::{GAP, Plan, run};

use crate::scene::{Client, Resource, SLACK, Scene, TTL, holds, play};

#[test]
fn a05_d06_a_holder_cut_off_from_etcd_alone_has_stopped_before_the_next_one_starts() {
    play(10, async |scene| {
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let mut resource = Resource::default();
        let held = a.lock("lock").await;
        assert!(resource.write(held.token()));
        let waiting = b.waits("lock");
        scene.seconds(1).await;
        a.cut_off(scene);
        let (next, _) = scene.within(TTL * 2 + SLACK, waiting).await;
        let next = next.unwrap();
        // It was told without a call of its own, and by its clock.
        assert_eq!(held.lost().cause(), Some(LossCause::Deadline));
        assert!(resource.write(next.token()));
        assert!(!resource.write(held.token()));
    });
}

#[test]
fn a06_loss_is_told_by_the_clock_alone_within_the_ttl_of_the_last_renewal() {
    play(10, async |scene| {
        let a = scene.client("a").await;
        let held = a.lock("lock").await;
        scene.seconds(7).await;
        a.cut_off(scene);
        let promised = held.valid_until();
        let (cause, took) = scene.within(TTL, held.lost().wait()).await;
        assert_eq!(cause, LossCause::Deadline);
        assert!(scene.now() <= promised.max(held.valid_until()) + Duration::from_millis(1), "{took:?}");
    });
}

#[test]
fn a53_the_bound_on_the_acquisition_ends_with_it() {
    play(3, async |scene| {
        let a = scene.client("a").await;
        let held = a.mutex("lock").lock_timeout(Duration::from_secs(2)).await.unwrap().unwrap();
        scene.seconds(60).await;
        assert!(holds(&held));
        held.verify().await.unwrap();
    });
}

#[test]
fn a55_after_a_step_that_outlived_the_lease_the_guard_says_why_and_the_write_is_refused() {
    play(10, async |scene| {
        let a = scene.client("a").await;
        let held = a.lock("lock").await;
        // The program is blocked, and cut off meanwhile.
        a.node.block();
        a.cut_off(scene);
        scene.pass(TTL * 2).await;
        a.reconnect(scene);
        a.node.unblock();
        assert_eq!(held.ensure_held(Duration::ZERO), Err(LossCause::Deadline));
        let refused = held.txn(Txn::new().then(PutRequest::new("half", "done"))).await;
        assert_eq!(refused.unwrap_err().loss(), Some(LossCause::Deadline));
    });
}

#[test]
fn b21_a_program_that_never_yields_keeps_its_lock() {
    play(5, async |scene| {
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let held = a.lock("lock").await;
        a.node.block();
        let waiting = b.waits("lock");
        scene.pass(TTL * 3).await;
        assert!(holds(&held));
        a.node.unblock();
        held.release().await.unwrap();
        assert!(holds(&scene.within(Duration::from_secs(2), waiting).await.0.unwrap()));
    });
}

#[test]
fn a58_a_holder_that_panics_lets_go() {
    play(5, async |scene| {
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let held = a.lock("lock").await;
        let waiting = b.waits("lock");
        scene.seconds(1).await;
        let work = async move {
            let _held = held;
            panic!("the work failed");
        };
        assert!(AssertUnwindSafe(work).catch_unwind().await.is_err());
        assert!(holds(&scene.within(Duration::from_secs(1), waiting).await.0.unwrap()));
    });
}

/// C23, D24: renewal lasts as long as the hold, by default.
#[test]
fn c23_d08_d24_renewals_come_in_time_for_an_hour_of_slow_answers() {
    play(2, async |scene| {
        let a = scene.client("a").await;
        let held = a.lock("lock").await;
        let delay = Duration::from_millis(200);
        scene.cluster.change_links(None, None, |faults| faults.and(LinkFaults { delay, ..LinkFaults::NONE }));
        let end = scene.now() + Duration::from_secs(3600);
        while scene.now() < end {
            scene.pass(Duration::from_millis(100)).await;
            // Renewed at a third of it, an answer takes a moment, and a tenth of it is margin.
            assert!(held.valid_until().since(a.node.now()) > TTL * 2 / 5, "at {:?}", scene.now());
        }
    });
}

/// What a holder is told tells what has happened: an outage, refused credentials and a sleep by what the renewals met, a
/// revoked lease, a deleted key and a replaced cluster by the cause.
#[test]
fn c19_d35_each_way_to_lose_a_lock_is_told_apart() {
    type Deed = fn(&Scene, &Client, &Guard);
    let deeds: [(LossCause, &str, Deed); 6] = [
        (LossCause::Deadline, "no answer within", |scene, a, _| a.cut_off(scene)),
        (LossCause::Deadline, "token", |scene, _, _| {
            scene.cluster.turn_users_on();
            scene.cluster.refuse_credentials();
        }),
        (LossCause::Deadline, "did not run", |_, a, _| a.node.suspend()),
        (LossCause::LeaseGone, "", |scene, a, _| a.revoke(scene)),
        (LossCause::KeyDeleted, "", |scene, _, held| scene.cluster.delete(held.key().clone())),
        (LossCause::ClusterChanged, "", |scene, _, _| scene.cluster.restore(usize::MAX, true)),
    ];
    for (cause, account, deed) in deeds {
        play(3, async |scene| {
            let a = scene.client("a").await;
            let held = a.lock("lock").await;
            scene.pass(TTL * 2).await;
            assert_eq!((held.lost().cause(), held.lost().account()), (None, None));
            deed(scene, &a, &held);
            scene.pass(TTL * 2).await;
            a.node.wake();
            let _ = held.ensure_held(Duration::ZERO);
            let lost = held.lost();
            assert_eq!(lost.cause(), Some(cause), "{lost:?}");
            assert!(lost.account().unwrap_or_default().contains(account), "{lost:?}");
            assert_eq!(lost.account().is_some(), cause == LossCause::Deadline, "{lost:?}");
        });
    }
}

/// The shortest time to live there is, over a network that is none of the best.
#[test]
fn d34_the_shortest_ttl_is_kept_for_an_hour_of_busy_threads_and_slow_answers() {
    play(3, async |scene| {
        let a = scene.client("a").await;
        let shortest = Ttl::seconds(2).unwrap();
        let session = Session::builder(a.remote.clone()).ttl(shortest).open().await.unwrap();
        let held = leasehold::Mutex::new(&session, "lock".parse().unwrap()).lock().await.unwrap();
        let delay = Duration::from_millis(50);
        scene.cluster.change_links(None, None, |faults| faults.and(LinkFaults { delay, ..LinkFaults::NONE }));
        for _ in 0..720 {
            // The program's own threads are blocked half of the time.
            a.node.block();
            scene.pass(Duration::from_millis(2500)).await;
            a.node.unblock();
            scene.pass(Duration::from_millis(2500)).await;
            assert!(holds(&held), "at {:?}", scene.now());
        }
    });
}

/// Two contenders, each stopped for two TTLs at every step of its way: no decision rests on a clock that was read before.
#[test]
fn d23_contenders_that_are_stopped_between_their_steps_never_both_hold() {
    for step in 0..60 {
        play(1, async |scene| {
            let (a, b) = (scene.client("a").await, scene.client("b").await);
            let delay = Duration::from_millis(40);
            scene
                .cluster
                .change_links(None, None, |faults| faults.and(LinkFaults { delay, ..LinkFaults::NONE }));
            let (first, second) = (a.waits("lock"), b.waits("lock"));
            scene.pass(Duration::from_millis(7 * step)).await;
            a.node.pause();
            scene.pass(Duration::from_millis(31)).await;
            b.node.pause();
            scene.pass(TTL * 2).await;
            a.node.resume();
            b.node.resume();
            let within = scene.now() + TTL * 3;
            let first = before(&scene.world, within, first).await;
            let second = before(&scene.world, within, second).await;
            let held: Vec<_> = [first, second].into_iter().flatten().flatten().collect();
            assert!(held.iter().filter(|guard| holds(guard)).count() <= 1, "step {step}");
        });
    }
}

#[test]
fn d02_who_slept_between_its_check_and_its_write_is_refused_by_the_resource() {
    play(10, async |scene| {
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let mut resource = Resource::default();
        let held = a.lock("lock").await;
        assert!(holds(&held));
        let token = held.token();
        a.node.pause();
        let (next, _) = scene.within(TTL * 3, b.mutex("lock").lock()).await;
        let next = next.unwrap();
        assert!(next.token() > token && resource.write(next.token()));
        a.node.resume();
        assert!(!resource.write(token), "its check was good, and its write came too late");
        // And after a crash, tokens go on rising.
        b.node.kill();
        drop(next);
        let c = scene.client("c").await;
        let (third, _) = scene.within(TTL * 3, c.mutex("lock").lock()).await;
        assert!(resource.write(third.unwrap().token()));
    });
}

#[test]
fn d01_under_pauses_kills_and_partitions_no_fenced_update_is_lost() {
    let weights =
        Weights::only([Kind::PauseClient, Kind::FreezeMember, Kind::FreezeLeader, Kind::KillMember])
            .with(Kind::KillClient, 1)
            .with(Kind::IsolateClient, 1)
            .with(Kind::IsolateMember, 1)
            .with(Kind::SkewClient, 1);
    for seed in 0..4 {
        let length = Duration::from_secs(60);
        let faults = weights.draw(seed, length, GAP);
        // The shortest TTL there is showed it fastest there.
        let plan = Plan { ttl: 2, length, faults, ..Plan::contended(seed, &weights, GAP) };
        assert_eq!(run(&plan).violations, [], "seed {seed}");
    }
}
