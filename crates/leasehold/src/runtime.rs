//! The one door to time, tasks and chance.
//!
//! Everything here that waits, runs by itself or draws a number does so through a [`Runtime`], so that a seeded
//! executor can own all three and replay a run exactly. The real one is [`SystemRuntime`].

pub(crate) mod system;

use std::fmt;
use std::future::Future;
use std::time::{Duration, SystemTime};

use futures_core::future::BoxFuture;
use futures_util::future::{Either, poll_immediate, select};
pub use leasehold_mvcc::Instant;
pub use system::SystemRuntime;

/// Time, tasks and randomness.
///
/// ```
/// use std::time::Duration;
/// use leasehold::runtime::{Runtime, SystemRuntime, before};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let runtime = SystemRuntime::shared()?;
/// let soon = runtime.now() + Duration::from_millis(10);
/// assert_eq!(before(&*runtime, soon, std::future::pending::<()>()).await, None);
/// assert!(runtime.now() >= soon);
/// # Ok::<(), leasehold::Error>(())
/// # }).unwrap();
/// ```
pub trait Runtime: fmt::Debug + Send + Sync + 'static {
    /// The time on a steady clock that goes on while the machine is suspended.
    fn now(&self) -> Instant;

    /// The time of day: for people to read, never compared.
    fn wall_clock(&self) -> SystemTime;

    /// Ends at `at` or soon after; a point in the past ends at once. Dropping it forgets it.
    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()>;

    /// Runs a task that moves data: on a thread of the library's, never on the caller's.
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Task;

    /// Runs a task that keeps or gives up holds: on a thread that does nothing else.
    fn spawn_dedicated(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Task;

    /// A number drawn at random.
    fn random_u64(&self) -> u64;
}

/// A running task. Dropping this stops the task at its next await point; [`Task::detach`] lets it run to its end.
///
/// ```
/// use leasehold::runtime::{Runtime, SystemRuntime};
///
/// let (done, ended) = std::sync::mpsc::channel();
/// let task = SystemRuntime::shared()?.spawn("an errand", Box::pin(async move { done.send(7).unwrap() }));
/// task.detach();                                    // or keep it, and drop it to stop it
/// assert_eq!(ended.recv(), Ok(7));
/// # Ok::<(), leasehold::Error>(())
/// ```
#[must_use = "dropping a task stops it"]
pub struct Task {
    abort: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Task {
    /// A task that `abort` stops.
    pub fn new(abort: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self { abort: Some(Box::new(abort)) }
    }

    /// Lets the task run to its own end.
    pub fn detach(mut self) {
        self.abort = None;
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(abort) = self.abort.take() {
            abort();
        }
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").finish_non_exhaustive()
    }
}

/// The first of two futures to end; if both are ready, the first one named, so that chance has no part in it.
///
/// # Cancel safety
/// Dropped, it drops both; so is the slower one when the other has ended.
pub async fn race<A, B>(first: impl Future<Output = A>, second: impl Future<Output = B>) -> Either<A, B> {
    let (first, second) = (std::pin::pin!(first), std::pin::pin!(second));
    match select(first, second).await {
        Either::Left((a, _)) => Either::Left(a),
        Either::Right((b, _)) => Either::Right(b),
    }
}

/// What `future` gives, or `None` if `at` comes first, on the runtime's clock.
///
/// # Cancel safety
/// Dropped, it drops `future`; so does the end of its time.
pub async fn before<T>(runtime: &dyn Runtime, at: Instant, future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    // What has its answer at hand needs no timer; an embedded etcd always has.
    if let Some(value) = poll_immediate(future.as_mut()).await {
        return Some(value);
    }
    match race(future, runtime.sleep_until(at)).await {
        Either::Left(value) => Some(value),
        Either::Right(()) => None,
    }
}

/// A delay between tries that doubles each time up to a bound, with up to half of it left to chance.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    max: Duration,
}

impl Backoff {
    pub(crate) fn new(first: Duration, max: Duration) -> Self {
        Self { next: first, max }
    }

    /// The next delay.
    pub(crate) fn next_delay(&mut self, runtime: &dyn Runtime) -> Duration {
        let delay = self.next;
        self.next = (delay * 2).min(self.max);
        let half = u64::try_from(delay.as_nanos() / 2).unwrap_or(u64::MAX);
        let jitter = if half == 0 { 0 } else { runtime.random_u64() % half };
        delay - Duration::from_nanos(jitter)
    }

    /// Waits for the next delay.
    pub(crate) async fn pause(&mut self, runtime: &dyn Runtime) {
        let delay = self.next_delay(runtime);
        runtime.sleep_until(runtime.now() + delay).await;
    }
}
