//! The leader's clock on leases.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::runtime::{Instant, Runtime};
use leasehold_mvcc::{Command, LeaseId};

use super::{Cluster, ELECTION_TIMEOUT, EXPIRY_ROUND};

#[derive(Default)]
pub(super) struct Lessor {
    leases: BTreeMap<LeaseId, Timed>,
}

struct Timed {
    ttl: i64,
    due: Instant,
}

/// What a renewal found.
pub(super) enum Renewed {
    /// It lives for so many seconds from now.
    For(i64),
    /// It is due, and about to be ended: etcd says nothing until it is.
    Due,
    /// There is no such lease.
    Missing,
}

fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
}

impl Lessor {
    pub(super) fn grant(&mut self, id: LeaseId, ttl: i64, now: Instant) {
        self.leases.insert(id, Timed { ttl, due: now + seconds(ttl) });
    }

    pub(super) fn promote(&mut self, id: LeaseId, ttl: i64, now: Instant) {
        self.leases.insert(id, Timed { ttl, due: now + seconds(ttl) + ELECTION_TIMEOUT });
    }

    pub(super) fn end(&mut self, id: LeaseId) {
        self.leases.remove(&id);
    }

    pub(super) fn renew(&mut self, id: LeaseId, now: Instant) -> Renewed {
        match self.leases.get_mut(&id) {
            None => Renewed::Missing,
            Some(lease) if lease.due <= now => Renewed::Due,
            Some(lease) => {
                lease.due = now + seconds(lease.ttl);
                Renewed::For(lease.ttl)
            }
        }
    }

    pub(super) fn left(&self, id: LeaseId, now: Instant) -> Option<i64> {
        let left = self.leases.get(&id)?.due.since(now).as_secs();
        i64::try_from(left).ok()
    }

    fn due(&self, now: Instant) -> Vec<LeaseId> {
        self.leases.iter().filter(|(_, lease)| lease.due <= now).map(|(id, _)| *id).collect()
    }
}

impl Cluster {
    /// Runs the leader's rounds.
    pub(super) fn start_expiry(&self) {
        let cluster = self.clone();
        let rounds = async move {
            loop {
                cluster.sleep(EXPIRY_ROUND).await;
                cluster.expire();
            }
        };
        self.world().spawn("etcd: expiry", Box::pin(rounds)).detach();
    }

    /// Ends the leases that are due, by entries in the log.
    fn expire(&self) {
        let now = self.now();
        let mut state = self.lock();
        if now < state.expiry_stalled || state.working_leader().is_none() {
            return;
        }
        let leader = state.leader;
        let mut due = Vec::new();
        for (at, member) in state.members.iter().enumerate() {
            // One that wrongly believes to lead hands its wish on to the one that does.
            let is_heard = leader == Some(at) || (state.stale_revokes && state.is_well(at));
            if let Some(lessor) = member.lessor.as_ref().filter(|_| is_heard) {
                due.extend(lessor.due(member.now()).into_iter().map(|id| (id, leader == Some(at))));
            }
        }
        let ended = !due.is_empty();
        for (id, rightly) in due {
            if state.granted.contains_key(&id) {
                state.saw(if rightly { "lease expired" } else { "lease ended by a leader of yesterday" });
                state.commit(now, Command::LeaseRevoke(id));
            }
        }
        drop(state);
        if ended {
            self.changed();
        }
    }
}
