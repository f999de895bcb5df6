//! Calls: one request, at one endpoint or at several after each other, within one bound.

use std::sync::Arc;
use std::time::Duration;

use leasehold_mvcc::{Answer, Command, Txn, TxnOp};

use super::auth::{self, Pass, Refusals};
use super::pin::{Pin, Trial};
use super::verdict::is_answer_too_large;
use super::{Endpoint, Inner, Lane, WireError};
use crate::error::{Error, Result};
use crate::runtime::{Backoff, Instant, Runtime, before};

/// Asks until there is an answer, a no, an outcome that must not be guessed at, or no time left.
///
/// A read is asked again whatever happened to it; a write only if it was certainly not done. `docs/failures.md` has the
/// whole table.
pub(super) async fn call<T>(
    inner: Arc<Inner>,
    lane: Lane,
    operation: &'static str,
    command: Command,
    pick: fn(Answer) -> Option<T>,
) -> Result<T> {
    let runtime = &*inner.runtime;
    let harmless = is_harmless(&command);
    let mut round = Round::new(&inner, lane, operation);
    loop {
        inner.check_open()?;
        let (at, endpoint) = round.pin.current();
        let trial = Trial::new(round.pin, at, runtime);
        let pass = match round.pass(endpoint, harmless).await {
            Ok(pass) => pass,
            Err(WireError::Refused(no) | WireError::Unauthorized(no)) => {
                trial.answered();
                return Err(auth::denied(no));
            }
            Err(failed) => {
                trial.failed();
                round.next(at, failed).await?;
                continue;
            }
        };
        let patience = round.patience(harmless);
        let call = inner.wire.call(endpoint, lane, pass.token.clone(), command.clone(), patience);
        let Some(outcome) = before(runtime, runtime.now() + patience, call).await else {
            trial.failed();
            inner.wire.distrust(endpoint, lane);
            let cause = format!("no answer within {patience:?}");
            if !harmless {
                return Err(Error::OutcomeUnknown { operation, endpoint: endpoint.to_string(), cause });
            }
            round.next(at, WireError::OutcomeUnknown { cause }).await?;
            continue;
        };
        let failed = match outcome {
            Ok(answer) => {
                trial.answered();
                return pick(answer).ok_or_else(|| Error::Protocol {
                    endpoint: endpoint.to_string(),
                    why: format!("the answer does not fit the request to {operation}"),
                });
            }
            Err(WireError::Refused(source)) => {
                trial.answered();
                return Err(Error::Refused { operation, source });
            }
            Err(WireError::Unauthorized(source)) => {
                trial.answered();
                if round.refusals.is_worth_another(&inner.login, &pass) {
                    continue;
                }
                return Err(Error::Refused { operation, source });
            }
            Err(WireError::OutcomeUnknown { cause }) if !harmless => {
                trial.failed();
                return Err(Error::OutcomeUnknown { operation, endpoint: endpoint.to_string(), cause });
            }
            Err(WireError::NotEtcd { why, sent: true }) if !harmless => {
                trial.failed();
                return Err(Error::Protocol { endpoint: endpoint.to_string(), why });
            }
            Err(failed) => failed,
        };
        trial.failed();
        round.next(at, failed).await?;
    }
}

/// Whether asking twice does what asking once does.
fn is_harmless(command: &Command) -> bool {
    match command {
        Command::Range(_) | Command::LeaseTimeToLive(..) | Command::Leases => true,
        Command::Txn(txn) => only_reads(txn),
        _ => false,
    }
}

/// Whether a transaction changes nothing, whichever way its comparisons go.
fn only_reads(txn: &Txn) -> bool {
    txn.success.iter().chain(&txn.failure).all(|op| match op {
        TxnOp::Range(_) => true,
        TxnOp::Txn(inner) => only_reads(inner),
        TxnOp::Put(_) | TxnOp::Delete(_) => false,
    })
}

/// The tries of one call: how much time is left, and what each endpoint said.
pub(super) struct Round<'a> {
    pub(super) pin: &'a Pin,
    inner: &'a Inner,
    lane: Lane,
    operation: &'static str,
    deadline: Instant,
    backoff: Backoff,
    tries: usize,
    pub(super) refusals: Refusals,
    /// What each endpoint said last.
    causes: Vec<Option<WireError>>,
}

impl<'a> Round<'a> {
    pub(super) fn new(inner: &'a Inner, lane: Lane, operation: &'static str) -> Self {
        let pin = inner.pin(lane);
        Self {
            pin,
            inner,
            lane,
            operation,
            deadline: inner.runtime.now() + inner.call_timeout,
            backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(1)),
            tries: 0,
            refusals: Refusals::default(),
            causes: vec![None; pin.count()],
        }
    }

    /// How long the next try may take. It leaves time for another one, so a member that takes requests and answers none
    /// costs a part of the call's time. A write gets more of it than what can be asked again, since no other try follows
    /// once it is sent.
    pub(super) fn patience(&self, again: bool) -> Duration {
        let count = u32::try_from(self.pin.count()).unwrap_or(u32::MAX);
        let parts = if again { count.clamp(2, 3) } else { count.min(2) };
        let left = self.deadline.since(self.inner.runtime.now());
        left.min(self.inner.call_timeout / parts)
    }

    /// What the next try goes with.
    pub(super) async fn pass(&self, endpoint: &Endpoint, again: bool) -> Result<Pass, WireError> {
        let Inner { login, wire, runtime, .. } = self.inner;
        match login.known() {
            Some(pass) => Ok(pass),
            None => login.pass(&**wire, &**runtime, (endpoint, self.lane), self.patience(again)).await,
        }
    }

    /// Notes a failed try and waits for the next one's turn, which is at once as long as there is an endpoint that was
    /// not asked yet.
    ///
    /// # Errors
    /// What all of them said, if time is up, or if it is what time does not change.
    pub(super) async fn next(&mut self, at: usize, failed: WireError) -> Result<()> {
        let runtime: &dyn Runtime = &*self.inner.runtime;
        tracing::debug!(operation = self.operation, endpoints = self.pin.names(), cause = %failed, "a try failed");
        if let Some(said) = self.causes.get_mut(at) {
            *said = Some(failed);
        }
        self.tries += 1;
        if self.tries.is_multiple_of(self.pin.count()) {
            if let Some(hopeless) = self.hopeless() {
                return Err(hopeless);
            }
            let pause = self.backoff.next_delay(runtime);
            let resume = runtime.now() + pause;
            if resume < self.deadline {
                runtime.sleep_until(resume).await;
                return Ok(());
            }
        } else if runtime.now() < self.deadline {
            return Ok(());
        }
        Err(self.unavailable())
    }

    /// Why asking again is of no use: none of the endpoints is an etcd, or to be trusted, or the answer is too large to
    /// carry, whoever gives it.
    fn hopeless(&self) -> Option<Error> {
        let endpoint = || self.pin.names();
        let mut verdict = None;
        for said in &self.causes {
            verdict = Some(match said {
                Some(WireError::Untrusted { why }) => {
                    Error::Untrusted { endpoint: endpoint(), why: why.clone() }
                }
                Some(WireError::NotEtcd { why, .. }) => {
                    Error::Protocol { endpoint: endpoint(), why: why.clone() }
                }
                Some(WireError::OutcomeUnknown { cause }) if is_answer_too_large(cause) => {
                    Error::OutcomeUnknown {
                        operation: self.operation,
                        endpoint: endpoint(),
                        cause: cause.clone(),
                    }
                }
                _ => return None,
            });
        }
        verdict
    }

    /// That nobody could be asked.
    pub(super) fn unavailable(&self) -> Error {
        Error::Unavailable { operation: self.operation, endpoints: self.pin.names(), cause: self.causes() }
    }

    /// What each endpoint said.
    pub(super) fn causes(&self) -> String {
        let said: Vec<String> = self.causes.iter().flatten().map(ToString::to_string).collect();
        said.join("; ")
    }
}
