//! A session: a lease kept alive, and the next one when it is lost.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold_mvcc::LeaseId;

use crate::error::{Error, Result};
use crate::etcd::Etcd;
use crate::exclusive::Exclusive;
use crate::lease::{Lease, LeaseTerms, Lineage};
use crate::name::Ttl;
use crate::queue::Author;
use crate::runtime::{Instant, Runtime};
use crate::turn::Turn;

/// A connection to etcd with a lease that is kept alive: what locks are taken on.
///
/// One session serves any number of locks and tasks of a process; a clone is another handle on the same one. Its lease
/// is renewed by a thread of the library's own, so it lives on while your runtime is busy or blocked, and ends with the
/// process. When a lease is lost, the guards on it are lost, and the next call gets a new lease by itself.
///
/// When the last handle is dropped no new attempts can come; the lease is revoked in the background once the last guard
/// on it has gone.
///
/// # Bounds
/// If etcd is silent, opening a session ends within two and a half seconds more than one call of the backend's may take
/// (7.5 s with defaults), and closing it within two seconds. Dropping it, and all that only reads, never waits.
///
/// ```
/// use leasehold::{Embedded, Mutex, Session};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let session = Session::open(Embedded::start()?).await?;
/// let guard = Mutex::new(&session, "nightly".parse()?).lock().await?;
/// guard.release().await?;
/// session.close().await?;
/// # Ok::<(), leasehold::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Session {
    shared: Arc<Shared>,
}

struct Shared {
    etcd: Arc<dyn Etcd>,
    terms: LeaseTerms,
    author: Author,
    current: Exclusive<Option<Arc<Lease>>>,
    /// Those before it that may still have guards or waits on them.
    earlier: Exclusive<Vec<Weak<Lease>>>,
    /// One task at a time asks for a new lease; the others wait for it.
    opening: Turn,
    lineage: Arc<Lineage>,
    closed: AtomicBool,
}

/// The settings of a [`Session`], see [`Session::builder`].
///
/// ```
/// use std::time::Duration;
/// use leasehold::{Embedded, Session, Ttl};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let settings = Session::builder(Embedded::start()?).ttl(Ttl::seconds(30)?).program("backup");
/// let session = settings.max_hold(Duration::from_secs(3600)).open().await?;
/// assert_eq!(session.granted_ttl(), Some(Duration::from_secs(30)));
/// session.close().await?;
/// # Ok::<(), leasehold::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is opened"]
pub struct SessionBuilder {
    etcd: Arc<dyn Etcd>,
    terms: LeaseTerms,
    program: Option<String>,
}

impl SessionBuilder {
    /// The lease's time to live; 15 s if not set. The server may grant more, and then that counts.
    pub fn ttl(mut self, ttl: Ttl) -> Self {
        self.terms.ttl = ttl;
        self
    }

    /// The longest any one hold may last. Then its guard is lost ([`LossCause::MaxHold`](crate::LossCause::MaxHold))
    /// and its key removed, though the lease lives on. Not limited if not set.
    pub fn max_hold(mut self, limit: Duration) -> Self {
        self.terms.max_hold = Some(limit);
        self
    }

    /// What the others are told is holding or waiting; the program's file name if not set.
    pub fn program(mut self, program: impl Into<String>) -> Self {
        self.program = Some(program.into());
        self
    }

    /// Opens the session: has its first lease granted.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a `max_hold` of nothing; otherwise what kept etcd from granting the lease.
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing behind: a lease granted all the same is revoked in the background.
    pub async fn open(self) -> Result<Session> {
        if self.terms.max_hold.is_some_and(|limit| limit.is_zero()) {
            return Err(Error::Invalid {
                what: "the longest hold, max_hold, of 0 s".into(),
                why: "no lock could be held at all; give it a time, or leave it out for no limit".into(),
            });
        }
        let shared = Shared {
            author: Author::new(self.program),
            etcd: self.etcd,
            terms: self.terms,
            current: Exclusive::new(None),
            earlier: Exclusive::new(Vec::new()),
            opening: Turn::default(),
            lineage: Arc::default(),
            closed: AtomicBool::new(false),
        };
        let session = Session { shared: Arc::new(shared) };
        session.lease().await?;
        Ok(session)
    }
}

impl Session {
    /// Opens a session with the default settings.
    ///
    /// # Errors
    /// What kept etcd from granting its lease.
    ///
    /// # Cancel safety
    /// As [`SessionBuilder::open`].
    pub async fn open(etcd: impl Into<Arc<dyn Etcd>>) -> Result<Self> {
        Self::builder(etcd).open().await
    }

    /// A session with settings.
    pub fn builder(etcd: impl Into<Arc<dyn Etcd>>) -> SessionBuilder {
        SessionBuilder { etcd: etcd.into(), terms: LeaseTerms::default(), program: None }
    }

    /// The etcd it is a session of.
    pub fn etcd(&self) -> &Arc<dyn Etcd> {
        &self.shared.etcd
    }

    /// The clock that [`Session::valid_until`] and the guards' deadlines are read on.
    pub fn runtime(&self) -> Arc<dyn Runtime> {
        self.shared.etcd.runtime()
    }

    /// The lease that attempts are made on at present; `None` between the loss of one and the grant of the next.
    pub fn lease_id(&self) -> Option<LeaseId> {
        self.current().map(|lease| lease.id())
    }

    /// The time to live that the server granted, which may be more than was asked for.
    pub fn granted_ttl(&self) -> Option<Duration> {
        self.current().map(|lease| lease.granted())
    }

    /// Until when the present lease is valid if nothing more is heard from etcd.
    pub fn valid_until(&self) -> Option<Instant> {
        self.current().map(|lease| lease.valid_until())
    }

    /// Ends the session: its guards and waits are lost, its lease is revoked and every key on it goes. It ends within
    /// two seconds whatever the network does.
    ///
    /// # Errors
    /// [`Error::OutcomeUnknown`] if the revocation was not confirmed in that time. It goes on in the background, and
    /// the lease ends by itself.
    ///
    /// # Cancel safety
    /// Once polled it takes effect, dropped or not.
    pub async fn close(&self) -> Result<()> {
        let closes = self.shut().into_iter().map(|lease| async move { lease.close().await });
        // All at once: one that is not answered must not keep the others.
        join_all(closes).await.into_iter().collect()
    }

    /// Ends the session here and leaves its lease to itself: not renewed, not revoked. Its guards are lost, and its keys
    /// stay until the lease expires, so others stay excluded until then; but a guard that is dropped still removes its own
    /// key.
    ///
    /// Returns the lease that new attempts would have been made on, if there was one.
    pub fn orphan(&self) -> Option<LeaseId> {
        let current = self.current().map(|lease| lease.id());
        for lease in self.shut() {
            lease.orphan();
        }
        current
    }

    /// Closes the door, and gives the leases that were still kept.
    fn shut(&self) -> Vec<Arc<Lease>> {
        self.shared.closed.store(true, Ordering::Release);
        let mut current = self.shared.current.lock();
        let earlier = std::mem::take(&mut *self.shared.earlier.lock());
        earlier.iter().filter_map(Weak::upgrade).chain(current.take()).collect()
    }

    fn current(&self) -> Option<Arc<Lease>> {
        self.shared.current.lock().clone().filter(|lease| lease.is_open())
    }

    pub(crate) fn author(&self) -> &Author {
        &self.shared.author
    }

    /// The lease for a new attempt; a new one if the last is lost or retired.
    pub(crate) async fn lease(&self) -> Result<Arc<Lease>> {
        if let Some(lease) = self.usable()? {
            return Ok(lease);
        }
        self.shared.opening.take(|| self.usable(), self.open_lease()).await
    }

    async fn open_lease(&self) -> Result<Arc<Lease>> {
        let shared = &*self.shared;
        let fresh = Lease::open(&shared.etcd, shared.terms, &shared.lineage).await?;
        {
            let mut current = shared.current.lock();
            let mut earlier = shared.earlier.lock();
            earlier.retain(|lease| lease.strong_count() > 0);
            if let Some(before) = current.replace(fresh.clone()) {
                before.retire();
                earlier.push(Arc::downgrade(&before));
            }
        }
        if shared.closed.load(Ordering::Acquire) {
            // Closed while the grant was under way.
            for lease in self.shut() {
                lease.begin_close();
            }
        }
        self.usable()?.ok_or(Error::TimedOut { operation: "granting a lease", after: fresh.granted() })
    }

    fn usable(&self) -> Result<Option<Arc<Lease>>> {
        if self.shared.closed.load(Ordering::Acquire) {
            return Err(Error::Closed { what: "the session" });
        }
        Ok(self.current())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if let Some(lease) = self.current.get_mut().take() {
            lease.retire();
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("lease", &self.lease_id()).finish_non_exhaustive()
    }
}
