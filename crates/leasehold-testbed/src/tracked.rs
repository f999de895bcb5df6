//! A backend that remembers which leases were granted through it.
//!
//! On a server that many tests share this is how one test tells its own leases from the others'. A grant is noted even
//! if its caller has gone before the answer came.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use leasehold::Error;
use leasehold::etcd::{Call, Etcd, Updates};
use leasehold::runtime::Runtime;
use leasehold_mvcc::{
    KeepAliveAnswer, LeaseGrantAnswer, LeaseGrantRequest, LeaseId, LeaseRevokeAnswer, LeaseTimeToLiveAnswer,
    RangeAnswer, RangeRequest, Txn, TxnAnswer, WatchRequest,
};
use tokio::sync::oneshot;

/// See the [module](self).
#[derive(Clone, Debug)]
pub struct Tracked {
    inner: Arc<dyn Etcd>,
    leases: Arc<Mutex<BTreeSet<LeaseId>>>,
}

impl Tracked {
    /// `inner`, with no leases seen yet.
    pub fn new(inner: Arc<dyn Etcd>) -> Self {
        Self { inner, leases: Arc::default() }
    }

    /// Another backend whose leases are noted with these.
    #[must_use]
    pub fn beside(&self, inner: Arc<dyn Etcd>) -> Self {
        Self { inner, leases: self.leases.clone() }
    }

    /// The leases granted so far, ended or not.
    pub fn leases(&self) -> Vec<LeaseId> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }

    fn note(&self, lease: LeaseId) {
        if !lease.is_none() {
            self.leases.lock().unwrap_or_else(PoisonError::into_inner).insert(lease);
        }
    }
}

impl Etcd for Tracked {
    fn range(&self, request: RangeRequest) -> Call<RangeAnswer> {
        self.inner.range(request)
    }

    fn txn(&self, txn: Txn) -> Call<TxnAnswer> {
        self.inner.txn(txn)
    }

    fn lease_grant(&self, request: LeaseGrantRequest) -> Call<LeaseGrantAnswer> {
        let tracked = self.clone();
        Box::pin(async move {
            let (tell, answer) = oneshot::channel();
            let runtime = tracked.inner.runtime();
            let task = async move {
                tracked.note(request.id);
                let granted = tracked.inner.lease_grant(request).await;
                if let Ok(granted) = &granted {
                    tracked.note(granted.id);
                }
                let _ = tell.send(granted);
            };
            runtime.spawn("tracked grant", Box::pin(task)).detach();
            answer.await.unwrap_or(Err(Error::Closed { what: "the backend's runtime" }))
        })
    }

    fn lease_keep_alive(&self, id: LeaseId) -> Call<KeepAliveAnswer> {
        self.inner.lease_keep_alive(id)
    }

    fn lease_revoke(&self, id: LeaseId) -> Call<LeaseRevokeAnswer> {
        self.inner.lease_revoke(id)
    }

    fn lease_time_to_live(&self, id: LeaseId, keys: bool) -> Call<LeaseTimeToLiveAnswer> {
        self.inner.lease_time_to_live(id, keys)
    }

    fn watch(&self, request: WatchRequest) -> Updates {
        self.inner.watch(request)
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        self.inner.close()
    }

    fn dedicated(&self) -> Arc<dyn Etcd> {
        Arc::new(self.beside(self.inner.dedicated()))
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        self.inner.runtime()
    }
}

impl From<Tracked> for Arc<dyn Etcd> {
    fn from(etcd: Tracked) -> Self {
        Arc::new(etcd)
    }
}
