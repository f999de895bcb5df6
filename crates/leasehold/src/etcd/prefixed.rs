//! A namespace: an etcd in which every key has a prefix that its user does not see.

use std::sync::Arc;

use futures_core::future::BoxFuture;
use futures_util::StreamExt;
use leasehold_mvcc::{
    DeleteAnswer, KeepAliveAnswer, Key, KeyRange, KeyValue, LeaseGrantAnswer, LeaseGrantRequest, LeaseId,
    LeaseRevokeAnswer, LeaseTimeToLiveAnswer, PutAnswer, RangeAnswer, RangeRequest, Txn, TxnAnswer, TxnOp,
    TxnOpAnswer, WatchRequest,
};

use super::{Call, Etcd, Updates, WatchUpdate};
use crate::error::{Error, Result};
use crate::runtime::Runtime;

/// Another etcd seen through a prefix: its user neither sees nor touches a key without it.
///
/// Leases have no names and are not confined: a lease's list of keys shows those of the namespace alone.
///
/// ```
/// use std::sync::Arc;
/// use leasehold::{Embedded, EtcdExt, Prefixed};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let etcd = Embedded::start()?;
/// let ours = Prefixed::new(Arc::new(etcd.clone()), "team-a/")?;
/// ours.put("motto", "one at a time", Default::default()).await?;
/// assert!(etcd.get("team-a/motto").await?.is_some());
/// assert!(etcd.get("motto").await?.is_none());
/// # Ok::<(), leasehold::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Prefixed {
    etcd: Arc<dyn Etcd>,
    prefix: Key,
}

impl Prefixed {
    /// The keys of `etcd` below `prefix`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the prefix is empty: that would be no namespace.
    pub fn new(etcd: Arc<dyn Etcd>, prefix: impl Into<Key>) -> Result<Self> {
        let prefix = prefix.into();
        if prefix.is_empty() {
            return Err(Error::Invalid {
                what: "the namespace".into(),
                why: "it is empty; give it a prefix".into(),
            });
        }
        Ok(Self { etcd, prefix })
    }

    fn range_in(&self, range: &mut KeyRange) {
        *range = inside(range, &self.prefix);
    }

    fn txn_in(&self, txn: &mut Txn) {
        for compare in &mut txn.compare {
            self.range_in(&mut compare.range);
        }
        for op in txn.success.iter_mut().chain(&mut txn.failure) {
            match op {
                TxnOp::Range(request) => self.range_in(&mut request.range),
                TxnOp::Delete(request) => self.range_in(&mut request.range),
                TxnOp::Put(request) if request.key.is_empty() => {}
                TxnOp::Put(request) => request.key = request.key.prefixed(self.prefix.as_bytes()),
                TxnOp::Txn(inner) => self.txn_in(inner),
            }
        }
    }
}

/// A request that names no key is left as it is, so that it is refused in etcd's words.
fn inside(range: &KeyRange, prefix: &Key) -> KeyRange {
    if range.start.is_empty() { range.clone() } else { range.prefixed(prefix) }
}

fn key_out(key: &mut Key, prefix: &Key) {
    if let Some(rest) = key.strip_prefix(prefix.as_bytes()) {
        *key = Key::from(rest.to_vec());
    }
}

fn kvs_out<'a>(kvs: impl IntoIterator<Item = &'a mut KeyValue>, prefix: &Key) {
    for kv in kvs {
        key_out(&mut kv.key, prefix);
    }
}

fn txn_out(answer: &mut TxnAnswer, prefix: &Key) {
    for op in &mut answer.ops {
        match op {
            TxnOpAnswer::Range(RangeAnswer { kvs, .. })
            | TxnOpAnswer::Delete(DeleteAnswer { prev_kvs: kvs, .. }) => {
                kvs_out(kvs, prefix);
            }
            TxnOpAnswer::Put(PutAnswer { prev_kv, .. }) => kvs_out(prev_kv, prefix),
            TxnOpAnswer::Txn(inner) => txn_out(inner, prefix),
        }
    }
}

impl Etcd for Prefixed {
    fn range(&self, mut request: RangeRequest) -> Call<RangeAnswer> {
        self.range_in(&mut request.range);
        let (call, prefix) = (self.etcd.range(request), self.prefix.clone());
        Box::pin(async move {
            let mut answer = call.await?;
            kvs_out(&mut answer.kvs, &prefix);
            Ok(answer)
        })
    }

    fn txn(&self, mut txn: Txn) -> Call<TxnAnswer> {
        self.txn_in(&mut txn);
        let (call, prefix) = (self.etcd.txn(txn), self.prefix.clone());
        Box::pin(async move {
            let mut answer = call.await?;
            txn_out(&mut answer, &prefix);
            Ok(answer)
        })
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
        let (call, prefix) = (self.etcd.lease_time_to_live(id, keys), self.prefix.clone());
        Box::pin(async move {
            let mut answer = call.await?;
            answer.keys.retain(|key| key.as_bytes().starts_with(prefix.as_bytes()));
            for key in &mut answer.keys {
                key_out(key, &prefix);
            }
            Ok(answer)
        })
    }

    fn watch(&self, mut request: WatchRequest) -> Updates {
        self.range_in(&mut request.range);
        let prefix = self.prefix.clone();
        Box::pin(self.etcd.watch(request).map(move |update| {
            let mut update = update?;
            if let WatchUpdate::Events { events, .. } = &mut update {
                for event in events {
                    kvs_out([&mut event.kv].into_iter().chain(&mut event.prev_kv), &prefix);
                }
            }
            Ok(update)
        }))
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        self.etcd.close()
    }

    fn dedicated(&self) -> Arc<dyn Etcd> {
        Arc::new(Self { etcd: self.etcd.dedicated(), prefix: self.prefix.clone() })
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        self.etcd.runtime()
    }
}
