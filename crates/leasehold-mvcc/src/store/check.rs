//! What is refused for its shape, before anything is read or written. The rules are the same at the top and within
//! transactions, so each stands here once.

use std::collections::BTreeSet;

use super::lease::Leases;
use super::present::Present;
use super::refusal;
use crate::{DeleteRequest, Key, KeyRange, PutRequest, RangeRequest, StoreError, Txn, TxnOp};

pub(super) fn range(request: &RangeRequest) -> Result<(), StoreError> {
    key(&request.range.start)
}

pub(super) fn delete(request: &DeleteRequest) -> Result<(), StoreError> {
    key(&request.range.start)
}

pub(super) fn put(request: &PutRequest) -> Result<(), StoreError> {
    key(&request.key)?;
    if request.ignore_value && !request.value.is_empty() {
        return Err(refusal::value_provided());
    }
    if request.ignore_lease && !request.lease.is_none() {
        return Err(refusal::lease_provided());
    }
    Ok(())
}

/// Whether a put fits the state: its lease must live, and what it wants to keep must be there.
pub(super) fn put_fits(request: &PutRequest, present: &Present, leases: &Leases) -> Result<(), StoreError> {
    if !request.lease.is_none() && !leases.contains(request.lease) {
        return Err(refusal::lease_not_found());
    }
    if (request.ignore_value || request.ignore_lease) && present.get(&request.key).is_none() {
        return Err(refusal::key_not_found());
    }
    Ok(())
}

pub(super) fn txn(request: &Txn, max_ops: usize) -> Result<(), StoreError> {
    shape(request, max_ops)?;
    for ops in [&request.success, &request.failure] {
        // A single write has nothing to overlap with, and most transactions have no more.
        let mut writes = 0;
        for op in ops {
            writes += match op {
                TxnOp::Range(_) => 0,
                TxnOp::Put(_) | TxnOp::Delete(_) => 1,
                TxnOp::Txn(_) => 2,
            };
        }
        if writes > 1 {
            overlaps(ops)?;
        }
    }
    Ok(())
}

fn key(key: &Key) -> Result<(), StoreError> {
    if key.is_empty() { Err(refusal::empty_key()) } else { Ok(()) }
}

fn shape(txn: &Txn, max_ops: usize) -> Result<(), StoreError> {
    let longest = txn.compare.len().max(txn.success.len()).max(txn.failure.len());
    // What a transaction uses up of the limit is missing for those within it: that bounds their depth, too.
    let Some(left) = max_ops.checked_sub(longest) else { return Err(refusal::too_many_ops()) };
    for compare in &txn.compare {
        key(&compare.range.start)?;
    }
    for ops in [&txn.success, &txn.failure] {
        for op in ops {
            match op {
                TxnOp::Range(request) => range(request)?,
                TxnOp::Put(request) => put(request)?,
                TxnOp::Delete(request) => delete(request)?,
                TxnOp::Txn(txn) => shape(txn, left)?,
            }
        }
    }
    Ok(())
}

/// The keys that a list of operations may write, and the ranges it may delete.
#[derive(Default)]
struct Touched<'a> {
    puts: BTreeSet<&'a Key>,
    deletes: Vec<&'a KeyRange>,
}

impl<'a> Touched<'a> {
    fn is_deleted(&self, key: &Key) -> bool {
        // etcd takes the end of an open range literally here, so it overlaps nothing.
        self.deletes.iter().any(|range| !range.is_open() && range.contains(key))
    }

    fn put(&mut self, key: &'a Key) -> Result<(), StoreError> {
        if self.is_deleted(key) || !self.puts.insert(key) {
            return Err(refusal::duplicate_key());
        }
        Ok(())
    }

    /// Adds the two lists of a transaction within. They exclude each other, so both may write the same key.
    fn either(&mut self, success: Self, failure: Self) -> Result<(), StoreError> {
        for key in &success.puts {
            self.put(key)?;
        }
        for key in failure.puts {
            if success.puts.contains(key) {
                continue;
            }
            self.put(key)?;
        }
        self.deletes.extend(success.deletes);
        self.deletes.extend(failure.deletes);
        Ok(())
    }
}

/// Refuses a list that writes a key twice, or writes a key and deletes it.
///
/// The order is etcd's, and it shows: the deletes of this list count from the start, those of a transaction within
/// only for what comes after it, so a put in one followed by a delete in the next goes through.
fn overlaps(ops: &[TxnOp]) -> Result<Touched<'_>, StoreError> {
    let mut touched = Touched::default();
    for op in ops {
        if let TxnOp::Delete(request) = op {
            touched.deletes.push(&request.range);
        }
    }
    for op in ops {
        if let TxnOp::Txn(txn) = op {
            touched.either(overlaps(&txn.success)?, overlaps(&txn.failure)?)?;
        }
    }
    for op in ops {
        if let TxnOp::Put(request) = op {
            touched.put(&request.key)?;
        }
    }
    Ok(touched)
}
