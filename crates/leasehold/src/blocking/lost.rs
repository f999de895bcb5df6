//! That a hold is over, for threads.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::wait::wait;
use crate::hold::{self, LossCause};
use crate::runtime::{Runtime, before};

/// Tells when a hold is over, as [`crate::Lost`] does. Clones tell the same.
///
/// ```
/// use std::time::Duration;
/// use leasehold::blocking::{Mutex, Session};
/// use leasehold::{Embedded, LossCause};
///
/// let session = Session::open(Embedded::start()?)?;
/// let guard = Mutex::new(&session, "report".parse()?).lock()?;
/// let lost = guard.lost();
/// assert_eq!(lost.wait_timeout(Duration::from_millis(1)), None);
/// let watching = std::thread::spawn(move || lost.wait());
/// guard.release()?;
/// assert_eq!(watching.join().unwrap()?, LossCause::Released);
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone)]
pub struct Lost {
    lost: hold::Lost,
    runtime: Arc<dyn Runtime>,
}

impl Lost {
    pub(super) fn new(lost: hold::Lost, runtime: Arc<dyn Runtime>) -> Self {
        Self { lost, runtime }
    }

    /// Why the hold ended, or `None` while it is thought to last.
    pub fn cause(&self) -> Option<LossCause> {
        self.lost.cause()
    }

    /// Waits for the end of the hold.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) on a thread of the library's own.
    pub fn wait(&self) -> crate::Result<LossCause> {
        wait(self.lost.wait())
    }

    /// Waits for the end of the hold for so long at most; `None` if it lasted. On a thread of the library's own it does
    /// not wait.
    pub fn wait_timeout(&self, at_most: Duration) -> Option<LossCause> {
        let until = self.runtime.now() + at_most;
        wait(before(&*self.runtime, until, self.lost.wait())).ok().flatten().or_else(|| self.cause())
    }
}

impl From<Lost> for hold::Lost {
    fn from(lost: Lost) -> Self {
        lost.lost
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lost.fmt(f)
    }
}
