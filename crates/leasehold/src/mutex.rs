//! A fair lock for one holder at a time.

use std::fmt;
use std::time::Duration;

use futures_util::future::Either;

use crate::error::{Error, Result};
use crate::hold::Guard;
use crate::name::LockName;
use crate::queue::{self, Attempt, Entry, Tried};
use crate::runtime::{before, race};
use crate::session::Session;

/// How long a call that gave up waits to hear that its entry is gone, before that goes on in the background.
const LEAVE_BOUND: Duration = Duration::from_secs(1);

/// How often an attempt begins again on a new lease when it found its own gone.
const AGAIN: std::ops::Range<u8> = 0..2;

/// A lock of which one holder at a time has the [`Guard`].
///
/// **Fair**: attempts win in the order in which they entered the queue, whatever program or language they come from.
/// **Not reentrant**: two attempts exclude each other even if one task makes both. **Not poisoned**: a holder that
/// panics gives it up. It is the lock that Go's `concurrency.Mutex`, `etcdctl lock` and etcd's own lock service take.
///
/// A clone is the same lock.
///
/// # Bounds
/// If etcd is silent, [`Mutex::lock`] and [`Mutex::try_lock`] end with the session's lease, within its TTL at most; or, if
/// the session has none left, within the bound of [`Session::open`]. [`Mutex::lock_timeout`] ends with the same, and within
/// a second after its time at the latest. [`Mutex::holder`] ends within the bound of one call of the backend's; so does
/// [`Mutex::queue`] for each thousand entries.
///
/// ```
/// use leasehold::{Embedded, Mutex, Session, TryLock};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let session = Session::open(Embedded::start()?).await?;
/// let mutex = Mutex::new(&session, "report".parse()?);
/// let guard = mutex.lock().await?;
///
/// match mutex.try_lock().await? {
///     TryLock::Acquired(_) => unreachable!("it is held above"),
///     TryLock::Busy(holder) => assert_eq!(holder.key, *guard.key()),
/// }
/// guard.release().await?;
/// # Ok::<(), leasehold::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct Mutex {
    session: Session,
    name: LockName,
}

/// What came of [`Mutex::try_lock`].
///
/// ```
/// use leasehold::{Embedded, Mutex, Session, TryLock};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let session = Session::open(Embedded::start()?).await?;
/// let mutex = Mutex::new(&session, "report".parse()?);
/// match mutex.try_lock().await? {
///     TryLock::Acquired(guard) => guard.release().await?,
///     TryLock::Busy(holder) => println!("held by {holder}"),
/// }
/// # Ok::<(), leasehold::Error>(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "if it was acquired, dropping this gives the lock up"]
pub enum TryLock {
    /// The lock is held.
    Acquired(Guard),
    /// Somebody else is there, and nothing of this attempt is left.
    Busy(Entry),
}

impl TryLock {
    /// The guard, if the lock was acquired.
    pub fn acquired(self) -> Option<Guard> {
        match self {
            Self::Acquired(guard) => Some(guard),
            Self::Busy(_) => None,
        }
    }
}

impl Mutex {
    /// The lock of this name. Nothing is sent.
    pub fn new(session: &Session, name: LockName) -> Self {
        Self { session: session.clone(), name }
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// Waits for the lock.
    ///
    /// Behind a live holder it waits for as long as you do: bound it by [`Mutex::lock_timeout`], or by dropping it.
    ///
    /// # Errors
    /// [`Error::Lost`] if the session's lease, or the entry itself, was lost while waiting, which also bounds the wait
    /// if etcd cannot be reached; [`Error::Unavailable`] or [`Error::OutcomeUnknown`] if it could not be reached from
    /// the start; [`Error::Refused`] if it said no.
    ///
    /// # Cancel safety
    /// Dropped, it loses its place in the queue; the entry is removed in the background.
    pub async fn lock(&self) -> Result<Guard> {
        self.acquire().await.map_err(|error| self.named(error))
    }

    /// Waits for the lock for so long at most; `None` if that was not enough, and then no entry is left.
    ///
    /// # Errors
    /// As [`Mutex::lock`]. A lost session is told before the time is up.
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`].
    pub async fn lock_timeout(&self, at_most: Duration) -> Result<Option<Guard>> {
        self.acquire_within(at_most).await.map_err(|error| self.named(error))
    }

    /// Takes the lock if nobody holds it or waits for it, in one transaction; otherwise it leaves nothing behind and
    /// tells who is there.
    ///
    /// # Errors
    /// As [`Mutex::lock`]. That the lock is busy is no error.
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing: an entry made all the same is removed in the background.
    pub async fn try_lock(&self) -> Result<TryLock> {
        self.attempt_now().await.map_err(|error| self.named(error))
    }

    /// Who holds the lock at present; `None` if nobody does.
    ///
    /// # Errors
    /// What kept etcd from answering.
    ///
    /// # Cancel safety
    /// It changes nothing.
    pub async fn holder(&self) -> Result<Option<Entry>> {
        queue::first(&**self.session.etcd(), &self.name).await.map_err(|error| self.named(error))
    }

    /// Who holds the lock and who waits for it, in the order in which they will get it.
    ///
    /// # Errors
    /// What kept etcd from answering.
    ///
    /// # Cancel safety
    /// It changes nothing.
    pub async fn queue(&self) -> Result<Vec<Entry>> {
        queue::entries(&**self.session.etcd(), &self.name).await.map_err(|error| self.named(error))
    }

    /// An attempt on the session's lease; if that was retired the moment it was had, on the next one.
    async fn attempt(&self) -> Result<Attempt<'_>> {
        let mut again = AGAIN;
        loop {
            let lease = self.session.lease().await?;
            match Attempt::new(&lease, &self.name) {
                Err(_) if !lease.is_open() && again.next().is_some() => {}
                attempt => return attempt,
            }
        }
    }

    async fn acquire(&self) -> Result<Guard> {
        let mut again = AGAIN;
        loop {
            let mut attempt = self.attempt().await?;
            match attempt.queue(self.session.author()).await {
                Err(error) if attempt.came_too_late(&error) && again.next().is_some() => {}
                at => return attempt.into_guard(at?),
            }
        }
    }

    async fn acquire_within(&self, at_most: Duration) -> Result<Option<Guard>> {
        let runtime = self.session.runtime();
        let until = runtime.now() + at_most;
        let mut again = AGAIN;
        loop {
            let Some(attempt) = before(&*runtime, until, self.attempt()).await else { return Ok(None) };
            let mut attempt = attempt?;
            match race(attempt.queue(self.session.author()), runtime.sleep_until(until)).await {
                Either::Left(Err(error)) if attempt.came_too_late(&error) && again.next().is_some() => {}
                Either::Left(at) => return attempt.into_guard(at?).map(Some),
                Either::Right(()) => {
                    self.leave(attempt).await;
                    return Ok(None);
                }
            }
        }
    }

    async fn attempt_now(&self) -> Result<TryLock> {
        let mut again = AGAIN;
        loop {
            let mut attempt = self.attempt().await?;
            match attempt.try_now(self.session.author()).await {
                Err(error) if attempt.came_too_late(&error) && again.next().is_some() => {}
                Err(error) => return Err(error),
                Ok(Tried::Held { at }) => return attempt.into_guard(at).map(TryLock::Acquired),
                Ok(Tried::Busy(holder)) => {
                    self.leave(attempt).await;
                    return Ok(TryLock::Busy(holder));
                }
            }
        }
    }

    /// Removes the attempt's entry; if that is not answered soon, in the background.
    async fn leave(&self, attempt: Attempt<'_>) {
        let runtime = self.session.runtime();
        let left = before(&*runtime, runtime.now() + LEAVE_BOUND, attempt.leave()).await;
        if !matches!(left, Some(Ok(()))) {
            tracing::debug!(lock = %self.name, "the entry is being removed in the background");
        }
    }

    fn named(&self, error: Error) -> Error {
        error.of_lock(self.name.as_str())
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").field("name", &self.name).finish_non_exhaustive()
    }
}
