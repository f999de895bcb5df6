//! A real etcd cluster, or `leasehold serve`, over gRPC.
//!
//! One endpoint is used until it fails, then the next. Reads, and requests that were certainly not carried out, are
//! asked again within the call's bound; a write of unknown outcome never is. Connections and streams live on the
//! library's own threads: they go on when the caller's runtime is blocked, gone, or not tokio.

mod auth;
mod calls;
mod endpoint;
mod options;
mod pin;
mod renewal;
#[cfg(feature = "tls")]
mod tls;
mod transport;
mod verdict;
mod watch;
mod wire;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::future::ready;
use leasehold_mvcc::{
    Answer, Command, CompactRequest, KeepAliveAnswer, LeaseGrantAnswer, LeaseGrantRequest, LeaseId,
    LeaseRevokeAnswer, LeaseTimeToLiveAnswer, RangeAnswer, RangeRequest, Revision, Txn, TxnAnswer,
    WatchRequest,
};

pub use auth::{Credentials, Token};
pub use endpoint::{Endpoint, IntoEndpoints};
pub use options::RemoteOptions;
#[cfg(feature = "tls")]
pub use tls::TlsOptions;
pub use transport::{KeepAliveLine, Lane, WatchLine, WatchOrder, Wire, WireError};

use super::{Call, Etcd, Updates, WatchUpdate};
use crate::error::{Error, Result};
use crate::runtime::Runtime;
use auth::Login;
use pin::Pin;
use renewal::Renewals;
use watch::{Pool, Road};

/// What this calls itself when it is closed.
const WHAT: &str = "the remote etcd";

/// An etcd cluster reached over the network. A clone is another handle on the same connections.
///
/// # Bounds
/// Every call ends within [`RemoteOptions::call_timeout`], 5 s by default. With several endpoints a member that takes
/// requests and answers none costs at most half of that. A watch ends by error only if its history is compacted or it is
/// refused; while no member can be reached it goes on trying, so bound your waiting by calls.
///
/// # Watches
/// Many share a stream. One whose updates are not read pauses after 1024 of them and goes on, from the server's history,
/// when they are; it can then end with [`Error::Compacted`], like any watch that fell behind.
///
/// # Leases
/// Renewals use connections of their own at all times; [`Etcd::dedicated`] puts everything else there too.
///
/// ```no_run
/// use leasehold::{EtcdExt, Mutex, Remote, Session};
///
/// # async fn run() -> leasehold::Result<()> {
/// let etcd = Remote::connect("10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379")?;
/// etcd.put("motto", "one at a time", Default::default()).await?;
/// let session = Session::open(etcd).await?;
/// let guard = Mutex::new(&session, "jobs/nightly".parse()?).lock().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Remote {
    inner: Arc<Inner>,
    lane: Lane,
}

#[derive(Debug)]
struct Inner {
    wire: Arc<dyn Wire>,
    runtime: Arc<dyn Runtime>,
    login: Arc<Login>,
    call_timeout: Duration,
    closed: AtomicBool,
    calls: Road,
    leases: Road,
    calls_watches: Arc<Pool>,
    leases_watches: Arc<Pool>,
    renewals: Renewals,
}

impl Remote {
    /// A client of the cluster at `endpoints`, with default [`RemoteOptions`]. It connects when it is first used, so this
    /// succeeds with no etcd in sight; the first call tells.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the endpoint that cannot be read, and says what to write; [`Error::Io`] if the machine
    /// refuses the library's threads.
    pub fn connect(endpoints: impl IntoEndpoints) -> Result<Self> {
        RemoteOptions::new(endpoints)?.open()
    }

    fn assemble(options: RemoteOptions, runtime: Arc<dyn Runtime>, wire: Arc<dyn Wire>) -> Self {
        let endpoints: Arc<[Endpoint]> = options.endpoints.into();
        let login = Arc::new(Login::new(options.credentials));
        let road = |lane| Road {
            lane,
            pin: Arc::new(Pin::new(endpoints.clone(), &*runtime)),
            wire: wire.clone(),
            login: login.clone(),
            runtime: runtime.clone(),
            connect_timeout: options.connect_timeout,
            silence: options.watch_silence,
        };
        let (calls, leases) = (road(Lane::Calls), road(Lane::Leases));
        let inner = Inner {
            call_timeout: options.call_timeout,
            closed: AtomicBool::new(false),
            calls_watches: Pool::new(calls.clone()),
            leases_watches: Pool::new(leases.clone()),
            calls,
            leases,
            renewals: Renewals::default(),
            login,
            wire,
            runtime,
        };
        Self { inner: Arc::new(inner), lane: Lane::Calls }
    }

    /// Forgets the history below a revision.
    ///
    /// # Errors
    /// [`Error::Refused`] if it is compacted already or has not come yet; else as every call.
    pub fn compact(&self, revision: Revision) -> Call<()> {
        let request = CompactRequest { revision, physical: false };
        self.call("compact", Command::Compact(request), |answer| {
            matches!(answer, Answer::Compact(_)).then_some(())
        })
    }

    fn call<T: Send + 'static>(
        &self,
        operation: &'static str,
        command: Command,
        pick: fn(Answer) -> Option<T>,
    ) -> Call<T> {
        Box::pin(calls::call(self.inner.clone(), self.lane, operation, command, pick))
    }
}

impl Inner {
    fn pin(&self, lane: Lane) -> &Pin {
        match lane {
            Lane::Calls => &self.calls.pin,
            Lane::Leases => &self.leases.pin,
        }
    }

    fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed { what: WHAT }) } else { Ok(()) }
    }
}

impl Etcd for Remote {
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
        Box::pin(renewal::keep_alive(self.inner.clone(), id))
    }

    fn lease_revoke(&self, id: LeaseId) -> Call<LeaseRevokeAnswer> {
        let inner = self.inner.clone();
        let call = self.call("revoke a lease", Command::LeaseRevoke(id), pick!(LeaseRevoke));
        Box::pin(async move {
            let answer = call.await;
            inner.renewals.forget(id);
            answer
        })
    }

    fn lease_time_to_live(&self, id: LeaseId, keys: bool) -> Call<LeaseTimeToLiveAnswer> {
        self.call("ask for a lease's time", Command::LeaseTimeToLive(id, keys), pick!(LeaseTimeToLive))
    }

    fn watch(&self, request: WatchRequest) -> Updates {
        match self.lane {
            Lane::Calls => self.inner.calls_watches.watch(request),
            Lane::Leases => self.inner.leases_watches.watch(request),
        }
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        // Calls under way are left to end by themselves, within their bound; no try of theirs begins any more.
        self.inner.closed.store(true, Ordering::Release);
        self.inner.calls_watches.close();
        self.inner.leases_watches.close();
        self.inner.renewals.close();
        self.inner.wire.close();
        Box::pin(ready(()))
    }

    fn dedicated(&self) -> Arc<dyn Etcd> {
        Arc::new(Self { inner: self.inner.clone(), lane: Lane::Leases })
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        self.inner.runtime.clone()
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("endpoints", &self.inner.pin(self.lane).names())
            .field("lane", &self.lane)
            .finish_non_exhaustive()
    }
}
