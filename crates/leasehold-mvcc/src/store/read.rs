//! Ranges: which keys, in what order, how many of them.

use std::cmp::Ordering;

use super::past::Past;
use super::present::Present;
use super::refusal;
use crate::{
    Event, Header, KeyValue, LeaseId, RangeAnswer, RangeRequest, Revision, SortOrder, SortTarget, StoreError,
};

/// A state to read from: the present, and the past behind it.
pub(super) struct View<'a> {
    pub(super) present: &'a Present,
    pub(super) past: &'a Past,
    /// What the commit in the making has done so far.
    pub(super) pending: &'a [Event],
    /// The revision of the present: that of the commit in the making, if it has done anything.
    pub(super) revision: Revision,
}

impl<'a> View<'a> {
    /// Answers a range. The header holds the revision only.
    pub(super) fn answer(&self, request: &RangeRequest) -> Result<RangeAnswer, StoreError> {
        if request.revision > self.revision {
            return Err(refusal::future_revision());
        }
        let at = if request.revision <= Revision::ZERO { self.revision } else { request.revision };
        if at < self.past.compacted() {
            return Err(refusal::compacted());
        }
        Ok(self.answer_at(request, at))
    }

    fn answer_at(&self, request: &RangeRequest, at: Revision) -> RangeAnswer {
        let now = at == self.revision;
        if request.count_only && now {
            return self.finish(request, Vec::new(), self.present.count(&request.range));
        }
        let fetch = fetch_limit(request);
        let (found, count) = if now {
            self.fetch_present(request, fetch)
        } else {
            let mut found = self.past.at(at, &request.range, self.present, self.pending);
            let count = found.len();
            found.truncate(fetch);
            (found, count)
        };
        if request.count_only {
            return self.finish(request, Vec::new(), count);
        }
        self.finish(request, found, count)
    }

    fn fetch_present(&self, request: &RangeRequest, fetch: usize) -> (Vec<&'a KeyValue>, usize) {
        let mut found = self.present.in_range(&request.range);
        let count = found.len();
        found.truncate(fetch);
        (found, count)
    }

    fn finish(&self, request: &RangeRequest, mut found: Vec<&'a KeyValue>, count: usize) -> RangeAnswer {
        if filters(request) {
            found.retain(|kv| passes(request, kv));
        }
        let limit = usize::try_from(request.limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
        let more = found.len() > limit;
        take_first(&mut found, limit, request);
        RangeAnswer {
            header: Header { revision: self.revision, ..Header::default() },
            kvs: found.into_iter().map(|kv| shown(request, kv)).collect(),
            more,
            count: i64::try_from(count).unwrap_or(i64::MAX),
        }
    }
}

/// How many keys to take in key order before they are filtered and sorted. etcd applies the limit here, with one to
/// spare, when no order is asked for: so a sort target without an order sorts only what comes first by key.
fn fetch_limit(request: &RangeRequest) -> usize {
    let by_key = request.sort_order == SortOrder::None
        || (request.sort_target == SortTarget::Key && request.sort_order == SortOrder::Ascend);
    match usize::try_from(request.limit) {
        Ok(limit) if limit > 0 && by_key && !filters(request) => limit.saturating_add(1),
        _ => usize::MAX,
    }
}

fn filters(request: &RangeRequest) -> bool {
    [
        request.min_mod_revision,
        request.max_mod_revision,
        request.min_create_revision,
        request.max_create_revision,
    ]
    .iter()
    .any(|bound| !bound.is_zero())
}

fn passes(request: &RangeRequest, kv: &KeyValue) -> bool {
    let within = |low: Revision, revision: Revision, high: Revision| {
        (low.is_zero() || revision >= low) && (high.is_zero() || revision <= high)
    };
    within(request.min_mod_revision, kv.mod_revision, request.max_mod_revision)
        && within(request.min_create_revision, kv.create_revision, request.max_create_revision)
}

/// Sorts, and leaves the first `limit`. Among equals the smaller key comes first, whichever way the order goes; so it
/// is in etcd too for up to a dozen keys, beyond which its sort leaves equals in an order of its own.
fn take_first(found: &mut Vec<&KeyValue>, limit: usize, request: &RangeRequest) {
    let compare: fn(&KeyValue, &KeyValue) -> Ordering = match request.sort_target {
        SortTarget::Key => |a, b| a.key.cmp(&b.key),
        SortTarget::Version => |a, b| a.version.cmp(&b.version),
        SortTarget::Create => |a, b| a.create_revision.cmp(&b.create_revision),
        SortTarget::Mod => |a, b| a.mod_revision.cmp(&b.mod_revision),
        SortTarget::Value => |a, b| a.value.cmp(&b.value),
    };
    let descend = request.sort_order == SortOrder::Descend;
    // What is found comes in the order of the keys.
    if descend || request.sort_target != SortTarget::Key {
        let order = |a: &&KeyValue, b: &&KeyValue| {
            let wanted = if descend { compare(b, a) } else { compare(a, b) };
            wanted.then_with(|| a.key.cmp(&b.key))
        };
        // The last two of a long queue are asked for far more often than all of it.
        if limit < found.len() {
            found.select_nth_unstable_by(limit, order);
            found.truncate(limit);
        }
        found.sort_unstable_by(order);
    }
    found.truncate(limit);
}

fn shown(request: &RangeRequest, kv: &KeyValue) -> KeyValue {
    if !request.keys_only {
        return kv.clone();
    }
    // etcd 3.7 serves keys from its index, which knows no leases, unless it must sort by value; 3.5 shows the lease.
    let lease = if request.sort_target == SortTarget::Value { kv.lease } else { LeaseId::NONE };
    KeyValue { value: bytes::Bytes::new(), lease, ..kv.clone() }
}
