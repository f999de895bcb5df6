//! The differences that are known, and taken out before answers are compared.
//!
//! All versions:
//! - the raft term, which rises with each restart of the real etcd;
//! - whole seconds of a lease's time, which the two clocks may cut differently;
//! - the order of the list of leases, and of a lease's keys: etcd keeps them unordered.
//!
//! etcd 3.5, where ours does as 3.7 does:
//! - it takes a watch from a negative revision, and that one never hears of anything: it is not asked for one;
//! - it shows leases of keys that are read without their values;
//! - in a transaction that would be refused for several reasons, it looks at all puts before it looks at the reads, and
//!   at the key of a put before it looks at its lease.

use leasehold_mvcc::{
    Answer, Code, Command, Header, KeyValue, LeaseId, LeaseTimeToLiveAnswer, RangeAnswer, RangeRequest,
    StoreError, Txn, TxnAnswer, TxnOp, TxnOpAnswer,
};
use leasehold_testbed::Version;

/// By how many seconds a lease's time may differ: a list takes less than that, and a restart starts leases anew.
const SECONDS: i64 = 30;

const NO_KEY: &str = "etcdserver: key not found";
const NO_LEASE: &str = "etcdserver: requested lease not found";

type Outcome = Result<Answer, StoreError>;

/// Takes the known differences out of an outcome and out of what it is compared with.
pub(crate) fn take_out(version: Version, command: &Command, etcd: &mut Outcome, ours: &mut Outcome) {
    for answer in [&mut *etcd, &mut *ours].into_iter().flatten() {
        header(answer).raft_term = 0;
        sort(answer);
        if version == Version::V35 {
            hide_leases(command, answer);
        }
    }
    match (etcd, ours) {
        (Ok(Answer::LeaseTimeToLive(etcd)), Ok(Answer::LeaseTimeToLive(ours))) => align(etcd, ours),
        (Err(etcd), Err(ours)) if version == Version::V35 && matches!(command, Command::Txn(_)) => {
            let reads_last = (says(etcd, NO_KEY) || says(etcd, NO_LEASE)) && ours.code == Code::OutOfRange;
            let leases_last = says(etcd, NO_KEY) && says(ours, NO_LEASE);
            if reads_last || leases_last {
                etcd.clone_from(ours);
            }
        }
        _ => {}
    }
}

pub(crate) fn header(answer: &mut Answer) -> &mut Header {
    match answer {
        Answer::Range(answer) => &mut answer.header,
        Answer::Put(answer) => &mut answer.header,
        Answer::Delete(answer) => &mut answer.header,
        Answer::Txn(answer) => &mut answer.header,
        Answer::LeaseGrant(answer) => &mut answer.header,
        Answer::LeaseKeepAlive(answer) => &mut answer.header,
        Answer::LeaseRevoke(answer) => &mut answer.header,
        Answer::LeaseTimeToLive(answer) => &mut answer.header,
        Answer::Leases(answer) => &mut answer.header,
        Answer::Compact(answer) => &mut answer.header,
        Answer::Expire(_) => panic!("no list asks for expiry"),
    }
}

fn sort(answer: &mut Answer) {
    match answer {
        Answer::LeaseTimeToLive(answer) => answer.keys.sort(),
        Answer::Leases(answer) => answer.leases.sort(),
        _ => {}
    }
}

fn align(etcd: &mut LeaseTimeToLiveAnswer, ours: &LeaseTimeToLiveAnswer) {
    let both_live = etcd.ttl > 0 && ours.ttl > 0;
    if both_live && (etcd.ttl - ours.ttl).abs() <= SECONDS {
        etcd.ttl = ours.ttl;
    }
}

fn says(error: &StoreError, message: &str) -> bool {
    error.message == message
}

fn hide_leases(command: &Command, answer: &mut Answer) {
    match (command, answer) {
        (Command::Range(request), Answer::Range(answer)) => hide_in_range(request, answer),
        (Command::Txn(txn), Answer::Txn(answer)) => hide_in_txn(txn, answer),
        _ => {}
    }
}

fn hide_in_range(request: &RangeRequest, answer: &mut RangeAnswer) {
    if request.keys_only {
        for KeyValue { lease, .. } in &mut answer.kvs {
            *lease = LeaseId::NONE;
        }
    }
}

fn hide_in_txn(txn: &Txn, answer: &mut TxnAnswer) {
    let asked = if answer.succeeded { &txn.success } else { &txn.failure };
    for pair in asked.iter().zip(&mut answer.ops) {
        match pair {
            (TxnOp::Range(request), TxnOpAnswer::Range(answer)) => hide_in_range(request, answer),
            (TxnOp::Txn(txn), TxnOpAnswer::Txn(answer)) => hide_in_txn(txn, answer),
            _ => {}
        }
    }
}
