//! Clocks: of servers, of clients, asleep and awake.

use std::time::Duration;

use leasehold::LossCause;
use leasehold::runtime::{Instant, Runtime};
use leasehold_sim::ClockError;

use crate::scene::{Resource, SLACK, TTL, holds, open, play};

#[test]
fn a35_the_time_of_day_has_no_say() {
    play(5, async |scene| {
        let year = Duration::from_secs(365 * 24 * 3600);
        let ahead = scene.client_by("ahead", ClockError { offset: year, ..ClockError::NONE }).await;
        let behind = scene.client_by("behind", ClockError::NONE).await;
        let held = ahead.lock("lock").await;
        let first = ahead.waits("lock");
        scene.seconds(1).await;
        let second = behind.waits("lock");
        scene.pass(TTL * 3).await;
        assert!(holds(&held), "a lease lives by steady time");
        held.release().await.unwrap();
        let (first, _) = scene.within(Duration::from_secs(2), first).await;
        first.unwrap().release().await.unwrap();
        assert!(holds(&scene.within(Duration::from_secs(2), second).await.0.unwrap()));
    });
}

#[test]
fn d36_after_a_long_sleep_the_lock_is_lost_and_can_be_taken_again() {
    play(5, async |scene| {
        let a = scene.client("a").await;
        let held = a.lock("lock").await;
        a.node.suspend();
        scene.seconds(300).await;
        a.node.wake();
        assert!(held.ensure_held(Duration::ZERO).is_err());
        let (again, _) = scene.within(Duration::from_secs(10), a.mutex("lock").lock()).await;
        assert!(again.unwrap().token() > held.token());
    });
}

/// Sleeps for three TTLs while another takes over. Gives whether the sleeper then still thinks that it holds.
fn overslept(clock: ClockError) -> bool {
    let fooled = std::cell::Cell::new(false);
    play(5, async |scene| {
        let (a, b) = (scene.client_by("a", clock).await, scene.client("b").await);
        let mut resource = Resource::default();
        let held = a.lock("lock").await;
        a.node.suspend();
        let (next, _) = scene.within(TTL * 3, b.mutex("lock").lock()).await;
        assert!(resource.write(next.unwrap().token()));
        scene.pass(TTL).await;
        a.node.wake();
        fooled.set(fooled.get() || holds(&held));
        assert!(!resource.write(held.token()));
    });
    fooled.get()
}

#[test]
fn d38_d39_a_holder_that_slept_does_not_write_once() {
    assert!(!overslept(ClockError::NONE));
    let stopped = ClockError { stops_in_suspension: true, ..ClockError::NONE };
    assert!(
        overslept(stopped),
        "on a clock that does not count sleep it would: that is what the clock is for"
    );
}

#[test]
fn d12_what_a_late_grant_leaves_is_counted_from_the_asking() {
    play(10, async |scene| {
        let node = scene.seeded.node("a", ClockError::NONE);
        let (remote, wire) = scene.cluster.client(&node);
        // The first call connects; the next one's answer is on its way for four fifths of the TTL.
        drop(open(&remote).await.unwrap());
        let late = TTL * 4 / 5;
        let (cluster, number) = (scene.cluster.clone(), wire.client());
        let world = scene.world.clone();
        cluster.cut(Some(number), None, false, true);
        let mend = async move {
            world.sleep_until(world.now() + late).await;
            cluster.mend(Some(number), None, false, true);
        };
        scene.world.spawn("mend", Box::pin(mend)).detach();
        let asked = node.now();
        let (opened, _) = scene.within(TTL * 3, open(&remote)).await;
        if let Ok(session) = opened {
            // Whichever of its tries was answered, none counts from later than its asking.
            let valid_until = session.valid_until().unwrap_or(Instant::ZERO);
            assert!(valid_until <= node.now() + TTL, "asked at {asked:?}");
            scene.pass(Duration::from_millis(10)).await;
        }
    });
}

#[test]
fn d40_a_renewal_counts_from_its_sending_however_late_its_answer() {
    play(10, async |scene| {
        let a = scene.client("a").await;
        let held = a.lock("lock").await;
        scene.seconds(1).await;
        // Renewals are sent from here on, and no answer comes for a while.
        let before = held.valid_until();
        scene.cluster.cut(Some(a.number), None, false, true);
        scene.pass(TTL - Duration::from_secs(2)).await;
        assert_eq!(held.valid_until(), before, "nothing was answered");
        scene.cluster.mend(Some(a.number), None, false, true);
        scene.pass(Duration::from_millis(900)).await;
        let margin = Duration::from_millis(500);
        assert!(held.valid_until() <= a.node.now() + TTL - margin);
    });
}

#[test]
fn a29_a_lease_ended_by_a_leader_of_yesterday_is_told_at_once() {
    play(60, async |scene| {
        scene.cluster.let_stale_revokes_pass(true);
        let (a, b) = (scene.client("a").await, scene.client("b").await);
        let held = a.lock("lock").await;
        scene.seconds(2).await;
        let waiting = b.waits("lock");
        let leader = scene.cluster.leader().unwrap();
        scene.cluster.freeze(leader);
        scene.pass(TTL * 2).await;
        scene.cluster.thaw(leader);
        for _ in 0..30 {
            scene.pass(Duration::from_millis(100)).await;
            let gone = scene.queued("lock") < 2 && held.lost().cause().is_none();
            if gone {
                scene.seconds(1).await;
                assert!(held.lost().cause().is_some(), "the key is gone and nobody said so");
            }
        }
        if held.lost().cause() == Some(LossCause::LeaseGone) {
            let next = scene.within(TTL + SLACK, waiting).await.0.unwrap();
            assert!(next.token() > held.token());
        }
    });
}
