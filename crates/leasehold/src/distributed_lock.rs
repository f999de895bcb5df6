//! The smallest lock: one key, one token.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::Either;
use leasehold_mvcc::{
    Code, Compare, Key, KeyRange, KeyValue, PutRequest, RangeRequest, Revision, Txn, TxnOpAnswer,
    WatchRequest,
};

use crate::error::{Error, ErrorKind, Result};
use crate::etcd::{Etcd, EtcdExt, WatchUpdate};
use crate::exclusive::Exclusive;
use crate::hold::place::Place;
use crate::hold::{FencingToken, LossCause, Lost};
use crate::lease::{Lease, LeaseTerms, Lineage};
use crate::name::Ttl;
use crate::runtime::{Backoff, race};
use crate::turn::Turn;

/// A lock that is one key with the holder's token as its value. It is **not fair**, and it does **not exclude a
/// [`Mutex`](crate::Mutex) of the same name**, whose entries are other keys: use it where a peer's layout asks for it,
/// and the mutex elsewhere.
///
/// Each acquisition has a fresh lease, which is renewed until the unlock, whatever becomes of the task that acquired
/// it. The hold ends with the lease: [`DistributedLock::held`] says so in time, without asking the network.
///
/// Dropping it unlocks in the background.
///
/// # Bounds
/// If etcd is silent, [`DistributedLock::try_lock`] ends within the bound of [`Session::open`](crate::Session::open) if it
/// gets no lease, and within the TTL more if it gets one; [`DistributedLock::lock`] within two TTLs and the bounds of one
/// call and one try; [`DistributedLock::unlock`] within five seconds, and two more to have its lease revoked. All that is
/// not `async` never waits.
///
/// ```
/// use leasehold::{DistributedLock, Embedded, Ttl};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let etcd = Embedded::start()?;
/// let ours = DistributedLock::new(etcd.clone(), "locks/report", "worker-1", Ttl::default())?;
/// let theirs = DistributedLock::new(etcd, "locks/report", "worker-2", Ttl::default())?;
///
/// assert!(ours.try_lock().await?);
/// assert!(ours.try_lock().await?, "trying again while it is held succeeds");
/// assert!(!theirs.try_lock().await?);
/// assert!(ours.unlock().await?);
/// assert!(theirs.try_lock().await?);
/// # Ok::<(), leasehold::Error>(())
/// # }).unwrap();
/// ```
pub struct DistributedLock {
    etcd: Arc<dyn Etcd>,
    key: Key,
    token: Bytes,
    ttl: Ttl,
    held: Exclusive<Option<Held>>,
    /// One task at a time tries.
    trying: Turn,
    lineage: Arc<Lineage>,
}

/// An acquisition. Dropping it removes the key, then has the lease revoked.
struct Held {
    place: Place,
    lease: Owned,
    fencing: FencingToken,
}

/// A lease that serves one acquisition only.
struct Owned(Arc<Lease>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.retire();
    }
}

impl DistributedLock {
    /// The lock at `key` for a contender that is known by `token`: a text of its own, which no other has. Nothing is
    /// sent.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the key or the token is empty.
    pub fn new(
        etcd: impl Into<Arc<dyn Etcd>>,
        key: impl Into<Key>,
        token: impl Into<Bytes>,
        ttl: Ttl,
    ) -> Result<Self> {
        let (key, token) = (key.into(), token.into());
        for (what, empty) in [("key", key.is_empty()), ("token", token.is_empty())] {
            if empty {
                let (what, why) =
                    (format!("the lock's {what}"), "it is empty; give it at least one byte".into());
                return Err(Error::Invalid { what, why });
            }
        }
        Ok(Self {
            etcd: etcd.into(),
            key,
            token,
            ttl,
            held: Exclusive::new(None),
            trying: Turn::default(),
            lineage: Arc::default(),
        })
    }

    /// Takes the lock if it is free, and says whether it is held now. While it is held already, it succeeds. A try that
    /// loses revokes its own lease.
    ///
    /// # Errors
    /// What kept etcd from granting a lease or from answering. That the lock is busy is no error.
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing: a key or lease made all the same goes in the background.
    pub async fn try_lock(&self) -> Result<bool> {
        let tried = self.try_once().await;
        tried.map_err(|error| self.named(error))
    }

    /// Waits until the lock is free and takes it. It waits by watching the key; who comes first is a matter of chance.
    ///
    /// # Errors
    /// As [`DistributedLock::try_lock`]; while it waits, a failure that may pass is borne for one TTL.
    ///
    /// # Cancel safety
    /// Dropped, it leaves nothing.
    pub async fn lock(&self) -> Result<()> {
        let taken = self.wait_and_take().await;
        taken.map_err(|error| self.named(error))
    }

    /// Gives the lock up: stops being valid, deletes the key if it is still this acquisition's and has its token, and
    /// revokes the acquisition's lease. Says whether the key was removed by this; `false` means that it was not held,
    /// or was lost before, and then nothing of anybody else's was touched. If the answer to a first try was lost and the
    /// key is gone, that try is taken for what removed it.
    ///
    /// # Errors
    /// What kept etcd from answering. The removal then goes on in the background.
    ///
    /// # Cancel safety
    /// Once polled it takes effect, dropped or not.
    pub async fn unlock(&self) -> Result<bool> {
        let Some(Held { mut place, lease, .. }) = self.held.lock().take() else { return Ok(false) };
        let removed = place.leave(LossCause::Released).await.map_err(|error| self.named(error))?;
        drop(place);
        // The key is gone; a lease that is not known to be revoked ends by itself.
        let revoked = lease.0.close().await;
        tracing::debug!(lock = %self.key, removed, revoked = revoked.is_ok(), "lock released");
        Ok(removed)
    }

    /// Whether it is held, by the clock: it turns false before the server can give the lock to somebody else.
    pub fn held(&self) -> bool {
        self.held.lock().as_ref().is_some_and(|held| held.place.ensure(Duration::ZERO).is_ok())
    }

    /// Tells when the present hold is over; `None` if there is none.
    pub fn lost(&self) -> Option<Lost> {
        self.held.lock().as_ref().map(|held| held.place.lost().clone())
    }

    /// The number that tells the present hold from all earlier ones of this key; `None` if there is none.
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.held.lock().as_ref().map(|held| held.fencing)
    }

    async fn try_once(&self) -> Result<bool> {
        self.trying.take(|| Ok(self.held().then_some(true)), self.try_alone()).await
    }

    async fn try_alone(&self) -> Result<bool> {
        // What was held and lost removes its own leavings; that may wake somebody who looks here.
        let lost = self.held.lock().take();
        drop(lost);
        let terms = LeaseTerms { ttl: self.ttl, max_hold: None };
        let lease = Owned(Lease::open(&self.etcd, terms, &self.lineage).await?);
        let place = Place::new(&lease.0, |_| self.key.clone())?
            .only_if(Compare::value(self.key.clone(), self.token.clone()));
        let (place, at) = match self.claim(place).await? {
            Ok(claimed) => claimed,
            Err(place) => {
                // Nothing of it is there; the lease is the last trace.
                drop(place);
                let revoked = lease.0.close().await;
                tracing::debug!(lock = %self.key, revoked = revoked.is_ok(), "busy");
                return Ok(false);
            }
        };
        let fencing = FencingToken::granted_at(at);
        tracing::debug!(lock = %self.key, lease = %lease.0.id(), token = fencing.as_u64(), "lock held");
        *self.held.lock() = Some(Held { place, lease, fencing });
        Ok(true)
    }

    /// Claims the key in one step, and says at which revision that was proven; or gives the place back if the key is
    /// somebody else's. Until it is answered it is sent again: a copy that was carried out is known by token and lease.
    async fn claim(&self, mut place: Place) -> Result<Result<(Place, Revision), Place>> {
        let runtime = place.lease().runtime().clone();
        let lease = place.lease().id();
        let put = PutRequest::new(self.key.clone(), self.token.clone()).on(lease);
        let read = RangeRequest::key(self.key.clone());
        let txn =
            Txn::new().when(Compare::absent(self.key.clone())).then(put).then(read.clone()).otherwise(read);
        let lost = place.lost().clone();
        let mut backoff = Backoff::new(Duration::from_millis(20), Duration::from_secs(1));
        let until = runtime.now() + place.lease().granted();
        loop {
            let answer = match race(lost.wait(), place.send(txn.clone())).await {
                Either::Left(cause) => return Err(Error::Lost { cause }),
                Either::Right(Err(error)) if error.is_transient() && runtime.now() < until => {
                    match race(lost.wait(), backoff.pause(&*runtime)).await {
                        Either::Left(_) => return Err(error),
                        Either::Right(()) => continue,
                    }
                }
                Either::Right(Err(error)) if error.refusal().is_some_and(|no| no.code == Code::NotFound) => {
                    // All that a put can miss is its lease.
                    return Err(Error::Lost { cause: place.lease().end(LossCause::LeaseGone) });
                }
                Either::Right(answer) => answer?,
            };
            let seen = answer.ops.last().and_then(TxnOpAnswer::as_range).and_then(|range| range.kvs.first());
            let ours = |kv: &&KeyValue| kv.lease == lease && kv.value == self.token;
            let Some(own) = seen.filter(ours) else {
                place.is_absent();
                return Ok(Err(place));
            };
            place.stands(own.create_revision);
            place.hold(own.create_revision)?;
            return Ok(Ok((place, answer.header.revision)));
        }
    }

    async fn wait_and_take(&self) -> Result<()> {
        let runtime = self.etcd.runtime();
        let patience = Duration::from_secs(self.ttl.as_secs().unsigned_abs());
        let mut answered = runtime.now();
        let backoff = || Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        let mut pauses = backoff();
        loop {
            match self.free_or_held().await {
                Ok(Round::Taken) => return Ok(()),
                Ok(Round::Quiet) => (answered, pauses) = (runtime.now(), backoff()),
                Ok(Round::Broken) => pauses.pause(&*runtime).await,
                // A lease was granted, and its time ran out before the claim was through: slow, but not away.
                Err(error) if error.kind() == ErrorKind::Lost => answered = runtime.now(),
                Err(error) if error.is_transient() && runtime.now() < answered + patience => {
                    pauses.pause(&*runtime).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// One round of waiting: watches from now, looks, and tries if the key is gone.
    async fn free_or_held(&self) -> Result<Round> {
        let runtime = self.etcd.runtime();
        let mut updates =
            self.etcd.watch(WatchRequest::range(KeyRange::key(self.key.clone())).deletes_only());
        let silence = runtime.now() + Duration::from_secs(self.ttl.as_secs().unsigned_abs()) / 2;
        loop {
            let ended = match race(updates.next(), runtime.sleep_until(silence)).await {
                Either::Left(Some(Ok(WatchUpdate::Progress(_)))) => continue,
                Either::Left(Some(Err(error))) if error.ends_waits() => return Err(error),
                Either::Left(Some(Ok(_))) => None,
                Either::Left(_) => Some(Round::Broken),
                Either::Right(()) => Some(Round::Quiet),
            };
            let worth_a_try = self.held() || self.etcd.get(self.key.clone()).await?.is_none();
            if worth_a_try && self.try_once().await? {
                return Ok(Round::Taken);
            }
            if let Some(ended) = ended {
                return Ok(ended);
            }
            // Of many who hear of the same end, most are late: a little chance spares the server their crowding.
            let jitter = Duration::from_micros(runtime.random_u64() % 5_000);
            runtime.sleep_until(runtime.now() + jitter).await;
        }
    }

    fn named(&self, error: Error) -> Error {
        error.of_lock(self.key.to_string())
    }
}

/// How a round of waiting ended.
#[derive(Clone, Copy, Debug)]
enum Round {
    /// With the lock held.
    Taken,
    /// With nothing heard for a while.
    Quiet,
    /// With the watch.
    Broken,
}

impl fmt::Debug for DistributedLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributedLock")
            .field("key", &self.key)
            .field("held", &self.held())
            .finish_non_exhaustive()
    }
}
