//! What can be done to a cluster and to the network before it.

use std::time::Duration;

use leasehold_mvcc::{Command, CompactRequest, Key, LeaseId};

use super::member::{self, CLUSTER};
use super::{Cluster, LinkFaults};

impl Cluster {
    /// The member that leads.
    pub fn leader(&self) -> Option<usize> {
        self.lock().leader
    }

    /// Stops a member as SIGSTOP does: connections stand, nothing is answered, and what comes is read at the thaw.
    pub fn freeze(&self, at: usize) {
        self.lock().members[at].frozen += 1;
        self.review();
    }

    /// Ends one [`Cluster::freeze`].
    pub fn thaw(&self, at: usize) {
        self.lock().members[at].frozen -= 1;
        self.review();
    }

    /// Kills a member: its connections break. Its disk stays.
    pub fn kill(&self, at: usize) {
        let mut state = self.lock();
        let member = &mut state.members[at];
        member.dead = true;
        member.generation += 1;
        member.lessor = None;
        member.waiting.clear();
        drop(state);
        self.review();
    }

    /// Starts a member that was killed. If it led it has to be elected anew.
    pub fn start(&self, at: usize) {
        let mut state = self.lock();
        state.members[at].dead = false;
        if state.leader == Some(at) {
            state.leader = None;
        }
        drop(state);
        self.review();
    }

    /// Cuts a member off from the others, not from clients.
    pub fn isolate(&self, at: usize) {
        self.lock().members[at].isolated += 1;
        self.review();
        self.doubt_oneself(at);
    }

    /// Ends one [`Cluster::isolate`].
    pub fn rejoin(&self, at: usize) {
        self.lock().members[at].isolated -= 1;
        self.review();
    }

    /// Has a member fall behind: it hears of everything and applies it late.
    pub fn lag(&self, at: usize) {
        let mut state = self.lock();
        // A leader applies what it commits.
        if state.leader != Some(at) {
            state.members[at].lagging = true;
        }
    }

    /// Lets a member that lags apply some of what it knows.
    pub fn creep(&self, at: usize) {
        let share = self.up_to(Duration::from_secs(1)).as_secs_f64();
        let mut state = self.lock();
        if state.is_well(at) && state.members[at].lagging {
            let behind = state.log.len() - state.members[at].applied;
            #[allow(
                clippy::cast_sign_loss,
                clippy::cast_possible_truncation,
                reason = "a share of a small number"
            )]
            let end = state.members[at].applied + (behind as f64 * share) as usize;
            state.apply_until(at, end);
        }
        drop(state);
        self.applied();
    }

    /// Ends [`Cluster::lag`].
    pub fn keep_pace(&self, at: usize) {
        self.lock().members[at].lagging = false;
        self.review();
    }

    /// Moves the lead to another member that is well.
    pub fn move_leader(&self, to: usize) {
        let state = self.lock();
        let can = state.working_leader().is_some_and(|leader| leader != to) && state.is_well(to);
        drop(state);
        if can {
            self.lead(to);
        }
    }

    /// Leaves leases alone that are due, for so long: the round is busy or its writes are slow.
    pub fn stall_expiry(&self, duration: Duration) {
        let until = self.now() + duration;
        self.lock().expiry_stalled = until;
    }

    /// Has the wish of a woken leader of yesterday to end leases carried out, as etcd up to 3.7 does: it times them by
    /// renewals from before it was frozen. Real clusters can do this to any client; off unless asked for.
    pub fn let_stale_revokes_pass(&self, pass: bool) {
        self.lock().stale_revokes = pass;
    }

    /// Forgets all history.
    pub fn compact(&self) {
        let mut state = self.lock();
        if state.working_leader().is_some() {
            let revision = state.truth.revision();
            state.commit(self.now(), Command::Compact(CompactRequest { revision, physical: false }));
        }
        drop(state);
        self.changed();
    }

    /// Ends a lease by hand.
    pub fn revoke(&self, lease: LeaseId) {
        let mut state = self.lock();
        if state.working_leader().is_some() {
            state.commit(self.now(), Command::LeaseRevoke(lease));
        }
        drop(state);
        self.changed();
    }

    /// Deletes a key by hand.
    pub fn delete(&self, key: Key) {
        let mut state = self.lock();
        if state.working_leader().is_some() {
            state.commit(self.now(), Command::Delete(leasehold_mvcc::DeleteRequest::key(key)));
        }
        drop(state);
        self.changed();
    }

    /// Goes back to a backup: the log without its last `entries`, as a new cluster or under the old id.
    pub fn restore(&self, entries: usize, new_id: bool) {
        let mut state = self.lock();
        let kept = state.log.len().saturating_sub(entries);
        state.log.truncate(kept);
        let log = state.log.clone();
        state.truth.restore(&log);
        state.granted.clear();
        state.cluster_id = if new_id { state.cluster_id + 1 } else { CLUSTER };
        state.term = 1;
        let id = state.cluster_id;
        for at in 0..state.members.len() {
            let fresh = member::store(self.world(), id, at);
            let member = &mut state.members[at];
            member.store = fresh;
            member.applied = 0;
            member.term = 1;
            member.generation += 1;
            member.lessor = None;
            member.lagging = false;
            member.waiting.clear();
        }
        // The first to apply the log lists its leases.
        state.leader = Some(0);
        for at in 0..state.members.len() {
            state.apply_until(at, kept);
        }
        drop(state);
        self.lead(0);
    }

    /// Changes what links do, to and from a client (or all) and a member (or all).
    pub fn change_links(
        &self,
        client: Option<u64>,
        member: Option<usize>,
        change: impl Fn(LinkFaults) -> LinkFaults,
    ) {
        self.for_links(client, member, |link| link.faults = change(link.faults));
    }

    /// Cuts one or both directions of links.
    pub fn cut(&self, client: Option<u64>, member: Option<usize>, to: bool, from: bool) {
        self.for_links(client, member, |link| {
            link.cut_to += u32::from(to);
            link.cut_from += u32::from(from);
        });
    }

    /// Ends one [`Cluster::cut`].
    pub fn mend(&self, client: Option<u64>, member: Option<usize>, to: bool, from: bool) {
        self.for_links(client, member, |link| {
            link.cut_to = link.cut_to.saturating_sub(u32::from(to));
            link.cut_from = link.cut_from.saturating_sub(u32::from(from));
        });
    }

    /// Breaks the connections of links, once.
    pub fn break_connections(&self, client: Option<u64>, member: Option<usize>) {
        self.for_links(client, member, |link| link.generation += 1);
    }

    fn for_links(
        &self,
        client: Option<u64>,
        member: Option<usize>,
        mut change: impl FnMut(&mut super::Link),
    ) {
        let mut state = self.lock();
        let (clients, members) = (state.next_client, state.members.len());
        for of in 1..=clients {
            for at in 0..members {
                if client.is_none_or(|client| client == of) && member.is_none_or(|member| member == at) {
                    change(state.links.entry((of, at)).or_default());
                }
            }
        }
        drop(state);
        self.changed();
    }
}
