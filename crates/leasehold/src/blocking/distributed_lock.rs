//! The smallest lock, waited for by a thread.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use leasehold_mvcc::Key;

use super::guard::DROP_BOUND;
use super::lost::Lost;
use super::wait::wait;
use crate::distributed_lock;
use crate::error::Result;
use crate::etcd::Etcd;
use crate::hold::FencingToken;
use crate::name::Ttl;
use crate::runtime::{Runtime, before};

/// A lock that is one key with the holder's token as its value; the same one as [`crate::DistributedLock`]. It is **not
/// fair**, and it does **not exclude a [`Mutex`](super::Mutex) of the same name**.
///
/// Dropping it while it is held unlocks it and waits for that, a second at most.
///
/// ```
/// use std::time::Duration;
/// use leasehold::blocking::DistributedLock;
/// use leasehold::{Embedded, Ttl};
///
/// let etcd = Embedded::start()?;
/// let ours = DistributedLock::new(etcd.clone(), "locks/report", "worker-1", Ttl::default())?;
/// let theirs = DistributedLock::new(etcd, "locks/report", "worker-2", Ttl::default())?;
///
/// assert!(ours.try_lock()?);
/// assert!(!theirs.lock_timeout(Duration::from_millis(10))?);
/// assert!(ours.unlock()?);
/// assert!(theirs.try_lock()?);
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Debug)]
pub struct DistributedLock {
    lock: distributed_lock::DistributedLock,
    runtime: Arc<dyn Runtime>,
}

impl DistributedLock {
    /// As [`crate::DistributedLock::new`].
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) if the key or the token is empty.
    pub fn new(
        etcd: impl Into<Arc<dyn Etcd>>,
        key: impl Into<Key>,
        token: impl Into<Bytes>,
        ttl: Ttl,
    ) -> Result<Self> {
        let etcd = etcd.into();
        let runtime = etcd.runtime();
        Ok(Self { lock: distributed_lock::DistributedLock::new(etcd, key, token, ttl)?, runtime })
    }

    /// Takes the lock if it is free, and says whether it is held now. While it is held already, it succeeds.
    ///
    /// # Errors
    /// As [`crate::DistributedLock::try_lock`]. That the lock is busy is no error.
    pub fn try_lock(&self) -> Result<bool> {
        wait(self.lock.try_lock())?
    }

    /// Waits until the lock is free and takes it; who comes first is a matter of chance.
    ///
    /// # Errors
    /// As [`crate::DistributedLock::lock`].
    pub fn lock(&self) -> Result<()> {
        wait(self.lock.lock())?
    }

    /// Waits for the lock for so long at most, and says whether it is held now. If not, what a try of it may have made
    /// is removed in the background.
    ///
    /// # Errors
    /// As [`crate::DistributedLock::lock`].
    pub fn lock_timeout(&self, at_most: Duration) -> Result<bool> {
        let until = self.runtime.now() + at_most;
        let taken = wait(before(&*self.runtime, until, self.lock.lock()))?;
        Ok(taken.transpose()?.is_some())
    }

    /// Gives the lock up, and says whether the key was removed by this.
    ///
    /// # Errors
    /// As [`crate::DistributedLock::unlock`].
    pub fn unlock(&self) -> Result<bool> {
        wait(self.lock.unlock())?
    }

    /// Whether it is held, by the clock: it turns false before the server can give the lock to somebody else.
    pub fn held(&self) -> bool {
        self.lock.held()
    }

    /// Tells when the present hold is over; `None` if there is none.
    pub fn lost(&self) -> Option<Lost> {
        self.lock.lost().map(|lost| Lost::new(lost, self.runtime.clone()))
    }

    /// The number that tells the present hold from all earlier ones of this key; `None` if there is none.
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.lock.fencing_token()
    }
}

impl Drop for DistributedLock {
    fn drop(&mut self) {
        if !self.held() {
            return;
        }
        let until = self.runtime.now() + DROP_BOUND;
        // Not answered in time, or on a thread that must not wait: the hold's own drop sees to it.
        let _ = wait(before(&*self.runtime, until, self.lock.unlock()));
    }
}
