//! The protocol holds, and each way to break it is found.

use super::*;

const TWICE: Bounds = Bounds { attempts: 2, attempts_in_all: 3, duplicates: 1, ends: 0, ..Bounds::SMALL };

#[track_caller]
fn refuted(bounds: Bounds, broken: Broken, property: &'static str) {
    let report = explore_broken(bounds, broken, &[property]);
    assert!(report.refutes(property), "{broken:?} was not found: {report}");
}

#[test]
fn the_protocol_as_it_is_holds_in_every_state() {
    let report = explore(Bounds::SMALL);
    assert!(report.is_sound(), "{report}");
    assert!(report.unique_states > 1_000, "too little was explored: {report}");
}

#[test]
fn a_grant_without_a_look_is_refuted() {
    refuted(Bounds::SMALL, Broken::GrantsWithoutLook, NEVER_TWO);
}

#[test]
fn a_release_without_a_compare_is_refuted() {
    refuted(TWICE, Broken::RemovesByName, ONLY_MINE);
    refuted(TWICE, Broken::RemovesByName, NEVER_TWO);
}

#[test]
fn a_token_from_the_create_revision_is_refuted() {
    refuted(Bounds::SMALL, Broken::TokenFromCreateRevision, TOKENS_RISE);
    refuted(Bounds::SMALL, Broken::TokenFromCreateRevision, NO_STALE_WRITE);
}

#[test]
fn a_lease_that_ends_before_its_belief_is_refuted() {
    refuted(Bounds { timeouts: 0, ..Bounds::SMALL }, Broken::ExpiresAtWill, NEVER_TWO);
}

#[test]
fn yet_the_fenced_register_stays_right_when_leases_end_at_will() {
    let bounds = Bounds { clients: 2, attempts_in_all: 2, ..Bounds::SMALL };
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
    refuted(Bounds::SMALL, Broken::Unfenced, NO_STALE_WRITE);
}
