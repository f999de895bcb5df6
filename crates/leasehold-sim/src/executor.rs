//! A runtime in which one number decides everything: an executor with virtual time and seeded chance.
//!
//! [`Seeded`] implements [`Runtime`] on the calling thread. Of the tasks that are ready one is picked at random by the
//! seed; time stands still while any is, then leaps to the next timer. So a simulated hour takes a moment, rare orders
//! of events come up often, and the same seed gives the same run to the last poll: compare [`Seeded::trace_hash`].
//!
//! That holds for code whose only doors to the world are a [`Runtime`] and a backend on the same one. A wake-up from
//! another thread is noticed and ends the run with a panic.

mod random;
mod timer;
mod trace;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use leasehold::runtime::{Instant, Runtime, Task};

use random::Random;
use timer::{Sleep, Timers};
use trace::Trace;

/// Polls at one instant after which a run is taken to turn in circles.
const RESTLESS: u64 = 1_000_000;
/// Virtual time begins with this time of day.
const EPOCH: Duration = Duration::from_secs(1_750_000_000);

/// The executor. Dropping it drops its tasks.
pub struct Seeded {
    seed: u64,
    limit: Duration,
    core: Arc<Core>,
}

impl Seeded {
    /// An executor at virtual time zero.
    pub fn new(seed: u64) -> Self {
        let core = Core {
            state: Mutex::new(State {
                now: Instant::ZERO,
                // Two streams, so that what tasks draw does not depend on what is picked, nor the other way round.
                picks: Random::new(seed),
                draws: Random::new(!seed),
                tasks: BTreeMap::new(),
                next_task: 0,
                ready: Vec::new(),
                timers: Timers::default(),
                trace: Trace::default(),
                polls_now: 0,
                woken_from: None,
                closed: false,
            }),
            thread: thread::current().id(),
        };
        Self { seed, limit: Duration::from_secs(24 * 3600), core: Arc::new(core) }
    }

    /// The same with another end: a run that is not over by this virtual time panics. The default is a day.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Its seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// It as a runtime.
    pub fn handle(&self) -> Arc<dyn Runtime> {
        Arc::new(self.notes())
    }

    /// It as a runtime that also takes notes.
    pub fn notes(&self) -> SeededHandle {
        SeededHandle { core: self.core.clone() }
    }

    /// Virtual time.
    pub fn now(&self) -> Instant {
        self.core.lock().now
    }

    /// A hash over every poll (when, of which task, its how many-th) and every note so far.
    pub fn trace_hash(&self) -> u64 {
        self.core.lock().trace.hash()
    }

    /// The last notes, oldest first, each with its time.
    pub fn transcript(&self) -> Vec<String> {
        self.core.lock().trace.lines()
    }

    /// The names of the tasks that have not ended.
    pub fn tasks(&self) -> Vec<&'static str> {
        self.core.lock().tasks.values().map(|slot| slot.name).collect()
    }

    /// Runs until `future` ends. It is a task like the others, named `main`. The others stay for the next call.
    ///
    /// # Panics
    /// If nothing can ever happen again although `future` has not ended (with the list of who waits), if virtual time
    /// reaches the limit, or if a million polls pass without time going on.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let _report = Report(self);
        let mut future = pin!(future);
        let (main, waker) = self.core.add("main", None);
        loop {
            let Some((id, waker_of, task)) = self.next_step() else { continue };
            if id == main {
                if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    self.core.lock().tasks.remove(&main);
                    return value;
                }
            } else if let Some(mut task) = task {
                let ended = task.as_mut().poll(&mut Context::from_waker(&waker_of)).is_ready();
                let finished = self.core.put_back(id, task, ended);
                // Dropped with no lock held: it may wake, spawn or stop others.
                drop(finished);
            }
        }
    }

    /// Picks a ready task, or lets time go on to the next timer and gives `None`.
    fn next_step(&self) -> Option<(u64, Waker, Option<BoxFuture<'static, ()>>)> {
        let mut state = self.core.lock();
        if let Some(name) = state.woken_from {
            drop(state);
            panic!("the task {name} was woken from another thread: this run cannot be replayed");
        }
        if state.ready.is_empty() {
            let due = state.timers.next_due();
            let stuck = match due {
                None => Some("nothing is ready and no timer is set".to_owned()),
                Some(due) if due > Instant::ZERO + self.limit => {
                    Some(format!("not over by {:?}", self.limit))
                }
                Some(_) => None,
            };
            if let Some(why) = stuck {
                let waiting = state.waiting();
                let at = state.now.since(Instant::ZERO);
                drop(state);
                panic!("stuck at {at:?} of virtual time: {why}. Who waits:\n{waiting}");
            }
            state.now = due.unwrap_or_default().max(state.now);
            state.polls_now = 0;
            let now = state.now;
            let wakers = state.timers.take_due(now);
            drop(state);
            wakers.into_iter().for_each(Waker::wake);
            return None;
        }
        state.polls_now += 1;
        if state.polls_now > RESTLESS {
            let waiting = state.waiting();
            drop(state);
            panic!(
                "{RESTLESS} polls without time going on: some task turns in circles. All tasks:\n{waiting}"
            );
        }
        let ready = state.ready.len();
        let pick = state.picks.below(ready);
        let id = state.ready.swap_remove(pick);
        let now = state.now;
        let slot = state.tasks.get_mut(&id)?;
        slot.queued = false;
        if slot.stopped {
            // Stopped at its await point: dropped here, from the executor, as on a real one.
            let stopped = state.tasks.remove(&id);
            drop(state);
            drop(stopped);
            return None;
        }
        slot.polls += 1;
        slot.polled_at = now;
        let (name, polls) = (slot.name, slot.polls);
        let step = (id, slot.waker.clone(), slot.future.take());
        state.trace.poll(now, name, id, polls);
        Some(step)
    }
}

impl Drop for Seeded {
    fn drop(&mut self) {
        self.core.lock().closed = true;
        // One by one, with no lock held: the end of one may stop others.
        let next = || self.core.lock().tasks.pop_first();
        while let Some(slot) = next() {
            drop(slot);
        }
    }
}

impl fmt::Debug for Seeded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seeded").field("seed", &self.seed).field("now", &self.now()).finish_non_exhaustive()
    }
}

/// Says, when a run panics, how to get the same run again.
struct Report<'a>(&'a Seeded);

impl Drop for Report<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            let (now, notes) = (self.0.now().since(Instant::ZERO), self.0.transcript());
            let notes = notes[notes.len().saturating_sub(40)..].join("\n  ");
            eprintln!("seed {} failed at {now:?} of virtual time; the last notes:\n  {notes}", self.0.seed);
        }
    }
}

struct Core {
    state: Mutex<State>,
    thread: ThreadId,
}

struct State {
    now: Instant,
    picks: Random,
    draws: Random,
    tasks: BTreeMap<u64, Slot>,
    next_task: u64,
    ready: Vec<u64>,
    timers: Timers,
    trace: Trace,
    polls_now: u64,
    /// The task that another thread woke.
    woken_from: Option<&'static str>,
    closed: bool,
}

struct Slot {
    name: &'static str,
    /// Away while it is polled; always away for `main`.
    future: Option<BoxFuture<'static, ()>>,
    waker: Waker,
    queued: bool,
    stopped: bool,
    polls: u64,
    polled_at: Instant,
}

impl State {
    fn queue(&mut self, id: u64) {
        if let Some(slot) = self.tasks.get_mut(&id).filter(|slot| !slot.queued) {
            slot.queued = true;
            self.ready.push(id);
        }
    }

    fn waiting(&self) -> String {
        let line = |slot: &Slot| {
            let at = slot.polled_at.since(Instant::ZERO);
            format!("  {}: polled {} times, last at {at:?}", slot.name, slot.polls)
        };
        self.tasks.values().map(line).collect::<Vec<_>>().join("\n")
    }
}

impl Core {
    /// Never held while a future is polled or dropped, or a waker woken.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(self: &Arc<Self>, name: &'static str, future: Option<BoxFuture<'static, ()>>) -> (u64, Waker) {
        let mut state = self.lock();
        let id = state.next_task;
        state.next_task += 1;
        let waker = Waker::from(Arc::new(TaskWaker { id, core: Arc::downgrade(self) }));
        if state.closed {
            drop(state);
            drop(future);
            return (id, waker);
        }
        let polled_at = state.now;
        let slot =
            Slot { name, future, waker: waker.clone(), queued: false, stopped: false, polls: 0, polled_at };
        state.tasks.insert(id, slot);
        state.queue(id);
        (id, waker)
    }

    /// Keeps a polled task for its next poll, or gives it back to be dropped if it has ended.
    fn put_back(&self, id: u64, task: BoxFuture<'static, ()>, ended: bool) -> Option<BoxFuture<'static, ()>> {
        let mut state = self.lock();
        if ended {
            state.tasks.remove(&id);
            return Some(task);
        }
        match state.tasks.get_mut(&id) {
            Some(slot) => {
                slot.future = Some(task);
                None
            }
            None => Some(task),
        }
    }

    fn stop(&self, id: u64) {
        let mut state = self.lock();
        if let Some(slot) = state.tasks.get_mut(&id) {
            slot.stopped = true;
            state.queue(id);
        }
    }
}

struct TaskWaker {
    id: u64,
    core: Weak<Core>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        let Some(core) = self.core.upgrade() else { return };
        let mut state = core.lock();
        if thread::current().id() != core.thread {
            state.woken_from = state.tasks.get(&self.id).map(|slot| slot.name).or(state.woken_from);
        }
        state.queue(self.id);
    }
}

/// A [`Seeded`] as its tasks see it.
#[derive(Clone)]
pub struct SeededHandle {
    core: Arc<Core>,
}

impl SeededHandle {
    /// Adds a line to the trace: to its hash, and to what a failed run shows.
    pub fn note(&self, line: impl fmt::Display) {
        let mut state = self.core.lock();
        let now = state.now;
        state.trace.note(now, &line.to_string());
    }
}

impl Runtime for SeededHandle {
    fn now(&self) -> Instant {
        self.core.lock().now
    }

    fn wall_clock(&self) -> SystemTime {
        UNIX_EPOCH + EPOCH + self.now().since(Instant::ZERO)
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        Box::pin(Sleep::new(self.core.clone(), at))
    }

    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Task {
        let (id, _) = self.core.add(name, Some(task));
        let core = Arc::downgrade(&self.core);
        Task::new(move || {
            if let Some(core) = core.upgrade() {
                core.stop(id);
            }
        })
    }

    fn spawn_dedicated(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Task {
        self.spawn(name, task)
    }

    fn random_u64(&self) -> u64 {
        self.core.lock().draws.next()
    }
}

impl fmt::Debug for SeededHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeededHandle").field("now", &self.now()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
