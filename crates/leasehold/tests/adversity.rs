//! What an attack on the lock found, each as its whole kind: odd answers, lost answers, and calls in an unlucky order.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

#[path = "adversity/bent.rs"]
mod bent;
#[path = "adversity/bounds.rs"]
mod bounds;
#[path = "adversity/ending.rs"]
mod ending;
#[path = "adversity/removal.rs"]
mod removal;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use futures_util::StreamExt;
use leasehold::etcd::{Etcd, WatchUpdate};
use leasehold::mvcc::{Code, StoreError, TxnOp};
use leasehold::runtime::{Runtime, before};
use leasehold::{
    DistributedLock, Embedded, Error, EtcdExt, LockName, LossCause, Mutex, Revision, Session, Ttl,
};
use leasehold_sim::Seeded;
use leasehold_testbed::{Dump, join};

use bent::{Bent, deletes, puts};

struct World {
    seeded: Seeded,
    runtime: Arc<dyn Runtime>,
    store: Embedded,
    bent: Bent,
}

impl World {
    fn new(seed: u64) -> Self {
        let seeded = Seeded::new(seed).limit(Duration::from_secs(7200));
        let runtime = seeded.handle();
        let store = Embedded::new(runtime.clone(), Default::default());
        let bent = Bent::new(Arc::new(store.clone()));
        Self { seeded, runtime, store, bent }
    }
}

async fn nap(runtime: &Arc<dyn Runtime>, length: Duration) {
    runtime.sleep_until(runtime.now() + length).await;
}

async fn open(etcd: Bent, ttl: u64) -> Session {
    Session::builder(etcd).ttl(Ttl::seconds(ttl).unwrap()).open().await.unwrap()
}

fn name(name: &str) -> LockName {
    name.parse().unwrap()
}

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn unknown() -> Error {
    Error::OutcomeUnknown { operation: "do it", endpoint: "bent".into(), cause: "the answer was lost".into() }
}

fn refused(code: Code) -> Error {
    Error::Refused { operation: "do it", source: StoreError::new(code, "etcdserver: no") }
}
