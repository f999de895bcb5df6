//! What it means to hold: the [`Guard`], its [`FencingToken`], and how it is [`Lost`].

mod lost;
pub(crate) mod place;
mod token;

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_mvcc::{Compare, Key, LeaseId, RangeRequest, Revision, Txn, TxnAnswer, TxnOpAnswer};

pub use lost::{LossCause, Lost};
pub use token::FencingToken;

use crate::error::{Error, Result};
use crate::etcd::Etcd;
use crate::name::LockName;
use crate::runtime::Instant;
use place::Place;

/// A lock that is held.
///
/// It can only be made by the answer of etcd that proved the hold. From then on it is *valid* until
/// [`Guard::valid_until`], which moves on with each confirmed renewal of the lease and needs no network to pass. While
/// clocks run at about the same rate, no two guards of one lock are valid at one instant.
///
/// What no lock can promise is that your write arrives while the guard is valid: your process may be paused between
/// the check and the write. So send [`Guard::token`] along, or write through [`Guard::txn`].
///
/// # Bounds
/// If etcd is silent, [`Guard::verify`] and [`Guard::txn`] end within the bound of one call of the backend's,
/// [`Guard::release`] within five seconds, and [`Guard::run_while_held`] and [`Lost::wait`] at [`Guard::valid_until`].
/// All that is not `async` never waits.
///
/// # Dropping
/// Dropping it gives the lock up in the background, on the library's own thread: also outside a runtime, and also in
/// a panic. [`Guard::release`] does the same and says when it is done. Forgetting it ([`std::mem::forget`]) keeps the
/// lock, and its lease renewed, until the session is closed or the process ends.
///
/// ```
/// use std::time::Duration;
/// use leasehold::mvcc::{PutRequest, Txn};
/// use leasehold::{Embedded, Mutex, Session};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let session = Session::open(Embedded::start()?).await?;
/// let guard = Mutex::new(&session, "report".parse()?).lock().await?;
/// assert!(guard.ensure_held(Duration::from_secs(1)).is_ok(), "it lasts a second at least");
/// // A write that etcd carries out only while the lock is held:
/// let write = Txn::new().then(PutRequest::new("report/page", "one"));
/// assert!(guard.txn(write).await?.succeeded);
/// guard.release().await?;
/// # Ok::<(), leasehold::Error>(())
/// # }).unwrap();
/// ```
#[must_use = "dropping the guard gives the lock up; keep it while you work"]
#[clippy::has_significant_drop]
pub struct Guard {
    place: Place,
    name: LockName,
    created: Revision,
    token: FencingToken,
}

impl Guard {
    /// Called by the steps that proved the hold, with the revision at which they did.
    ///
    /// # Errors
    /// [`Error::Lost`] if the proof came too late to count.
    pub(crate) fn proven(
        place: Place,
        name: &LockName,
        created: Revision,
        proven_at: Revision,
    ) -> Result<Self> {
        place.hold(created)?;
        let token = FencingToken::granted_at(proven_at);
        tracing::debug!(lock = %name, key = %place.key(), token = token.as_u64(), "lock held");
        Ok(Self { place, name: name.clone(), created, token })
    }

    /// The lock's name.
    pub fn name(&self) -> &LockName {
        &self.name
    }

    /// The key that stands for this hold in etcd.
    pub fn key(&self) -> &Key {
        self.place.key()
    }

    pub(crate) fn etcd(&self) -> &Arc<dyn Etcd> {
        self.place.lease().etcd()
    }

    /// The lease the key hangs on.
    pub fn lease(&self) -> LeaseId {
        self.place.lease().id()
    }

    /// The revision that created the key: the hold's rank in the queue, and, with the key, its name among all that ever
    /// were. Compare with it in transactions of your own that [`Guard::txn`] cannot carry.
    pub fn create_revision(&self) -> Revision {
        self.created
    }

    /// The number that tells this hold from all earlier ones of the same lock: higher than each of theirs.
    pub fn token(&self) -> FencingToken {
        self.token
    }

    /// The revision at which etcd proved the hold; what Go's `Header().Revision` and etcdctl's `ETCD_LOCK_REV` are.
    pub fn grant_revision(&self) -> Revision {
        self.token.revision()
    }

    /// Until when the hold is valid if nothing more is heard from etcd, on the backend's clock
    /// ([`Runtime::now`](crate::runtime::Runtime::now)). It moves on with each confirmed renewal.
    pub fn valid_until(&self) -> Instant {
        self.place.valid_until()
    }

    /// Whether the hold is valid, and will be for `margin` from now even if etcd falls silent. It asks the clock and
    /// not the network: call it before each step that must not happen after a loss.
    ///
    /// # Errors
    /// Why it is lost; [`LossCause::Deadline`] also when it is not lost yet but `margin` is more than is left.
    pub fn ensure_held(&self, margin: Duration) -> Result<(), LossCause> {
        self.place.ensure(margin)
    }

    /// Tells when the hold is over.
    pub fn lost(&self) -> Lost {
        self.place.lost().clone()
    }

    /// Asks etcd, by a linearizable read, whether the key is still there.
    ///
    /// # Errors
    /// [`Error::Lost`] if it is not, and then the guard is lost; otherwise what kept etcd from answering.
    ///
    /// # Cancel safety
    /// Nothing is changed by dropping it.
    pub async fn verify(&self) -> Result<()> {
        self.owned(Txn::new()).await.map(drop)
    }

    /// Does a transaction of yours if, at that very revision, the lock is still held: a write that cannot come too
    /// late. It is never re-sent by itself.
    ///
    /// # Errors
    /// [`Error::Lost`] if it was not held, and then nothing was done and the guard is lost. Otherwise as
    /// [`Etcd::txn`](crate::etcd::Etcd::txn) fails: on an unknown outcome, look before you repeat it.
    ///
    /// # Cancel safety
    /// Dropped before its end, it may be carried out or not.
    pub async fn txn(&self, txn: Txn) -> Result<TxnAnswer> {
        self.owned(txn).await
    }

    async fn owned(&self, txn: Txn) -> Result<TxnAnswer> {
        let of_lock = |error: Error| error.of_lock(self.name.as_str());
        self.place.ensure(Duration::ZERO).map_err(|cause| of_lock(Error::Lost { cause }))?;
        // A transaction of compares only is served by one member's memory; the read makes it linearizable.
        let guarded = Txn::new()
            .when(Compare::created_at(self.key().clone(), self.created))
            .then(RangeRequest::key(self.key().clone()))
            .then(txn)
            .otherwise(RangeRequest::key(self.key().clone()));
        let seen = self.place.lease().seen();
        let answer = self.place.lease().etcd().txn(guarded).await.map_err(of_lock)?;
        self.place.lease().follow(seen, answer.header).map_err(of_lock)?;
        if !answer.succeeded {
            self.place.gone().await;
            return Err(of_lock(Error::Lost {
                cause: self.place.lost().cause().unwrap_or(LossCause::KeyDeleted),
            }));
        }
        match answer.ops.into_iter().nth(1) {
            Some(TxnOpAnswer::Txn(inner)) => Ok(TxnAnswer { header: answer.header, ..inner }),
            _ => Err(of_lock(Error::Protocol {
                endpoint: "etcd".into(),
                why: "the answer to a transaction within a transaction is missing".into(),
            })),
        }
    }

    /// Runs `work` for as long as the hold is valid: before each step of it the clock is read.
    ///
    /// # Errors
    /// Why the hold was lost; then `work` was dropped at its last await point. Blocking code inside it is not stopped:
    /// call [`Guard::ensure_held`] there before each effect.
    ///
    /// # Cancel safety
    /// Dropping it drops `work`.
    pub async fn run_while_held<T>(&self, work: impl Future<Output = T>) -> Result<T, LossCause> {
        let mut work = pin!(work);
        let mut lost = pin!(self.place.lost().wait());
        poll_fn(|context| {
            if let Err(cause) = self.ensure_held(Duration::ZERO) {
                return Poll::Ready(Err(cause));
            }
            if let Poll::Ready(cause) = lost.as_mut().poll(context) {
                return Poll::Ready(Err(cause));
            }
            work.as_mut().poll(context).map(Ok)
        })
        .await
    }

    /// Gives the lock up: the guard stops being valid, then its key is deleted, and no other.
    ///
    /// # Errors
    /// What kept etcd from answering. The removal then goes on in the background until it is known, or until the
    /// lease is dead: the lock is never kept by a failed release.
    ///
    /// # Cancel safety
    /// Once polled it takes effect, dropped or not.
    pub async fn release(mut self) -> Result<()> {
        self.leave().await
    }

    /// As [`Guard::release`], for a guard that is dropped right after.
    pub(crate) async fn leave(&mut self) -> Result<()> {
        let Self { place, name, token, .. } = self;
        let released = place.leave(LossCause::Released).await;
        tracing::debug!(lock = %name, token = token.as_u64(), known = released.is_ok(), "lock released");
        released.map(drop).map_err(|error| error.of_lock(name.as_str()))
    }
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("name", &self.name)
            .field("token", &self.token)
            .field("valid_until", &self.valid_until())
            .field("lost", &self.place.lost().cause())
            .finish_non_exhaustive()
    }
}
