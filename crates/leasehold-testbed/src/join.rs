//! A task whose result somebody waits for, on any runtime.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use leasehold::runtime::{Runtime, Task};
use tokio::sync::oneshot;

/// Runs `future` as a task of `runtime`. Await what comes back for the result; drop it to stop the task.
pub fn join<T, F>(runtime: &dyn Runtime, name: &'static str, future: F) -> Joined<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let (done, result) = oneshot::channel();
    let task = Box::pin(async move {
        // Whoever waited may have gone.
        let _ = done.send(future.await);
    });
    Joined { name, result, _task: runtime.spawn(name, task) }
}

/// The result of a task to come.
#[must_use = "dropping this stops the task"]
pub struct Joined<T> {
    name: &'static str,
    result: oneshot::Receiver<T>,
    _task: Task,
}

impl<T> Future for Joined<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let result = ready!(Pin::new(&mut self.result).poll(context));
        Poll::Ready(result.unwrap_or_else(|_| panic!("the task {} panicked or was stopped", self.name)))
    }
}

impl<T> fmt::Debug for Joined<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Joined").field("name", &self.name).finish_non_exhaustive()
    }
}
