//! Leases: how long each lives, and which keys hang on it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{StoreOptions, refusal};
use crate::{Instant, Key, LeaseGrantRequest, LeaseId, LeaseTimeToLiveAnswer, StoreError};

/// The longest life etcd grants, in seconds.
const MAX_TTL: i64 = 9_000_000_000;

#[derive(Clone, Debug)]
struct Lease {
    granted_ttl: i64,
    expiry: Instant,
    keys: BTreeSet<Key>,
}

/// All leases, by id and by the instant at which they are due.
#[derive(Clone, Debug, Default)]
pub(super) struct Leases {
    by_id: BTreeMap<LeaseId, Lease>,
    by_expiry: BTreeSet<(Instant, LeaseId)>,
    /// How many ids were made here.
    ids_made: u64,
}

impl Leases {
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    pub(super) fn contains(&self, id: LeaseId) -> bool {
        self.by_id.contains_key(&id)
    }

    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.by_expiry.first().map(|(expiry, _)| *expiry)
    }

    /// All ids, the next to expire first.
    pub(super) fn ids(&self) -> Vec<LeaseId> {
        self.by_expiry.iter().map(|(_, id)| *id).collect()
    }

    /// The leases that are due, the longest overdue first.
    pub(super) fn due(&self, now: Instant) -> Vec<LeaseId> {
        self.by_expiry.iter().take_while(|(expiry, _)| *expiry <= now).map(|(_, id)| *id).collect()
    }

    /// Makes a lease; gives its id and its life.
    pub(super) fn grant(
        &mut self,
        request: LeaseGrantRequest,
        options: &StoreOptions,
        now: Instant,
    ) -> Result<(LeaseId, i64), StoreError> {
        if request.ttl > MAX_TTL {
            return Err(refusal::lease_ttl_too_large());
        }
        if self.contains(request.id) {
            return Err(refusal::lease_exists());
        }
        let id = if request.id.is_none() { self.new_id(options) } else { request.id };
        let granted_ttl = request.ttl.max(options.min_lease_ttl);
        let expiry = now + seconds(granted_ttl);
        self.by_id.insert(id, Lease { granted_ttl, expiry, keys: BTreeSet::new() });
        self.by_expiry.insert((expiry, id));
        Ok((id, granted_ttl))
    }

    /// A positive id that is not taken. It depends on the member and its first revision as well as on a counter, so
    /// that a store which replaces another does not give that one's ids to other clients.
    fn new_id(&mut self, options: &StoreOptions) -> LeaseId {
        loop {
            self.ids_made = self.ids_made.wrapping_add(1);
            let start = mixed(options.member_id ^ mixed(options.first_revision.get().cast_unsigned()));
            let id = LeaseId::new((mixed(start ^ self.ids_made) >> 1).cast_signed());
            if !id.is_none() && !self.contains(id) {
                return id;
            }
        }
    }

    /// Starts a lease's time anew; gives its life. One that is due is dead, though nobody has ended it yet.
    pub(super) fn keep_alive(&mut self, id: LeaseId, now: Instant) -> Option<i64> {
        let lease = self.by_id.get_mut(&id).filter(|lease| lease.expiry > now)?;
        self.by_expiry.remove(&(lease.expiry, id));
        lease.expiry = now + seconds(lease.granted_ttl);
        self.by_expiry.insert((lease.expiry, id));
        Some(lease.granted_ttl)
    }

    /// Forgets a lease; gives the keys that hung on it, if there was one.
    pub(super) fn end(&mut self, id: LeaseId) -> Option<BTreeSet<Key>> {
        let lease = self.by_id.remove(&id)?;
        self.by_expiry.remove(&(lease.expiry, id));
        Some(lease.keys)
    }

    /// How long a lease still lives. The header is left to the caller.
    pub(super) fn time_to_live(&self, id: LeaseId, with_keys: bool, now: Instant) -> LeaseTimeToLiveAnswer {
        let Some(lease) = self.by_id.get(&id) else {
            return LeaseTimeToLiveAnswer { id, ttl: -1, ..LeaseTimeToLiveAnswer::default() };
        };
        // Whole seconds, cut towards zero, as etcd counts them; below zero for a lease that is overdue.
        let left = whole_seconds(lease.expiry.since(now)) - whole_seconds(now.since(lease.expiry));
        LeaseTimeToLiveAnswer {
            id,
            ttl: left,
            granted_ttl: lease.granted_ttl,
            keys: if with_keys { lease.keys.iter().cloned().collect() } else { Vec::new() },
            ..LeaseTimeToLiveAnswer::default()
        }
    }

    pub(super) fn attach(&mut self, id: LeaseId, key: &Key) {
        if let Some(lease) = self.by_id.get_mut(&id) {
            lease.keys.insert(key.clone());
        }
    }

    pub(super) fn detach(&mut self, id: LeaseId, key: &Key) {
        if let Some(lease) = self.by_id.get_mut(&id) {
            lease.keys.remove(key);
        }
    }
}

fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
}

fn whole_seconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

/// Spreads a number over all 64 bits, one to one (the finishing step of the SplitMix64 generator).
fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
