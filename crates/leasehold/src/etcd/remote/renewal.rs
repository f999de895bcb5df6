//! Renewals: one stream a lease, one request on it at a time.
//!
//! The stream of a lease is owned by whoever renews it just now, and put back when the answer has come. So an answer can
//! only be to the request it followed, and whoever gives up, or is dropped, takes the stream and its late answer along.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use leasehold_mvcc::{KeepAliveAnswer, LeaseId};

use super::calls::Round;
use super::pin::Trial;
use super::{Inner, KeepAliveLine, Lane, WireError};
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

#[derive(Debug)]
struct Idle {
    line: KeepAliveLine,
    /// Where it leads: it is of no use once the pin has moved.
    at: usize,
    since: Instant,
}

impl Renewals {
    fn take(&self, id: LeaseId, at: usize) -> Option<KeepAliveLine> {
        self.idle.lock().remove(&id).filter(|idle| idle.at == at).map(|idle| idle.line)
    }

    fn put(&self, id: LeaseId, line: KeepAliveLine, at: usize, now: Instant) {
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
        let patience = round.patience(true);
        let trial = Trial::new(round.pin, at, runtime);
        let mut line = match inner.renewals.take(id, at) {
            Some(line) => line,
            None => inner.wire.open_keep_alive(endpoint, Lane::Leases),
        };
        // A line that is over says so in its answers.
        let _ = line.ids.send(id);
        let outcome = before(runtime, runtime.now() + patience, line.answers.next()).await;
        let cause = match outcome {
            Some(Some(Ok(answer))) if answer.id == id => {
                trial.answered();
                if answer.ttl > 0 && inner.check_open().is_ok() {
                    inner.renewals.put(id, line, at, runtime.now());
                }
                return Ok(answer);
            }
            Some(Some(Err(WireError::Refused(source)))) => {
                trial.answered();
                return Err(Error::Refused { operation: OPERATION, source });
            }
            Some(Some(Err(WireError::NotDone { cause }))) => cause,
            Some(Some(Err(WireError::NotEtcd { why, .. }))) => {
                if round.pin.count() == 1 {
                    return Err(Error::Protocol { endpoint: endpoint.to_string(), why });
                }
                why
            }
            Some(Some(Ok(answer))) => {
                sent_to = Some(endpoint);
                format!("the answer is about lease {}", answer.id)
            }
            Some(Some(Err(WireError::OutcomeUnknown { cause }))) => {
                sent_to = Some(endpoint);
                cause
            }
            Some(None) => {
                sent_to = Some(endpoint);
                "the stream ended".into()
            }
            None => {
                sent_to = Some(endpoint);
                inner.wire.distrust(endpoint, Lane::Leases);
                format!("no answer within {patience:?}")
            }
        };
        drop(line);
        trial.failed();
        if let Err(unavailable) = round.next(at, cause).await {
            return Err(match sent_to {
                None => unavailable,
                Some(endpoint) => {
                    let (endpoint, cause) = (endpoint.to_string(), round.causes());
                    Error::OutcomeUnknown { operation: OPERATION, endpoint, cause }
                }
            });
        }
    }
}
