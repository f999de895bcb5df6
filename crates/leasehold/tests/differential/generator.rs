//! Random operations, on so few keys, leases and values that they get in each other's way.
//!
//! What is never asked, since the answer is a matter of chance or etcd's end:
//! - leases whose id the server chooses, and leases that end by themselves while a list runs;
//! - more than a dozen keys: of so many, etcd leaves what sorts alike in an order of its own;
//! - compactions that are answered before they are done: until then, watches still hear of what is to be forgotten;
//! - a transaction that deletes without end and has a put that keeps value or lease: the check finds the key, the put
//!   does not, and etcd ends;
//! - a compaction in a list whose transactions write keys that they delete: etcd's index does not survive a
//!   compaction of exactly that revision, and the next read ends it.

use bytes::Bytes;
use fastrand::Rng;
use leasehold_mvcc::{
    Command, CompactRequest, Compare, CompareResult, CompareTarget, DeleteRequest, Instant, Key, KeyRange,
    LeaseGrantRequest, LeaseId, PutRequest, RangeRequest, Revision, SortOrder, SortTarget, Store, Txn, TxnOp,
    WatchRequest,
};

use crate::operation::{Operation, Origin};

const KEYS: [&[u8]; 10] = [b"a", b"aa", b"ab", b"b", b"c", b"\0", b"\xff", b"\xff\xff", b"a/b", b"\xfe\x80"];
const VALUES: [&[u8]; 5] = [b"", b"x", b"y", b"zz", b"\0\xff"];
const LEASES: [i64; 5] = [1, 2, 3, 7, -5];
const TTLS: [i64; 6] = [1000, 1200, 1800, 2000, 9_000_000_000, 9_000_000_001];

/// A list, and how things stand when it begins; the same for the same seed.
pub(crate) fn list(seed: u64, length: usize) -> (Origin, Vec<Operation>) {
    let mut rng = Rng::with_seed(seed);
    let origin = if rng.u32(0..25) == 0 { Origin::Fresh } else { Origin::Emptied };
    let rewriting = rng.u32(0..4) == 0;
    let model = origin.model();
    let mut generator = Generator { rng, model, rewriting, compactions_left: 2, large_value_left: true };
    let operations = (0..length).map(|_| generator.operation()).collect();
    (origin, operations)
}

struct Generator {
    rng: Rng,
    /// Where the list has got to: without it, hardly a revision would mean anything.
    model: Store,
    /// Whether transactions of this list write keys that they delete, which etcd lets pass where the delete has no end.
    rewriting: bool,
    /// A compaction that is carried out waits for all watches: a few a list are enough.
    compactions_left: u32,
    /// Two large values in one transaction are too much for gRPC, which answers in etcd's place.
    large_value_left: bool,
}

impl Generator {
    fn operation(&mut self) -> Operation {
        let operation = self.draw();
        if let Operation::Call(command) = &operation {
            self.model.apply(command.clone(), Instant::ZERO);
        }
        operation
    }

    fn draw(&mut self) -> Operation {
        if self.once_in(5000) {
            return Operation::Restart;
        }
        match self.rng.u32(0..1000) {
            0..=199 => Operation::Call(Command::Range(self.range_request())),
            200..=389 => Operation::Call(Command::Put(self.put())),
            390..=449 => Operation::Call(Command::Delete(self.delete())),
            450..=759 => Operation::Call(Command::Txn(self.transaction())),
            760..=809 => Operation::Call(Command::LeaseGrant(self.grant())),
            810..=829 => Operation::Call(Command::LeaseRevoke(self.lease_or_none())),
            830..=859 => Operation::Call(Command::LeaseTimeToLive(self.lease_or_none(), self.rng.bool())),
            860..=879 => Operation::Call(Command::LeaseKeepAlive(self.lease_or_none())),
            880..=894 => Operation::Call(Command::Leases),
            895..=924 => Operation::Call(Command::Compact(self.compaction())),
            925..=994 => Operation::Watch(self.watch()),
            _ => Operation::Cancel(self.rng.usize(0..8)),
        }
    }

    fn once_in(&mut self, times: u32) -> bool {
        self.rng.u32(0..times) == 0
    }

    fn one_of<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.rng.usize(0..choices.len())].clone()
    }

    fn key(&mut self) -> Key {
        if self.once_in(150) { Key::default() } else { Key::from(self.one_of(&KEYS)) }
    }

    fn value(&mut self) -> Bytes {
        Bytes::from_static(self.one_of(&VALUES))
    }

    /// About as much as is allowed.
    fn large_value(&mut self) -> Bytes {
        self.large_value_left = false;
        vec![b'.'; self.rng.usize((3 << 19) - 120..3 << 19)].into()
    }

    fn lease(&mut self) -> LeaseId {
        LeaseId::new(self.one_of(&LEASES))
    }

    fn lease_or_none(&mut self) -> LeaseId {
        if self.once_in(6) { LeaseId::NONE } else { self.lease() }
    }

    fn key_range(&mut self) -> KeyRange {
        let start = self.key();
        match self.rng.u32(0..10) {
            0..=3 => KeyRange::key(start),
            4 => KeyRange::from(start),
            5 => KeyRange::all(),
            6 => KeyRange::prefix(start),
            _ => KeyRange::between(start, self.key()),
        }
    }

    /// Now, the past, what is compacted, and what has not come yet.
    fn revision(&mut self) -> Revision {
        let (now, compacted) = (self.model.revision().get(), self.model.compacted_revision().get());
        Revision::new(match self.rng.u32(0..20) {
            0 => self.rng.i64(-3..3),
            1 => now + self.rng.i64(-1..3),
            2..=4 => compacted + self.rng.i64(-2..3),
            5..=9 => self.rng.i64(compacted..=now),
            _ => 0,
        })
    }

    fn bound(&mut self) -> Revision {
        if !self.once_in(6) {
            return Revision::ZERO;
        }
        if self.once_in(20) {
            return Revision::new(i64::MAX);
        }
        Revision::new(self.rng.i64(-1..=self.model.revision().get() + 1))
    }

    fn range_request(&mut self) -> RangeRequest {
        let orders = [SortOrder::None, SortOrder::Ascend, SortOrder::Descend];
        let targets =
            [SortTarget::Key, SortTarget::Version, SortTarget::Create, SortTarget::Mod, SortTarget::Value];
        RangeRequest {
            range: self.key_range(),
            limit: if self.rng.bool() { self.rng.i64(-1..6) } else { 0 },
            revision: self.revision(),
            sort_order: if self.rng.bool() { self.one_of(&orders) } else { SortOrder::None },
            sort_target: if self.rng.bool() { self.one_of(&targets) } else { SortTarget::Key },
            serializable: self.once_in(5),
            keys_only: self.once_in(5),
            count_only: self.once_in(8),
            min_mod_revision: self.bound(),
            max_mod_revision: self.bound(),
            min_create_revision: self.bound(),
            max_create_revision: self.bound(),
        }
    }

    fn put(&mut self) -> PutRequest {
        let (ignore_value, ignore_lease) = (self.once_in(6), self.once_in(6));
        // Now and then what is to be ignored is given all the same, which is refused.
        let (value_too, lease_too) = (self.once_in(10), self.once_in(10));
        let value =
            if self.large_value_left && self.once_in(4000) { self.large_value() } else { self.value() };
        let lease = self.lease();
        PutRequest {
            key: self.key(),
            value: if ignore_value && !value_too { Bytes::new() } else { value },
            lease: if (ignore_lease && !lease_too) || self.rng.bool() { LeaseId::NONE } else { lease },
            prev_kv: self.rng.bool(),
            ignore_value,
            ignore_lease,
        }
    }

    fn delete(&mut self) -> DeleteRequest {
        let range = if self.rng.bool() { self.key_range() } else { KeyRange::key(self.key()) };
        DeleteRequest { range, prev_kv: self.rng.bool() }
    }

    fn grant(&mut self) -> LeaseGrantRequest {
        LeaseGrantRequest { ttl: self.one_of(&TTLS), id: self.lease() }
    }

    fn compaction(&mut self) -> CompactRequest {
        let (now, compacted) = (self.model.revision().get(), self.model.compacted_revision().get());
        let mut revision = match self.rng.u32(0..8) {
            0 => self.rng.i64(-3..3),
            1 | 2 => now + self.rng.i64(0..3),
            3 => compacted + self.rng.i64(-2..3),
            _ => self.rng.i64(compacted..=now),
        };
        if (compacted + 1..=now).contains(&revision) || (compacted == 0 && revision == 0) {
            if self.compactions_left == 0 || self.rewriting {
                revision = now + 1;
            } else {
                self.compactions_left -= 1;
            }
        }
        CompactRequest { revision: Revision::new(revision), physical: true }
    }

    fn watch(&mut self) -> WatchRequest {
        let (now, compacted) = (self.model.revision().get(), self.model.compacted_revision().get());
        let start = match self.rng.u32(0..20) {
            0 => self.rng.i64(-3..0),
            1 | 2 => now + self.rng.i64(1..4),
            3..=5 => compacted + self.rng.i64(-2..3),
            6..=11 => self.rng.i64(compacted..=now),
            _ => 0,
        };
        WatchRequest {
            range: self.key_range(),
            start_revision: Revision::new(start),
            prev_kv: self.rng.bool(),
            no_put: self.once_in(5),
            no_delete: self.once_in(5),
            progress_notify: false,
        }
    }

    fn transaction(&mut self) -> Txn {
        if self.once_in(150) {
            return self.long_transaction();
        }
        loop {
            let txn = self.txn(2);
            let (deletes, puts, keeps) = (has(&txn, deletes_without_end), has(&txn, puts), has(&txn, keeps));
            let ends_etcd = deletes && keeps;
            let rewrites = deletes && puts;
            if !ends_etcd && (self.rewriting || !rewrites) {
                return txn;
            }
        }
    }

    /// About as many operations as are allowed.
    fn long_transaction(&mut self) -> Txn {
        let count = self.rng.usize(126..131);
        let compare = Compare::absent("a");
        let read = TxnOp::Range(RangeRequest::key("a"));
        match self.rng.u32(0..3) {
            0 => Txn { compare: vec![compare; count], ..Txn::default() },
            1 => Txn { success: vec![read; count], ..Txn::default() },
            _ => {
                // The limit counts the levels together.
                let inner = Txn { failure: vec![read.clone(); count / 2], ..Txn::default() };
                let mut outer = Txn { success: vec![read; count - count / 2 - 1], ..Txn::default() };
                outer.success.push(TxnOp::Txn(inner));
                outer
            }
        }
    }

    fn txn(&mut self, depth: u32) -> Txn {
        Txn { compare: self.compares(), success: self.ops(depth), failure: self.ops(depth) }
    }

    fn compares(&mut self) -> Vec<Compare> {
        (0..self.rng.usize(0..3)).map(|_| self.compare()).collect()
    }

    fn compare(&mut self) -> Compare {
        let results =
            [CompareResult::Equal, CompareResult::Greater, CompareResult::Less, CompareResult::NotEqual];
        let highest = self.model.revision().get() + 1;
        let revision = Revision::new(if self.rng.bool() { 0 } else { self.rng.i64(0..=highest) });
        let target = match self.rng.u32(0..5) {
            0 => CompareTarget::Version(self.rng.i64(-1..4)),
            1 => CompareTarget::Create(revision),
            2 => CompareTarget::Mod(revision),
            3 => CompareTarget::Value(self.value()),
            _ => CompareTarget::Lease(self.lease_or_none()),
        };
        let range = if self.rng.bool() { KeyRange::key(self.key()) } else { self.key_range() };
        Compare { range, target, result: self.one_of(&results) }
    }

    fn ops(&mut self, depth: u32) -> Vec<TxnOp> {
        (0..self.rng.usize(0..5)).map(|_| self.op(depth)).collect()
    }

    fn op(&mut self, depth: u32) -> TxnOp {
        match self.rng.u32(0..if depth > 0 { 11 } else { 8 }) {
            0..=2 => TxnOp::Range(self.range_request()),
            3..=5 => TxnOp::Put(self.put()),
            6..=7 => TxnOp::Delete(self.delete()),
            _ => TxnOp::Txn(self.txn(depth - 1)),
        }
    }
}

/// Whether any operation of a transaction, or of one within it, is so.
fn has(txn: &Txn, is: fn(&TxnOp) -> bool) -> bool {
    txn.success.iter().chain(&txn.failure).any(|op| match op {
        TxnOp::Txn(txn) => has(txn, is),
        op => is(op),
    })
}

fn deletes_without_end(op: &TxnOp) -> bool {
    matches!(op, TxnOp::Delete(request) if request.range.is_open())
}

fn puts(op: &TxnOp) -> bool {
    matches!(op, TxnOp::Put(_))
}

fn keeps(op: &TxnOp) -> bool {
    matches!(op, TxnOp::Put(request) if request.ignore_value || request.ignore_lease)
}
