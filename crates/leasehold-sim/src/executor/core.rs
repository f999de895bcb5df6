//! The executor's state: who is ready, who waits for what, and what time it is.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Wake, Waker};
use std::thread::{self, ThreadId};

use futures_util::future::BoxFuture;
use leasehold::runtime::Instant;

use super::node::{NodeId, NodeState};
use super::random::Random;
use super::tasks::{Slot, Tasks};
use super::trace::Trace;

/// Whose work a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Duty {
    /// The library's, or the world's.
    Library,
    /// The program's that uses the library.
    Caller,
}

pub(super) struct Core {
    state: Mutex<State>,
    thread: ThreadId,
}

pub(super) struct State {
    pub(super) now: Instant,
    pub(super) seed: u64,
    pub(super) picks: Random,
    pub(super) nodes: Vec<NodeState>,
    pub(super) tasks: Tasks,
    pub(super) ready: Vec<u64>,
    pub(super) trace: Trace,
    pub(super) polls_now: u64,
    /// The task that another thread woke.
    pub(super) woken_from: Option<&'static str>,
    pub(super) closed: bool,
}

impl State {
    pub(super) fn node_time(&self, node: NodeId) -> Instant {
        self.nodes[node.0].clock.at(self.now)
    }

    fn queue(&mut self, id: u64) {
        if let Some(slot) = self.tasks.get_mut(id).filter(|slot| !slot.queued) {
            slot.queued = true;
            let (node, duty) = (&mut self.nodes[slot.node.0], slot.duty);
            if node.may_run(duty) { self.ready.push(id) } else { node.held.push(id) }
        }
    }

    /// Takes out a ready task that may run; those of nodes stopped in the meantime are put aside.
    pub(super) fn pick(&mut self) -> Option<u64> {
        while !self.ready.is_empty() {
            let pick = self.picks.below(self.ready.len());
            let id = self.ready.swap_remove(pick);
            let Some(slot) = self.tasks.get_mut(id) else { continue };
            let (node, duty) = (&mut self.nodes[slot.node.0], slot.duty);
            if node.may_run(duty) {
                slot.queued = false;
                return Some(id);
            }
            node.held.push(id);
        }
        None
    }

    pub(super) fn go_on(&mut self, node: NodeId, count: impl FnOnce(&mut NodeState) -> &mut u32) {
        let node = &mut self.nodes[node.0];
        let count = count(node);
        *count = count.saturating_sub(1);
        self.ready.append(&mut node.held);
    }

    /// When the next timer of any node that runs is due, in true time.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let running = self.nodes.iter().filter(|node| !node.is_stopped() && !node.dead);
        running.map(NodeState::next_due).min()
    }

    pub(super) fn take_due(&mut self) -> Vec<Waker> {
        let now = self.now;
        let running = self.nodes.iter_mut().filter(|node| !node.is_stopped() && !node.dead);
        let mut wakers = Vec::new();
        for node in running.filter(|node| node.next_due() <= now) {
            node.timers.take_due(node.clock.at(now), &mut wakers);
            node.due.set(None);
        }
        wakers
    }

    pub(super) fn waiting(&self) -> String {
        let line = |slot: &Slot| {
            let (node, at) = (&self.nodes[slot.node.0], slot.polled_at.since(Instant::ZERO));
            let stopped = if node.may_run(slot.duty) { "" } else { " (stopped)" };
            format!("  {}{stopped}: {}: polled {} times, last at {at:?}", node.name, slot.name, slot.polls)
        };
        self.tasks.iter().map(|(_, slot)| line(slot)).collect::<Vec<_>>().join("\n")
    }

    pub(super) fn task_names(&self, of: impl Fn(NodeId) -> bool) -> Vec<&'static str> {
        self.tasks.iter().map(|(_, slot)| slot).filter(|slot| of(slot.node)).map(|slot| slot.name).collect()
    }
}

impl Core {
    pub(super) fn new(seed: u64, world: NodeState) -> Self {
        let state = State {
            now: Instant::ZERO,
            seed,
            picks: Random::new(seed),
            nodes: vec![world],
            tasks: Tasks::default(),
            ready: Vec::new(),
            trace: Trace::default(),
            polls_now: 0,
            woken_from: None,
            closed: false,
        };
        Self { state: Mutex::new(state), thread: thread::current().id() }
    }

    /// Never held while a future is polled or dropped, or a waker woken.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(
        self: &Arc<Self>,
        node: NodeId,
        duty: Duty,
        name: &'static str,
        future: Option<BoxFuture<'static, ()>>,
    ) -> (u64, Waker) {
        let mut state = self.lock();
        let id = state.tasks.next_id();
        let waker = Waker::from(Arc::new(TaskWaker { id, core: Arc::downgrade(self) }));
        if state.closed || state.nodes[node.0].dead {
            state.tasks.give_back(id);
            drop(state);
            drop(future);
            return (id, waker);
        }
        let (waker_of, polled_at) = (waker.clone(), state.now);
        let slot = Slot {
            name,
            node,
            duty,
            future,
            waker: waker_of,
            queued: false,
            stopped: false,
            polls: 0,
            polled_at,
        };
        state.trace.task(id, name);
        state.tasks.insert(id, slot);
        state.queue(id);
        (id, waker)
    }

    /// Keeps a polled task for its next poll, or gives it back to be dropped if it has ended.
    pub(super) fn put_back(
        &self,
        id: u64,
        task: BoxFuture<'static, ()>,
        ended: bool,
    ) -> Option<BoxFuture<'static, ()>> {
        let mut state = self.lock();
        if ended {
            state.tasks.remove(id);
            return Some(task);
        }
        match state.tasks.get_mut(id) {
            Some(slot) => {
                slot.future = Some(task);
                None
            }
            None => Some(task),
        }
    }

    pub(super) fn stop(&self, id: u64) {
        let mut state = self.lock();
        if let Some(slot) = state.tasks.get_mut(id) {
            slot.stopped = true;
            state.queue(id);
        }
    }

    pub(super) fn kill(&self, node: NodeId) {
        self.lock().nodes[node.0].dead = true;
        // One by one, with no lock held: the end of one may stop others.
        let next = || {
            let mut state = self.lock();
            let id = state.tasks.iter().find(|(_, slot)| slot.node == node).map(|(id, _)| id)?;
            state.tasks.remove(id)
        };
        while let Some(slot) = next() {
            drop(slot);
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
            state.woken_from = state.tasks.get(self.id).map(|slot| slot.name).or(state.woken_from);
        }
        state.queue(self.id);
    }
}
