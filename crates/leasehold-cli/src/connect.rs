//! A session on the chosen etcd: opened within a bound, closed within a bound.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{Either, pending};
use leasehold::etcd::Endpoint;
use leasehold::runtime::{Instant, Runtime, SystemRuntime};
use leasehold::{Error, LockName, Session};

use crate::access::Settled;
use crate::args::Taking;
use crate::duration::Span;
use crate::exit::{Code, Failure};
use crate::local::{self, Membership};
use crate::notice::{self, Steps};
use crate::signals::Signals;
use crate::site::Site;
use leasehold::runtime::{before, race};

/// How much longer than the library's own bound to wait: its answer says more than that time is up.
const SLACK: Duration = Duration::from_millis(250);

/// How long after a broken connection to the etcd of `--local` its end is known for sure, if it has ended.
const DEATH_IS_HEARD: Duration = Duration::from_millis(100);

/// How long a signal in the midst of opening waits for the answer that is due: a lease that was granted is then revoked
/// and not left to itself.
const LET_GO: Duration = Duration::from_secs(1);

/// A session, and what it stands on.
#[derive(Debug)]
pub(crate) struct Connection {
    session: Session,
    local: Option<Membership>,
}

impl Connection {
    /// Opens a session for a lock, unless a signal comes first.
    pub(crate) async fn open(
        taking: &Taking,
        name: &LockName,
        program: String,
        signals: &mut Signals,
        steps: Steps,
    ) -> Result<Self, Failure> {
        let settled = taking.access.settle()?;
        let what = format!("lock {:?}", name.as_str());
        let runtime = SystemRuntime::shared().map_err(|error| Failure::of_library(&what, &error))?;
        let mut opening = Box::pin(Self::open_on(&settled, taking, &what, program, runtime.clone(), steps));
        match race(&mut opening, signals.end()).await {
            Either::Left(opened) => opened,
            Either::Right(signal) => {
                if let Some(Ok(opened)) = before(&*runtime, runtime.now() + LET_GO, opening).await {
                    opened.close(steps).await;
                }
                Err(Failure::interrupted(signal, &what))
            }
        }
    }

    async fn open_on(
        settled: &Settled,
        taking: &Taking,
        what: &str,
        program: String,
        runtime: Arc<SystemRuntime>,
        steps: Steps,
    ) -> Result<Self, Failure> {
        let started = runtime.now();
        let until = started + taking.access.connect_timeout.0;
        let opening = Opening { settled, taking, what, program, runtime: runtime.clone(), until };
        let (shown, session, local) = match &settled.site {
            Site::Endpoints(endpoints) => (shown(endpoints), opening.session(endpoints.clone()).await?, None),
            Site::Local => {
                let (endpoint, session, membership) = opening.local_session().await?;
                (endpoint.to_string(), session, Some(membership))
            }
        };
        if local.is_some() {
            notice::tell(&format!(
                "{what}: --local excludes only this user on this machine (by way of {shown})"
            ));
        }
        steps.tell(|| {
            let lease = session.lease_id().map(|id| id.to_string()).unwrap_or_default();
            let granted = session.granted_ttl().map(|ttl| Span(ttl).to_string()).unwrap_or_default();
            let asked = Span(taking.ttl());
            let after = runtime.now().since(started);
            format!(
                "{what}: session on {shown} with lease {lease} of {granted} (--ttl {asked}) after {after:?}"
            )
        });
        Ok(Self { session, local })
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) fn runtime(&self) -> Arc<dyn Runtime> {
        self.session.runtime()
    }

    /// Ends when the etcd of `--local` is gone, and with it, as it keeps nothing, every lock it gave out. Never ends for
    /// any other: a cluster outlives its members.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    pub(crate) async fn gone(&mut self) {
        match &mut self.local {
            Some(local) => local.server_gone().await,
            None => pending().await,
        }
    }

    /// Ends the session: its lease is revoked, and the lock's key goes with it, in one step. Says so if that is not known
    /// to have happened.
    pub(crate) async fn close(&self, steps: Steps) {
        match self.session.close().await {
            Ok(()) => steps.tell(|| "released; the lease is revoked".into()),
            Err(error) => notice::tell(&format!("the lock may stay taken until its lease ends: {error}")),
        }
        // From here on nothing is sent, least of all to remove keys that went with the lease.
        self.session.etcd().close().await;
    }

    /// Ends the session and leaves its lease to itself: the lock stays taken until it expires.
    pub(crate) fn leave_to_expire(&self) {
        self.session.orphan();
    }
}

/// A session about to be opened.
struct Opening<'a> {
    settled: &'a Settled,
    taking: &'a Taking,
    what: &'a str,
    program: String,
    runtime: Arc<SystemRuntime>,
    until: Instant,
}

impl Opening<'_> {
    /// A session on the user's own etcd. One that ends at this very moment may still be met; its successor starts only
    /// after this has let go of it.
    async fn local_session(&self) -> Result<(Endpoint, Session, Membership), Failure> {
        let runtime = &*self.runtime;
        loop {
            let (endpoint, mut membership) = local::join(runtime, self.until, self.what).await?;
            let opened = match race(membership.server_gone(), self.session(vec![endpoint.clone()])).await {
                Either::Left(()) if runtime.now() < self.until => continue,
                Either::Left(()) => {
                    let why = format!("{}: the etcd of --local ends again and again", self.what);
                    return Err(Failure::new(Code::UNREACHABLE, why));
                }
                Either::Right(opened) => opened,
            };
            match opened {
                Ok(session) => return Ok((endpoint, session, membership)),
                Err(failure) => {
                    let heard =
                        before(runtime, runtime.now() + DEATH_IS_HEARD, membership.server_gone()).await;
                    if heard.is_none() || runtime.now() >= self.until {
                        return Err(failure);
                    }
                }
            }
        }
    }

    async fn session(&self, endpoints: Vec<Endpoint>) -> Result<Session, Failure> {
        let failed = |error: &Error| Failure::of_library(self.what, error);
        let (shown, waited) = (shown(&endpoints), self.taking.access.connect_timeout);
        let etcd = self.settled.client(endpoints, self.what)?;
        let opening = Session::builder(etcd).ttl(self.taking.ttl).program(&self.program).open();
        match before(&*self.runtime, self.until + SLACK, opening).await {
            Some(Ok(session)) => Ok(session),
            Some(Err(error)) => Err(failed(&error)),
            None => {
                let why = format!(
                    "{}: no answer from etcd at {shown} within --connect-timeout {waited}; is it running, and is the \
                     address right?",
                    self.what
                );
                Err(Failure::new(Code::UNREACHABLE, why))
            }
        }
    }
}

fn shown(endpoints: &[Endpoint]) -> String {
    endpoints.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}
