//! The task that keeps one lease: renews it, ends it in time, and revokes it when it is not needed any more.

use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::future::{Either, join, pending};
use leasehold_mvcc::{Code, Instant, Key, RangeRequest, Txn};

use super::grant::revoke;
use super::{Lease, State, WATCH_AFTER, own_key, valid_until};
use crate::error::{Error, Result};
use crate::hold::{LossCause, place};
use crate::runtime::{Backoff, before, race};

/// What the confirming read reads as long as no attempt has named a key.
const PROBE: &str = "leasehold";

/// How many doubtful keys one renewal removes: well below etcd's bound for a transaction.
const DOUBTS_AT_ONCE: usize = 64;

/// Keeps `lease` until its end.
pub(super) async fn keep(lease: Arc<Lease>) {
    let cause = renew_until_the_end(&lease).await;
    wind_down(&lease, cause).await;
    lease.done.cancel();
}

/// One renewal, in the four ways it can end.
#[derive(Debug)]
enum Renewal {
    /// It counts, from the instant it was sent.
    Renewed { sent: Instant, ttl: Duration },
    /// It does not count, or nothing is known; another try may.
    Unknown { why: String },
    /// Everything on the lease is lost.
    Over(LossCause),
}

async fn renew_until_the_end(lease: &Arc<Lease>) -> LossCause {
    let runtime = &**lease.runtime();
    let pace = (lease.granted / 60).max(Duration::from_millis(20));
    let backoff = || Backoff::new(pace, lease.granted / 6);
    let mut retry = backoff();
    let mut renewing: Option<BoxFuture<'_, Renewal>> = None;
    let mut not_before = Instant::ZERO;
    loop {
        let now = runtime.now();
        let due = match lease.look_after(now) {
            Ok(due) => due,
            Err(cause) => return cause,
        };
        let renew_at = due.renew_at.max(not_before);
        if renewing.is_none() && now >= renew_at {
            renewing = Some(Box::pin(renew(lease)));
        }
        let wake = if renewing.is_none() { due.wake.min(renew_at) } else { due.wake };
        let renewal = async {
            match &mut renewing {
                Some(renewal) => renewal.await,
                None => pending().await,
            }
        };
        let stirred = race(lease.changed.notified(), runtime.sleep_until(wake));
        let Either::Left(renewal) = race(renewal, stirred).await else { continue };
        renewing = None;
        match renewal {
            Renewal::Renewed { sent, ttl } => {
                lease.renewed(sent, ttl);
                retry = backoff();
                not_before = Instant::ZERO;
            }
            Renewal::Unknown { why } => {
                tracing::info!(lease = %lease.id, why, "the lease is not known to be renewed; trying again");
                lease.troubled(why);
                not_before = runtime.now() + retry.next_delay(runtime);
            }
            Renewal::Over(cause) => return lease.end(cause),
        }
    }
}

/// When the keeper has to act next.
struct Due {
    renew_at: Instant,
    wake: Instant,
}

impl Lease {
    /// Does what the clock says is due, and says what is due next; or how the lease ended.
    fn look_after(self: &Arc<Self>, now: Instant) -> Result<Due, LossCause> {
        let mut overheld = Vec::new();
        let due = {
            let mut state = self.state.lock();
            if let Some(cause) = state.end {
                return Err(cause);
            }
            if now >= state.valid_until {
                drop(state);
                return Err(self.end(LossCause::Deadline));
            }
            if state.retired && state.members.is_empty() {
                drop(state);
                return Err(self.end(LossCause::Closed));
            }
            let mut wake = state.valid_until;
            let mut unwatched = false;
            for member in state.members.values_mut() {
                let Some(held) = &mut member.held else { continue };
                // Whoever noticed the end of the hold first, the key goes once.
                if now >= held.until {
                    if !std::mem::replace(&mut held.evicted, true) {
                        overheld.push((member.lost.clone(), member.key.clone(), held.created));
                    }
                    continue;
                }
                if member.lost.cause().is_some() {
                    continue;
                }
                wake = wake.min(held.until);
                if held.watch.is_none() {
                    if now >= held.since + WATCH_AFTER {
                        let watch = own_key::watch(
                            self.clone(),
                            member.key.clone(),
                            held.created,
                            member.lost.clone(),
                        );
                        held.watch = Some(self.runtime.spawn_dedicated("watch a held key", Box::pin(watch)));
                    } else {
                        unwatched = true;
                        wake = wake.min(held.since + WATCH_AFTER);
                    }
                }
            }
            state.ticking = unwatched;
            Due { renew_at: state.sent + self.granted / 3, wake }
        };
        for (lost, key, created) in overheld {
            if lost.set(LossCause::MaxHold) {
                tracing::warn!(lease = %self.id, %key, "hold lost: {}", LossCause::MaxHold);
            }
            let lease = self.clone();
            let removal = async move {
                place::remove(&lease, &key, place::removal(&lease, &key, Some(created))).await;
            };
            self.runtime.spawn_dedicated("remove a key", Box::pin(removal)).detach();
        }
        Ok(due)
    }

    /// A renewal does not count.
    fn troubled(&self, why: String) {
        let mut state = self.state.lock();
        state.tries += 1;
        state.trouble = Some(why);
    }

    /// A renewal counts.
    fn renewed(&self, sent: Instant, ttl: Duration) {
        let mut state = self.state.lock();
        // An answer that comes after the end changes nothing: who was told that all is lost must be able to rely on it.
        if state.end.is_none() && self.runtime.now() < state.valid_until {
            (state.sent, state.tries, state.trouble) = (sent, 0, None);
            state.valid_until = state.valid_until.max(valid_until(sent, ttl));
            tracing::debug!(lease = %self.id, "lease renewed");
        }
    }
}

/// Asks for one renewal, and for the read without which it does not count.
///
/// A member that was leader once, and does not know yet that it is not any more, answers a renewal that the cluster will
/// not honour. So a read that goes through the whole cluster, sent no earlier than the renewal, must show that no newer
/// term had begun.
async fn renew(lease: &Lease) -> Renewal {
    let runtime = &*lease.runtime;
    let (seen, sent) = (lease.seen(), runtime.now());
    let (probe, doubts) = lease.state.lock().probe();
    let confirm = async {
        if doubts.is_empty() {
            return lease.dedicated.range(RangeRequest::key(probe)).await.map(|answer| answer.header);
        }
        let mut txn = Txn::new().then(RangeRequest::key(probe));
        for key in doubts {
            txn = txn.then(place::removal(lease, &key, None));
        }
        lease.dedicated.txn(txn).await.map(|answer| answer.header)
    };
    let both = join(lease.dedicated.lease_keep_alive(lease.id), confirm);
    let bound = (lease.granted / 6).max(Duration::from_millis(300));
    let Some((renewal, read)) = before(runtime, sent + bound, both).await else {
        return Renewal::Unknown { why: format!("no answer within {bound:?}") };
    };
    // First of all, whose answers these are: after a restore the lease is missing, too.
    if let Ok(read) = &read
        && let Err(cause) = lease.lineage.follow(seen, *read)
    {
        return Renewal::Over(cause);
    }
    match (renewal, read) {
        (Ok(renewal), _) if renewal.ttl <= 0 => confirm_gone(lease).await,
        // The words of a middleman: etcd itself answers with no time left.
        (Err(error), _) if error.refusal().is_some_and(|no| no.code == Code::NotFound) => {
            confirm_gone(lease).await
        }
        (Ok(renewal), Ok(read)) if renewal.header.cluster_id != read.cluster_id => {
            Renewal::Over(LossCause::ClusterChanged)
        }
        (Ok(renewal), Ok(read)) if read.raft_term > renewal.header.raft_term => {
            Renewal::Unknown { why: "the member that renewed it was not in the newest term".into() }
        }
        (Ok(renewal), Ok(_)) => {
            // Never more than was granted: a server may answer nonsense while its leader changes.
            let answered = Duration::from_secs(u64::try_from(renewal.ttl).unwrap_or(0));
            Renewal::Renewed { sent, ttl: answered.min(lease.granted) }
        }
        (Err(Error::Closed { .. }), _) | (_, Err(Error::Closed { .. })) => Renewal::Over(LossCause::Closed),
        (Err(error), _) | (_, Err(error)) => Renewal::Unknown { why: error.to_string() },
    }
}

/// A renewal was answered "no such lease". Some servers say so for a moment while they catch up (etcd#6978), so one
/// more question decides.
async fn confirm_gone(lease: &Lease) -> Renewal {
    match lease.dedicated.lease_time_to_live(lease.id, false).await {
        Ok(answer) if answer.ttl < 0 => Renewal::Over(LossCause::LeaseGone),
        Ok(_) => Renewal::Unknown { why: "the server is not sure whether the lease is there".into() },
        Err(error) => Renewal::Unknown { why: error.to_string() },
    }
}

impl State {
    /// A key to read, and the keys to remove once more: each in its turn, if there are many.
    fn probe(&mut self) -> (Key, Vec<Key>) {
        let probe = self.probe.clone().unwrap_or_else(|| Key::from(PROBE));
        let turn = self.doubted.take().map_or(Bound::Unbounded, Bound::Excluded);
        let mut doubts: Vec<Key> =
            self.doubtful.range((turn, Bound::Unbounded)).take(DOUBTS_AT_ONCE).cloned().collect();
        let more = DOUBTS_AT_ONCE.min(self.doubtful.len()) - doubts.len();
        doubts.extend(self.doubtful.iter().take(more).cloned());
        self.doubted = doubts.last().cloned();
        (probe, doubts)
    }
}

/// What is left to do when nothing on the lease counts any more.
async fn wind_down(lease: &Arc<Lease>, cause: LossCause) {
    let runtime = &**lease.runtime();
    let natural_end = {
        let mut state = lease.state.lock();
        if state.orphaned {
            return;
        }
        if cause == LossCause::LeaseGone {
            state.revoked = true;
            return;
        }
        state.sent + lease.granted * 2
    };
    // A holder that was told may need a moment to stop: nothing is revoked under its hands. A closed session is its
    // owner's word that it has stopped.
    loop {
        {
            let state = lease.state.lock();
            if state.closing || state.members.is_empty() || runtime.now() >= natural_end {
                break;
            }
        }
        race(lease.changed.notified(), runtime.sleep_until(natural_end)).await;
    }
    let known = revoke(&lease.dedicated, runtime, lease.id, natural_end).await;
    lease.state.lock().revoked = known;
}
