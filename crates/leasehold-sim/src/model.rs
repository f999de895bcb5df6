//! The fair lock's protocol as a model that is explored to the last state.
//!
//! The simulation runs the real code through some histories; this runs a small likeness of it through all of them. Time
//! is not in it: all that clocks do for the protocol is that the store ends a lease only after its client stopped
//! believing in it, and that is a rule here ([`Broken::ExpiresAtWill`] drops it). A message that is lost is one that is
//! never delivered, and a crash is a client that believes in nothing it had: both are among the steps.

mod protocol;
mod state;

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use stateright::{Checker, HasDiscoveries, Model};

pub use protocol::Protocol;
pub use state::Step;

/// Never two valid guards.
pub const NEVER_TWO: &str = "never two valid guards (P1)";
/// Tokens rise strictly from holder to holder, in the order in which the store saw them first.
pub const TOKENS_RISE: &str = "tokens rise from holder to holder (P2)";
/// The fenced register never takes a write of an earlier holder after one of a later holder.
pub const NO_STALE_WRITE: &str = "the fenced register takes no stale write (P2)";
/// A removal takes away nothing but the entry of the attempt that asked for it.
pub const ONLY_MINE: &str = "a removal takes only what its attempt made (P6)";
/// There is a way for each client to get the lock: without it the rest would hold of a lock that nobody gets.
pub const ALL_GET_IT: &str = "all clients can get the lock";

/// A way in which the protocol can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// A re-sent entry that finds its key counts as held, without a look at who is ahead.
    GrantsWithoutLook,
    /// A removal deletes by name, whichever creation of the key it finds.
    RemovesByName,
    /// One client's token is the revision at which its key was made; the others' is that of their proof.
    TokenFromCreateRevision,
    /// The store may end a lease that its client still believes in: clocks that run apart, a restore, an operator.
    ExpiresAtWill,
    /// A client goes on with a lease of which a late copy of an entry may be under way.
    ReusesDoubtedLease,
    /// The network repeats an entry whose call was answered, so that the client cannot know of the copy.
    CopiesAnsweredEntries,
    /// The register does not look at tokens.
    Unfenced,
}

/// How much may happen in one history.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How many clients want the lock.
    pub clients: u8,
    /// How many attempts one client makes at most.
    pub attempts: u8,
    /// How many attempts there are at most, of all clients.
    pub attempts_in_all: u8,
    /// How often a client sends its entry again, or gives up, since no answer came.
    pub timeouts: u8,
    /// How often the network delivers a message and keeps a copy for later.
    pub duplicates: u8,
    /// How often a client crashes or stops to believe in its lease.
    pub ends: u8,
}

impl Bounds {
    /// Names used again, calls that go unanswered, and a crash: what two processors explore in about a minute.
    pub const FULL: Self =
        Self { clients: 3, attempts: 2, attempts_in_all: 3, timeouts: 1, duplicates: 0, ends: 1 };

    /// Messages that the network delivers twice, and a crash.
    pub const COPIES: Self =
        Self { clients: 3, attempts: 1, attempts_in_all: 3, timeouts: 0, duplicates: 1, ends: 1 };

    /// Both of them, and names used again: with two clients, in seconds.
    pub const SMALL: Self =
        Self { clients: 2, attempts: 2, attempts_in_all: 2, timeouts: 1, duplicates: 1, ends: 1 };
}

/// What an exploration found.
#[derive(Clone, Debug)]
pub struct Report {
    /// How many states were generated, those reached on several ways counted as often.
    pub states: usize,
    /// How many different states there are.
    pub unique_states: usize,
    /// How many steps the longest of the shortest ways to a state has.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// The properties that hold in every state, or for [`ALL_GET_IT`] in one; none if the exploration ended before the
    /// last state, at a refutation.
    pub hold: Vec<&'static str>,
    /// The properties that do not, each with the steps that show it, if steps can.
    pub refuted: Vec<(&'static str, String)>,
}

impl Report {
    /// Whether every property holds.
    pub fn is_sound(&self) -> bool {
        self.refuted.is_empty()
    }

    /// Whether this property was refuted.
    pub fn refutes(&self, property: &str) -> bool {
        self.refuted.iter().any(|(refuted, _)| *refuted == property)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "model: {} states, {} of them different, depth {}, explored in {:.1} s",
            self.states,
            self.unique_states,
            self.depth,
            self.took.as_secs_f64()
        )?;
        for property in &self.hold {
            writeln!(f, "holds: {property}")?;
        }
        for (property, way) in &self.refuted {
            writeln!(f, "REFUTED: {property}\n{way}")?;
        }
        Ok(())
    }
}

/// Explores every history of the protocol within the bounds.
pub fn explore(bounds: Bounds) -> Report {
    check(Protocol::new(bounds, None), &[])
}

/// Explores a broken protocol until each of `expected` is refuted, or to the end.
pub fn explore_broken(bounds: Bounds, broken: Broken, expected: &[&'static str]) -> Report {
    check(Protocol::new(bounds, Some(broken)), expected)
}

#[allow(clippy::disallowed_methods, reason = "how long an exploration takes is a matter of real time")]
fn check(protocol: Protocol, expected: &[&'static str]) -> Report {
    let begun = Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let until = if expected.is_empty() {
        HasDiscoveries::AnyFailures
    } else {
        HasDiscoveries::AllOf(expected.iter().copied().collect())
    };
    let checker = protocol.checker().threads(threads).finish_when(until).spawn_bfs().join();
    let discovered = checker.discoveries();
    let (mut hold, mut refuted) = (Vec::new(), Vec::new());
    let names: BTreeSet<_> = [NEVER_TWO, TOKENS_RISE, NO_STALE_WRITE, ONLY_MINE, ALL_GET_IT].into();
    for name in names {
        match (discovered.get(name), name == ALL_GET_IT) {
            (Some(_), true) | (None, false) => hold.push(name),
            (None, true) => refuted.push((name, "   no history leads there".to_owned())),
            (Some(path), false) => {
                let steps = path.clone().into_actions();
                let steps: Vec<_> = steps.iter().map(|step| format!("   {step:?}")).collect();
                refuted.push((name, steps.join("\n")));
            }
        }
    }
    if !refuted.is_empty() {
        hold.clear();
    }
    Report {
        states: checker.state_count(),
        unique_states: checker.unique_state_count(),
        depth: checker.max_depth(),
        took: begun.elapsed(),
        hold,
        refuted,
    }
}

#[cfg(test)]
mod tests;
