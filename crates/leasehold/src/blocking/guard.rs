//! A hold in the hands of a thread.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Either;
use leasehold_mvcc::{Key, LeaseId, Revision, Txn, TxnAnswer};
use tokio_util::sync::CancellationToken;

use super::lost::Lost;
use super::wait::wait;
use crate::error::{Error, Result};
use crate::hold::{self, FencingToken, LossCause};
use crate::name::LockName;
use crate::runtime::{Instant, Runtime, before, race};

/// How long a guard that is dropped waits to hear that its key is gone, before that goes on in the background.
pub(super) const DROP_BOUND: Duration = Duration::from_secs(1);

/// A lock that is held, as [`crate::Guard`] is.
///
/// # Dropping
/// Dropping it gives the lock up and waits until etcd says so, a second at most, also in a panic; if it was lost before,
/// it does not wait. [`Guard::release`] does the same and says what came of it. Forgetting it ([`std::mem::forget`])
/// keeps the lock, and its lease renewed, until the session is closed or the process ends.
///
/// ```
/// use leasehold::Embedded;
/// use leasehold::blocking::{Mutex, Session};
///
/// let session = Session::open(Embedded::start()?)?;
/// let mutex = Mutex::new(&session, "report".parse()?);
/// let first = mutex.lock()?.token();                // dropped at once, and free again
/// assert_eq!(mutex.holder()?, None);
/// assert!(mutex.lock()?.token() > first);
/// # Ok::<(), leasehold::Error>(())
/// ```
#[must_use = "dropping the guard gives the lock up; keep it while you work"]
#[clippy::has_significant_drop]
pub struct Guard {
    guard: hold::Guard,
    runtime: Arc<dyn Runtime>,
}

impl Guard {
    pub(super) fn new(guard: hold::Guard, runtime: Arc<dyn Runtime>) -> Self {
        Self { guard, runtime }
    }

    /// As [`crate::Guard::name`].
    pub fn name(&self) -> &LockName {
        self.guard.name()
    }

    /// As [`crate::Guard::key`].
    pub fn key(&self) -> &Key {
        self.guard.key()
    }

    /// As [`crate::Guard::lease`].
    pub fn lease(&self) -> LeaseId {
        self.guard.lease()
    }

    /// As [`crate::Guard::create_revision`].
    pub fn create_revision(&self) -> Revision {
        self.guard.create_revision()
    }

    /// The number that tells this hold from all earlier ones of the same lock: higher than each of theirs.
    pub fn token(&self) -> FencingToken {
        self.guard.token()
    }

    /// As [`crate::Guard::grant_revision`].
    pub fn grant_revision(&self) -> Revision {
        self.guard.grant_revision()
    }

    /// As [`crate::Guard::valid_until`].
    pub fn valid_until(&self) -> Instant {
        self.guard.valid_until()
    }

    /// Whether the hold is valid, and will be for `margin` from now even if etcd falls silent. It asks the clock and
    /// not the network: call it before each step that must not happen after a loss.
    ///
    /// # Errors
    /// As [`crate::Guard::ensure_held`].
    pub fn ensure_held(&self, margin: Duration) -> Result<(), LossCause> {
        self.guard.ensure_held(margin)
    }

    /// Tells when the hold is over: for other threads, and for when the guard is not at hand.
    pub fn lost(&self) -> Lost {
        Lost::new(self.guard.lost(), self.runtime.clone())
    }

    /// Sleeps for so long, or until the hold is over: then it says why. `None` if the hold lasted.
    pub fn lost_within(&self, at_most: Duration) -> Option<LossCause> {
        self.lost().wait_timeout(at_most)
    }

    /// Asks etcd, by a linearizable read, whether the key is still there.
    ///
    /// # Errors
    /// As [`crate::Guard::verify`].
    pub fn verify(&self) -> Result<()> {
        wait(self.guard.verify())?
    }

    /// Does a transaction of yours if, at that very revision, the lock is still held: a write that cannot come too
    /// late. It is never re-sent by itself.
    ///
    /// # Errors
    /// As [`crate::Guard::txn`].
    pub fn txn(&self, txn: Txn) -> Result<TxnAnswer> {
        wait(self.guard.txn(txn))?
    }

    /// Runs `work` on this thread. If the hold is lost meanwhile, `on_loss` runs at that moment, on a thread of its own:
    /// let it stop the work, by a flag that is asked, a child that is killed or a connection that is shut.
    ///
    /// Nothing can stop a thread from outside: work that does not listen goes on without the lock. So ask
    /// [`Guard::ensure_held`] in it, too, before each step that must not happen after a loss.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use leasehold::Embedded;
    /// use leasehold::blocking::{Mutex, Session};
    ///
    /// let session = Session::open(Embedded::start()?)?;
    /// let guard = Mutex::new(&session, "report".parse()?).lock()?;
    /// let stop = AtomicBool::new(false);
    /// let pages = guard.run_while_held(
    ///     || (0..100).take_while(|_| !stop.load(Ordering::Relaxed)).count(),
    ///     |cause| {
    ///         eprintln!("stopping: {cause}");
    ///         stop.store(true, Ordering::Relaxed);
    ///     },
    /// )?;
    /// assert_eq!(pages, 100);
    /// # Ok::<(), leasehold::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Lost`] if the hold did not last to the end of `work`, whose result is dropped; if it was lost before, then
    /// nothing was run. [`Error::Io`] if the machine refuses the thread, and then nothing was run.
    ///
    /// # Panics
    /// If `work` or `on_loss` does.
    pub fn run_while_held<T>(
        &self,
        work: impl FnOnce() -> T,
        on_loss: impl FnOnce(LossCause) + Send,
    ) -> Result<T> {
        let lost = |cause| Error::Lost { cause }.of_lock(self.name().as_str());
        self.ensure_held(Duration::ZERO).map_err(lost)?;
        let finished = CancellationToken::new();
        let told = self.guard.lost();
        std::thread::scope(|scope| {
            let until_finished = finished.clone();
            let watching =
                std::thread::Builder::new().name("leasehold-loss".into()).spawn_scoped(scope, move || {
                    let ended = wait(race(told.wait(), until_finished.cancelled_owned()));
                    let Ok(Either::Left(cause)) = ended else { return None };
                    on_loss(cause);
                    Some(cause)
                });
            let watching = watching.map_err(|cause| {
                let operation = "start a thread that hears of the lock's loss".into();
                Error::Io { operation, cause: cause.to_string() }.of_lock(self.name().as_str())
            })?;
            // Dropped when `work` panics, too, or the scope would wait for the other thread without end.
            let working = finished.drop_guard();
            let value = work();
            // A hold that ended this moment is told before the work counts as finished.
            let _ = self.ensure_held(Duration::ZERO);
            drop(working);
            match watching.join() {
                Ok(None) => Ok(value),
                Ok(Some(cause)) => Err(lost(cause)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Gives the lock up: the guard stops being valid, then its key is deleted, and no other.
    ///
    /// # Errors
    /// As [`crate::Guard::release`].
    pub fn release(mut self) -> Result<()> {
        // What is left for the drop is nothing, or goes on in the background.
        wait(self.guard.leave())?
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.guard.lost().cause().is_some() {
            return;
        }
        let until = self.runtime.now() + DROP_BOUND;
        // Not answered in time, refused, or on a thread that must not wait: the inner guard's drop sees to it.
        let _ = wait(before(&*self.runtime, until, self.guard.leave()));
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}
