//! (a): in the store's own revisions no two holds of a lock overlap.

use leasehold_mvcc::Revision;

use super::{Promise, Violation, named};
use crate::history::{Entry, Hold};

/// `holds` of one lock, in the order in which they were proven.
pub(super) fn check(holds: &[&Hold], entries: &[&Entry]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut last: Option<(&Hold, Option<Revision>)> = None;
    for hold in holds {
        let found = entries.iter().find(|entry| entry.key == hold.key && entry.created == hold.created);
        let violation = |what| Violation { promise: Promise::StoreOverlap, at: hold.from, what };
        let Some(entry) = found else {
            violations.push(violation(format!("{} holds by a key that never stood", named(hold))));
            continue;
        };
        if entry.created > hold.proven || entry.removed.is_some_and(|removed| removed <= hold.proven) {
            violations.push(violation(format!(
                "{} was proven while its key did not stand (removed at {:?})",
                named(hold),
                entry.removed
            )));
        }
        if let Some((before, removed)) = last
            && removed.is_none_or(|removed| removed > hold.proven)
        {
            violations.push(violation(format!(
                "{} was proven while {} still held (its key was removed at {removed:?})",
                named(hold),
                named(before)
            )));
        }
        last = Some((hold, entry.removed));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::made::{broken, entry, good, history, hold};
    use super::*;

    #[test]
    fn a_hold_proven_before_the_last_ones_key_was_removed_is_found() {
        let mut history = good();
        history.entries[0].removed = Some(Revision::new(5));
        assert!(broken(&history).contains(&Promise::StoreOverlap));
        history.entries[0].removed = None;
        assert!(broken(&history).contains(&Promise::StoreOverlap));
    }

    #[test]
    fn a_hold_by_a_key_that_was_gone_or_never_there_is_found() {
        let hold = [hold("lock/a", 2, 4, 0, 10)];
        assert_eq!(broken(&history(&hold, &[entry("lock/a", 2, 4)])), [Promise::StoreOverlap]);
        assert_eq!(broken(&history(&hold, &[entry("lock/a", 3, 9)])), [Promise::StoreOverlap]);
        assert_eq!(broken(&history(&hold, &[])), [Promise::StoreOverlap]);
        assert_eq!(broken(&history(&hold, &[entry("lock/a", 2, 5)])), []);
    }
}
