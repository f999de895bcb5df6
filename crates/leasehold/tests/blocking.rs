//! The locks of threads: what the async ones promise, with nothing to await.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

#[path = "blocking/distributed.rs"]
mod distributed;
#[path = "blocking/dropping.rs"]
mod dropping;
#[path = "blocking/inside.rs"]
mod inside;
#[path = "blocking/loss.rs"]
mod loss;
#[path = "blocking/waiting.rs"]
mod waiting;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;

use leasehold::Ttl;
use leasehold::blocking::{Mutex, Session};
use leasehold::etcd::Etcd;
use tokio::sync::oneshot;

/// Runs `body` on a plain thread, which knows of no runtime, and gives what it comes to.
async fn on_a_thread<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, outcome) = oneshot::channel();
    thread::spawn(move || drop(done.send(catch_unwind(AssertUnwindSafe(body)))));
    outcome.await.unwrap().unwrap_or_else(|panic| resume_unwind(panic))
}

fn session(etcd: Arc<dyn Etcd>, ttl: u64) -> Session {
    Session::builder(etcd).ttl(Ttl::seconds(ttl).unwrap()).open().unwrap()
}

/// Waits until so many stand in the lock's queue.
fn queued(mutex: &Mutex, count: usize) {
    while mutex.queue().unwrap().len() != count {
        thread::yield_now();
    }
}
