//! The store: one commit path, from a command and an instant to an answer and the commits that came of it.

mod check;
mod lease;
mod past;
mod present;
mod read;
mod refusal;
mod size;
mod txn;
mod write;

use self::lease::Leases;
use self::past::Past;
use self::present::Present;
use self::read::View;
use self::write::Writer;
use crate::{
    Answer, Command, Commit, CompactAnswer, CompactRequest, DeleteAnswer, DeleteRequest, Header, Instant,
    KeepAliveAnswer, LeaseGrantAnswer, LeaseGrantRequest, LeaseId, LeaseRevokeAnswer, LeaseTimeToLiveAnswer,
    LeasesAnswer, PutAnswer, PutRequest, RangeAnswer, RangeRequest, Revision, StoreError, Txn, TxnAnswer,
    WatchRequest,
};

pub use self::past::Compacted;

/// How a store is set up. The default is a fresh, single etcd member that keeps all of its history.
///
/// ```
/// use leasehold_mvcc::{Revision, Store, StoreOptions};
///
/// let options = StoreOptions { member_id: 7, history_limit: Some(10_000), ..StoreOptions::default() };
/// assert_eq!(Store::new(options).revision(), Revision::new(1));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// The cluster's id in every header.
    pub cluster_id: u64,
    /// The member's id in every header; ids of leases are derived from it, too.
    pub member_id: u64,
    /// The raft term in every header, at least 1: clients take 0 for "no leader".
    pub raft_term: u64,
    /// The revision of the empty store, at least 1. One that replaces an earlier store must start above every
    /// revision that one gave out; anything below counts as compacted.
    pub first_revision: Revision,
    /// The shortest life of a lease in seconds; shorter wishes are raised to it. etcd derives it from its election
    /// timeout: 2 by default.
    pub min_lease_ttl: i64,
    /// How many revisions of history to keep; older ones are compacted as new ones are made. `None` keeps all until
    /// a compaction is asked for, as etcd does.
    pub history_limit: Option<usize>,
    /// How many comparisons or operations one list of a transaction may hold; etcd's default is 128.
    pub max_txn_ops: usize,
    /// How large an encoded write may be, in bytes; etcd's default is 1.5 MiB.
    pub max_request_bytes: usize,
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            cluster_id: 0x1ea5_e401_d000_0001,
            member_id: 0x1ea5_e401_d000_0002,
            raft_term: 2,
            first_revision: Revision::new(1),
            min_lease_ttl: 2,
            history_limit: None,
            max_txn_ops: 128,
            max_request_bytes: 3 << 19,
        }
    }
}

/// What came of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What the caller gets.
    pub answer: Result<Answer, StoreError>,
    /// What watchers get, oldest first: at most one commit, except for [`Command::Expire`], which makes one for each
    /// lease that had keys. Each event carries what was there at the revision before.
    pub commits: Vec<Commit>,
}

/// Keys, their history and the leases they hang on, with etcd's semantics; see the [crate's page](crate).
///
/// It never reads a clock: the instants that callers pass must come from one clock and must not go back.
///
/// ```
/// use leasehold_mvcc::{Answer, Command, Instant, LeaseGrantRequest, LeaseId, PutRequest, Store, StoreOptions};
/// use std::time::Duration;
///
/// let mut store = Store::new(StoreOptions::default());
/// let grant = LeaseGrantRequest { ttl: 10, id: LeaseId::new(1) };
/// store.apply(Command::LeaseGrant(grant), Instant::ZERO);
/// store.apply(Command::Put(PutRequest::new("job", "me").on(LeaseId::new(1))), Instant::ZERO);
///
/// let end = Instant::ZERO + Duration::from_secs(10);
/// assert_eq!(store.next_expiry(), Some(end));
/// let outcome = store.apply(Command::Expire, end);
/// assert_eq!(outcome.answer, Ok(Answer::Expire(vec![LeaseId::new(1)])));
/// assert_eq!(outcome.commits.len(), 1, "the key went with its lease");
/// ```
#[derive(Clone, Debug)]
pub struct Store {
    options: StoreOptions,
    /// The revision of the newest commit.
    revision: Revision,
    present: Present,
    past: Past,
    leases: Leases,
}

impl Store {
    /// An empty store.
    pub fn new(mut options: StoreOptions) -> Self {
        options.first_revision = options.first_revision.max(Revision::new(1));
        options.raft_term = options.raft_term.max(1);
        Self {
            revision: options.first_revision,
            present: Present::default(),
            past: Past::starting_at(options.first_revision),
            leases: Leases::default(),
            options,
        }
    }

    /// The header of an answer made now.
    pub fn header(&self) -> Header {
        Header {
            cluster_id: self.options.cluster_id,
            member_id: self.options.member_id,
            revision: self.revision,
            raft_term: self.options.raft_term,
        }
    }

    /// The revision of the newest commit.
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The oldest revision that can still be read and watched from; [`Revision::ZERO`] if nothing was compacted.
    pub fn compacted_revision(&self) -> Revision {
        self.past.compacted().max(Revision::ZERO)
    }

    /// When the next lease is due: the instant at which to send [`Command::Expire`], if any lease lives.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.leases.next_expiry()
    }

    /// How many leases there are, those that are due but not yet ended included.
    pub fn lease_count(&self) -> usize {
        self.leases.len()
    }

    /// Reads keys. The same as [`Command::Range`], for callers that hold the store by a shared reference.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` without a key, `OutOfRange` for a revision that is compacted or has not come yet.
    pub fn range(&self, request: &RangeRequest) -> Result<RangeAnswer, StoreError> {
        check::range(request)?;
        let mut answer = self.view().answer(request)?;
        answer.header = self.header();
        Ok(answer)
    }

    /// What happened to a watch's keys from a revision on until now, oldest first, filtered as the watch asks:
    /// what a watch that starts in the past is sent before it goes on with the commits to come.
    ///
    /// A revision in the future gives nothing; the caller must still leave out commits before it.
    /// [`Revision::ZERO`] is not "from now on" here: resolve that before.
    ///
    /// # Errors
    ///
    /// [`Compacted`] if events since `from` are gone. To start at the compacted revision itself is allowed.
    pub fn history(&self, request: &WatchRequest, from: Revision) -> Result<Vec<Commit>, Compacted> {
        self.past.history(request, from)
    }

    /// Applies one command that comes in at `now`.
    ///
    /// A command that is refused changes nothing.
    pub fn apply(&mut self, command: Command, now: Instant) -> Outcome {
        let mut commits = Vec::new();
        let answer = match command {
            Command::Range(request) => self.range(&request).map(Answer::Range),
            Command::Put(request) => self.put(request, &mut commits).map(Answer::Put),
            Command::Delete(request) => self.delete(&request, &mut commits).map(Answer::Delete),
            Command::Txn(request) => self.txn(request, &mut commits).map(Answer::Txn),
            Command::LeaseGrant(request) => self.grant(request, now).map(Answer::LeaseGrant),
            Command::LeaseKeepAlive(id) => Ok(Answer::LeaseKeepAlive(self.keep_alive(id, now))),
            Command::LeaseRevoke(id) => self.revoke(id, &mut commits).map(Answer::LeaseRevoke),
            Command::LeaseTimeToLive(id, keys) => {
                Ok(Answer::LeaseTimeToLive(self.time_to_live(id, keys, now)))
            }
            Command::Leases => {
                Ok(Answer::Leases(LeasesAnswer { header: self.header(), leases: self.leases.ids() }))
            }
            Command::Compact(request) => self.compact(request).map(Answer::Compact),
            Command::Expire => Ok(Answer::Expire(self.expire(now, &mut commits))),
        };
        Outcome { answer, commits }
    }

    fn put(&mut self, request: PutRequest, commits: &mut Vec<Commit>) -> Result<PutAnswer, StoreError> {
        check::put(&request)?;
        self.check_size(|| size::put(&request))?;
        check::put_fits(&request, &self.present, &self.leases)?;
        let mut writer = self.writer();
        let mut answer = writer.put(request);
        let events = writer.finish();
        self.commit(events, commits);
        answer.header = self.header();
        Ok(answer)
    }

    fn delete(
        &mut self,
        request: &DeleteRequest,
        commits: &mut Vec<Commit>,
    ) -> Result<DeleteAnswer, StoreError> {
        check::delete(request)?;
        self.check_size(|| size::delete(request))?;
        let mut writer = self.writer();
        let mut answer = writer.delete(request);
        let events = writer.finish();
        self.commit(events, commits);
        answer.header = self.header();
        Ok(answer)
    }

    fn txn(&mut self, request: Txn, commits: &mut Vec<Commit>) -> Result<TxnAnswer, StoreError> {
        check::txn(&request, self.options.max_txn_ops)?;
        let small = size::txn_at_most(&request) < self.options.max_request_bytes / 2;
        if !small && !txn::only_reads(&request) {
            self.check_size(|| size::txn(&request))?;
        }
        let plan = txn::plan(&self.view(), &request);
        txn::check(&self.view(), &self.leases, &request, &plan)?;
        let mut writer = self.writer();
        let mut answer = txn::execute(&mut writer, request, &plan);
        let events = writer.finish();
        self.commit(events, commits);
        answer.header = self.header();
        Ok(answer)
    }

    fn grant(&mut self, request: LeaseGrantRequest, now: Instant) -> Result<LeaseGrantAnswer, StoreError> {
        let (id, ttl) = self.leases.grant(request, &self.options, now)?;
        Ok(LeaseGrantAnswer { header: self.header(), id, ttl })
    }

    fn keep_alive(&mut self, id: LeaseId, now: Instant) -> KeepAliveAnswer {
        let ttl = self.leases.keep_alive(id, now).unwrap_or(0);
        KeepAliveAnswer { header: self.header(), id, ttl }
    }

    fn revoke(&mut self, id: LeaseId, commits: &mut Vec<Commit>) -> Result<LeaseRevokeAnswer, StoreError> {
        if !self.end_lease(id, commits) {
            return Err(refusal::lease_not_found());
        }
        Ok(LeaseRevokeAnswer { header: self.header() })
    }

    fn expire(&mut self, now: Instant, commits: &mut Vec<Commit>) -> Vec<LeaseId> {
        let due = self.leases.due(now);
        for id in &due {
            self.end_lease(*id, commits);
        }
        due
    }

    /// Deletes a lease and its keys, in the order of the keys and at one revision; false if there is no such lease.
    fn end_lease(&mut self, id: LeaseId, commits: &mut Vec<Commit>) -> bool {
        let Some(keys) = self.leases.end(id) else { return false };
        let mut writer = self.writer();
        for key in &keys {
            writer.delete_key(key);
        }
        let events = writer.finish();
        self.commit(events, commits);
        true
    }

    fn time_to_live(&self, id: LeaseId, with_keys: bool, now: Instant) -> LeaseTimeToLiveAnswer {
        let mut answer = self.leases.time_to_live(id, with_keys, now);
        answer.header = self.header();
        answer
    }

    fn compact(&mut self, request: CompactRequest) -> Result<CompactAnswer, StoreError> {
        if request.revision <= self.past.compacted() {
            return Err(refusal::compacted());
        }
        if request.revision > self.revision {
            return Err(refusal::future_revision());
        }
        self.past.compact(request.revision);
        Ok(CompactAnswer { header: self.header() })
    }

    fn view(&self) -> View<'_> {
        View { present: &self.present, past: &self.past, pending: &[], revision: self.revision }
    }

    fn writer(&mut self) -> Writer<'_> {
        Writer::new(&mut self.present, &self.past, &mut self.leases, self.revision)
    }

    fn check_size(&self, request: impl FnOnce() -> usize) -> Result<(), StoreError> {
        if size::proposal(request(), self.options.member_id) > self.options.max_request_bytes {
            return Err(refusal::request_too_large());
        }
        Ok(())
    }

    /// The only place where a revision is made.
    fn commit(&mut self, events: Vec<crate::Event>, commits: &mut Vec<Commit>) {
        if events.is_empty() {
            return;
        }
        self.revision = self.revision.next();
        let commit = Commit { revision: self.revision, events };
        self.past.push(commit.clone());
        commits.reserve_exact(1);
        commits.push(commit);
        if let Some(limit) = self.options.history_limit {
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let oldest = Revision::new(self.revision.get().saturating_sub(limit));
            // One revision a commit: the cost is spread evenly, and a store that was never full is never compacted.
            if oldest > self.past.compacted().max(self.options.first_revision) {
                self.past.compact(oldest);
            }
        }
    }
}
