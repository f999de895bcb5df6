//! What a store answers.

use std::time::Duration;

use bytes::Bytes;

use crate::{Key, LeaseId, Revision};

/// Who answered, and as of when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Header {
    /// The cluster; never 0 on a real one.
    pub cluster_id: u64,
    /// The member that answered.
    pub member_id: u64,
    /// The store's revision when the answer was made.
    pub revision: Revision,
    /// The member's raft term; it rises with each election.
    pub raft_term: u64,
}

/// A key with its value and its numbers.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct KeyValue {
    /// The key.
    pub key: Key,
    /// Its value.
    pub value: Bytes,
    /// The revision at which it was created.
    pub create_revision: Revision,
    /// The revision at which it was last written.
    pub mod_revision: Revision,
    /// How often it was written since it was created; 0 in a delete event.
    pub version: i64,
    /// The lease it hangs on.
    pub lease: LeaseId,
}

/// The answer to one [`crate::Command`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a read.
    Range(RangeAnswer),
    /// To a write.
    Put(PutAnswer),
    /// To a delete.
    Delete(DeleteAnswer),
    /// To a transaction.
    Txn(TxnAnswer),
    /// To a new lease.
    LeaseGrant(LeaseGrantAnswer),
    /// To a renewal.
    LeaseKeepAlive(KeepAliveAnswer),
    /// To a revocation.
    LeaseRevoke(LeaseRevokeAnswer),
    /// To the question how long.
    LeaseTimeToLive(LeaseTimeToLiveAnswer),
    /// To the list of leases.
    Leases(LeasesAnswer),
    /// To a compaction.
    Compact(CompactAnswer),
    /// To [`crate::Command::Expire`]: the leases that ended.
    Expire(Vec<LeaseId>),
}

/// The keys read.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RangeAnswer {
    /// Who, and as of when.
    pub header: Header,
    /// The keys, in the order asked for.
    pub kvs: Vec<KeyValue>,
    /// Whether the limit cut some off.
    pub more: bool,
    /// How many keys lie in the range, whatever limit and filters leave out.
    pub count: i64,
}

/// A key was written.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct PutAnswer {
    /// Who, and as of when.
    pub header: Header,
    /// What was there before, if asked for and there.
    pub prev_kv: Option<KeyValue>,
}

/// Keys were deleted.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct DeleteAnswer {
    /// Who, and as of when.
    pub header: Header,
    /// How many.
    pub deleted: i64,
    /// What was there before, if asked for.
    pub prev_kvs: Vec<KeyValue>,
}

/// A transaction was done.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct TxnAnswer {
    /// Who, and as of when.
    pub header: Header,
    /// Whether every comparison held.
    pub succeeded: bool,
    /// One answer for each operation of the list that was done.
    pub ops: Vec<TxnOpAnswer>,
}

/// The answer to one operation of a transaction. The headers inside are as etcd fills them: the revision only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnOpAnswer {
    /// To a read.
    Range(RangeAnswer),
    /// To a write.
    Put(PutAnswer),
    /// To a delete.
    Delete(DeleteAnswer),
    /// To a transaction within.
    Txn(TxnAnswer),
}

impl TxnOpAnswer {
    /// The keys read, if this answers a read.
    pub fn as_range(&self) -> Option<&RangeAnswer> {
        match self {
            Self::Range(answer) => Some(answer),
            _ => None,
        }
    }
}

/// A lease was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LeaseGrantAnswer {
    /// Who, and as of when.
    pub header: Header,
    /// Its id.
    pub id: LeaseId,
    /// Its life in seconds, which may be more than was asked for.
    pub ttl: i64,
}

/// A lease was renewed, or was found to be gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KeepAliveAnswer {
    /// Who, and as of when.
    pub header: Header,
    /// Its id.
    pub id: LeaseId,
    /// Its life in seconds from now on; 0 or less if there is no such lease.
    pub ttl: i64,
}

/// A lease was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LeaseRevokeAnswer {
    /// Who, and as of when.
    pub header: Header,
}

/// How long a lease still lives.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LeaseTimeToLiveAnswer {
    /// Who, and as of when.
    pub header: Header,
    /// Its id.
    pub id: LeaseId,
    /// Seconds left; -1 if there is no such lease. A hint for people, never a deadline.
    pub ttl: i64,
    /// The life it was granted, in seconds; 0 if there is no such lease.
    pub granted_ttl: i64,
    /// The keys that hang on it, if asked for.
    pub keys: Vec<Key>,
}

impl LeaseTimeToLiveAnswer {
    /// What is left, if the number can be true: a server may answer nonsense while its leader changes.
    pub fn remaining(&self) -> Option<Duration> {
        let seconds = u64::try_from(self.ttl).ok()?;
        (self.ttl <= self.granted_ttl).then(|| Duration::from_secs(seconds))
    }
}

/// All leases there are.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct LeasesAnswer {
    /// Who, and as of when.
    pub header: Header,
    /// Their ids.
    pub leases: Vec<LeaseId>,
}

/// History was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CompactAnswer {
    /// Who, and as of when.
    pub header: Header,
}
