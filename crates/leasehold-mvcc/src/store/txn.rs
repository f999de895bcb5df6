//! Transactions: first every comparison, then every check, then the operations.

use std::cmp::Ordering;
use std::slice;

use super::lease::Leases;
use super::read::View;
use super::write::Writer;
use super::{check as shape, refusal};
use crate::{
    Compare, CompareResult, CompareTarget, KeyValue, RangeAnswer, RangeRequest, Revision, StoreError, Txn,
    TxnAnswer, TxnOp, TxnOpAnswer,
};

/// Which list is done, of a transaction and of those within it. All comparisons see the state before the outermost
/// one: a put does not sway a later transaction beside it.
pub(super) struct Plan {
    succeeded: bool,
    /// For the transactions within the lists that are done, in the order in which they are come upon.
    within: Vec<bool>,
}

/// Whether a transaction cannot write, whichever list is done. One within another counts as a write, as in etcd.
pub(super) fn only_reads(txn: &Txn) -> bool {
    txn.success.iter().chain(&txn.failure).all(|op| matches!(op, TxnOp::Range(_)))
}

pub(super) fn plan(view: &View<'_>, txn: &Txn) -> Plan {
    let mut within = Vec::new();
    let succeeded = decide(view, txn, &mut within);
    Plan { succeeded, within }
}

fn decide(view: &View<'_>, txn: &Txn, within: &mut Vec<bool>) -> bool {
    let succeeded = txn.compare.iter().all(|compare| holds(view, compare));
    for op in branch(txn, succeeded) {
        if let TxnOp::Txn(txn) = op {
            let at = within.len();
            within.push(false);
            let succeeded = decide(view, txn, within);
            if let Some(slot) = within.get_mut(at) {
                *slot = succeeded;
            }
        }
    }
    succeeded
}

fn branch(txn: &Txn, succeeded: bool) -> &[TxnOp] {
    if succeeded { &txn.success } else { &txn.failure }
}

/// Refuses what would fail midway. Everything is checked against the state before the transaction.
pub(super) fn check(view: &View<'_>, leases: &Leases, txn: &Txn, plan: &Plan) -> Result<(), StoreError> {
    check_branch(view, leases, txn, plan.succeeded, &mut plan.within.iter())
}

fn check_branch(
    view: &View<'_>,
    leases: &Leases,
    txn: &Txn,
    succeeded: bool,
    within: &mut slice::Iter<'_, bool>,
) -> Result<(), StoreError> {
    for op in branch(txn, succeeded) {
        match op {
            TxnOp::Range(request) => check_range(view, request)?,
            TxnOp::Put(request) => shape::put_fits(request, view.present, leases)?,
            TxnOp::Delete(_) => {}
            TxnOp::Txn(txn) => {
                let succeeded = within.next().copied().unwrap_or_default();
                check_branch(view, leases, txn, succeeded, within)?;
            }
        }
    }
    Ok(())
}

fn check_range(view: &View<'_>, request: &RangeRequest) -> Result<(), StoreError> {
    if request.revision.is_zero() {
        Ok(())
    } else if request.revision > view.revision {
        Err(refusal::future_revision())
    } else if request.revision < view.past.compacted() {
        // Unlike at the top, a negative revision is not the current one here.
        Err(refusal::compacted())
    } else {
        Ok(())
    }
}

/// Does the operations. The header of the answer is empty, as etcd leaves it for a transaction within another.
pub(super) fn execute(writer: &mut Writer<'_>, txn: Txn, plan: &Plan) -> TxnAnswer {
    execute_branch(writer, txn, plan.succeeded, &mut plan.within.iter())
}

fn execute_branch(
    writer: &mut Writer<'_>,
    txn: Txn,
    succeeded: bool,
    within: &mut slice::Iter<'_, bool>,
) -> TxnAnswer {
    let requests = if succeeded { txn.success } else { txn.failure };
    let mut ops = Vec::with_capacity(requests.len());
    for request in requests {
        ops.push(match request {
            TxnOp::Range(request) => TxnOpAnswer::Range(read(writer, &request)),
            TxnOp::Put(request) => TxnOpAnswer::Put(writer.put(request)),
            TxnOp::Delete(request) => TxnOpAnswer::Delete(writer.delete(&request)),
            TxnOp::Txn(txn) => {
                let succeeded = within.next().copied().unwrap_or_default();
                TxnOpAnswer::Txn(execute_branch(writer, txn, succeeded, within))
            }
        });
    }
    TxnAnswer { ops, succeeded, ..TxnAnswer::default() }
}

fn read(writer: &Writer<'_>, request: &RangeRequest) -> RangeAnswer {
    // The revision was checked, so this cannot be refused; an empty answer stands in for what cannot happen.
    writer.view().answer(request).unwrap_or_default()
}

/// Whether a comparison holds for every key of its range. Where there is no key, numbers are compared to 0, and
/// values never hold: an absent value has no place in the protocol.
fn holds(view: &View<'_>, compare: &Compare) -> bool {
    if compare.range.is_single() {
        return match view.present.get(&compare.range.start) {
            Some(kv) => holds_for(compare, kv),
            None => holds_for_nothing(compare),
        };
    }
    let mut keys = view.present.span(&compare.range).peekable();
    if keys.peek().is_none() { holds_for_nothing(compare) } else { keys.all(|kv| holds_for(compare, kv)) }
}

fn holds_for_nothing(compare: &Compare) -> bool {
    let (zero, none) = (Revision::ZERO, crate::LeaseId::NONE);
    match &compare.target {
        CompareTarget::Value(_) => false,
        CompareTarget::Version(version) => stands(0.cmp(version), compare.result),
        CompareTarget::Create(revision) | CompareTarget::Mod(revision) => {
            stands(zero.cmp(revision), compare.result)
        }
        CompareTarget::Lease(lease) => stands(none.cmp(lease), compare.result),
    }
}

fn holds_for(compare: &Compare, kv: &KeyValue) -> bool {
    let ordering = match &compare.target {
        CompareTarget::Version(version) => kv.version.cmp(version),
        CompareTarget::Create(revision) => kv.create_revision.cmp(revision),
        CompareTarget::Mod(revision) => kv.mod_revision.cmp(revision),
        CompareTarget::Value(value) => kv.value.cmp(value),
        CompareTarget::Lease(lease) => kv.lease.cmp(lease),
    };
    stands(ordering, compare.result)
}

fn stands(ordering: Ordering, result: CompareResult) -> bool {
    match result {
        CompareResult::Equal => ordering.is_eq(),
        CompareResult::NotEqual => ordering.is_ne(),
        CompareResult::Greater => ordering.is_gt(),
        CompareResult::Less => ordering.is_lt(),
    }
}
