//! (b): no two clients believe to hold a lock at one instant.

use std::time::Duration;

use super::{Promise, Violation, named};
use crate::history::Hold;

/// `holds` of one lock.
pub(super) fn check(holds: &[&Hold], tolerance: Duration) -> Vec<Violation> {
    let mut by_time: Vec<&&Hold> = holds.iter().filter(|hold| hold.from < hold.until).collect();
    by_time.sort_by_key(|hold| hold.from);
    let mut violations = Vec::new();
    // Whose belief reaches furthest, of all that began before.
    let mut furthest: Option<&Hold> = None;
    for hold in by_time {
        if let Some(other) = furthest
            && let both = other.until.min(hold.until).since(hold.from)
            && both > tolerance
        {
            violations.push(Violation {
                promise: Promise::BeliefOverlap,
                at: hold.from,
                what: format!("{} and {} both believed to hold for {both:?}", named(other), named(hold)),
            });
        }
        if furthest.is_none_or(|other| hold.until > other.until) {
            furthest = Some(hold);
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::made::{at, broken, good};
    use super::*;

    #[test]
    fn beliefs_that_touch_do_not_overlap_and_those_that_overlap_by_a_nanosecond_do() {
        let mut history = good();
        assert_eq!(broken(&history), []);
        history.holds[0].until = at(10) + std::time::Duration::from_nanos(1);
        assert_eq!(broken(&history), [Promise::BeliefOverlap]);
    }

    #[test]
    fn a_belief_that_never_ends_overlaps_all_that_come() {
        let mut history = good();
        history.holds[0].until = leasehold::runtime::Instant::NEVER;
        assert_eq!(broken(&history), [Promise::BeliefOverlap]);
    }

    #[test]
    fn a_hold_that_was_over_before_it_began_harms_nobody() {
        let mut history = good();
        history.holds[1].from = at(5);
        history.holds[1].until = at(5);
        assert_eq!(broken(&history), []);
    }

    #[test]
    fn what_began_before_a_restore_is_not_compared_with_what_began_after_it() {
        let mut history = good();
        history.holds[1].from = at(8);
        history.entries[1].epoch = 1;
        assert!(broken(&history).contains(&Promise::BeliefOverlap));
        history.restores.push(at(7));
        assert_eq!(broken(&history), []);
    }
}
