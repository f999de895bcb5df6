//! Transactions: comparisons, and two lists of operations.

use bytes::Bytes;

use crate::{DeleteRequest, Key, KeyRange, LeaseId, PutRequest, RangeRequest, Revision};

/// A transaction: if every comparison holds, do the one list of operations, else the other; all at one revision.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Txn {
    /// The comparisons; none at all holds.
    pub compare: Vec<Compare>,
    /// What is done if they all hold.
    pub success: Vec<TxnOp>,
    /// What is done if one does not.
    pub failure: Vec<TxnOp>,
}

impl Txn {
    /// A transaction that compares and does nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a comparison.
    #[must_use]
    pub fn when(mut self, compare: Compare) -> Self {
        self.compare.push(compare);
        self
    }

    /// Adds an operation for the case that every comparison holds.
    #[must_use]
    pub fn then(mut self, op: impl Into<TxnOp>) -> Self {
        self.success.push(op.into());
        self
    }

    /// Adds an operation for the case that one does not.
    #[must_use]
    pub fn otherwise(mut self, op: impl Into<TxnOp>) -> Self {
        self.failure.push(op.into());
        self
    }
}

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TxnOp {
    /// Read.
    Range(RangeRequest),
    /// Write.
    Put(PutRequest),
    /// Delete.
    Delete(DeleteRequest),
    /// A transaction within.
    Txn(Txn),
}

impl From<RangeRequest> for TxnOp {
    fn from(request: RangeRequest) -> Self {
        Self::Range(request)
    }
}

impl From<PutRequest> for TxnOp {
    fn from(request: PutRequest) -> Self {
        Self::Put(request)
    }
}

impl From<DeleteRequest> for TxnOp {
    fn from(request: DeleteRequest) -> Self {
        Self::Delete(request)
    }
}

impl From<Txn> for TxnOp {
    fn from(txn: Txn) -> Self {
        Self::Txn(txn)
    }
}

/// One comparison. Over a range it must hold for every key of it. Where there is no key, or none in the range, numbers
/// are compared to 0 and a comparison of values never holds, whatever it asks (etcd's rules, learnt by differential
/// test).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Compare {
    /// Which keys; mostly one.
    pub range: KeyRange,
    /// What of them, and against what.
    pub target: CompareTarget,
    /// How.
    pub result: CompareResult,
}

/// What is compared, with the value it is compared to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompareTarget {
    /// The number of writes since creation; 0 where there is no key.
    Version(i64),
    /// The revision of creation; 0 where there is no key.
    Create(Revision),
    /// The revision of the last write; 0 where there is no key.
    Mod(Revision),
    /// The value.
    Value(Bytes),
    /// The lease; 0 where there is none.
    Lease(LeaseId),
}

/// How the two sides must stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CompareResult {
    /// Alike.
    Equal,
    /// The key's side is greater.
    Greater,
    /// The key's side is less.
    Less,
    /// They differ.
    NotEqual,
}

impl Compare {
    /// That the key stands to the target as `result` says.
    pub fn key(key: impl Into<Key>, target: CompareTarget, result: CompareResult) -> Self {
        Self { range: KeyRange::key(key), target, result }
    }

    /// That there is no such key.
    pub fn absent(key: impl Into<Key>) -> Self {
        Self::created_at(key, Revision::ZERO)
    }

    /// That the key was created at this revision: the same creation, however often it was written since.
    pub fn created_at(key: impl Into<Key>, revision: Revision) -> Self {
        Self::key(key, CompareTarget::Create(revision), CompareResult::Equal)
    }

    /// That the key has this value.
    pub fn value(key: impl Into<Key>, value: impl Into<Bytes>) -> Self {
        Self::key(key, CompareTarget::Value(value.into()), CompareResult::Equal)
    }

    /// That the key hangs on this lease.
    pub fn lease(key: impl Into<Key>, lease: LeaseId) -> Self {
        Self::key(key, CompareTarget::Lease(lease), CompareResult::Equal)
    }
}
