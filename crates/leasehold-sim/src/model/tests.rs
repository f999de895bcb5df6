//! The protocol holds, and each way to break it is found.

use super::*;

/// In which most is found soonest: nobody comes a second time.
const ONCE: Bounds = Bounds { attempts: 1, ..Bounds::FULL };

const TWICE: Bounds = Bounds { duplicates: 1, ends: 0, ..Bounds::FULL };

#[track_caller]
fn refuted(bounds: Bounds, broken: Broken, property: &'static str) {
    let report = explore_broken(bounds, broken, &[property]);
    assert!(report.refutes(property), "{broken:?} was not found: {report}");
}

#[test]
fn the_protocol_as_it_is_holds_in_every_state() {
    for bounds in [Bounds::SMALL, Bounds::COPIES, Bounds { timeouts: 0, ..TWICE }] {
        let report = explore(bounds);
        assert!(report.is_sound(), "{report}");
        assert!(report.unique_states > 100_000, "too little was explored: {report}");
    }
}

#[test]
fn a_grant_without_a_look_is_refuted() {
    refuted(ONCE, Broken::GrantsWithoutLook, NEVER_TWO);
}

#[test]
fn a_release_without_a_compare_is_refuted() {
    refuted(TWICE, Broken::RemovesByName, ONLY_MINE);
    refuted(TWICE, Broken::RemovesByName, NEVER_TWO);
}

#[test]
fn a_token_from_the_create_revision_is_refuted() {
    refuted(ONCE, Broken::TokenFromCreateRevision, TOKENS_RISE);
    refuted(ONCE, Broken::TokenFromCreateRevision, NO_STALE_WRITE);
}

#[test]
fn a_lease_that_ends_before_its_belief_is_refuted() {
    refuted(Bounds { timeouts: 0, ..ONCE }, Broken::ExpiresAtWill, NEVER_TWO);
}

#[test]
fn yet_the_fenced_register_stays_right_when_leases_end_at_will() {
    let bounds = Bounds { clients: 2, attempts_in_all: 2, ..ONCE };
    let report = explore_broken(bounds, Broken::ExpiresAtWill, &[TOKENS_RISE, NO_STALE_WRITE, ONLY_MINE]);
    assert!(report.refutes(NEVER_TWO), "{report}");
    for property in [TOKENS_RISE, NO_STALE_WRITE, ONLY_MINE] {
        assert!(!report.refutes(property), "{report}");
    }
}

#[test]
fn a_lease_used_again_while_a_late_copy_may_come_is_refuted() {
    let bounds = Bounds { clients: 2, duplicates: 0, ..TWICE };
    refuted(bounds, Broken::ReusesDoubtedLease, ONLY_MINE);
    refuted(bounds, Broken::ReusesDoubtedLease, NEVER_TWO);
}

#[test]
fn a_network_that_repeats_answered_entries_breaks_only_mine() {
    refuted(Bounds { clients: 2, ..TWICE }, Broken::CopiesAnsweredEntries, ONLY_MINE);
}

#[test]
fn a_register_that_ignores_tokens_is_refuted() {
    refuted(ONCE, Broken::Unfenced, NO_STALE_WRITE);
}
