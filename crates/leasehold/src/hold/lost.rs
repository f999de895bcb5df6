//! That a hold is over, and why.

use std::fmt;
use std::sync::{Arc, OnceLock};

use tokio_util::sync::CancellationToken;

/// Why a hold, or a place in a queue, ended.
///
/// ```
/// use leasehold::{Embedded, EtcdExt, LossCause, Mutex, Session};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let etcd = Embedded::start()?;
/// let session = Session::open(etcd.clone()).await?;
/// let guard = Mutex::new(&session, "report".parse()?).lock().await?;
/// etcd.delete(guard.key().clone()).await?;         // somebody's hand
/// assert_eq!(guard.verify().await.unwrap_err().loss(), Some(LossCause::KeyDeleted));
/// # Ok::<(), leasehold::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossCause {
    /// No renewal was confirmed in time: the server could not be reached, or this process did not run.
    Deadline,
    /// The server has no such lease any more: it was revoked, or it expired.
    LeaseGone,
    /// Somebody deleted the key while the lease lives on.
    KeyDeleted,
    /// The longest hold allowed by [`SessionBuilder::max_hold`](crate::SessionBuilder::max_hold) is over.
    MaxHold,
    /// The server's revision or term went back: it was restored from a backup, and others may hold what it forgot.
    Restored,
    /// Another cluster answers at the endpoints.
    ClusterChanged,
    /// The session was closed.
    Closed,
    /// The guard was released or dropped by its owner.
    Released,
}

impl fmt::Display for LossCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deadline => "no renewal was confirmed before the deadline; lock again once etcd can be reached",
            Self::LeaseGone => "the lease was revoked or has expired at the server; lock again",
            Self::KeyDeleted => "somebody deleted the lock's key; find out who before locking again",
            Self::MaxHold => "the longest hold allowed is over; work in smaller pieces or raise the limit",
            Self::Restored => {
                "etcd's revisions went back, as after a restore from backup: tokens given out before may come again; \
                 raise the revision at the restore (etcdutl snapshot restore --bump-revision N --mark-compacted) before locking again"
            }
            Self::ClusterChanged => "another etcd cluster answers at the endpoints; check them before locking again",
            Self::Closed => "the session was closed; open a new one to lock again",
            Self::Released => "the lock was released by its owner; lock again to go on",
        })
    }
}

/// Tells when a hold is over. Clones tell the same.
///
/// It fires before the server can give the lock to somebody else, and it needs no network for that. Once fired it
/// stays so.
///
/// ```
/// use leasehold::{Embedded, LossCause, Mutex, Session};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let session = Session::open(Embedded::start()?).await?;
/// let guard = Mutex::new(&session, "report".parse()?).lock().await?;
/// let lost = guard.lost();                          // for another task, or for after the guard
/// assert_eq!(lost.cause(), None);
/// session.close().await?;
/// assert_eq!(lost.wait().await, LossCause::Closed);
/// # Ok::<(), leasehold::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Default)]
pub struct Lost {
    cell: Arc<Cell>,
}

#[derive(Default)]
struct Cell {
    cause: OnceLock<LossCause>,
    account: OnceLock<Arc<str>>,
    token: CancellationToken,
}

impl Lost {
    /// Why the hold ended, or `None` while it is thought to last.
    pub fn cause(&self) -> Option<LossCause> {
        self.cell.cause.get().copied()
    }

    /// What led to the end, for people to read: of a hold that ended by its deadline, when the last renewal was sent that
    /// counted, and what the tries after it met. `None` while the hold is thought to last, and where the cause says it all.
    ///
    /// ```
    /// use leasehold::Lost;
    ///
    /// fn story(lost: &Lost) -> Option<String> {
    ///     let cause = lost.cause()?;
    ///     Some(match lost.account() {
    ///         Some(account) => format!("{cause} ({account})"),
    ///         None => cause.to_string(),
    ///     })
    /// }
    /// assert_eq!(story(&Lost::default()), None);
    /// ```
    pub fn account(&self) -> Option<&str> {
        self.cause()?;
        self.cell.account.get().map(AsRef::as_ref)
    }

    /// Waits for the end of the hold.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    pub async fn wait(&self) -> LossCause {
        self.cell.token.cancelled().await;
        // The cause is always set before the token.
        self.cause().unwrap_or(LossCause::Released)
    }

    /// The same as a token, for `select!` and for servers that shut down by one. Cancelling it has no effect here.
    pub fn token(&self) -> CancellationToken {
        self.cell.token.child_token()
    }

    /// Ends the hold, and says what led to it; the first cause stays. Says whether this was the first.
    pub(crate) fn set_with(&self, cause: LossCause, account: Option<Arc<str>>) -> bool {
        if self.cause().is_none()
            && let Some(account) = account
        {
            // Before the cause, so that whoever sees that one sees this.
            let _ = self.cell.account.set(account);
        }
        self.set(cause)
    }

    /// Ends the hold; the first cause stays. Says whether this was the first.
    pub(crate) fn set(&self, cause: LossCause) -> bool {
        let first = self.cell.cause.set(cause).is_ok();
        self.cell.token.cancel();
        first
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lost").field(&self.cause()).field(&self.account()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_cause_stays() {
        let lost = Lost::default();
        assert_eq!(lost.cause(), None);
        assert!(lost.set(LossCause::Deadline));
        assert!(!lost.clone().set(LossCause::Closed));
        assert_eq!(lost.cause(), Some(LossCause::Deadline));
    }

    #[test]
    fn the_account_is_that_of_the_first_cause() {
        let lost = Lost::default();
        assert_eq!(lost.account(), None);
        assert!(lost.set_with(LossCause::Deadline, Some("first".into())));
        assert!(!lost.set_with(LossCause::Closed, Some("second".into())));
        assert_eq!(lost.account(), Some("first"));
        let lost = Lost::default();
        assert!(
            lost.set_with(LossCause::Closed, None)
                && !lost.set_with(LossCause::Deadline, Some("late".into()))
        );
        assert_eq!(lost.account(), None);
    }

    #[test]
    fn a_callers_token_does_not_end_the_hold() {
        let lost = Lost::default();
        lost.token().cancel();
        assert_eq!(lost.cause(), None);
        assert!(!lost.token().is_cancelled());
    }
}
