//! What one can ask of a store.

use bytes::Bytes;

use crate::{Key, KeyRange, LeaseId, Revision, Txn};

/// One request: what the store applies, what the wire carries and what a server receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read keys.
    Range(RangeRequest),
    /// Write a key.
    Put(PutRequest),
    /// Delete keys.
    Delete(DeleteRequest),
    /// Compare, then do one of two lists of operations, all at one revision.
    Txn(Txn),
    /// Make a lease.
    LeaseGrant(LeaseGrantRequest),
    /// Start a lease's time anew.
    LeaseKeepAlive(LeaseId),
    /// End a lease and delete its keys.
    LeaseRevoke(LeaseId),
    /// Ask how long a lease still lives, and (if true) which keys hang on it.
    LeaseTimeToLive(LeaseId, bool),
    /// List all leases.
    Leases,
    /// Forget history below a revision.
    Compact(CompactRequest),
    /// End every lease whose time is over. Not a request of etcd's: the owner of the clock sends it.
    Expire,
}

/// In what order a range's keys are returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SortOrder {
    /// As the target has them by nature; for keys that is ascending.
    #[default]
    None,
    /// Smallest first.
    Ascend,
    /// Largest first.
    Descend,
}

/// By what a range's keys are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SortTarget {
    /// The key's bytes.
    #[default]
    Key,
    /// How often it was written since it was created.
    Version,
    /// The revision at which it was created.
    Create,
    /// The revision at which it was last written.
    Mod,
    /// The value's bytes.
    Value,
}

/// A read of one key or a range. The filters by revision act on the keys returned, not on the count, as in etcd.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RangeRequest {
    /// Which keys.
    pub range: KeyRange,
    /// At most so many; 0 for all.
    pub limit: i64,
    /// As of this revision; 0 for now.
    pub revision: Revision,
    /// In what order.
    pub sort_order: SortOrder,
    /// By what.
    pub sort_target: SortTarget,
    /// Allow an answer from a member that may lag behind. Never used to prove a hold.
    pub serializable: bool,
    /// Leave the values out.
    pub keys_only: bool,
    /// Leave the keys out too, and only count.
    pub count_only: bool,
    /// Leave out keys last written before this revision.
    pub min_mod_revision: Revision,
    /// Leave out keys last written after this revision; 0 for no limit.
    pub max_mod_revision: Revision,
    /// Leave out keys created before this revision.
    pub min_create_revision: Revision,
    /// Leave out keys created after this revision; 0 for no limit.
    pub max_create_revision: Revision,
}

impl RangeRequest {
    /// Read one key.
    pub fn key(key: impl Into<Key>) -> Self {
        Self::range(KeyRange::key(key))
    }

    /// Read every key that starts with `prefix`.
    pub fn prefix(prefix: impl Into<Key>) -> Self {
        Self::range(KeyRange::prefix(prefix))
    }

    /// Read a range of keys.
    pub fn range(range: KeyRange) -> Self {
        Self { range, ..Self::default() }
    }

    /// The same read, sorted.
    #[must_use]
    pub fn sorted(mut self, target: SortTarget, order: SortOrder) -> Self {
        self.sort_target = target;
        self.sort_order = order;
        self
    }

    /// The same read of at most `limit` keys.
    #[must_use]
    pub fn limited(mut self, limit: i64) -> Self {
        self.limit = limit;
        self
    }
}

/// A write of one key.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PutRequest {
    /// Which key.
    pub key: Key,
    /// Its new value.
    pub value: Bytes,
    /// The lease it hangs on from now on. Without one it hangs on none, even if it did before.
    pub lease: LeaseId,
    /// Return what was there before.
    pub prev_kv: bool,
    /// Keep the value that is there; the key must exist.
    pub ignore_value: bool,
    /// Keep the lease that is there; the key must exist.
    pub ignore_lease: bool,
}

impl PutRequest {
    /// Write `value` under `key`, on no lease.
    pub fn new(key: impl Into<Key>, value: impl Into<Bytes>) -> Self {
        Self { key: key.into(), value: value.into(), ..Self::default() }
    }

    /// The same write, bound to a lease.
    #[must_use]
    pub fn on(mut self, lease: LeaseId) -> Self {
        self.lease = lease;
        self
    }
}

/// A delete of one key or a range.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DeleteRequest {
    /// Which keys.
    pub range: KeyRange,
    /// Return what was there before.
    pub prev_kv: bool,
}

impl DeleteRequest {
    /// Delete one key.
    pub fn key(key: impl Into<Key>) -> Self {
        Self::range(KeyRange::key(key))
    }

    /// Delete a range of keys.
    pub fn range(range: KeyRange) -> Self {
        Self { range, prev_kv: false }
    }
}

/// A new lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseGrantRequest {
    /// Its life in seconds; the server may grant more than asked, never less.
    pub ttl: i64,
    /// Its id; [`LeaseId::NONE`] lets the server choose.
    pub id: LeaseId,
}

/// A cut of the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactRequest {
    /// Everything older is forgotten, but for what is still current at this revision.
    pub revision: Revision,
    /// Answer only once the storage has let go of it too.
    pub physical: bool,
}
