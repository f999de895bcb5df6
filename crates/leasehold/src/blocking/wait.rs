//! Waiting on the caller's own thread for what the library's threads bring about.

use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Condvar, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::task::unconstrained;

use crate::error::{Error, Result};
use crate::exclusive::Exclusive;
use crate::runtime::system;

/// What `future` comes to; this thread sleeps until then.
///
/// # Errors
/// [`Error::Invalid`] on a thread of the library's own, which would wait for itself.
pub(super) fn wait<T>(future: impl Future<Output = T>) -> Result<T> {
    if system::is_own_thread() {
        return Err(Error::Invalid {
            what: "a blocking call on a thread of the library's own".into(),
            why: "it would wait for itself; make it on a thread of yours, or await the async call".into(),
        });
    }
    // A tokio worker gives each of its tasks so many steps, and says "not yet" to every further one until the task
    // returns to it, which this one does not: it would turn in circles.
    let mut future = pin!(unconstrained(future));
    let sleeper = Arc::new(Sleeper::default());
    let waker = Waker::from(sleeper.clone());
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Ok(value);
        }
        sleeper.sleep();
    }
}

/// A thread that sleeps until it is woken. (Not [`std::thread::park`]: whoever else unparks this thread, or relies on
/// its token, must not be mixed up in this.)
#[derive(Default)]
struct Sleeper {
    woken: Exclusive<bool>,
    stirred: Condvar,
}

impl Sleeper {
    fn sleep(&self) {
        let mut woken = self.woken.lock();
        while !std::mem::take(&mut *woken) {
            woken = self.stirred.wait(woken).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        *self.woken.lock() = true;
        self.stirred.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::error::ErrorKind;
    use crate::runtime::{Runtime, SystemRuntime};

    /// So many steps that any budget of a tokio task's is spent.
    const MANY: usize = 10_000;

    async fn many_steps() -> usize {
        let turns = tokio::sync::Semaphore::new(1);
        for _ in 0..MANY {
            drop(turns.acquire().await);
        }
        MANY
    }

    #[test]
    fn a_wait_ends_with_what_it_waited_for() {
        let runtime = SystemRuntime::shared().unwrap();
        let until = runtime.now() + Duration::from_millis(20);
        wait(runtime.sleep_until(until)).unwrap();
        assert!(runtime.now() >= until);
    }

    #[test]
    fn a_wait_inside_a_tokio_task_does_not_starve_when_that_tasks_steps_are_used_up() {
        let (done, ended) = mpsc::channel();
        std::thread::Builder::new()
            .spawn(move || {
                let tokio = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let steps = tokio.block_on(tokio.spawn(async { wait(many_steps()) }));
                done.send(steps.unwrap().unwrap()).unwrap();
            })
            .unwrap();
        assert_eq!(ended.recv_timeout(Duration::from_secs(10)), Ok(MANY), "it turns in circles");
    }

    #[test]
    fn a_wait_on_a_thread_of_the_librarys_own_is_refused() {
        let runtime = SystemRuntime::shared().unwrap();
        for dedicated in [false, true] {
            let (done, ended) = mpsc::channel();
            let task = Box::pin(async move { done.send(wait(async {})).unwrap() });
            let task =
                if dedicated { runtime.spawn_dedicated("it", task) } else { runtime.spawn("it", task) };
            task.detach();
            let refused = ended.recv_timeout(Duration::from_secs(10)).unwrap().unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::InvalidInput, "{refused}");
        }
    }
}
