//! What happened in a run, as the checkers read it. Simulated runs and real ones write the same history.
//!
//! All times are *true* time: in a simulation the executor's, in a real run one clock that all processes share. Where a
//! client's own clock is wrong, what it believed is translated before it gets here.

use leasehold::runtime::Instant;
use leasehold_mvcc::Revision;

/// A run's story.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct History {
    /// What stood in the locks' queues, by the store's own events.
    pub entries: Vec<Entry>,
    /// What clients believed to hold.
    pub holds: Vec<Hold>,
    /// What reached the resource that checks tokens, in the order in which it came.
    pub writes: Vec<Write>,
    /// Plain reads and writes of single keys.
    pub operations: Vec<Operation>,
    /// When the cluster was restored from a backup: revisions may go back there, and only there.
    pub restores: Vec<Instant>,
}

/// An attempt's key, from its creation to its removal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The lock in whose queue it stands.
    pub lock: String,
    /// The key.
    pub key: String,
    /// The revision that created it: its rank.
    pub created: Revision,
    /// The revision that removed it, by whatever means; `None` if it still stands.
    pub removed: Option<Revision>,
    /// When it was removed; `None` if it was not, or if that was not taken down.
    pub removed_at: Option<Instant>,
    /// How many restores from backup came before it: revisions compare within one epoch.
    pub epoch: usize,
}

/// One exclusive hold as its client saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The lock.
    pub lock: String,
    /// The attempt's key.
    pub key: String,
    /// Who.
    pub client: String,
    /// The fencing token.
    pub token: u64,
    /// The create revision of its key.
    pub created: Revision,
    /// The revision at which the hold was proven.
    pub proven: Revision,
    /// When the client began to count on it.
    pub from: Instant,
    /// From when on the client no longer counted on it, whether or not it ran at that time to notice:
    /// [`Instant::NEVER`] if it still does.
    pub until: Instant,
    /// How it ended.
    pub end: End,
}

/// How a hold ended for its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Given up by the client.
    Released,
    /// Told lost, with the cause's name.
    Lost(String),
    /// The client was killed.
    Killed,
    /// It did not end.
    Holding,
}

/// A write to a resource that remembers the highest token it saw and refuses lower ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The lock that protects the resource.
    pub lock: String,
    /// Who wrote.
    pub client: String,
    /// With which token.
    pub token: u64,
    /// When it arrived.
    pub at: Instant,
    /// Whether it was accepted.
    pub accepted: bool,
}

/// A plain operation on one key, for the linearizability checker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Who asked.
    pub client: String,
    /// The key.
    pub key: String,
    /// When it was asked.
    pub called: Instant,
    /// When the answer came; `None` if none came: it may have been carried out at any time after `called`, or never.
    pub answered: Option<Instant>,
    /// What it did, and what the answer said.
    pub step: Step,
}

/// What a plain operation does. An answer's part is `None` if none came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Reads: the value, or nothing, that was answered.
    Read(Option<Option<String>>),
    /// Writes a value.
    Put(String),
    /// Deletes; the answer says whether there was something.
    Delete(Option<bool>),
    /// Writes `new` if the key has the value `expected` (`None`: if there is no such key); the answer says whether it did.
    CompareAndPut {
        /// What must be there.
        expected: Option<String>,
        /// What is then written.
        new: String,
        /// Whether it was.
        done: Option<bool>,
    },
}
