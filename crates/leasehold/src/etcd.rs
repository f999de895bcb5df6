//! The seam between the locks and whatever keeps their keys: the trait [`Etcd`], and its implementations.
//!
//! | backend | what it is |
//! |---|---|
//! | [`Embedded`] | the store in this process: for tests, and for one machine |
//! | `Remote` | a real etcd cluster, or `leasehold serve`, over gRPC (feature `remote`) |
//! | [`Prefixed`] | either, seen through a namespace |
//!
//! All three pass one suite, `conformance` (feature `conformance`), and so should yours.

/// Takes the answer that fits the question out of the enum of all.
macro_rules! pick {
    ($variant:ident) => {
        |answer| match answer {
            leasehold_mvcc::Answer::$variant(answer) => Some(answer),
            _ => None,
        }
    };
}

#[cfg(feature = "conformance")]
pub mod conformance;
mod embedded;
mod prefixed;
#[cfg(feature = "remote")]
mod remote;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use leasehold_mvcc::{
    Compare, DeleteAnswer, DeleteRequest, Event, KeepAliveAnswer, Key, KeyValue, LeaseGrantAnswer,
    LeaseGrantRequest, LeaseId, LeaseRevokeAnswer, LeaseTimeToLiveAnswer, PutAnswer, PutRequest, RangeAnswer,
    RangeRequest, Revision, Txn, TxnAnswer, TxnOpAnswer, WatchRequest,
};

pub use embedded::{Embedded, EmbeddedOptions, WatchControl, WatchStream};
pub use prefixed::Prefixed;
#[cfg(feature = "tls")]
pub use remote::TlsOptions;
#[cfg(feature = "remote")]
pub use remote::{
    Credentials, Endpoint, IntoEndpoints, KeepAliveLine, Lane, Remote, RemoteOptions, Token, WatchLine,
    WatchOrder, Wire, WireError,
};

use crate::error::{Error, Result};
use crate::runtime::Runtime;

/// The future of one call. It owns what it needs: it may be moved to another task and finished there, which is how a
/// call whose caller has gone is still brought to a known end.
pub type Call<T> = BoxFuture<'static, Result<T>>;

/// The updates of one watch, see [`Etcd::watch`].
pub type Updates = BoxStream<'static, Result<WatchUpdate>>;

/// What a watch tells.
///
/// ```
/// use futures_util::StreamExt;
/// use leasehold::etcd::{Etcd, WatchUpdate};
/// use leasehold::mvcc::{KeyRange, WatchRequest};
/// use leasehold::{Embedded, EtcdExt};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let etcd = Embedded::start()?;
/// let mut updates = etcd.watch(WatchRequest::range(KeyRange::key("motto")));
/// assert!(matches!(updates.next().await, Some(Ok(WatchUpdate::Confirmed(_)))));
/// etcd.put("motto", "one at a time", Default::default()).await?;
/// let Some(Ok(WatchUpdate::Events { events, .. })) = updates.next().await else { panic!("no event") };
/// assert_eq!(events[0].kv.value, "one at a time");
/// # Ok::<(), leasehold::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchUpdate {
    /// The watch stands: every event after this revision will come. Told first, and again whenever the backend had to
    /// set the watch up anew after a broken connection; nothing is missed in between.
    Confirmed(Revision),
    /// What happened, in order: at one revision or several, and perhaps not yet all of the last.
    Events {
        /// The store's revision when this was sent.
        revision: Revision,
        /// In the order in which it happened.
        events: Vec<Event>,
    },
    /// Nothing more will come at or below this revision.
    Progress(Revision),
}

/// What a lock needs of etcd.
///
/// **Answers are linearizable** unless a request asks otherwise. **Every call ends** within a bound that the backend
/// states. An error says whether the request may have been carried out: [`Error::is_outcome_unknown`]. A backend never
/// re-sends a write whose outcome is unknown; the callers here know when that is safe.
///
/// # Errors
/// [`Error::Unavailable`] if nobody could be asked, [`Error::OutcomeUnknown`] if no answer came, [`Error::Refused`] if it
/// was a no, [`Error::Closed`] after [`Etcd::close`].
///
/// # Cancel safety
/// Dropping a call's future stops waiting for the answer; the request may be carried out all the same.
///
/// ```
/// use std::sync::Arc;
/// use leasehold::etcd::Etcd;
/// use leasehold::mvcc::{Compare, PutRequest, RangeRequest, Txn};
/// use leasehold::Embedded;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let etcd: Arc<dyn Etcd> = Arc::new(Embedded::start()?);
/// let claim = Txn::new().when(Compare::absent("seat")).then(PutRequest::new("seat", "mine"));
/// assert!(etcd.txn(claim.clone()).await?.succeeded);
/// assert!(!etcd.txn(claim).await?.succeeded, "it is taken");
/// assert_eq!(etcd.range(RangeRequest::key("seat")).await?.kvs[0].value, "mine");
/// # Ok::<(), leasehold::Error>(())
/// # }).unwrap();
/// ```
pub trait Etcd: fmt::Debug + Send + Sync + 'static {
    /// Reads keys.
    fn range(&self, request: RangeRequest) -> Call<RangeAnswer>;

    /// Compares, then does one of two lists of operations, all at one revision.
    fn txn(&self, txn: Txn) -> Call<TxnAnswer>;

    /// Makes a lease of at least `ttl` seconds.
    fn lease_grant(&self, request: LeaseGrantRequest) -> Call<LeaseGrantAnswer>;

    /// Starts a lease's time anew, once. An answer with a TTL of 0 or less means there is no such lease.
    fn lease_keep_alive(&self, id: LeaseId) -> Call<KeepAliveAnswer>;

    /// Ends a lease and deletes its keys. A lease that is not there is refused with `NotFound`.
    fn lease_revoke(&self, id: LeaseId) -> Call<LeaseRevokeAnswer>;

    /// How long a lease still lives, and (if `keys`) which keys hang on it.
    fn lease_time_to_live(&self, id: LeaseId, keys: bool) -> Call<LeaseTimeToLiveAnswer>;

    /// Follows keys. The stream begins with [`WatchUpdate::Confirmed`], survives broken connections by itself, and
    /// ends only with an error ([`Error::Compacted`], a refusal, [`Error::Closed`], [`Error::Unavailable`] for one that
    /// is not read) or by being dropped, which cancels the watch.
    fn watch(&self, request: WatchRequest) -> Updates;

    /// Lets go of connections and tasks. Every later call, through any clone, answers [`Error::Closed`].
    /// It never blocks on the network.
    fn close(&self) -> BoxFuture<'static, ()>;

    /// The same etcd through connections that carry nothing else, driven by the library's own lease thread: for
    /// renewals, which must not wait behind bulk traffic or a blocked caller.
    fn dedicated(&self) -> Arc<dyn Etcd>;

    /// The clock, tasks and randomness that belong to this backend.
    fn runtime(&self) -> Arc<dyn Runtime>;
}

/// The operations of a key-value store by name, for every [`Etcd`]. Each is one call, and ends within the backend's bound
/// for one.
///
/// # Errors
/// Those of the call that each of them makes; [`Error::Protocol`] if the answer lacks its part.
///
/// # Cancel safety
/// As [`Etcd`]'s: dropping the future stops waiting for the answer, and the request may be carried out all the same.
///
/// ```
/// use leasehold::{Embedded, EtcdExt};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let etcd = Embedded::start()?;
/// assert!(etcd.put_if_not_exists("seat", "mine", Default::default()).await?);
/// assert!(!etcd.delete_if_value("seat", "theirs").await?);
/// assert!(etcd.delete("seat").await?);
/// assert_eq!(etcd.get("seat").await?, None);
/// # Ok::<(), leasehold::Error>(())
/// # }).unwrap();
/// ```
pub trait EtcdExt: Etcd {
    /// Writes `value` under `key`, on `lease` if it is not [`LeaseId::NONE`].
    fn put(&self, key: impl Into<Key>, value: impl Into<Bytes>, lease: LeaseId) -> Call<PutAnswer> {
        let call = self.txn(Txn::new().then(PutRequest::new(key, value).on(lease)));
        Box::pin(async move {
            let answer = call.await?;
            match answer.ops.into_iter().next() {
                Some(TxnOpAnswer::Put(put)) => Ok(PutAnswer { header: answer.header, ..put }),
                _ => Err(malformed("a put")),
            }
        })
    }

    /// Reads one key.
    fn get(&self, key: impl Into<Key>) -> Call<Option<KeyValue>> {
        let call = self.range(RangeRequest::key(key));
        Box::pin(async move { Ok(call.await?.kvs.into_iter().next()) })
    }

    /// Deletes one key, and says whether it was there.
    fn delete(&self, key: impl Into<Key>) -> Call<bool> {
        let call = self.txn(Txn::new().then(DeleteRequest::key(key)));
        Box::pin(async move { Ok(deleted(&call.await?)?.deleted > 0) })
    }

    /// Writes `value` under `key` if there is no such key, and says whether it did: one step, so of many who try at
    /// once exactly one succeeds.
    fn put_if_not_exists(&self, key: impl Into<Key>, value: impl Into<Bytes>, lease: LeaseId) -> Call<bool> {
        let key = key.into();
        let call = self
            .txn(Txn::new().when(Compare::absent(key.clone())).then(PutRequest::new(key, value).on(lease)));
        Box::pin(async move { Ok(call.await?.succeeded) })
    }

    /// Deletes `key` if it has this value, and says whether it did.
    fn delete_if_value(&self, key: impl Into<Key>, value: impl Into<Bytes>) -> Call<bool> {
        let key = key.into();
        let call =
            self.txn(Txn::new().when(Compare::value(key.clone(), value)).then(DeleteRequest::key(key)));
        Box::pin(async move { Ok(call.await?.succeeded) })
    }
}

impl<E: Etcd + ?Sized> EtcdExt for E {}

macro_rules! into_dyn {
    ($($backend:ty),*) => {
        $(
            impl From<$backend> for Arc<dyn Etcd> {
                fn from(backend: $backend) -> Self {
                    Arc::new(backend)
                }
            }
        )*
    };
}

into_dyn!(Embedded, Prefixed);
#[cfg(feature = "remote")]
into_dyn!(Remote);

fn deleted(answer: &TxnAnswer) -> Result<&DeleteAnswer> {
    match answer.ops.first() {
        Some(TxnOpAnswer::Delete(deleted)) => Ok(deleted),
        _ => Err(malformed("a delete")),
    }
}

fn malformed(what: &str) -> Error {
    Error::Protocol { endpoint: "the backend".into(), why: format!("the answer to {what} lacks its part") }
}
