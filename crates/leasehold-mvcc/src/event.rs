//! What happened to keys, and how one follows it.

use crate::{Header, KeyRange, KeyValue, Revision};

/// What happened to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// It was written.
    Put,
    /// It was deleted, by a request or with its lease.
    Delete,
}

/// One change of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// The key as it is now. After a delete only its name and the revision of the delete are set.
    pub kv: KeyValue,
    /// The key as it was before, if asked for, there and not yet compacted.
    pub prev_kv: Option<KeyValue>,
}

/// All changes of one revision, in the order in which they were made. Each carries what was there before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The revision they made.
    pub revision: Revision,
    /// The changes.
    pub events: Vec<Event>,
}

/// The number of a watch on its stream. Numbers start at 0 on every stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct WatchId(i64);

impl WatchId {
    /// A watch id as it came off the wire.
    pub const fn new(id: i64) -> Self {
        Self(id)
    }

    /// The number itself.
    pub const fn get(self) -> i64 {
        self.0
    }
}

/// What to follow.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct WatchRequest {
    /// Which keys.
    pub range: KeyRange,
    /// From which revision on; 0 for "from now on".
    pub start_revision: Revision,
    /// Send what was there before, too.
    pub prev_kv: bool,
    /// Leave writes out.
    pub no_put: bool,
    /// Leave deletes out.
    pub no_delete: bool,
    /// Report progress now and then while nothing happens.
    pub progress_notify: bool,
}

impl WatchRequest {
    /// Follow a range from now on.
    pub fn range(range: KeyRange) -> Self {
        Self { range, ..Self::default() }
    }

    /// The same from a revision on.
    #[must_use]
    pub fn since(mut self, revision: Revision) -> Self {
        self.start_revision = revision;
        self
    }

    /// The same without writes: only deletes count.
    #[must_use]
    pub fn deletes_only(mut self) -> Self {
        self.no_put = true;
        self
    }
}

/// One message of a watch stream, as etcd sends it.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct WatchResponse {
    /// Who, and as of when.
    pub header: Header,
    /// Which watch of the stream it concerns; -1 when a create was refused or for progress of the whole stream.
    pub watch_id: WatchId,
    /// This confirms a new watch.
    pub created: bool,
    /// This ends the watch.
    pub canceled: bool,
    /// Set when it ends because the revision it needs is compacted: the lowest revision still there.
    pub compact_revision: Revision,
    /// Why it ends.
    pub cancel_reason: String,
    /// More of the same revision follows in the next message.
    pub fragment: bool,
    /// What happened.
    pub events: Vec<Event>,
}
