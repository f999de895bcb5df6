//! Renewals: one stream a lease, one request on it at a time.
//!
//! The stream of a lease is owned by whoever renews it just now, and put back when the answer has come. So an answer can
//! only be to the request it followed, and whoever gives up, or is dropped, takes the stream and its late answer along.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use leasehold_mvcc::{KeepAliveAnswer, LeaseId};

use super::auth::{self, Pass};
use super::calls::Round;
use super::pin::Trial;
use super::{Endpoint, Inner, KeepAliveLine, Lane, WireError};
use crate::error::{Error, Result};
use crate::exclusive::Exclusive;
use crate::runtime::{Instant, before};

const OPERATION: &str = "renew a lease";

/// A stream unused for this long belongs to a lease that nobody keeps any more.
const IDLE: Duration = Duration::from_secs(300);

/// The streams that wait for their lease's next renewal.
#[derive(Debug, Default)]
pub(super) struct Renewals {
    idle: Exclusive<BTreeMap<LeaseId, Idle>>,
}

/// A stream, and what it was opened with.
type Opened = (KeepAliveLine, Pass);

#[derive(Debug)]
struct Idle {
    line: Opened,
    /// Where it leads: it is of no use once the pin has moved.
    at: usize,
    since: Instant,
}

impl Renewals {
    fn take(&self, id: LeaseId, at: usize) -> Option<Opened> {
        self.idle.lock().remove(&id).filter(|idle| idle.at == at).map(|idle| idle.line)
    }

    fn put(&self, id: LeaseId, line: Opened, at: usize, now: Instant) {
        let mut idle = self.idle.lock();
        idle.retain(|_, idle| now.since(idle.since) < IDLE);
        idle.insert(id, Idle { line, at, since: now });
    }

    /// Drops the stream of a lease that has ended.
    pub(super) fn forget(&self, id: LeaseId) {
        let gone = self.idle.lock().remove(&id);
        drop(gone);
    }

    pub(super) fn close(&self) {
        let all = std::mem::take(&mut *self.idle.lock());
        drop(all);
    }
}

/// Renews a lease once, at one endpoint after the other until one answers or the time is up. Renewing twice does no
/// harm, so every failed try is followed by another.
pub(super) async fn keep_alive(inner: Arc<Inner>, id: LeaseId) -> Result<KeepAliveAnswer> {
    let runtime = &*inner.runtime;
    let mut round = Round::new(&inner, Lane::Leases, OPERATION);
    let mut sent_to = None;
    loop {
        inner.check_open()?;
        let (at, endpoint) = round.pin.current();
        let trial = Trial::new(round.pin, at, runtime);
        let (mut line, pass) = match inner.renewals.take(id, at) {
            Some(line) => line,
            None => match round.pass(endpoint, true).await {
                Ok(pass) => (inner.wire.open_keep_alive(endpoint, Lane::Leases, pass.token.clone()), pass),
                Err(WireError::Refused(no) | WireError::Unauthorized(no)) => {
                    trial.answered();
                    return Err(auth::denied(no));
                }
                Err(failed) => {
                    trial.failed();
                    if let Err(over) = round.next(at, failed).await {
                        return Err(unanswered(&round, sent_to, over));
                    }
                    continue;
                }
            },
        };
        let patience = round.patience(true);
        // A line that is over says so in its answers.
        let _ = line.ids.send(id);
        let outcome = before(runtime, runtime.now() + patience, line.answers.next()).await;
        let failed = match outcome {
            Some(Some(Ok(answer))) if answer.id == id => {
                trial.answered();
                if answer.ttl > 0 && inner.check_open().is_ok() {
                    inner.renewals.put(id, (line, pass), at, runtime.now());
                }
                return Ok(answer);
            }
            Some(Some(Err(WireError::Refused(source)))) => {
                trial.answered();
                return Err(Error::Refused { operation: OPERATION, source });
            }
            Some(Some(Err(WireError::Unauthorized(source)))) => {
                trial.answered();
                if round.refusals.is_worth_another(&inner.login, &pass) {
                    continue;
                }
                return Err(Error::Refused { operation: OPERATION, source });
            }
            Some(Some(Err(failed))) => failed,
            Some(Some(Ok(answer))) => unknown(format!("the answer is about lease {}", answer.id)),
            Some(None) => unknown("the stream ended".into()),
            None => {
                inner.wire.distrust(endpoint, Lane::Leases);
                unknown(format!("no answer within {patience:?}"))
            }
        };
        if matches!(failed, WireError::OutcomeUnknown { .. }) {
            sent_to = Some(endpoint);
        }
        drop(line);
        trial.failed();
        if let Err(over) = round.next(at, failed).await {
            return Err(unanswered(&round, sent_to, over));
        }
    }
}

fn unknown(cause: String) -> WireError {
    WireError::OutcomeUnknown { cause }
}

/// The end of a renewal that nobody answered: it may have been done if it was sent to anybody.
fn unanswered(round: &Round<'_>, sent_to: Option<&Endpoint>, over: Error) -> Error {
    match sent_to {
        None => over,
        Some(endpoint) => {
            let (endpoint, cause) = (endpoint.to_string(), round.causes());
            Error::OutcomeUnknown { operation: OPERATION, endpoint, cause }
        }
    }
}
