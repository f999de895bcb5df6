//! A contender of another kind: it takes the same locks as Go's `concurrency.Mutex` does, with the answer's revision for
//! a token and nothing to tell it of a loss. Its holds count for the store's order and for the tokens, not for belief.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold::etcd::Etcd;
use leasehold::mvcc::{
    Compare, DeleteRequest, Key, LeaseGrantRequest, LeaseId, PutRequest, RangeRequest, Revision, SortOrder,
    SortTarget, Txn,
};
use leasehold::runtime::Runtime;
use leasehold::{Error, Remote};
use tokio_util::sync::CancellationToken;

use super::recorder::Recorder;
use super::worker::lock_name;
use crate::executor::{Node, SeededHandle};
use crate::history::{End, Hold};

/// Its name in the history.
const NAME: &str = "foreign";

pub(super) struct Foreign {
    node: Node,
    runtime: SeededHandle,
    remote: Remote,
    recorder: Recorder,
    locks: usize,
    ttl: u64,
    stop: Arc<AtomicBool>,
    done: CancellationToken,
}

/// How the world ends it.
pub(super) struct Stop {
    stop: Arc<AtomicBool>,
    done: CancellationToken,
}

impl Stop {
    /// No new turns; ends when the last is over.
    pub(super) async fn finish(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.done.cancelled().await;
    }
}

impl Foreign {
    pub(super) fn start(node: Node, remote: Remote, recorder: &Recorder, locks: usize, ttl: u64) -> Stop {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), CancellationToken::new());
        let runtime = node.notes();
        let recorder = recorder.clone();
        let told = Stop { stop: stop.clone(), done: done.clone() };
        let foreign = Self { node, runtime, remote, recorder, locks, ttl, stop, done };
        let node = foreign.node.clone();
        node.spawn("foreign", async move { foreign.contend().await }).detach();
        told
    }

    async fn contend(self) {
        while !self.stop.load(Ordering::SeqCst) {
            let lease = LeaseId::new((self.runtime.random_u64() >> 1).max(1).cast_signed());
            if self.turn(lease).await.is_err() {
                self.sleep(100).await;
            }
            // Whatever became of it, nothing of it stays for longer than the lease lives.
            let _ = self.remote.lease_revoke(lease).await;
            self.sleep(self.runtime.random_u64() % 300).await;
        }
        self.remote.close().await;
        self.done.cancel();
    }

    async fn sleep(&self, millis: u64) {
        self.runtime.sleep_until(self.runtime.now() + Duration::from_millis(millis)).await;
    }

    async fn turn(&self, lease: LeaseId) -> Result<(), Error> {
        let request = LeaseGrantRequest { ttl: self.ttl.cast_signed(), id: lease };
        let granted = self.remote.lease_grant(request).await?;
        let name = lock_name((self.runtime.random_u64() % self.locks as u64) as usize).to_string();
        let key = Key::from(format!("{name}/{:x}", granted.id.get()));
        let enter = Txn::new()
            .when(Compare::absent(key.clone()))
            .then(PutRequest::new(key.clone(), "").on(lease))
            .otherwise(RangeRequest::key(key.clone()));
        let entered = self.remote.txn(enter).await?;
        // A key of this lease alone: if it is there already an earlier copy of this made it.
        let created = match entered.succeeded {
            true => entered.header.revision,
            false => return Ok(()),
        };
        let proven = self.wait(&name, &key, created).await?;
        if let Some(proven) = proven {
            let now = self.runtime.true_now();
            self.recorder.foreign(Hold {
                lock: name,
                key: key.to_string(),
                // One that remembers nothing from turn to turn.
                client: format!("{NAME} {lease}"),
                token: proven.get().unsigned_abs() << 16,
                created,
                proven,
                from: now,
                until: now,
                end: End::Released,
            });
            self.sleep(self.runtime.random_u64() % 80).await;
        }
        self.remote.txn(Txn::new().then(DeleteRequest::key(key))).await.map(drop)
    }

    /// Waits until nobody is ahead, and looks once more at its own key: gives the revision of that look.
    async fn wait(&self, name: &str, key: &Key, created: Revision) -> Result<Option<Revision>, Error> {
        let end = self.runtime.now() + Duration::from_secs(self.ttl);
        while self.runtime.now() < end {
            let ahead = RangeRequest {
                max_create_revision: created.previous(),
                ..RangeRequest::prefix(format!("{name}/"))
            };
            let ahead = ahead.sorted(SortTarget::Create, SortOrder::Descend).limited(1);
            if self.remote.range(ahead).await?.kvs.is_empty() {
                let own = self.remote.range(RangeRequest::key(key.clone())).await?;
                return Ok((!own.kvs.is_empty()).then_some(own.header.revision));
            }
            self.sleep(20).await;
        }
        Ok(None)
    }
}
