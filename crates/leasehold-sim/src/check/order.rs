//! (d): the lock goes to whoever entered first of those who still stand in the queue.

use super::{Promise, Violation, named};
use crate::history::{Entry, Hold};

/// `holds` and `entries` of one lock.
pub(super) fn check(holds: &[&Hold], entries: &[&Entry]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for hold in holds {
        let ahead = entries.iter().find(|entry| {
            entry.created < hold.created && entry.removed.is_none_or(|removed| removed > hold.proven)
        });
        if let Some(ahead) = ahead {
            let what = format!("{} was granted while {} stood ahead of it", named(hold), ahead.key);
            violations.push(Violation { promise: Promise::Order, at: hold.from, what });
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::made::{broken, entry, good};
    use super::*;

    #[test]
    fn whoever_overtakes_somebody_who_still_waits_is_found() {
        let mut history = good();
        history.entries.push(entry("lock/waiter", 1, 9));
        assert_eq!(broken(&history), [Promise::Order, Promise::Order]);
        history.entries[2] = entry("lock/gave up", 1, 2);
        assert_eq!(broken(&history), []);
    }
}
