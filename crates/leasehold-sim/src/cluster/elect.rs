//! Who leads, and who believes to.

use std::time::Duration;

use leasehold::runtime::Runtime;

use super::{Cluster, ELECTION_TIMEOUT};

/// How long a leader of yesterday may go on as one after it could hear of the new one.
const UNAWARE: Duration = Duration::from_millis(300);

impl Cluster {
    /// Makes a member the leader of a new term.
    pub(super) fn lead(&self, at: usize) {
        let mut state = self.lock();
        state.term += 1;
        state.leader = Some(at);
        state.members[at].lagging = false;
        let all = state.log.len();
        state.apply_until(at, all);
        let (term, granted) = (state.term, state.granted.clone());
        state.members[at].promote(term, &granted);
        state.saw("leader elected");
        for other in 0..state.members.len() {
            if other != at && state.is_well(other) && state.members[other].lessor.is_none() {
                state.members[other].term = term;
            }
        }
        drop(state);
        for other in 0..self.size() {
            self.hear_of_the_leader(other);
        }
        self.changed();
    }

    /// A member that is well learns, after a while, who leads.
    pub(super) fn hear_of_the_leader(&self, at: usize) {
        let state = self.lock();
        let unaware = state.leader != Some(at) && state.is_well(at) && !state.is_aware(at);
        drop(state);
        if !unaware {
            return;
        }
        let (cluster, after) = (self.clone(), self.up_to(UNAWARE));
        let hears = async move {
            cluster.sleep(after).await;
            let mut state = cluster.lock();
            if state.leader != Some(at) && state.is_well(at) && state.working_leader().is_some() {
                if state.members[at].lessor.take().is_some() {
                    state.saw("leader of yesterday steps down");
                }
                state.members[at].term = state.term;
                state.catch_up(at);
            }
            drop(state);
            cluster.changed();
        };
        self.world().spawn("etcd: news of the leader", Box::pin(hears)).detach();
    }

    /// Somebody's state has changed: whoever is in step applies, and a leader that fails is replaced in time.
    pub(super) fn review(&self) {
        let mut state = self.lock();
        for at in 0..state.members.len() {
            state.catch_up(at);
        }
        let needed = state.working_leader().is_none() && !state.electing;
        state.electing |= needed;
        drop(state);
        for at in 0..self.size() {
            self.hear_of_the_leader(at);
        }
        self.changed();
        if needed {
            let cluster = self.clone();
            let election = async move { cluster.election().await };
            self.world().spawn("etcd: election", Box::pin(election)).detach();
        }
    }

    async fn election(&self) {
        loop {
            self.sleep(ELECTION_TIMEOUT + self.up_to(ELECTION_TIMEOUT)).await;
            let mut state = self.lock();
            if state.working_leader().is_some() {
                state.electing = false;
                return;
            }
            let well: Vec<_> = (0..state.members.len()).filter(|at| state.is_well(*at)).collect();
            if well.len() * 2 > state.members.len() {
                state.electing = false;
                drop(state);
                let pick = (self.world().random_u64() % well.len() as u64) as usize;
                self.lead(well[pick]);
                return;
            }
        }
    }

    /// A leader that is cut off steps down once it has heard of no quorum for an election timeout.
    pub(super) fn doubt_oneself(&self, at: usize) {
        let cluster = self.clone();
        let after = ELECTION_TIMEOUT + self.up_to(ELECTION_TIMEOUT);
        let doubts = async move {
            cluster.sleep(after).await;
            let mut state = cluster.lock();
            let member = &mut state.members[at];
            if member.isolated > 0 && member.frozen == 0 {
                member.lessor = None;
                // It has no leader: streams that asked for one end.
                member.generation += 1;
                if state.leader == Some(at) {
                    state.leader = None;
                }
            }
            drop(state);
            cluster.review();
        };
        self.world().spawn("etcd: check of the quorum", Box::pin(doubts)).detach();
    }
}
