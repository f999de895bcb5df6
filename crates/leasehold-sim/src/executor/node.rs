//! A machine of its own in the simulated world: its tasks, its clock, and what befalls it.

use std::cell::Cell;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use leasehold::runtime::{Instant, Runtime, Task};

use super::SeededHandle;
use super::clock::{Clock, ClockError};
use super::core::{Core, Duty};
use super::random::Random;
use super::timer::Timers;

/// A node's place in the world. The first is the world itself, on true time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeId(pub(super) usize);

impl NodeId {
    pub(super) const WORLD: Self = Self(0);
}

pub(super) struct NodeState {
    pub(super) name: String,
    pub(super) clock: Clock,
    pub(super) timers: Timers,
    /// When, in true time, the next timer is due, as long as neither it nor the clock has changed.
    pub(super) due: Cell<Option<Instant>>,
    pub(super) draws: Random,
    /// How often it was stopped and not yet let go on.
    stopped: u32,
    /// The same for the caller's tasks alone.
    blocked: u32,
    pub(super) dead: bool,
    /// Tasks that are ready and may not run now.
    pub(super) held: Vec<u64>,
}

impl NodeState {
    pub(super) fn new(name: String, error: ClockError, draws: Random) -> Self {
        let (clock, timers) = (Clock::new(error), Timers::default());
        let (due, held) = (Cell::new(None), Vec::new());
        Self { name, clock, timers, due, draws, stopped: 0, blocked: 0, dead: false, held }
    }

    /// When the next timer is due, in true time; never if there is none.
    pub(super) fn next_due(&self) -> Instant {
        if let Some(due) = self.due.get() {
            return due;
        }
        let due = self.timers.next_due().map_or(Instant::NEVER, |own| self.clock.true_time(own));
        self.due.set(Some(due));
        due
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped > 0
    }

    pub(super) fn may_run(&self, duty: Duty) -> bool {
        self.stopped == 0 && (self.blocked == 0 || duty != Duty::Caller)
    }
}

/// A machine: everything spawned on its runtime lives and dies with it.
#[derive(Clone)]
pub struct Node {
    core: Arc<Core>,
    id: NodeId,
}

impl Node {
    pub(super) fn new(core: Arc<Core>, id: NodeId) -> Self {
        Self { core, id }
    }

    /// Its runtime.
    pub fn runtime(&self) -> Arc<dyn Runtime> {
        Arc::new(self.notes())
    }

    /// Its runtime, which also takes notes.
    pub fn notes(&self) -> SeededHandle {
        SeededHandle { core: self.core.clone(), node: self.id }
    }

    /// Its name.
    pub fn name(&self) -> String {
        self.core.lock().nodes[self.id.0].name.clone()
    }

    /// Runs a task of the program's that uses the library: [`Node::block`] stops these alone.
    pub fn spawn(&self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) -> Task {
        self.notes().start(Duty::Caller, name, Box::pin(task))
    }

    /// What its clock shows.
    pub fn now(&self) -> Instant {
        let state = self.core.lock();
        state.node_time(self.id)
    }

    /// The true time at which its clock shows `own`, if its rate does not change before.
    pub fn true_time(&self, own: Instant) -> Instant {
        self.core.lock().nodes[self.id.0].clock.true_time(own)
    }

    /// Changes its clock's rate, from now on.
    pub fn set_rate(&self, ppm: i64) {
        let mut state = self.core.lock();
        let now = state.now;
        state.nodes[self.id.0].clock.set_rate(now, ppm);
        state.nodes[self.id.0].due.set(None);
    }

    /// Stops all its tasks while its clock runs on: SIGSTOP, a pause by the host, a long collection of garbage.
    pub fn pause(&self) {
        self.core.lock().nodes[self.id.0].stopped += 1;
    }

    /// Ends one [`Node::pause`].
    pub fn resume(&self) {
        self.core.lock().go_on(self.id, |node| &mut node.stopped);
    }

    /// Puts the machine to sleep: like a pause, but a clock that does not count suspension stands still.
    pub fn suspend(&self) {
        let mut state = self.core.lock();
        let now = state.now;
        let node = &mut state.nodes[self.id.0];
        node.clock.suspend(now);
        node.due.set(None);
        node.stopped += 1;
    }

    /// Wakes the machine up.
    pub fn wake(&self) {
        let mut state = self.core.lock();
        let now = state.now;
        state.nodes[self.id.0].clock.resume(now);
        state.nodes[self.id.0].due.set(None);
        state.go_on(self.id, |node| &mut node.stopped);
    }

    /// Stops the program's own tasks; the library's threads run on.
    pub fn block(&self) {
        self.core.lock().nodes[self.id.0].blocked += 1;
    }

    /// Ends one [`Node::block`].
    pub fn unblock(&self) {
        self.core.lock().go_on(self.id, |node| &mut node.blocked);
    }

    /// Kills it: its tasks are gone at once, and nothing they would do at their end is done.
    pub fn kill(&self) {
        self.core.kill(self.id);
    }

    /// Whether it was killed.
    pub fn is_dead(&self) -> bool {
        self.core.lock().nodes[self.id.0].dead
    }

    /// The names of its tasks that have not ended.
    pub fn tasks(&self) -> Vec<&'static str> {
        self.core.lock().task_names(|node| node == self.id)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("name", &self.name()).field("now", &self.now()).finish_non_exhaustive()
    }
}
