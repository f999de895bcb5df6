//! A runtime of one thread, whose clock jumps to the next sleeper as soon as nothing else can be done.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, SystemTime};

use futures_core::future::BoxFuture;
use futures_util::future::poll_fn;

use crate::exclusive::Exclusive;
use crate::runtime::{Instant, Runtime, Task};

#[derive(Default)]
pub(super) struct Manual {
    state: Arc<Exclusive<State>>,
}

#[derive(Default)]
struct State {
    now: Instant,
    next: u64,
    sleepers: BTreeMap<(Instant, u64), Waker>,
    tasks: BTreeMap<u64, Option<BoxFuture<'static, ()>>>,
    woken: Arc<Woken>,
}

#[derive(Default)]
struct Woken(Exclusive<BTreeSet<u64>>);

struct Alarm {
    woken: Arc<Woken>,
    task: u64,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.woken.0.lock().insert(self.task);
    }
}

/// The number of the test's own future.
const MAIN: u64 = 0;

impl Manual {
    /// Runs a test, and every task it starts, until the test is over.
    pub(super) fn block_on<T>(&self, test: impl Future<Output = T>) -> T {
        let woken = self.state.lock().woken.clone();
        let mut test = pin!(test);
        woken.0.lock().insert(MAIN);
        loop {
            let next = woken.0.lock().pop_first();
            let Some(task) = next else {
                self.jump();
                continue;
            };
            let waker = Waker::from(Arc::new(Alarm { woken: woken.clone(), task }));
            let mut context = Context::from_waker(&waker);
            if task == MAIN {
                if let Poll::Ready(value) = test.as_mut().poll(&mut context) {
                    return value;
                }
                continue;
            }
            let taken = self.state.lock().tasks.get_mut(&task).and_then(Option::take);
            let Some(mut future) = taken else { continue };
            let over = future.as_mut().poll(&mut context).is_ready();
            let mut state = self.state.lock();
            // Gone if it was stopped while it ran.
            if over {
                state.tasks.remove(&task);
            } else if let Some(place) = state.tasks.get_mut(&task) {
                *place = Some(future);
                continue;
            }
            drop(state);
        }
    }

    fn jump(&self) {
        let sleeper = {
            let mut state = self.state.lock();
            let ((at, _), sleeper) = state.sleepers.pop_first().expect("everybody waits, and nobody sleeps");
            state.now = state.now.max(at);
            sleeper
        };
        sleeper.wake();
    }

    /// Lets a time pass; at least until nothing can be done without it.
    pub(super) async fn pass(&self, time: Duration) {
        self.sleep_until(self.now() + time).await;
    }

    /// Lets everybody do what can be done.
    pub(super) async fn settle(&self) {
        self.pass(Duration::from_millis(1)).await;
    }

    /// How many tasks there are.
    pub(super) fn tasks(&self) -> usize {
        self.state.lock().tasks.len()
    }

    fn number(&self) -> u64 {
        let mut state = self.state.lock();
        state.next += 1;
        state.next
    }
}

impl Runtime for Manual {
    fn now(&self) -> Instant {
        self.state.lock().now
    }

    fn wall_clock(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        let (state, number) = (self.state.clone(), self.number());
        Box::pin(poll_fn(move |context| {
            let mut state = state.lock();
            if state.now >= at {
                return Poll::Ready(());
            }
            if at < Instant::NEVER {
                state.sleepers.insert((at, number), context.waker().clone());
            }
            Poll::Pending
        }))
    }

    fn spawn(&self, _name: &'static str, task: BoxFuture<'static, ()>) -> Task {
        let number = self.number();
        let mut state = self.state.lock();
        state.tasks.insert(number, Some(task));
        state.woken.0.lock().insert(number);
        let tasks = self.state.clone();
        Task::new(move || {
            let task = tasks.lock().tasks.remove(&number);
            drop(task);
        })
    }

    fn spawn_dedicated(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Task {
        self.spawn(name, task)
    }

    fn random_u64(&self) -> u64 {
        0
    }
}

impl std::fmt::Debug for Manual {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Manual").field("now", &self.now()).finish_non_exhaustive()
    }
}
