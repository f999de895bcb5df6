//! How a member works at a request.

use std::time::Duration;

use futures_util::future::Either;
use leasehold::etcd::{Token, WireError};
use leasehold::runtime::{Instant, Runtime, before, race};
use leasehold_mvcc::{Answer, Command, Header, KeepAliveAnswer, LeaseId, Txn, TxnOp};
use tokio::sync::oneshot;

use super::lease::Renewed;
use super::member::Member;
use super::{Cluster, REQUEST_TIMEOUT, State};

/// How a command is carried out.
enum Kind {
    /// By the member's own store, as far as that has come.
    Local,
    /// By the member's own store, once that has all that was committed when the request came.
    Read,
    /// By an entry in the log.
    Write,
    /// By the leader's clock.
    Lease,
}

impl Kind {
    fn of(command: &Command) -> Self {
        match command {
            Command::Range(request) if request.serializable => Self::Local,
            // No read in it that would ask for the newest: etcd serves it from one member's memory.
            Command::Txn(txn) if txn.success.is_empty() && txn.failure.is_empty() => Self::Local,
            Command::Txn(txn) if only_reads(txn) => Self::Read,
            Command::Range(_) | Command::Leases => Self::Read,
            Command::LeaseTimeToLive(..) => Self::Lease,
            _ => Self::Write,
        }
    }
}

fn only_reads(txn: &Txn) -> bool {
    txn.success.iter().chain(&txn.failure).all(|op| match op {
        TxnOp::Range(_) => true,
        TxnOp::Txn(inner) => only_reads(inner),
        TxnOp::Put(_) | TxnOp::Delete(_) => false,
    })
}

pub(super) fn unknown(cause: &str) -> WireError {
    WireError::OutcomeUnknown { cause: cause.to_owned() }
}

pub(super) fn not_done(cause: &str) -> WireError {
    WireError::NotDone { cause: cause.to_owned() }
}

fn timed_out() -> WireError {
    unknown("etcdserver: request timed out")
}

impl State {
    /// Whether the member reaches a leader that can commit.
    pub(super) fn has_leader(&self, at: usize) -> bool {
        self.is_well(at) && self.is_aware(at) && self.working_leader().is_some()
    }

    fn local(&mut self, at: usize, command: Command) -> Result<Answer, WireError> {
        let member = &self.members[at];
        member.store.apply(command).map(|answer| headed(answer, member)).map_err(WireError::Refused)
    }
}

/// The answer as this member gives it.
fn headed(mut answer: Answer, member: &Member) -> Answer {
    let term = |header: &mut Header| header.raft_term = member.term;
    match &mut answer {
        Answer::Range(answer) => term(&mut answer.header),
        Answer::Put(answer) => term(&mut answer.header),
        Answer::Delete(answer) => term(&mut answer.header),
        Answer::Txn(answer) => term(&mut answer.header),
        Answer::LeaseGrant(answer) => term(&mut answer.header),
        Answer::LeaseKeepAlive(answer) => term(&mut answer.header),
        Answer::LeaseRevoke(answer) => term(&mut answer.header),
        Answer::LeaseTimeToLive(answer) => term(&mut answer.header),
        Answer::Leases(answer) => term(&mut answer.header),
        Answer::Compact(answer) => term(&mut answer.header),
        Answer::Expire(_) => {}
    }
    answer
}

impl Cluster {
    /// What comes of a request that has reached a member, as it leaves that member.
    pub(super) async fn process(
        &self,
        at: usize,
        token: Option<&Token>,
        command: Command,
    ) -> Result<Answer, WireError> {
        let born = self.lock().members[at].generation;
        self.awake(at, born).await?;
        let answer = self.work(at, token, command).await;
        self.awake(at, born).await?;
        answer
    }

    /// Waits while the member is frozen; it fails if its connections broke.
    pub(super) async fn awake(&self, at: usize, born: u64) -> Result<(), WireError> {
        let look = |state: &mut State| {
            let member = &state.members[at];
            if member.dead || member.generation != born {
                return Some(Err(unknown("connection reset by peer")));
            }
            (member.frozen == 0).then_some(Ok(()))
        };
        self.until(look).await
    }

    async fn work(&self, at: usize, token: Option<&Token>, command: Command) -> Result<Answer, WireError> {
        self.admit(token)?;
        let deadline = self.now() + REQUEST_TIMEOUT;
        match Kind::of(&command) {
            Kind::Local => {
                let mut state = self.lock();
                if state.members[at].applied < state.log.len() {
                    state.saw("stale read");
                }
                state.local(at, command)
            }
            Kind::Read => {
                self.read_index(at, deadline).await?;
                self.lock().local(at, command)
            }
            Kind::Write => self.write(at, command, deadline).await,
            Kind::Lease => {
                self.read_index(at, deadline).await?;
                let mut state = self.lock();
                let mut answer = state.local(at, command)?;
                let leader = state.leader.map(|leader| &state.members[leader]);
                if let (Answer::LeaseTimeToLive(told), Some(leader)) = (&mut answer, leader)
                    && told.ttl >= 0
                    && let Some(lessor) = &leader.lessor
                {
                    told.ttl = lessor.left(told.id, leader.now()).unwrap_or(-1);
                }
                Ok(answer)
            }
        }
    }

    async fn within<T>(&self, deadline: Instant, future: impl Future<Output = T>) -> Option<T> {
        before(self.world(), deadline, future).await
    }

    /// Waits until the member has all that is committed by now.
    async fn read_index(&self, at: usize, deadline: Instant) -> Result<(), WireError> {
        let found = self.within(deadline, async {
            let index = self.until(|state| state.has_leader(at).then_some(state.log.len())).await;
            self.sleep(self.up_to(Duration::from_micros(500))).await;
            self.until_applied(at, index).await;
        });
        found.await.ok_or_else(timed_out)
    }

    async fn write(&self, at: usize, command: Command, deadline: Instant) -> Result<Answer, WireError> {
        loop {
            if !self.lock().has_leader(at) && self.chance(300) {
                self.saw("turned away for want of a leader");
                return Err(not_done("etcdserver: no leader"));
            }
            let leader = self.within(deadline, self.until(|state| state.has_leader(at).then_some(()))).await;
            if leader.is_none() {
                if self.chance(500) {
                    self.propose_late(at, command);
                }
                return Err(timed_out());
            }
            // To the leader, and to a quorum's disks.
            self.sleep(Duration::from_micros(300) + self.up_to(Duration::from_millis(1))).await;
            let (tell, told) = oneshot::channel();
            {
                let mut state = self.lock();
                if !state.has_leader(at) {
                    continue;
                }
                let index = state.log.len();
                state.members[at].waiting.insert(index, tell);
                state.commit(self.now(), command);
            }
            self.applied();
            return match self.within(deadline, told).await {
                Some(Ok(answer)) => {
                    let state = self.lock();
                    answer.map(|answer| headed(answer, &state.members[at])).map_err(WireError::Refused)
                }
                _ => Err(timed_out()),
            };
        }
    }

    /// A proposal whose caller was sent away may be carried out once there is a leader.
    fn propose_late(&self, at: usize, command: Command) {
        let cluster = self.clone();
        let proposal = async move {
            let end = cluster.now() + REQUEST_TIMEOUT * 2;
            let leader = cluster.until(|state| state.has_leader(at).then_some(()));
            if cluster.within(end, leader).await.is_some() {
                let mut state = cluster.lock();
                state.saw("carried out after its time-out");
                state.commit(cluster.now(), command);
                drop(state);
                cluster.changed();
            }
        };
        self.world().spawn("etcd: late proposal", Box::pin(proposal)).detach();
    }

    /// One renewal, as one member answers it.
    pub(super) async fn renew(
        &self,
        at: usize,
        token: Option<&Token>,
        id: LeaseId,
    ) -> Result<KeepAliveAnswer, WireError> {
        self.admit(token)?;
        let deadline = self.now() + REQUEST_TIMEOUT;
        let mut waits = false;
        let renewed = self.until(|state| {
            // Its own clock if it believes to lead, else that of the leader it hears of.
            let by = if state.members[at].lessor.is_some() { Some(at) } else { state.working_leader() };
            let by = by.filter(|by| *by == at || (state.is_well(at) && state.is_aware(at)))?;
            let now = state.members[by].now();
            let rightly = state.leader == Some(by);
            let found = state.members[by].lessor.as_mut()?.renew(id, now);
            let header = state.members[at].header();
            match found {
                Renewed::For(ttl) => {
                    if !rightly {
                        state.saw("renewal answered by a leader of yesterday");
                    }
                    Some(KeepAliveAnswer { header, id, ttl })
                }
                Renewed::Missing => Some(KeepAliveAnswer { header, id, ttl: 0 }),
                Renewed::Due if waits => None,
                Renewed::Due => {
                    waits = true;
                    state.saw("renewal waits for the end of its lease");
                    None
                }
            }
        });
        match race(renewed, self.world().sleep_until(deadline)).await {
            Either::Left(answer) => Ok(answer),
            Either::Right(()) => Err(unknown("etcdserver: leader changed")),
        }
    }
}
