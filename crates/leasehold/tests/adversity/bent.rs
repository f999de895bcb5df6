//! A backend whose calls a test may bend.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use futures_util::future::BoxFuture;
use leasehold::etcd::{Call, Etcd, Updates};
use leasehold::mvcc::{
    KeepAliveAnswer, LeaseGrantAnswer, LeaseGrantRequest, LeaseId, LeaseRevokeAnswer, LeaseTimeToLiveAnswer,
    RangeAnswer, RangeRequest, Txn, TxnAnswer, TxnOp, WatchRequest,
};
use leasehold::runtime::Runtime;

type Bend<Q, A> = Arc<dyn Fn(&Arc<dyn Etcd>, Q) -> A + Send + Sync>;

/// Another backend, but for the calls that were bent; also on its dedicated lane.
#[derive(Clone)]
pub(crate) struct Bent {
    inner: Arc<dyn Etcd>,
    /// Another etcd that answers in its place from a time on.
    pub(crate) replaced: Option<(Arc<AtomicBool>, Arc<dyn Etcd>)>,
    pub(crate) txn: Bend<Txn, Call<TxnAnswer>>,
    pub(crate) range: Bend<RangeRequest, Call<RangeAnswer>>,
    pub(crate) grant: Bend<LeaseGrantRequest, Call<LeaseGrantAnswer>>,
    pub(crate) keep_alive: Bend<LeaseId, Call<KeepAliveAnswer>>,
    pub(crate) watch: Bend<WatchRequest, Updates>,
}

impl Bent {
    /// Nothing bent yet.
    pub(crate) fn new(inner: Arc<dyn Etcd>) -> Self {
        Self {
            inner,
            replaced: None,
            txn: Arc::new(|etcd, txn| etcd.txn(txn)),
            range: Arc::new(|etcd, request| etcd.range(request)),
            grant: Arc::new(|etcd, request| etcd.lease_grant(request)),
            keep_alive: Arc::new(|etcd, id| etcd.lease_keep_alive(id)),
            watch: Arc::new(|etcd, request| etcd.watch(request)),
        }
    }
}

impl Bent {
    /// Who answers now.
    fn now(&self) -> &Arc<dyn Etcd> {
        match &self.replaced {
            Some((replaced, other)) if replaced.load(SeqCst) => other,
            _ => &self.inner,
        }
    }
}

/// Whether a transaction would create or write a key.
pub(crate) fn puts(txn: &Txn) -> bool {
    txn.success.iter().any(|op| matches!(op, TxnOp::Put(_)))
}

/// Whether a transaction would delete a key.
pub(crate) fn deletes(txn: &Txn) -> bool {
    txn.success.iter().any(|op| matches!(op, TxnOp::Delete(_)))
}

impl From<Bent> for Arc<dyn Etcd> {
    fn from(bent: Bent) -> Self {
        Arc::new(bent)
    }
}

impl fmt::Debug for Bent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bent").finish_non_exhaustive()
    }
}

impl Etcd for Bent {
    fn range(&self, request: RangeRequest) -> Call<RangeAnswer> {
        (self.range)(self.now(), request)
    }

    fn txn(&self, txn: Txn) -> Call<TxnAnswer> {
        (self.txn)(self.now(), txn)
    }

    fn lease_grant(&self, request: LeaseGrantRequest) -> Call<LeaseGrantAnswer> {
        (self.grant)(self.now(), request)
    }

    fn lease_keep_alive(&self, id: LeaseId) -> Call<KeepAliveAnswer> {
        (self.keep_alive)(self.now(), id)
    }

    fn lease_revoke(&self, id: LeaseId) -> Call<LeaseRevokeAnswer> {
        self.now().lease_revoke(id)
    }

    fn lease_time_to_live(&self, id: LeaseId, keys: bool) -> Call<LeaseTimeToLiveAnswer> {
        self.now().lease_time_to_live(id, keys)
    }

    fn watch(&self, request: WatchRequest) -> Updates {
        (self.watch)(self.now(), request)
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        self.inner.close()
    }

    fn dedicated(&self) -> Arc<dyn Etcd> {
        Arc::new(Self { inner: self.inner.dedicated(), ..self.clone() })
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        self.inner.runtime()
    }
}
