//! What the two sides have in common: they take calls, and they tell watches.

use leasehold::etcd::WatchUpdate;
use leasehold_mvcc::{
    Answer, Command, Event, Header, Revision, StoreError, WatchId, WatchRequest, WatchResponse,
};

use crate::operation::Origin;

/// One side of the comparison.
pub(crate) trait Side {
    fn call(&mut self, command: Command) -> Result<Answer, StoreError>;

    /// Opens a watch, the next one in number, and gives the first word on it.
    fn watch(&mut self, way: Way, request: WatchRequest) -> FirstWord;

    /// Ends a watch that is open on a stream, and gives the word that it has ended.
    fn cancel(&mut self, watch: usize) -> WatchResponse;

    /// Waits until each watch has been told what it must be told by now; `expected` is what the other side's were.
    /// Gives the revision to which the steady stream says it is complete, if there is a watch on it.
    fn settle(&mut self, expected: &[Told]) -> Option<Revision>;

    /// What each watch has been told so far, in the order in which they were opened.
    fn told(&self) -> Vec<Told>;

    /// Ends all watches, as a restart does.
    fn hang_up(&mut self);
}

/// The side that is right by definition.
pub(crate) trait Reference: Side {
    /// Makes everything as it is at the origin, and gives the header of an answer made now.
    fn begin(&mut self, origin: Origin) -> Header;

    /// Kills and starts it again on its data.
    fn restart(&mut self);
}

/// By which way a watch is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// On the stream whose watches all start now or in the past, so that it can say when it is complete.
    Steady,
    /// On the stream of those that start later or are refused: etcd never says of it that it is complete.
    Loose,
    /// By `Etcd::watch`.
    Trait,
}

/// The first word on a watch: what the stream or the trait says of it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum FirstWord {
    Stream(WatchResponse),
    Trait(Result<WatchUpdate, String>),
}

/// What a watch was told.
#[derive(Clone, Debug, PartialEq, Default)]
pub(crate) struct Told {
    /// Its events. How they are spread over messages is a matter of etcd's timing.
    pub(crate) events: Vec<Event>,
    /// How it ended, if it did.
    pub(crate) end: Option<String>,
    /// Whether a message spoke of a revision beyond its own.
    pub(crate) ahead_of_itself: bool,
}

impl Told {
    /// Takes a message of the stream.
    pub(crate) fn hear(&mut self, message: WatchResponse) {
        let revision = message.header.revision;
        if message.canceled {
            let (compacted, reason) = (message.compact_revision, message.cancel_reason);
            self.end = Some(format!("canceled at {revision}, compacted at {compacted}: {reason:?}"));
        }
        self.happened(revision, message.events);
    }

    /// Takes an update of the trait. True if it is the last.
    pub(crate) fn update(&mut self, update: leasehold::Result<WatchUpdate>) -> bool {
        match update {
            Ok(WatchUpdate::Events { revision, events }) => self.happened(revision, events),
            Ok(_) => {}
            Err(error) => self.end = Some(error.to_string()),
        }
        self.end.is_some()
    }

    fn happened(&mut self, revision: Revision, events: Vec<Event>) {
        self.ahead_of_itself |= events.iter().any(|event| event.kv.mod_revision > revision);
        self.events.extend(events);
    }
}

/// A watch and where its messages come from.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    pub(crate) way: Way,
    /// Its id on the stream; -1 if it was refused.
    pub(crate) id: WatchId,
    pub(crate) told: Told,
}

impl Followed {
    pub(crate) fn on_stream(way: Way, created: &WatchResponse) -> Self {
        Self { way, id: created.watch_id, told: Told::default() }
    }

    pub(crate) fn by_trait(first: &Result<WatchUpdate, String>) -> Self {
        let end = first.as_ref().err().cloned();
        Self { way: Way::Trait, id: WatchId::new(-1), told: Told { end, ..Told::default() } }
    }

    fn carries(&self, way: Way, id: WatchId) -> bool {
        self.way == way && self.id == id && self.way != Way::Trait
    }
}

/// Gives a message of a stream to the watch it is for.
pub(crate) fn deliver(followed: &mut [Followed], way: Way, message: WatchResponse) {
    // Ids are used once on a stream, so the last that had it is the one.
    let whose = followed.iter_mut().rev().find(|watch| watch.carries(way, message.watch_id));
    if let Some(watch) = whose {
        watch.told.hear(message);
    }
}

/// Whether the steady stream has a watch that is open.
pub(crate) fn is_steady(followed: &[Followed]) -> bool {
    let refused = WatchId::new(-1);
    followed.iter().any(|watch| watch.way == Way::Steady && watch.id != refused && watch.told.end.is_none())
}
