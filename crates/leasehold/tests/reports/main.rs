//! What users of etcd and of other locks have reported, each tried on real etcd. A test's name begins with the number of
//! each report that it stands for; those that need hours or more members than there are stand in the simulation's tests.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

mod crowds;
mod ending;
mod input;
mod members;
mod restore;
mod sleep;
mod traffic;

use std::time::Duration;

use leasehold::{Mutex, Session, Ttl};

use leasehold_testbed::Contained;

leasehold_testbed::holder_entry!();

/// What `future` gives.
///
/// # Panics
/// If it takes much longer than anything here should.
#[track_caller]
fn soon<T>(what: &str, future: impl Future<Output = T>) -> impl Future<Output = T> {
    within(Duration::from_secs(15), what, future)
}

/// What `future` gives.
///
/// # Panics
/// If it takes longer than that.
#[track_caller]
fn within<T>(limit: Duration, what: &str, future: impl Future<Output = T>) -> impl Future<Output = T> {
    let place = std::panic::Location::caller();
    async move {
        tokio::time::timeout(limit, future)
            .await
            .unwrap_or_else(|_| panic!("{place}: {what}: not within {limit:?}"))
    }
}

async fn open(etcd: impl Into<std::sync::Arc<dyn leasehold::etcd::Etcd>>, ttl: u64) -> Session {
    Session::builder(etcd).ttl(Ttl::seconds(ttl).unwrap()).open().await.unwrap()
}

async fn nap(session: &Session, time: Duration) {
    let runtime = session.runtime();
    runtime.sleep_until(runtime.now() + time).await;
}

async fn queued(mutex: &Mutex, count: usize) {
    while mutex.queue().await.unwrap().len() != count {
        tokio::task::yield_now().await;
    }
}
