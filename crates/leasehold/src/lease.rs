//! One etcd lease kept alive, and the attempts and holds that live on it.
//!
//! A [`Lease`] lives once: it is granted, renewed for as long as it is needed, and ends, after which everything on it
//! is lost. A [`Session`](crate::Session) goes on to the next one.

mod grant;
mod keeper;
mod lineage;
pub(crate) mod own_key;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use leasehold_mvcc::{Code, Header, Instant, Key, LeaseGrantAnswer, LeaseId, Revision};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::error::{Error, ErrorKind, Result};
use crate::etcd::Etcd;
use crate::exclusive::Exclusive;
use crate::hold::{LossCause, Lost};
use crate::name::Ttl;
use crate::runtime::{Runtime, Task, before};
use grant::Grant;
pub(crate) use lineage::{Lineage, Seen};

/// How long a hold must last before its key is watched. Most are shorter, and are spared the traffic; whoever loses the
/// key earlier learns it this much later, which only concerns keys deleted by hand.
const WATCH_AFTER: Duration = Duration::from_millis(50);

/// How many more numbers are tried for a lease if one is taken: that it is by chance is as good as impossible.
const NUMBERS: u8 = 3;

/// How long the first grant may take, before another one is asked for, elsewhere if there is a choice; the first is revoked.
const FIRST_GRANT: Duration = Duration::from_millis(2500);

/// How long [`Lease::close`] waits to hear that the lease is revoked.
const CLOSE_BOUND: Duration = Duration::from_millis(1500);

#[derive(Debug)]
pub(crate) struct Lease {
    id: LeaseId,
    granted: Duration,
    max_hold: Option<Duration>,
    etcd: Arc<dyn Etcd>,
    dedicated: Arc<dyn Etcd>,
    runtime: Arc<dyn Runtime>,
    /// Shared with the leases before and after it.
    lineage: Arc<Lineage>,
    state: Exclusive<State>,
    /// Wakes the keeper.
    changed: Notify,
    /// Set when the keeper has done all it will ever do.
    done: CancellationToken,
}

#[derive(Debug)]
struct State {
    /// When the last grant or renewal that counts was sent.
    sent: Instant,
    valid_until: Instant,
    /// How many renewals were tried since, and what the last of them met.
    tries: u32,
    trouble: Option<String>,
    end: Option<LossCause>,
    /// Takes no new attempts, and is revoked once nobody is on it.
    retired: bool,
    /// To be left to itself: neither renewed nor revoked.
    orphaned: bool,
    /// To be revoked now, whoever is on it.
    closing: bool,
    revoked: bool,
    members: BTreeMap<u64, Member>,
    next_number: u64,
    /// Numbers whose attempts have left nothing behind, for the next ones: see [`Lease::part_cleanly`].
    free_numbers: Vec<u64>,
    /// The keeper is awake enough to see a new hold in time.
    ticking: bool,
    /// Keys that a late copy of a request may bring back while the lease lives.
    doubtful: BTreeSet<Key>,
    /// The last of them whose turn it was.
    doubted: Option<Key>,
    /// A key that the caller may read, for the read that confirms a renewal.
    probe: Option<Key>,
}

/// One attempt, waiting or holding.
#[derive(Debug)]
struct Member {
    key: Key,
    lost: Lost,
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
    since: Instant,
    until: Instant,
    created: Revision,
    watch: Option<Task>,
    /// Its time was over, and its key is being removed.
    evicted: bool,
}

/// What a lease is asked to be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeaseTerms {
    pub(crate) ttl: Ttl,
    pub(crate) max_hold: Option<Duration>,
}

impl Lease {
    /// Has a lease granted and keeps it alive.
    ///
    /// # Cancel safety
    /// If dropped, a lease that was granted all the same is revoked in the background.
    pub(crate) async fn open(
        etcd: &Arc<dyn Etcd>,
        terms: LeaseTerms,
        lineage: &Arc<Lineage>,
    ) -> Result<Arc<Self>> {
        let runtime = etcd.runtime();
        let mut others = 0..NUMBERS;
        let mut first_until = Some(runtime.now() + FIRST_GRANT);
        loop {
            let id = LeaseId::new((runtime.random_u64() >> 1).max(1).cast_signed());
            let (seen, sent) = (lineage.seen(), runtime.now());
            let mut grant = Grant::new(id, etcd.clone());
            let answer = match first_until.take() {
                None => grant.send(terms.ttl).await,
                Some(until) => match before(&*runtime, until, grant.send(terms.ttl)).await {
                    Some(Err(error)) if error.kind() == ErrorKind::OutcomeUnknown => continue,
                    None => continue,
                    Some(answer) => answer,
                },
            };
            match answer {
                Ok(answer) => {
                    let lease = Self::start(etcd, terms, answer, sent, lineage.clone());
                    lease.follow(seen, answer.header)?;
                    return Ok(lease);
                }
                // Another lease has this number by chance.
                Err(error)
                    if error.refusal().is_some_and(|no| no.code == Code::FailedPrecondition)
                        && others.next().is_some() => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn start(
        etcd: &Arc<dyn Etcd>,
        terms: LeaseTerms,
        answer: LeaseGrantAnswer,
        sent: Instant,
        lineage: Arc<Lineage>,
    ) -> Arc<Self> {
        let granted = Duration::from_secs(u64::try_from(answer.ttl).unwrap_or(0));
        let lease = Arc::new(Self {
            id: answer.id,
            granted,
            max_hold: terms.max_hold,
            etcd: etcd.clone(),
            dedicated: etcd.dedicated(),
            runtime: etcd.runtime(),
            lineage,
            state: Exclusive::new(State {
                sent,
                valid_until: valid_until(sent, granted),
                tries: 0,
                trouble: None,
                end: None,
                retired: false,
                orphaned: false,
                closing: false,
                revoked: false,
                members: BTreeMap::new(),
                next_number: 0,
                free_numbers: Vec::new(),
                ticking: false,
                doubtful: BTreeSet::new(),
                doubted: None,
                probe: None,
            }),
            changed: Notify::new(),
            done: CancellationToken::new(),
        });
        tracing::debug!(lease = %lease.id, ttl = ?granted, "lease granted");
        lease.runtime.spawn_dedicated("keep a lease", Box::pin(keeper::keep(lease.clone()))).detach();
        lease
    }

    pub(crate) fn id(&self) -> LeaseId {
        self.id
    }

    pub(crate) fn etcd(&self) -> &Arc<dyn Etcd> {
        &self.etcd
    }

    pub(crate) fn dedicated(&self) -> &Arc<dyn Etcd> {
        &self.dedicated
    }

    pub(crate) fn runtime(&self) -> &Arc<dyn Runtime> {
        &self.runtime
    }

    /// What has been seen of the server, to be taken before a linearizable request is sent on this lease.
    pub(crate) fn seen(&self) -> Seen {
        self.lineage.seen()
    }

    /// Takes the answer to that request: if it cannot come from the server that granted the lease, all is lost.
    pub(crate) fn follow(&self, seen: Seen, answer: Header) -> Result<()> {
        self.lineage.follow(seen, answer).map_err(|cause| Error::Lost { cause: self.end(cause) })
    }

    /// The time to live that the server granted.
    pub(crate) fn granted(&self) -> Duration {
        self.granted
    }

    pub(crate) fn valid_until(&self) -> Instant {
        self.state.lock().valid_until
    }

    /// Whether new attempts may come: alive by the clock, and not retired.
    pub(crate) fn is_open(&self) -> bool {
        let state = self.state.lock();
        state.end.is_none() && !state.retired && self.runtime.now() < state.valid_until
    }

    /// Whether the server cannot know it any more, barring leader changes.
    pub(crate) fn is_surely_dead(&self) -> bool {
        let state = self.state.lock();
        state.revoked || (state.end.is_some() && self.runtime.now() > state.sent + self.granted * 2)
    }

    /// Adds an attempt, with a number that no other one has as long as anything of that one is there or under way.
    pub(crate) fn join(&self, name_key: impl FnOnce(u64) -> Key, lost: &Lost) -> Result<(u64, Key)> {
        let mut state = self.state.lock();
        // A retired lease may be over at any moment.
        if let Some(cause) = state.end.or(state.retired.then_some(LossCause::LeaseGone)) {
            return Err(Error::Lost { cause });
        }
        let number = state.free_numbers.pop().unwrap_or(state.next_number);
        state.next_number = state.next_number.max(number + 1);
        let key = name_key(number);
        state.members.insert(number, Member { key: key.clone(), lost: lost.clone(), held: None });
        Ok((number, key))
    }

    /// The caller was seen to be allowed to read this key.
    pub(crate) fn may_read(&self, key: &Key) {
        let probe = &mut self.state.lock().probe;
        if probe.as_ref() != Some(key) {
            *probe = Some(key.clone());
        }
    }

    /// An attempt has become a hold.
    pub(crate) fn hold(&self, number: u64, created: Revision) {
        let since = self.runtime.now();
        let mut state = self.state.lock();
        let until = self.max_hold.map_or(Instant::NEVER, |max| since + max);
        let Some(member) = state.members.get_mut(&number) else { return };
        member.held = Some(Held { since, until, created, watch: None, evicted: false });
        if !std::mem::replace(&mut state.ticking, true) || self.max_hold.is_some() {
            self.changed.notify_one();
        }
    }

    /// Takes an attempt out: its key is gone, or was never there, as far as is known.
    pub(crate) fn part(&self, number: u64) {
        self.take_out(number, false);
    }

    /// Takes an attempt out whose key is certainly gone. So its number, and with it the key, can be another's, unless a
    /// request of unknown fate has retired the lease: a copy of it may still come.
    ///
    /// etcd remembers every key that ever was until its next compaction, which may never come, and walks over all of
    /// them in a range: with a new key for each attempt each lock would take longer than the last (measured on 3.7.2:
    /// 0.13 ms longer after every thousand).
    pub(crate) fn part_cleanly(&self, number: u64) {
        self.take_out(number, true);
    }

    fn take_out(&self, number: u64, cleanly: bool) {
        let mut state = self.state.lock();
        let member = state.members.remove(&number);
        // Of an evicted hold a removal of the keeper's own may still be under way.
        let evicted =
            member.as_ref().and_then(|member| member.held.as_ref()).is_some_and(|held| held.evicted);
        if cleanly && !evicted && !state.retired {
            state.free_numbers.push(number);
        }
        if (state.retired || state.end.is_some()) && state.members.is_empty() {
            self.changed.notify_one();
        }
        // Its watch is closed outside the lock.
        drop(state);
        drop(member);
    }

    /// No new attempts: something on it cannot be known for sure until it is dead.
    pub(crate) fn retire(&self) {
        let mut state = self.state.lock();
        if !std::mem::replace(&mut state.retired, true) && state.members.is_empty() {
            self.changed.notify_one();
        }
    }

    /// A late copy of a request may bring this key back: it is removed again with each renewal.
    pub(crate) fn doubt(&self, key: Key) {
        self.state.lock().doubtful.insert(key);
    }

    pub(crate) fn valid_until_of(&self, number: u64) -> Instant {
        let state = self.state.lock();
        let held = state.members.get(&number).and_then(|member| member.held.as_ref());
        held.map_or(state.valid_until, |held| held.until.min(state.valid_until))
    }

    /// The clock has passed what `number` may count on: says so to everyone it concerns.
    pub(crate) fn overdue(&self, number: u64, now: Instant) -> LossCause {
        if now >= self.valid_until() {
            return self.end(LossCause::Deadline);
        }
        let lost = self.state.lock().members.get(&number).map(|member| member.lost.clone());
        lost.map_or(LossCause::Released, |lost| {
            lost.set(LossCause::MaxHold);
            lost.cause().unwrap_or(LossCause::MaxHold)
        })
    }

    /// Everything on it is lost. The first cause stays, and is returned.
    pub(crate) fn end(&self, cause: LossCause) -> LossCause {
        let (first, account, told) = {
            let mut state = self.state.lock();
            let first = *state.end.get_or_insert(cause);
            let account = (first == LossCause::Deadline).then(|| state.account(self.runtime.now()));
            let told: Vec<Lost> = state.members.values().map(|member| member.lost.clone()).collect();
            (first, account, told)
        };
        // Outside the lock: telling wakes tasks of the caller's.
        let mut tasks = 0;
        for lost in told {
            tasks += usize::from(lost.set_with(first, account.clone()));
        }
        if tasks > 0 && first != LossCause::Closed {
            let account = account.as_deref().unwrap_or_default();
            tracing::warn!(lease = %self.id, cause = ?first, holds = tasks, account, "holds and waits lost: {first}");
        }
        self.changed.notify_one();
        first
    }

    /// Ends it and has it revoked in the background.
    pub(crate) fn begin_close(&self) {
        self.state.lock().closing = true;
        self.end(LossCause::Closed);
    }

    /// Ends it and has it revoked; bounded.
    pub(crate) async fn close(&self) -> Result<()> {
        self.begin_close();
        before(&*self.runtime, self.runtime.now() + CLOSE_BOUND, self.done.cancelled()).await;
        if self.state.lock().revoked || self.is_surely_dead() {
            return Ok(());
        }
        Err(Error::OutcomeUnknown {
            operation: "revoke a session's lease",
            endpoint: "the session's endpoints".into(),
            cause: format!(
                "no answer within {CLOSE_BOUND:?}; lease {} ends by itself within {:?}",
                self.id, self.granted
            ),
        })
    }

    /// Leaves it to itself.
    pub(crate) fn orphan(&self) {
        self.state.lock().orphaned = true;
        self.end(LossCause::Closed);
    }
}

impl State {
    /// How it came to the deadline.
    fn account(&self, now: Instant) -> Arc<str> {
        let sent = now.since(self.sent).as_secs_f32();
        let last = format!("the last renewal that counted was sent {sent:.1} s before");
        let account = match (self.tries, &self.trouble) {
            (0, _) => {
                format!("{last}, and none was answered since: this process did not run, or nothing came back")
            }
            (tries, Some(trouble)) => format!("{last}; of {tries} tried since, the last met: {trouble}"),
            (tries, None) => format!("{last}; {tries} were tried since"),
        };
        account.into()
    }
}

/// When a hold stops counting: the server's clock for the lease began at or after `sent`, so it cannot end before
/// `sent + ttl` on a clock of the same rate; the margin pays for rates that differ.
fn valid_until(sent: Instant, ttl: Duration) -> Instant {
    let margin = (ttl / 10).max(Duration::from_millis(500));
    sent + ttl.saturating_sub(margin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retired_lease_takes_no_attempt() {
        use crate::Embedded;
        use futures_util::FutureExt;

        let etcd: Arc<dyn Etcd> = Arc::new(Embedded::start().unwrap());
        let lineage = Arc::default();
        let open = Lease::open(&etcd, LeaseTerms::default(), &lineage);
        let lease = open.now_or_never().unwrap().unwrap();
        let join = || lease.join(|number| Key::from(format!("lock/{number}")), &Lost::default());
        join().unwrap();
        lease.retire();
        assert_eq!(join().unwrap_err().loss(), Some(LossCause::LeaseGone));
    }

    #[test]
    fn the_deadline_counts_from_the_sending_and_keeps_a_margin() {
        let sent = Instant::from_nanos(0) + Duration::from_secs(100);
        assert_eq!(valid_until(sent, Duration::from_secs(15)).since(sent), Duration::from_millis(13_500));
        assert_eq!(valid_until(sent, Duration::from_secs(2)).since(sent), Duration::from_millis(1500));
        assert_eq!(valid_until(sent, Duration::ZERO), sent);
    }
}
