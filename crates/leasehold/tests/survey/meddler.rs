//! An etcd in which something happens after each range that is read.

use std::fmt;
use std::sync::{Arc, Mutex};

use futures_core::future::BoxFuture;
use leasehold::etcd::{Call, Etcd, Updates};
use leasehold::mvcc::{
    KeepAliveAnswer, LeaseGrantAnswer, LeaseGrantRequest, LeaseId, LeaseRevokeAnswer, LeaseTimeToLiveAnswer,
    RangeAnswer, RangeRequest, Txn, TxnAnswer, WatchRequest,
};
use leasehold::runtime::Runtime;

type Deed = Box<dyn FnMut() -> BoxFuture<'static, ()> + Send>;

pub(crate) struct Meddler {
    etcd: Arc<dyn Etcd>,
    deed: Mutex<Deed>,
}

impl Meddler {
    pub(crate) fn new(
        etcd: impl Into<Arc<dyn Etcd>>,
        deed: impl FnMut() -> BoxFuture<'static, ()> + Send + 'static,
    ) -> Self {
        Self { etcd: etcd.into(), deed: Mutex::new(Box::new(deed)) }
    }
}

impl fmt::Debug for Meddler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meddler").finish_non_exhaustive()
    }
}

impl Etcd for Meddler {
    fn range(&self, request: RangeRequest) -> Call<RangeAnswer> {
        let call = self.etcd.range(request);
        let then = (self.deed.lock().unwrap())();
        Box::pin(async move {
            let answer = call.await;
            then.await;
            answer
        })
    }

    fn txn(&self, txn: Txn) -> Call<TxnAnswer> {
        self.etcd.txn(txn)
    }

    fn lease_grant(&self, request: LeaseGrantRequest) -> Call<LeaseGrantAnswer> {
        self.etcd.lease_grant(request)
    }

    fn lease_keep_alive(&self, id: LeaseId) -> Call<KeepAliveAnswer> {
        self.etcd.lease_keep_alive(id)
    }

    fn lease_revoke(&self, id: LeaseId) -> Call<LeaseRevokeAnswer> {
        self.etcd.lease_revoke(id)
    }

    fn lease_time_to_live(&self, id: LeaseId, keys: bool) -> Call<LeaseTimeToLiveAnswer> {
        self.etcd.lease_time_to_live(id, keys)
    }

    fn watch(&self, request: WatchRequest) -> Updates {
        self.etcd.watch(request)
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        self.etcd.close()
    }

    fn dedicated(&self) -> Arc<dyn Etcd> {
        self.etcd.dedicated()
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        self.etcd.runtime()
    }
}
