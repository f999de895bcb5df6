//! A clock that stands: in the model leases end by the log and not by a store's own time.

use std::time::SystemTime;

use futures_util::future::{BoxFuture, pending};
use leasehold::runtime::{Instant, Runtime, Task};

use crate::executor::SeededHandle;

#[derive(Debug)]
pub(super) struct Timeless(pub(super) SeededHandle);

impl Runtime for Timeless {
    fn now(&self) -> Instant {
        Instant::ZERO
    }

    fn wall_clock(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }

    fn sleep_until(&self, _at: Instant) -> BoxFuture<'static, ()> {
        Box::pin(pending())
    }

    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Task {
        self.0.spawn(name, task)
    }

    fn spawn_dedicated(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Task {
        self.0.spawn_dedicated(name, task)
    }

    fn random_u64(&self) -> u64 {
        self.0.random_u64()
    }
}
