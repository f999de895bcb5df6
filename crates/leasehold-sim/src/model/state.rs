//! What there is at one moment: the store, the messages under way, the clients, and what a referee remembers.

use std::collections::{BTreeMap, BTreeSet};

/// A client, by its number.
pub(super) type Who = u8;

/// The key of an attempt is made of its lease's name: a later attempt on the same lease makes it anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseName {
    pub(super) client: Who,
    /// The client's leases, counted.
    pub(super) nth: u8,
}

/// One attempt at the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attempt {
    pub(super) lease: LeaseName,
    /// The client's attempts, counted over all its leases.
    pub(super) nth: u8,
}

/// What is under way between a client and the store, or the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// IF the key is absent THEN read the queue and put it ELSE read it.
    /// Each sending has its number: a copy may come although another one was carried out.
    Enter(Attempt, u8),
    /// Read the own key and whoever is before it.
    Look(Attempt),
    /// Delete the key IF it is of this creation; with none known, IF it hangs on the lease.
    Remove(Attempt, Option<u8>),
    /// What each renewal of a retired lease does: delete by name what a late copy may have brought back.
    RemoveDoubtful(Attempt),
    /// A write to the fenced register, with its token.
    Write(Attempt, u8),
    /// The key was created at this revision; whether anyone was there before.
    Entered { attempt: Attempt, at: u8, alone: bool },
    /// The key was there already, created at this revision: an earlier copy of the entry was carried out.
    WasThere { attempt: Attempt, created: u8, at: u8 },
    /// The own key and none before it, at this revision.
    First { attempt: Attempt, at: u8 },
    /// The own key is not there.
    Gone(Attempt),
    /// The removal was carried out, whatever it found.
    Removed(Attempt),
}

impl Message {
    /// The attempt that waits for this answer, if it is one.
    pub(super) fn answers(self) -> Option<Attempt> {
        match self {
            Self::Entered { attempt, .. }
            | Self::WasThere { attempt, .. }
            | Self::First { attempt, .. }
            | Self::Gone(attempt)
            | Self::Removed(attempt) => Some(attempt),
            Self::Enter(..)
            | Self::Look(_)
            | Self::Remove(..)
            | Self::RemoveDoubtful(_)
            | Self::Write(..) => None,
        }
    }
}

/// How far a client's attempt is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Phase {
    Idle,
    Entering,
    Waiting { created: u8 },
    Holding { created: u8, token: u8, wrote: bool },
    Leaving,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Client {
    /// The attempt under way, or the last; its lease is the one that the client believes in.
    pub(super) attempt: Attempt,
    pub(super) phase: Phase,
    /// A copy of an entry on this lease went unanswered.
    pub(super) retired: bool,
    pub(super) has_held: bool,
}

/// A key in the store. Whose attempt made it is known to the referee alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Entry {
    pub(super) created: u8,
    pub(super) by: Attempt,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Store {
    pub(super) revision: u8,
    pub(super) keys: BTreeMap<LeaseName, Entry>,
    pub(super) ended: BTreeSet<LeaseName>,
}

/// What remains of the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Left {
    pub(super) attempts: u8,
    pub(super) timeouts: u8,
    pub(super) duplicates: u8,
    pub(super) ends: u8,
}

/// What is known to no part of the protocol, only to who judges it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Referee {
    /// The attempts in the order in which the store saw them first, each with the token of its guard.
    pub(super) holders: Vec<(Attempt, Option<u8>)>,
    /// The place in `holders` of the last whose write was taken.
    pub(super) last_write: usize,
    pub(super) took_stale_write: bool,
    pub(super) removed_anothers: bool,
}

impl Referee {
    pub(super) fn saw_first(&mut self, attempt: Attempt) {
        if self.holders.iter().all(|(known, _)| *known != attempt) {
            self.holders.push((attempt, None));
        }
    }
}

/// One moment of a history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    pub(super) store: Store,
    pub(super) network: BTreeSet<Message>,
    pub(super) clients: Vec<Client>,
    /// The highest token that the register took a write with.
    pub(super) register: u8,
    pub(super) left: Left,
    pub(super) referee: Referee,
}

/// What can happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A client begins an attempt.
    Begin(u8),
    /// No answer came to its entry: it sends it again.
    SendAgain(u8),
    /// No answer came to its entry: it gives up and removes what there may be.
    GiveUp(u8),
    /// A waiting client looks.
    Look(u8),
    /// A holder writes to the register.
    Write(u8),
    /// A holder, or one who waits, leaves.
    Leave(u8),
    /// A client crashes, or its clock ends its belief in its lease.
    End(u8),
    /// The store ends a lease.
    Expire(LeaseName),
    /// A message arrives.
    Deliver(Message),
    /// A message arrives, and another copy of it will, or never will.
    DeliverACopy(Message),
}
