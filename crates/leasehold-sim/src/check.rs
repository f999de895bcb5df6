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

use std::fmt;

use leasehold::runtime::Instant;

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
