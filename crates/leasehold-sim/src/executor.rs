//! A runtime in which one number decides everything: an executor with virtual time and seeded chance.
//!
//! [`Seeded`] implements [`Runtime`] on the calling thread. Of the tasks that are ready one is picked at random by the
//! seed; time stands still while any is, then leaps to the next timer. So a simulated hour takes a moment, rare orders
//! of events come up often, and the same seed gives the same run to the last poll: compare [`Seeded::trace_hash`].
//!
//! A world may have several [`Node`]s: machines with clocks of their own that can be paused, put to sleep and killed.
//!
//! All that holds for code whose only doors to the world are a [`Runtime`] and a backend on the same one. A wake-up from
//! another thread is noticed and ends the run with a panic.

mod clock;
mod core;
mod node;
mod random;
mod tasks;
mod timer;
mod trace;

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use leasehold::runtime::{Instant, Runtime, Task};

pub use clock::ClockError;
use core::{Core, Duty};
pub use node::Node;
use node::{NodeId, NodeState};
pub use random::Random;
use timer::Sleep;

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
        // Streams apart, so that what tasks draw does not depend on what is picked, nor the other way round.
        let world = NodeState::new("world".to_owned(), ClockError::NONE, Random::new(!seed));
        Self { seed, limit: Duration::from_secs(24 * 3600), core: Arc::new(Core::new(seed, world)) }
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

    /// The world's own runtime, on true time.
    pub fn handle(&self) -> Arc<dyn Runtime> {
        Arc::new(self.notes())
    }

    /// The same, which also takes notes.
    pub fn notes(&self) -> SeededHandle {
        SeededHandle { core: self.core.clone(), node: NodeId::WORLD }
    }

    /// Virtual time, which is true time.
    pub fn now(&self) -> Instant {
        self.core.lock().now
    }

    /// A hash over every task, every poll (when, of which task, its how many-th) and every note so far.
    pub fn trace_hash(&self) -> u64 {
        self.core.lock().trace.hash()
    }

    /// The last notes, oldest first, each with its time.
    pub fn transcript(&self) -> Vec<String> {
        self.core.lock().trace.lines()
    }

    /// The names of the tasks that have not ended.
    pub fn tasks(&self) -> Vec<&'static str> {
        self.core.lock().task_names(|_| true)
    }

    /// Runs until `future` ends. It is a task like the others, named `main`. The others stay for the next call.
    ///
    /// # Panics
    /// If nothing can ever happen again although `future` has not ended (with the list of who waits), if virtual time
    /// reaches the limit, or if a million polls pass without time going on.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let _report = Report(self);
        let mut future = pin!(future);
        let (main, waker) = self.core.add(NodeId::WORLD, Duty::Library, "main", None);
        loop {
            let Some((id, waker_of, task)) = self.next_step() else { continue };
            if id == main {
                if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    self.core.lock().tasks.remove(main);
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
        let Some(id) = state.pick() else {
            let due = state.next_due();
            let stuck = match due {
                None | Some(Instant::NEVER) => Some("nothing is ready and no timer is set".to_owned()),
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
            let wakers = state.take_due();
            drop(state);
            wakers.into_iter().for_each(Waker::wake);
            return None;
        };
        state.polls_now += 1;
        if state.polls_now > RESTLESS {
            let waiting = state.waiting();
            drop(state);
            panic!(
                "{RESTLESS} polls without time going on: some task turns in circles. All tasks:\n{waiting}"
            );
        }
        let now = state.now;
        let slot = state.tasks.get_mut(id)?;
        if slot.stopped {
            // Stopped at its await point: dropped here, from the executor, as on a real one.
            let stopped = state.tasks.remove(id);
            drop(state);
            drop(stopped);
            return None;
        }
        slot.polls += 1;
        slot.polled_at = now;
        let polls = slot.polls;
        let step = (id, slot.waker.clone(), slot.future.take());
        state.trace.poll(now, id, polls);
        Some(step)
    }

    /// A machine of its own.
    pub fn node(&self, name: impl Into<String>, clock: ClockError) -> Node {
        let mut state = self.core.lock();
        let id = NodeId(state.nodes.len());
        let draws = Random::new((!state.seed).wrapping_add((id.0 as u64) << 32));
        state.nodes.push(NodeState::new(name.into(), clock, draws));
        drop(state);
        Node::new(self.core.clone(), id)
    }
}

impl Drop for Seeded {
    fn drop(&mut self) {
        self.core.lock().closed = true;
        // One by one, with no lock held: the end of one may stop others.
        let next = || self.core.lock().tasks.pop();
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

/// A [`Seeded`] as the tasks of one node see it.
#[derive(Clone)]
pub struct SeededHandle {
    core: Arc<Core>,
    node: NodeId,
}

impl SeededHandle {
    /// Adds a line to the trace: to its hash, and to what a failed run shows.
    pub fn note(&self, line: impl fmt::Display) {
        let mut state = self.core.lock();
        let now = state.now;
        state.trace.note(now, &line.to_string());
    }

    /// True time, whatever the node's clock shows.
    pub fn true_now(&self) -> Instant {
        self.core.lock().now
    }

    fn start(&self, duty: Duty, name: &'static str, task: BoxFuture<'static, ()>) -> Task {
        let (id, _) = self.core.add(self.node, duty, name, Some(task));
        let core = Arc::downgrade(&self.core);
        Task::new(move || {
            if let Some(core) = core.upgrade() {
                core.stop(id);
            }
        })
    }
}

impl Runtime for SeededHandle {
    fn now(&self) -> Instant {
        self.core.lock().node_time(self.node)
    }

    fn wall_clock(&self) -> SystemTime {
        UNIX_EPOCH + EPOCH + self.now().since(Instant::ZERO)
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        Box::pin(Sleep::new(self.core.clone(), self.node, at))
    }

    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Task {
        self.start(Duty::Library, name, task)
    }

    fn spawn_dedicated(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Task {
        self.start(Duty::Library, name, task)
    }

    fn random_u64(&self) -> u64 {
        self.core.lock().nodes[self.node.0].draws.next()
    }
}

impl fmt::Debug for SeededHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SeededHandle").field("now", &self.now()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
