//! How large a write is on etcd's wire: its limit is on the encoded proposal, counted to the byte.

use crate::{Compare, CompareTarget, DeleteRequest, KeyRange, PutRequest, RangeRequest, Txn, TxnOp};

/// The size of the proposal that carries a request of this size through the log: the request as a field, and a
/// header with the proposal's id, whose upper two bytes are the member's lower two.
pub(super) fn proposal(request: usize, member_id: u64) -> usize {
    let id = (member_id << 48) | (1 << 47);
    field(request) + 2 + prefixed(number(id))
}

/// What a transaction's size is certainly not above; much cheaper to find than the size.
pub(super) fn txn_at_most(txn: &Txn) -> usize {
    /// More than all numbers, flags and lengths of one entry take together.
    const BESIDES: usize = 192;
    let mut size = 0;
    for entry in &txn.compare {
        let value = if let CompareTarget::Value(value) = &entry.target { value.len() } else { 0 };
        size += span(&entry.range) + value + BESIDES;
    }
    for ops in [&txn.success, &txn.failure] {
        for entry in ops {
            size += BESIDES
                + match entry {
                    TxnOp::Range(request) => span(&request.range),
                    TxnOp::Put(request) => request.key.as_bytes().len() + request.value.len(),
                    TxnOp::Delete(request) => span(&request.range),
                    TxnOp::Txn(request) => txn_at_most(request),
                };
        }
    }
    size
}

fn span(range: &KeyRange) -> usize {
    range.start.as_bytes().len() + range.end.as_bytes().len()
}

pub(super) fn put(request: &PutRequest) -> usize {
    bytes(request.key.as_bytes())
        + bytes(&request.value)
        + number(request.lease.get().cast_unsigned())
        + flag(request.prev_kv)
        + flag(request.ignore_value)
        + flag(request.ignore_lease)
}

pub(super) fn delete(request: &DeleteRequest) -> usize {
    bytes(request.range.start.as_bytes()) + bytes(request.range.end.as_bytes()) + flag(request.prev_kv)
}

pub(super) fn txn(txn: &Txn) -> usize {
    let mut size = 0;
    for entry in &txn.compare {
        size += field(compare(entry));
    }
    for ops in [&txn.success, &txn.failure] {
        for entry in ops {
            size += field(field(op(entry)));
        }
    }
    size
}

fn op(op: &TxnOp) -> usize {
    match op {
        TxnOp::Range(request) => range(request),
        TxnOp::Put(request) => put(request),
        TxnOp::Delete(request) => delete(request),
        TxnOp::Txn(request) => txn(request),
    }
}

fn range(request: &RangeRequest) -> usize {
    let numbers = [
        request.limit,
        request.revision.get(),
        request.sort_order as i64,
        request.sort_target as i64,
        request.min_mod_revision.get(),
        request.max_mod_revision.get(),
        request.min_create_revision.get(),
        request.max_create_revision.get(),
    ];
    bytes(request.range.start.as_bytes())
        + bytes(request.range.end.as_bytes())
        + numbers
            .into_iter()
            .filter(|value| *value != 0)
            .map(|value| number(value.cast_unsigned()))
            .sum::<usize>()
        + flag(request.serializable)
        + flag(request.keys_only)
        + flag(request.count_only)
}

fn compare(compare: &Compare) -> usize {
    // The target's value is one of a choice, and so is sent even where it is zero.
    let chosen = |value: i64| 1 + varint(value.cast_unsigned());
    let (kind, target) = match &compare.target {
        CompareTarget::Version(version) => (0, chosen(*version)),
        CompareTarget::Create(revision) => (2, chosen(revision.get())),
        CompareTarget::Mod(revision) => (2, chosen(revision.get())),
        CompareTarget::Value(value) => (2, field(value.len())),
        CompareTarget::Lease(lease) => (2, chosen(lease.get())),
    };
    let end = bytes(compare.range.end.as_bytes());
    // The range's end has a field number that takes two bytes.
    let end = if end == 0 { 0 } else { end + 1 };
    2 * usize::from(compare.result as u8 != 0) + kind + target + bytes(compare.range.start.as_bytes()) + end
}

fn flag(set: bool) -> usize {
    if set { 2 } else { 0 }
}

fn number(value: u64) -> usize {
    if value == 0 { 0 } else { 1 + varint(value) }
}

fn bytes(bytes: &[u8]) -> usize {
    if bytes.is_empty() { 0 } else { field(bytes.len()) }
}

/// A field of one byte's number with something of this length in it.
fn field(len: usize) -> usize {
    1 + prefixed(len)
}

fn prefixed(len: usize) -> usize {
    varint(len as u64) + len
}

fn varint(value: u64) -> usize {
    (64 - (value | 1).leading_zeros()).div_ceil(7) as usize
}
