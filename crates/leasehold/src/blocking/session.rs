//! A session, opened and closed by a thread.

use std::sync::Arc;
use std::time::Duration;

use leasehold_mvcc::LeaseId;

use super::wait::wait;
use crate::error::Result;
use crate::etcd::Etcd;
use crate::name::Ttl;
use crate::runtime::{Instant, Runtime};
use crate::session;

/// A connection to etcd with a lease that is kept alive, as [`crate::Session`] is: what locks are taken on.
///
/// Dropping its last handle has the lease revoked in the background, once the last guard on it has gone. A program that
/// ends right then may not get to it: call [`Session::close`], or the lease stays, without a key on it, for its TTL.
///
/// ```
/// use leasehold::Embedded;
/// use leasehold::blocking::{Mutex, Session};
///
/// let session = Session::open(Embedded::start()?)?;
/// let guard = Mutex::new(&session, "nightly".parse()?).lock()?;
/// guard.release()?;
/// session.close()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Session {
    session: session::Session,
}

/// The settings of a [`Session`], see [`Session::builder`].
///
/// ```
/// use std::time::Duration;
/// use leasehold::blocking::Session;
/// use leasehold::{Embedded, Ttl};
///
/// let settings = Session::builder(Embedded::start()?).ttl(Ttl::seconds(30)?).program("backup");
/// let session = settings.max_hold(Duration::from_secs(3600)).open()?;
/// assert_eq!(session.granted_ttl(), Some(Duration::from_secs(30)));
/// session.close()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is opened"]
pub struct SessionBuilder {
    settings: session::SessionBuilder,
}

impl SessionBuilder {
    /// As [`crate::SessionBuilder::ttl`].
    pub fn ttl(self, ttl: Ttl) -> Self {
        Self { settings: self.settings.ttl(ttl) }
    }

    /// As [`crate::SessionBuilder::max_hold`].
    pub fn max_hold(self, limit: Duration) -> Self {
        Self { settings: self.settings.max_hold(limit) }
    }

    /// As [`crate::SessionBuilder::program`].
    pub fn program(self, program: impl Into<String>) -> Self {
        Self { settings: self.settings.program(program) }
    }

    /// Opens the session: has its first lease granted.
    ///
    /// # Errors
    /// As [`crate::SessionBuilder::open`].
    pub fn open(self) -> Result<Session> {
        wait(self.settings.open())?.map(Session::from)
    }
}

impl Session {
    /// Opens a session with the default settings.
    ///
    /// # Errors
    /// As [`crate::Session::open`].
    pub fn open(etcd: impl Into<Arc<dyn Etcd>>) -> Result<Self> {
        Self::builder(etcd).open()
    }

    /// A session with settings.
    pub fn builder(etcd: impl Into<Arc<dyn Etcd>>) -> SessionBuilder {
        SessionBuilder { settings: session::Session::builder(etcd) }
    }

    /// As [`crate::Session::etcd`].
    pub fn etcd(&self) -> &Arc<dyn Etcd> {
        self.session.etcd()
    }

    /// As [`crate::Session::runtime`].
    pub fn runtime(&self) -> Arc<dyn Runtime> {
        self.session.runtime()
    }

    /// As [`crate::Session::lease_id`].
    pub fn lease_id(&self) -> Option<LeaseId> {
        self.session.lease_id()
    }

    /// As [`crate::Session::granted_ttl`].
    pub fn granted_ttl(&self) -> Option<Duration> {
        self.session.granted_ttl()
    }

    /// As [`crate::Session::valid_until`].
    pub fn valid_until(&self) -> Option<Instant> {
        self.session.valid_until()
    }

    /// Ends the session: its guards and waits are lost, its lease is revoked and every key on it goes. It ends within
    /// two seconds whatever the network does.
    ///
    /// # Errors
    /// As [`crate::Session::close`].
    pub fn close(&self) -> Result<()> {
        wait(self.session.close())?
    }

    /// As [`crate::Session::orphan`].
    pub fn orphan(&self) -> Option<LeaseId> {
        self.session.orphan()
    }

    pub(super) fn inner(&self) -> &session::Session {
        &self.session
    }
}

impl From<session::Session> for Session {
    fn from(session: session::Session) -> Self {
        Self { session }
    }
}

impl From<Session> for session::Session {
    fn from(session: Session) -> Self {
        session.session
    }
}
