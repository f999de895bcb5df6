//! The checkers: pure functions from a [`History`] to what contradicts a promise.
//!
//! | | promise | by |
//! |---|---|---|
//! | (a) | no two holds of one lock overlap in the store's own revisions | [`Promise::StoreOverlap`] |
//! | (b) | no two clients believe to hold one lock at one instant | [`Promise::BeliefOverlap`] |
//! | (c) | tokens strictly rise, and a fenced resource accepts no stale write | [`Promise::Tokens`] |
//! | (d) | the lock goes to whoever entered first of those who still wait | [`Promise::Order`] |
//! | (e) | after faults stop every waiter is granted or told lost within the bound | [`Promise::Progress`] |
//! | (f) | nothing is left: keys, leases, watches, tasks | [`Promise::Leftover`] |
//! | (g) | the store's answers are linearizable | [`Promise::Linearizable`] |
//!
//! (e) and (f) look at a world and not at its story: whoever runs one reports them.

mod belief;
mod linear;
mod order;
mod overlap;
mod tokens;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use leasehold::runtime::Instant;

use crate::history::{History, Hold};

/// What is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Promise {
    /// (a)
    StoreOverlap,
    /// (b)
    BeliefOverlap,
    /// (c)
    Tokens,
    /// (d)
    Order,
    /// (e)
    Progress,
    /// (f)
    Leftover,
    /// (g)
    Linearizable,
}

/// What the checkers say of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checked {
    /// What contradicts a promise; none in a good run.
    pub violations: Vec<Violation>,
    /// Keys of whose operations it was not decided whether they are linearizable: too many ways to look at.
    pub undecided: usize,
}

/// Runs all checkers that look at a history. Beliefs may overlap by `tolerance`: none, unless somebody takes locks away
/// by hand, which gives them to the next at once while the news is still on its way to the holder.
pub fn check(history: &History, tolerance: Duration) -> Checked {
    let mut violations = Vec::new();
    let mut epochs: BTreeMap<(&str, usize), Vec<&Hold>> = BTreeMap::new();
    for hold in &history.holds {
        epochs.entry((&hold.lock, epoch(history, hold))).or_default().push(hold);
    }
    for ((lock, epoch), holds) in &mut epochs {
        // In the order in which the store proved them.
        holds.sort_by_key(|hold| (hold.proven, hold.from));
        let of_lock = |entry: &&crate::history::Entry| entry.lock == *lock && entry.epoch == *epoch;
        let entries: Vec<_> = history.entries.iter().filter(of_lock).collect();
        violations.extend(overlap::check(holds, &entries));
        violations.extend(belief::check(holds, tolerance));
        violations.extend(tokens::check_holds(holds));
        violations.extend(order::check(holds, &entries));
    }
    violations.extend(tokens::check_clients(history));
    violations.extend(tokens::check_writes(history));
    // A restore takes back what was answered: no order explains that.
    let operations = if history.restores.is_empty() { &history.operations[..] } else { &[] };
    let (broken, undecided) = linear::check(operations);
    violations.extend(broken);
    Checked { violations, undecided }
}

/// How many restores came before a hold. What began before one and what began after it are not compared: the store
/// forgot the former, and only the resource that checks tokens can tell them apart.
fn epoch(history: &History, hold: &Hold) -> usize {
    history.restores.iter().filter(|restore| **restore <= hold.from).count()
}

fn named(hold: &Hold) -> String {
    format!("{} ({}, token {}, proven at {})", hold.client, hold.key, hold.token, hold.proven)
}

/// What contradicts a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which promise.
    pub promise: Promise,
    /// When it showed.
    pub at: Instant,
    /// What happened, for a person.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:?}: {}", self.promise, self.at.since(Instant::ZERO), self.what)
    }
}

#[cfg(test)]
mod made {
    //! Histories made by hand.

    use std::time::Duration;

    use leasehold::runtime::Instant;
    use leasehold_mvcc::Revision;

    use super::{Promise, check};
    use crate::history::{End, Entry, History, Hold};

    pub(super) fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    /// A hold whose key was created and that was proven at these revisions, believed in for that time.
    pub(super) fn hold(key: &str, created: i64, proven: i64, from: u64, until: u64) -> Hold {
        Hold {
            lock: "lock".to_owned(),
            key: key.to_owned(),
            client: format!("client of {key}"),
            token: proven.unsigned_abs() << 16,
            created: Revision::new(created),
            proven: Revision::new(proven),
            from: at(from),
            until: at(until),
            end: End::Released,
        }
    }

    pub(super) fn entry(key: &str, created: i64, removed: i64) -> Entry {
        let removed = (removed > 0).then_some(Revision::new(removed));
        Entry {
            lock: "lock".to_owned(),
            key: key.to_owned(),
            created: Revision::new(created),
            removed,
            removed_at: None,
            epoch: 0,
        }
    }

    pub(super) fn history(holds: &[Hold], entries: &[Entry]) -> History {
        History { holds: holds.to_vec(), entries: entries.to_vec(), ..History::default() }
    }

    pub(super) fn broken(history: &History) -> Vec<Promise> {
        check(history, Duration::ZERO).violations.into_iter().map(|violation| violation.promise).collect()
    }

    /// Two holds, the second queued while the first was held, in good order.
    pub(super) fn good() -> History {
        history(
            &[hold("lock/a", 2, 2, 0, 10), hold("lock/b", 3, 4, 10, 20)],
            &[entry("lock/a", 2, 4), entry("lock/b", 3, 5)],
        )
    }

    #[test]
    fn a_good_history_breaks_no_promise() {
        assert_eq!(broken(&good()), []);
    }
}
