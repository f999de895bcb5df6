//! The fair lock, waited for by a thread.

use std::time::Duration;

use super::guard::Guard;
use super::session::Session;
use super::wait::wait;
use crate::error::Result;
use crate::mutex;
use crate::name::LockName;
use crate::queue::Entry;

/// A lock of which one holder at a time has the [`Guard`]; the same one as [`crate::Mutex`].
///
/// Fair, not reentrant, not poisoned. A clone is the same lock, and any number of threads may wait for it.
///
/// ```
/// use std::time::Duration;
/// use leasehold::Embedded;
/// use leasehold::blocking::{Mutex, Session, TryLock};
///
/// let session = Session::open(Embedded::start()?)?;
/// let mutex = Mutex::new(&session, "report".parse()?);
/// let guard = mutex.lock()?;
///
/// match mutex.try_lock()? {
///     TryLock::Acquired(_) => unreachable!("it is held above"),
///     TryLock::Busy(holder) => assert_eq!(holder.key, *guard.key()),
/// }
/// assert!(mutex.lock_timeout(Duration::from_millis(10))?.is_none());
/// guard.release()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Mutex {
    mutex: mutex::Mutex,
    session: Session,
}

/// What came of [`Mutex::try_lock`].
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
        Self { mutex: mutex::Mutex::new(session.inner(), name), session: session.clone() }
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        self.mutex.name()
    }

    /// Waits for the lock. Behind a live holder it waits without end: [`Mutex::lock_timeout`] bounds it, and so does
    /// [`Session::close`] on another thread.
    ///
    /// # Errors
    /// As [`crate::Mutex::lock`].
    pub fn lock(&self) -> Result<Guard> {
        Ok(self.guard(wait(self.mutex.lock())??))
    }

    /// Waits for the lock for so long at most; `None` if that was not enough, and then no entry is left.
    ///
    /// # Errors
    /// As [`crate::Mutex::lock_timeout`].
    pub fn lock_timeout(&self, at_most: Duration) -> Result<Option<Guard>> {
        Ok(wait(self.mutex.lock_timeout(at_most))??.map(|guard| self.guard(guard)))
    }

    /// Takes the lock if nobody holds it or waits for it; otherwise it leaves nothing behind and tells who is there.
    ///
    /// # Errors
    /// As [`crate::Mutex::try_lock`]. That the lock is busy is no error.
    pub fn try_lock(&self) -> Result<TryLock> {
        Ok(match wait(self.mutex.try_lock())?? {
            mutex::TryLock::Acquired(guard) => TryLock::Acquired(self.guard(guard)),
            mutex::TryLock::Busy(holder) => TryLock::Busy(holder),
        })
    }

    /// Who holds the lock at present; `None` if nobody does.
    ///
    /// # Errors
    /// What kept etcd from answering.
    pub fn holder(&self) -> Result<Option<Entry>> {
        wait(self.mutex.holder())?
    }

    /// Who holds the lock and who waits for it, in the order in which they will get it.
    ///
    /// # Errors
    /// What kept etcd from answering.
    pub fn queue(&self) -> Result<Vec<Entry>> {
        wait(self.mutex.queue())?
    }

    fn guard(&self, guard: crate::hold::Guard) -> Guard {
        Guard::new(guard, self.session.runtime())
    }
}
