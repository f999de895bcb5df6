//! The real runtime: threads of the library's own, the machine's clock, and chance.
//!
//! The threads belong to the process, not to the caller's runtime: what they drive goes on when every worker of the
//! caller is blocked, when the caller's runtime is gone, and when there never was one.

#![allow(clippy::disallowed_methods, reason = "this is the door the rest of the crate goes through")]

#[cfg_attr(not(any(target_os = "linux", target_os = "android")), path = "system/portable.rs")]
mod clock;
mod timer;

use std::cell::Cell;
use std::future::pending;
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use futures_core::future::BoxFuture;
use tokio::runtime::Handle;

use super::{Instant, Runtime, Task};
use crate::error::{Error, Result};
use timer::Timers;

/// The machine's clock and two threads: one moves data, one keeps leases.
///
/// Its clock counts the time the machine was suspended (`CLOCK_BOOTTIME` on Linux), and so do its timers: a deadline
/// that passed while the laptop was shut is past at the first look after it opens.
#[derive(Debug)]
pub struct SystemRuntime {
    io: Handle,
    leases: Handle,
    timers: Arc<Timers>,
}

impl SystemRuntime {
    /// The runtime of this process; the first call starts its threads.
    ///
    /// # Errors
    /// [`Error::Io`] if the machine refuses a thread or a timer.
    pub fn shared() -> Result<Arc<Self>> {
        static SHARED: OnceLock<Result<Arc<SystemRuntime>>> = OnceLock::new();
        SHARED.get_or_init(|| Self::start().map(Arc::new)).clone()
    }

    fn start() -> Result<Self> {
        let io = thread("leasehold-io")?;
        let leases = thread("leasehold-lease")?;
        let timers = Timers::start().map_err(|cause| refused("leasehold-timer", &cause))?;
        Ok(Self { io, leases, timers })
    }

    /// The thread that moves data.
    #[cfg(feature = "remote")]
    pub(crate) fn io_handle(&self) -> Handle {
        self.io.clone()
    }

    /// The thread that keeps leases.
    #[cfg(feature = "remote")]
    pub(crate) fn lease_handle(&self) -> Handle {
        self.leases.clone()
    }
}

impl Runtime for SystemRuntime {
    fn now(&self) -> Instant {
        clock::now()
    }

    fn wall_clock(&self) -> SystemTime {
        SystemTime::now()
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        Box::pin(self.timers.sleep_until(at))
    }

    fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) -> Task {
        spawn_on(&self.io, task)
    }

    fn spawn_dedicated(&self, _name: &'static str, task: BoxFuture<'static, ()>) -> Task {
        spawn_on(&self.leases, task)
    }

    fn random_u64(&self) -> u64 {
        fastrand::u64(..)
    }
}

thread_local! {
    /// Whether this thread is one of those that drive tasks.
    static OWN: Cell<bool> = const { Cell::new(false) };
}

/// Whether the caller is run by one of the library's threads: if it waited here for another of their tasks, it might
/// wait for ever.
pub(crate) fn is_own_thread() -> bool {
    OWN.try_with(Cell::get).unwrap_or(false)
}

fn spawn_on(thread: &Handle, task: BoxFuture<'static, ()>) -> Task {
    let task = thread.spawn(task).abort_handle();
    Task::new(move || task.abort())
}

/// Starts a thread that drives tasks for as long as the process lives.
fn thread(name: &'static str) -> Result<Handle> {
    let refused = |cause| refused(name, &cause);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(refused)?;
    let handle = runtime.handle().clone();
    std::thread::Builder::new()
        .name(name.into())
        .spawn(move || {
            OWN.set(true);
            runtime.block_on(pending::<()>());
        })
        .map_err(refused)?;
    Ok(handle)
}

fn refused(thread: &str, cause: &std::io::Error) -> Error {
    Error::Io { operation: format!("start the thread {thread}"), cause: cause.to_string() }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_timer_needs_no_runtime_of_the_callers() {
        let runtime = SystemRuntime::shared().unwrap();
        let started = runtime.now();
        let (done, ended) = mpsc::channel();
        let sleep = runtime.sleep_until(started + Duration::from_millis(20));
        runtime
            .spawn_dedicated(
                "sleeper",
                Box::pin(async move {
                    sleep.await;
                    done.send(()).unwrap();
                }),
            )
            .detach();
        ended.recv_timeout(Duration::from_secs(10)).unwrap();
        assert!(runtime.now() >= started + Duration::from_millis(20));
    }

    #[test]
    fn an_earlier_timer_overtakes_a_later_one() {
        let runtime = SystemRuntime::shared().unwrap();
        let (done, ended) = mpsc::channel();
        let now = runtime.now();
        for (name, after) in [("late", 60), ("early", 20), ("past", 0)] {
            let sleep = runtime.sleep_until(now + Duration::from_millis(after));
            let done = done.clone();
            runtime
                .spawn(
                    "sleeper",
                    Box::pin(async move {
                        sleep.await;
                        done.send(name).unwrap();
                    }),
                )
                .detach();
        }
        let order: Vec<_> = (0..3).map(|_| ended.recv_timeout(Duration::from_secs(10)).unwrap()).collect();
        assert_eq!(order, ["past", "early", "late"]);
    }

    #[test]
    fn a_dropped_task_stops() {
        struct Told(mpsc::Sender<()>);
        impl Drop for Told {
            fn drop(&mut self) {
                let _ = self.0.send(());
            }
        }
        let runtime = SystemRuntime::shared().unwrap();
        let (dropped, told) = mpsc::channel();
        let owned = Told(dropped);
        let task = runtime.spawn(
            "endless",
            Box::pin(async move {
                let _owned = owned;
                pending::<()>().await;
            }),
        );
        drop(task);
        told.recv_timeout(Duration::from_secs(10)).unwrap();
    }
}
