//! An etcd in this process: the store under a mutex, the timer that ends its leases, and its watches.

mod fanout;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_core::future::BoxFuture;
use futures_util::future::ready;
use futures_util::stream;
use leasehold_mvcc::{
    Answer, Command, CompactRequest, Header, Instant, KeepAliveAnswer, LeaseGrantAnswer, LeaseGrantRequest,
    LeaseId, LeaseRevokeAnswer, LeaseTimeToLiveAnswer, RangeAnswer, RangeRequest, Revision, Store,
    StoreError, StoreOptions, Txn, TxnAnswer, WatchRequest, WatchResponse,
};
use tokio::sync::Notify;

use super::{Call, Etcd, Updates, WatchUpdate};
use crate::error::advice::EMBEDDED;
use crate::error::{Error, Result};
use crate::exclusive::Exclusive;
use crate::runtime::{Runtime, SystemRuntime, race};
use fanout::Fanout;
pub use fanout::{WatchControl, WatchStream};

/// How an embedded etcd begins.
///
/// ```
/// use leasehold::Embedded;
/// use leasehold::etcd::EmbeddedOptions;
/// use leasehold::mvcc::StoreOptions;
/// use leasehold::runtime::SystemRuntime;
///
/// let store = StoreOptions { history_limit: Some(100), ..StoreOptions::default() };
/// let etcd = Embedded::new(SystemRuntime::shared()?, EmbeddedOptions { store });
/// # let _ = etcd;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct EmbeddedOptions {
    /// The store's beginnings: ids, first revision, how much history it keeps.
    pub store: StoreOptions,
}

impl Default for EmbeddedOptions {
    fn default() -> Self {
        // History costs memory and the locks here look at none of it.
        Self { store: StoreOptions { history_limit: Some(10_000), ..StoreOptions::default() } }
    }
}

/// An etcd in this process. A clone is another handle on the same one.
///
/// Its answers are real etcd's to the letter. Data lives in memory and ends with the last handle. Whoever shares this
/// handle shares the locks: it excludes the tasks of one process, or, behind `leasehold serve`, of one machine.
///
/// ```
/// use leasehold::{Embedded, EtcdExt};
/// use leasehold::etcd::Etcd;
///
/// # futures_util::FutureExt::now_or_never(async {
/// let etcd = Embedded::start()?;
/// etcd.put("motto", "one at a time", Default::default()).await?;
/// assert_eq!(etcd.get("motto").await?.map(|kv| kv.value), Some("one at a time".into()));
/// # Ok::<(), leasehold::Error>(())
/// # }).unwrap().unwrap();
/// ```
#[derive(Clone)]
pub struct Embedded {
    inner: Arc<Inner>,
}

struct Inner {
    runtime: Arc<dyn Runtime>,
    state: Exclusive<State>,
    closed: AtomicBool,
    /// Wakes the expiry timer when a lease ends sooner than it sleeps, or when there is nothing left to time.
    sooner: Arc<Notify>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.sooner.notify_one();
    }
}

struct State {
    store: Store,
    fanout: Fanout,
    /// When the expiry timer wakes.
    armed: Instant,
}

impl Embedded {
    /// A fresh one on the machine's clock.
    ///
    /// # Errors
    /// [`Error::Io`] if the machine refuses the library's threads.
    pub fn start() -> Result<Self> {
        Ok(Self::new(SystemRuntime::shared()?, EmbeddedOptions::default()))
    }

    /// One on a clock of the caller's.
    pub fn new(runtime: Arc<dyn Runtime>, options: EmbeddedOptions) -> Self {
        let state =
            State { store: Store::new(options.store), fanout: Fanout::default(), armed: Instant::NEVER };
        let sooner = Arc::new(Notify::new());
        let inner = Arc::new(Inner {
            runtime: runtime.clone(),
            state: Exclusive::new(state),
            closed: AtomicBool::new(false),
            sooner: sooner.clone(),
        });
        let timed = Arc::downgrade(&inner);
        let timer = runtime.clone();
        // The timer holds the store weakly, or it would keep it for ever.
        let expiry = async move {
            while let Some(next) = timed.upgrade().and_then(|inner| inner.expire()) {
                race(sooner.notified(), timer.sleep_until(next)).await;
            }
        };
        runtime.spawn_dedicated("embedded etcd: expiry", Box::pin(expiry)).detach();
        Self { inner }
    }

    /// Applies one command: the one path by which anything changes here.
    ///
    /// # Errors
    /// The store's refusal, as etcd words it.
    pub fn apply(&self, command: Command) -> Result<Answer, StoreError> {
        self.inner.apply(command)
    }

    /// Forgets the history below a revision.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is compacted already or has not come yet.
    pub fn compact(&self, revision: Revision) -> Result<()> {
        let request = CompactRequest { revision, physical: false };
        self.apply(Command::Compact(request))
            .map(drop)
            .map_err(|source| Error::Refused { operation: "compact", source })
    }

    /// The store's revision.
    pub fn revision(&self) -> Revision {
        self.inner.state.lock().store.revision()
    }

    /// Who answers, and as of when: the header of an answer made now.
    pub fn header(&self) -> Header {
        self.inner.state.lock().store.header()
    }

    /// How many watches are open.
    pub fn watch_count(&self) -> usize {
        self.inner.state.lock().fanout.len()
    }

    /// A stream that can carry many watches, as etcd's `Watch` call is one: messages of all of them leave in the order
    /// in which the store made them.
    pub fn watch_stream(&self) -> (WatchControl, WatchStream) {
        fanout::open(self.clone())
    }

    fn call<T: Send + 'static>(
        &self,
        operation: &'static str,
        command: Command,
        pick: fn(Answer) -> Option<T>,
    ) -> Call<T> {
        // Evaluated when polled, not when called, as a remote call would be.
        let inner = self.inner.clone();
        Box::pin(async move {
            if inner.closed.load(Ordering::Acquire) {
                return Err(Error::Closed { what: EMBEDDED });
            }
            let answer = inner.apply(command).map_err(|source| Error::Refused { operation, source })?;
            pick(answer).ok_or_else(|| Error::Protocol {
                endpoint: EMBEDDED.into(),
                why: format!("the answer does not fit the request to {operation}"),
            })
        })
    }
}

impl Inner {
    fn apply(&self, mut command: Command) -> Result<Answer, StoreError> {
        if let Command::LeaseGrant(request) = &mut command
            && request.id.is_none()
        {
            request.id = LeaseId::new((self.runtime.random_u64() >> 1).max(1).cast_signed());
        }
        let mut state = self.state.lock();
        let State { store, fanout, armed } = &mut *state;
        let outcome = store.apply(command, self.runtime.now());
        for commit in &outcome.commits {
            fanout.send(store.header(), commit);
        }
        if store.next_expiry().is_some_and(|next| next < *armed) {
            self.sooner.notify_one();
        }
        outcome.answer
    }

    /// Ends what is due and says when to come again, if ever.
    fn expire(&self) -> Option<Instant> {
        if self.closed.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.state.lock();
        let State { store, fanout, armed } = &mut *state;
        let now = self.runtime.now();
        if store.next_expiry().is_some_and(|next| next <= now) {
            let outcome = store.apply(Command::Expire, now);
            for commit in &outcome.commits {
                fanout.send(store.header(), commit);
            }
        }
        *armed = store.next_expiry().unwrap_or(Instant::NEVER);
        Some(*armed)
    }
}

impl Etcd for Embedded {
    fn range(&self, request: RangeRequest) -> Call<RangeAnswer> {
        self.call("read", Command::Range(request), pick!(Range))
    }

    fn txn(&self, txn: Txn) -> Call<TxnAnswer> {
        self.call("do a transaction", Command::Txn(txn), pick!(Txn))
    }

    fn lease_grant(&self, request: LeaseGrantRequest) -> Call<LeaseGrantAnswer> {
        self.call("grant a lease", Command::LeaseGrant(request), pick!(LeaseGrant))
    }

    fn lease_keep_alive(&self, id: LeaseId) -> Call<KeepAliveAnswer> {
        self.call("renew a lease", Command::LeaseKeepAlive(id), pick!(LeaseKeepAlive))
    }

    fn lease_revoke(&self, id: LeaseId) -> Call<LeaseRevokeAnswer> {
        self.call("revoke a lease", Command::LeaseRevoke(id), pick!(LeaseRevoke))
    }

    fn lease_time_to_live(&self, id: LeaseId, keys: bool) -> Call<LeaseTimeToLiveAnswer> {
        self.call("ask for a lease's time", Command::LeaseTimeToLive(id, keys), pick!(LeaseTimeToLive))
    }

    fn watch(&self, request: WatchRequest) -> Updates {
        let (control, stream) = self.watch_stream();
        let start = request.start_revision;
        // A fresh stream has no watch that this one could clash with; of a closed store the stream ends at once.
        control.create(request);
        Box::pin(stream::unfold(Some(stream), move |open| async move {
            let mut stream = open?;
            let told = match stream.next().await {
                Some(response) => update(start, response),
                None => Err(stream.why_it_ended()),
            };
            let open = told.is_ok().then_some(stream);
            Some((told, open))
        }))
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        self.inner.closed.store(true, Ordering::Release);
        self.inner.state.lock().fanout.close();
        self.inner.sooner.notify_one();
        Box::pin(ready(()))
    }

    fn dedicated(&self) -> Arc<dyn Etcd> {
        Arc::new(self.clone())
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        self.inner.runtime.clone()
    }
}

/// What a message of etcd's tells the one watch it concerns, which was asked to begin at `start`.
fn update(start: Revision, response: WatchResponse) -> Result<WatchUpdate> {
    let revision = response.header.revision;
    if response.canceled {
        return Err(match response.compact_revision {
            Revision::ZERO => Error::Refused {
                operation: "watch",
                source: StoreError::new(leasehold_mvcc::Code::Cancelled, response.cancel_reason),
            },
            compacted => Error::Compacted { compacted },
        });
    }
    Ok(if response.created {
        // What a watch that starts later passes over does not come.
        WatchUpdate::Confirmed(if start.is_zero() { revision } else { start.previous() })
    } else if response.events.is_empty() {
        WatchUpdate::Progress(revision)
    } else {
        WatchUpdate::Events { revision, events: response.events }
    })
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Embedded").field("revision", &self.revision()).finish_non_exhaustive()
    }
}
