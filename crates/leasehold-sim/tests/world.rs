//! The whole world: what is promised holds under all faults, a seed replays, and where a promise has a condition it
//! breaks without it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

use std::time::Duration;

use leasehold_sim::check::{Promise, Violation};
use leasehold_sim::fault::{Kind, Weights};
use leasehold_sim::run::{GAP, Outcome, Plan, run};

/// Shorter than what is explored by the command, for a build without optimization.
fn plan(seed: u64, weights: &Weights) -> Plan {
    let length = Duration::from_secs(40);
    Plan { length, faults: weights.draw(seed, length, GAP), ..Plan::contended(seed, weights, GAP) }
}

fn broken(seeds: std::ops::Range<u64>, weights: &Weights) -> Vec<Violation> {
    seeds.flat_map(|seed| run(&plan(seed, weights)).violations).collect()
}

#[test]
fn a_seed_replays_the_whole_world() {
    for seed in [1, 2, 3] {
        let of = |outcome: Outcome| (outcome.trace_hash, outcome.grants, outcome.simulated);
        let plan = plan(seed, &Weights::default());
        assert_eq!(of(run(&plan)), of(run(&plan)));
    }
    let (one, other) = (plan(1, &Weights::default()), plan(2, &Weights::default()));
    assert_ne!(run(&one).trace_hash, run(&other).trace_hash);
}

#[test]
fn without_faults_nothing_is_lost_and_nothing_is_broken() {
    let (mut grants, mut operations) = (0, 0);
    for seed in 0..5 {
        let outcome = run(&plan(seed, &Weights::none()));
        assert_eq!(outcome.violations, []);
        assert!(outcome.losses.is_empty(), "{:?}", outcome.losses);
        grants += outcome.grants;
        operations += outcome.operations.0;
    }
    // In all of them together: a stubborn holder keeps the others of its seed waiting for long.
    assert!(grants > 500 && operations > 100, "{grants} grants, {operations} operations");
}

#[test]
fn under_all_faults_the_promises_hold() {
    for seed in 0..20 {
        let outcome = run(&plan(seed, &Weights::default()));
        assert_eq!(outcome.violations, [], "seed {seed}");
        assert_eq!(outcome.operations.1, 0, "seed {seed}: not decided");
    }
}

#[test]
fn under_each_fault_alone_the_promises_hold() {
    for kind in Kind::ALL.iter().filter(|kind| kind.weight() > 0) {
        assert_eq!(broken(100..102, &Weights::only([*kind])), [], "{kind}");
    }
}

#[test]
fn tokens_may_be_forgotten_at_any_time() {
    let weights = Weights::default().with(Kind::ForgetTokens, 20);
    let outcomes: Vec<_> = (200..210).map(|seed| run(&plan(seed, &weights))).collect();
    assert_eq!(outcomes.iter().flat_map(|outcome| outcome.violations.clone()).collect::<Vec<_>>(), []);
    let forgotten: u64 = outcomes.iter().filter_map(|outcome| outcome.seen.get("token forgotten")).sum();
    assert!(forgotten > 20, "{forgotten} requests were refused for it");

    // Alone, it costs nobody anything.
    let outcome = run(&plan(1, &Weights::only([Kind::ForgetTokens])));
    assert_eq!((outcome.violations, outcome.losses.len()), (Vec::new(), 0), "{:?}", outcome.seen);
}

/// Two may believe to hold for a moment; the store gives the lock to one at a time, tokens rise, and so the resource
/// that checks them stays right.
fn breaks_belief_alone(seeds: std::ops::Range<u64>, weights: &Weights) {
    let violations = broken(seeds, weights);
    assert!(!violations.is_empty(), "no seed shows that the promise needs its condition");
    for violation in violations {
        assert_eq!(violation.promise, Promise::BeliefOverlap, "{violation}");
    }
}

fn gives_the_lock_away(weights: &Weights) {
    assert_eq!(broken(0..8, weights), []);
    let at_once = |seed| Plan { tolerance: Duration::ZERO, ..plan(seed, weights) };
    let violations: Vec<_> = (0..8).flat_map(|seed| run(&at_once(seed)).violations).collect();
    assert!(!violations.is_empty());
    assert!(violations.iter().all(|violation| violation.promise == Promise::BeliefOverlap));
}

#[test]
fn with_clocks_beyond_the_margin_two_may_believe_to_hold_and_tokens_still_rise() {
    let weights = Weights::only([Kind::WildClock]).with(Kind::PauseClient, 1).with(Kind::IsolateClient, 3);
    breaks_belief_alone(0..30, &weights);
}

#[test]
fn a_lease_revoked_by_hand_gives_the_lock_away_at_once_and_the_loss_is_told_soon() {
    gives_the_lock_away(&Weights::only([Kind::RevokeLease]));
}

#[test]
fn a_key_deleted_by_hand_gives_the_lock_away_at_once_and_the_loss_is_told_soon() {
    gives_the_lock_away(&Weights::only([Kind::DeleteKey]));
}

#[test]
fn after_a_restore_from_backup_all_is_told_lost_and_everybody_goes_on() {
    let weights = Weights::only([Kind::Restore]).with(Kind::MoveLeader, 1);
    let outcomes: Vec<_> = (0..6).map(|seed| run(&plan(seed, &weights))).collect();
    assert_eq!(outcomes.iter().flat_map(|outcome| outcome.violations.clone()).collect::<Vec<_>>(), []);
    let lost = |cause: &str| outcomes.iter().filter_map(|outcome| outcome.losses.get(cause)).sum::<u64>();
    assert!(lost("Restored") > 0 && lost("ClusterChanged") > 0);
}
