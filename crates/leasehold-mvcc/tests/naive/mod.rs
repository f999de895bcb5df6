//! A store as one would write it on a napkin: a full copy of all keys for every revision, and no thought of speed.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold_mvcc::{
    Answer, Code, Command, Compare, CompareResult, CompareTarget, DeleteAnswer, Event, EventKind, Header,
    Instant, KeepAliveAnswer, Key, KeyRange, KeyValue, LeaseGrantAnswer, LeaseId, LeaseRevokeAnswer,
    LeaseTimeToLiveAnswer, LeasesAnswer, PutAnswer, PutRequest, RangeAnswer, RangeRequest, Revision,
    SortOrder, SortTarget, Txn, TxnAnswer, TxnOp, TxnOpAnswer,
};

type Keys = BTreeMap<Key, KeyValue>;

/// One snapshot for each revision from 1 on, and each lease with its life and its end.
#[derive(Debug)]
pub(crate) struct Naive {
    snapshots: Vec<Keys>,
    compacted: i64,
    leases: BTreeMap<LeaseId, (i64, Instant)>,
    header: Header,
}

impl Naive {
    pub(crate) fn new(header: Header) -> Self {
        Self { snapshots: vec![Keys::new()], compacted: -1, leases: BTreeMap::new(), header }
    }

    pub(crate) fn revision(&self) -> i64 {
        i64::try_from(self.snapshots.len()).unwrap()
    }

    pub(crate) fn compacted(&self) -> i64 {
        self.compacted
    }

    pub(crate) fn now(&self) -> &Keys {
        self.snapshots.last().unwrap()
    }

    fn at(&self, revision: i64) -> &Keys {
        &self.snapshots[usize::try_from(revision - 1).unwrap()]
    }

    pub(crate) fn next_expiry(&self) -> Option<Instant> {
        self.leases.values().map(|(_, end)| *end).min()
    }

    fn header(&self) -> Header {
        Header { revision: Revision::new(self.revision()), ..self.header }
    }

    pub(crate) fn apply(&mut self, command: &Command, now: Instant) -> Result<Answer, Code> {
        match command {
            Command::Range(request) => {
                self.check_range(request, request.revision.get().max(0))?;
                let mut answer = self.read(self.now(), request);
                answer.header = self.header();
                Ok(Answer::Range(answer))
            }
            Command::Put(request) => {
                let mut answer = self.do_txn(&Txn::new().then(request.clone()))?;
                let Some(TxnOpAnswer::Put(put)) = answer.ops.pop() else { panic!("one put, one answer") };
                Ok(Answer::Put(PutAnswer { header: self.header(), ..put }))
            }
            Command::Delete(request) => {
                let mut answer = self.do_txn(&Txn::new().then(request.clone()))?;
                let Some(TxnOpAnswer::Delete(delete)) = answer.ops.pop() else {
                    panic!("one delete, one answer")
                };
                Ok(Answer::Delete(DeleteAnswer { header: self.header(), ..delete }))
            }
            Command::Txn(txn) => {
                let answer = self.do_txn(txn)?;
                Ok(Answer::Txn(TxnAnswer { header: self.header(), ..answer }))
            }
            Command::Compact(request) => {
                let revision = request.revision.get();
                if revision <= self.compacted || revision > self.revision() {
                    return Err(Code::OutOfRange);
                }
                self.compacted = revision;
                Ok(Answer::Compact(leasehold_mvcc::CompactAnswer { header: self.header() }))
            }
            Command::Expire => {
                let mut due: Vec<_> = self.leases.iter().filter(|(_, (_, end))| *end <= now).collect();
                due.sort_by_key(|(id, (_, end))| (*end, **id));
                let due: Vec<LeaseId> = due.into_iter().map(|(id, _)| *id).collect();
                for id in &due {
                    self.end(*id);
                }
                Ok(Answer::Expire(due))
            }
            lease => self.apply_lease(lease, now),
        }
    }

    fn apply_lease(&mut self, command: &Command, now: Instant) -> Result<Answer, Code> {
        let header = self.header();
        let end = |ttl: i64| now + Duration::from_secs(u64::try_from(ttl).unwrap());
        match command {
            Command::LeaseGrant(request) => {
                if self.leases.contains_key(&request.id) {
                    return Err(Code::FailedPrecondition);
                }
                let ttl = request.ttl.max(2);
                self.leases.insert(request.id, (ttl, end(ttl)));
                Ok(Answer::LeaseGrant(LeaseGrantAnswer { header, id: request.id, ttl }))
            }
            Command::LeaseKeepAlive(id) => {
                let mut answer = KeepAliveAnswer { header, id: *id, ttl: 0 };
                if let Some((ttl, ends)) = self.leases.get_mut(id).filter(|(_, ends)| *ends > now) {
                    answer.ttl = *ttl;
                    *ends = end(*ttl);
                }
                Ok(Answer::LeaseKeepAlive(answer))
            }
            Command::LeaseRevoke(id) => {
                if !self.leases.contains_key(id) {
                    return Err(Code::NotFound);
                }
                self.end(*id);
                Ok(Answer::LeaseRevoke(LeaseRevokeAnswer { header: self.header() }))
            }
            Command::LeaseTimeToLive(id, keys) => {
                let mut answer = LeaseTimeToLiveAnswer { header, id: *id, ttl: -1, ..Default::default() };
                if let Some((ttl, ends)) = self.leases.get(id) {
                    let left = i128::from(ends.as_nanos()) - i128::from(now.as_nanos());
                    answer.ttl = i64::try_from(left / 1_000_000_000).unwrap();
                    answer.granted_ttl = *ttl;
                    let attached = self.now().values().filter(|kv| *keys && kv.lease == *id);
                    answer.keys = attached.map(|kv| kv.key.clone()).collect();
                }
                Ok(Answer::LeaseTimeToLive(answer))
            }
            Command::Leases => {
                let mut leases: Vec<_> = self.leases.iter().map(|(id, (_, end))| (*end, *id)).collect();
                leases.sort_unstable();
                let leases = leases.into_iter().map(|(_, id)| id).collect();
                Ok(Answer::Leases(LeasesAnswer { header, leases }))
            }
            other => panic!("not about leases: {other:?}"),
        }
    }

    fn end(&mut self, id: LeaseId) {
        self.leases.remove(&id);
        let mut keys = self.now().clone();
        keys.retain(|_, kv| kv.lease != id);
        self.push_if_changed(keys);
    }

    fn push_if_changed(&mut self, keys: Keys) {
        if keys != *self.now() {
            self.snapshots.push(keys);
        }
    }

    fn do_txn(&mut self, txn: &Txn) -> Result<TxnAnswer, Code> {
        for ops in [&txn.success, &txn.failure] {
            check_overlaps(ops)?;
        }
        let succeeded = txn.compare.iter().all(|compare| self.holds(compare));
        let ops = if succeeded { &txn.success } else { &txn.failure };
        for op in ops {
            match op {
                TxnOp::Range(request) => self.check_range(request, request.revision.get())?,
                TxnOp::Put(request) => self.check_put(request)?,
                TxnOp::Delete(_) => {}
                TxnOp::Txn(_) => panic!("the naive store does not nest"),
            }
        }
        let mut keys = self.now().clone();
        let answers = ops.iter().map(|op| self.do_op(&mut keys, op)).collect();
        self.push_if_changed(keys);
        Ok(TxnAnswer { succeeded, ops: answers, ..TxnAnswer::default() })
    }

    fn do_op(&self, keys: &mut Keys, op: &TxnOp) -> TxnOpAnswer {
        let next = Revision::new(self.revision() + 1);
        let changed = |keys: &Keys| if keys == self.now() { Revision::new(self.revision()) } else { next };
        match op {
            TxnOp::Range(request) => {
                let mut answer = self.read(keys, request);
                answer.header.revision = changed(keys);
                TxnOpAnswer::Range(answer)
            }
            TxnOp::Put(request) => {
                let before = keys.get(&request.key).cloned();
                let old = before.clone().unwrap_or_default();
                let kv = KeyValue {
                    key: request.key.clone(),
                    value: if request.ignore_value { old.value } else { request.value.clone() },
                    create_revision: before.as_ref().map_or(next, |before| before.create_revision),
                    mod_revision: next,
                    version: old.version + 1,
                    lease: if request.ignore_lease { old.lease } else { request.lease },
                };
                keys.insert(request.key.clone(), kv);
                let header = Header { revision: next, ..Header::default() };
                TxnOpAnswer::Put(PutAnswer { header, prev_kv: before.filter(|_| request.prev_kv) })
            }
            TxnOp::Delete(request) => {
                let gone: Vec<_> = within(keys, &request.range).cloned().collect();
                for kv in &gone {
                    keys.remove(&kv.key);
                }
                TxnOpAnswer::Delete(DeleteAnswer {
                    header: Header { revision: changed(keys), ..Header::default() },
                    deleted: i64::try_from(gone.len()).unwrap(),
                    prev_kvs: if request.prev_kv { gone } else { Vec::new() },
                })
            }
            TxnOp::Txn(_) => panic!("the naive store does not nest"),
        }
    }

    fn check_range(&self, request: &RangeRequest, revision: i64) -> Result<(), Code> {
        assert!(!request.range.start.is_empty(), "the naive store takes every request to be well formed");
        let refused = revision != 0 && (revision > self.revision() || revision < self.compacted);
        if refused { Err(Code::OutOfRange) } else { Ok(()) }
    }

    fn check_put(&self, request: &PutRequest) -> Result<(), Code> {
        if !request.lease.is_none() && !self.leases.contains_key(&request.lease) {
            return Err(Code::NotFound);
        }
        let keeps = request.ignore_lease || request.ignore_value;
        if keeps && !self.now().contains_key(&request.key) { Err(Code::InvalidArgument) } else { Ok(()) }
    }

    fn holds(&self, compare: &Compare) -> bool {
        let mut found: Vec<_> = within(self.now(), &compare.range).cloned().collect();
        if found.is_empty() {
            if matches!(compare.target, CompareTarget::Value(_)) {
                return false;
            }
            found.push(KeyValue::default());
        }
        found.iter().all(|kv| {
            let ordering = match &compare.target {
                CompareTarget::Version(version) => kv.version.cmp(version),
                CompareTarget::Create(revision) => kv.create_revision.cmp(revision),
                CompareTarget::Mod(revision) => kv.mod_revision.cmp(revision),
                CompareTarget::Value(value) => kv.value.cmp(value),
                CompareTarget::Lease(lease) => kv.lease.cmp(lease),
            };
            match compare.result {
                CompareResult::Equal => ordering.is_eq(),
                CompareResult::NotEqual => ordering.is_ne(),
                CompareResult::Greater => ordering.is_gt(),
                CompareResult::Less => ordering.is_lt(),
            }
        })
    }

    fn read(&self, keys: &Keys, request: &RangeRequest) -> RangeAnswer {
        let keys = if request.revision > Revision::ZERO { self.at(request.revision.get()) } else { keys };
        let mut kvs: Vec<_> = within(keys, &request.range).cloned().collect();
        let count = i64::try_from(kvs.len()).unwrap();
        let ordered = request.sort_order != SortOrder::None;
        let bounds = [
            request.min_mod_revision,
            request.max_mod_revision,
            request.min_create_revision,
            request.max_create_revision,
        ];
        let limit = usize::try_from(request.limit).ok().filter(|limit| *limit > 0);
        if let Some(limit) = limit.filter(|_| !ordered && bounds.iter().all(|bound| bound.is_zero())) {
            kvs.truncate(limit + 1);
        }
        kvs.retain(|kv| {
            let [min_mod, max_mod, min_create, max_create] = bounds;
            kv.mod_revision >= min_mod
                && (max_mod.is_zero() || kv.mod_revision <= max_mod)
                && kv.create_revision >= min_create
                && (max_create.is_zero() || kv.create_revision <= max_create)
        });
        kvs.sort_by(|a, b| {
            let (a, b) = if request.sort_order == SortOrder::Descend { (b, a) } else { (a, b) };
            match request.sort_target {
                SortTarget::Key => a.key.cmp(&b.key),
                SortTarget::Version => a.version.cmp(&b.version),
                SortTarget::Create => a.create_revision.cmp(&b.create_revision),
                SortTarget::Mod => a.mod_revision.cmp(&b.mod_revision),
                SortTarget::Value => a.value.cmp(&b.value),
            }
        });
        if request.count_only {
            kvs.clear();
        }
        let more = limit.is_some_and(|limit| kvs.len() > limit);
        kvs.truncate(limit.unwrap_or(usize::MAX));
        for kv in kvs.iter_mut().filter(|_| request.keys_only) {
            kv.value.clear();
            if request.sort_target != SortTarget::Value {
                kv.lease = LeaseId::NONE;
            }
        }
        RangeAnswer { kvs, more, count, ..RangeAnswer::default() }
    }

    /// What happened in a range from a revision on, by key within each revision: the differences of the snapshots.
    pub(crate) fn history(&self, range: &KeyRange, from: i64) -> Result<Vec<(i64, Vec<Event>)>, i64> {
        if from < self.compacted {
            return Err(self.compacted.max(0));
        }
        let mut history = Vec::new();
        for revision in from.max(2)..=self.revision() {
            let (before, after) = (self.at(revision - 1), self.at(revision));
            let prev_kv = |key: &Key| before.get(key).filter(|_| revision > self.compacted).cloned();
            let mut events = BTreeMap::new();
            for kv in within(after, range).filter(|kv| kv.mod_revision.get() == revision) {
                let event = Event { kind: EventKind::Put, kv: kv.clone(), prev_kv: prev_kv(&kv.key) };
                events.insert(kv.key.clone(), event);
            }
            for kv in within(before, range).filter(|kv| !after.contains_key(&kv.key)) {
                let gone = KeyValue {
                    key: kv.key.clone(),
                    mod_revision: Revision::new(revision),
                    ..KeyValue::default()
                };
                let event = Event { kind: EventKind::Delete, kv: gone, prev_kv: prev_kv(&kv.key) };
                events.insert(kv.key.clone(), event);
            }
            if !events.is_empty() {
                history.push((revision, events.into_values().collect()));
            }
        }
        Ok(history)
    }
}

fn within<'a>(keys: &'a Keys, range: &'a KeyRange) -> impl Iterator<Item = &'a KeyValue> {
    keys.values().filter(|kv| range.contains(&kv.key))
}

fn check_overlaps(ops: &[TxnOp]) -> Result<(), Code> {
    for (at, op) in ops.iter().enumerate() {
        let TxnOp::Put(put) = op else { continue };
        let clashes = ops.iter().enumerate().any(|(other_at, other)| match other {
            TxnOp::Put(other) => other_at != at && other.key == put.key,
            TxnOp::Delete(delete) => delete.range.contains(&put.key),
            _ => false,
        });
        if clashes {
            return Err(Code::InvalidArgument);
        }
    }
    Ok(())
}
