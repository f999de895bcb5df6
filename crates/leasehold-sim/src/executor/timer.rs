//! Timers on a node's own time.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use leasehold::runtime::Instant;

use super::core::Core;
use super::node::NodeId;

/// The timers that are set, in the order in which they are due; those due at once in the order in which they were set.
#[derive(Default)]
pub(super) struct Timers {
    set: BTreeMap<(Instant, u64), Waker>,
    next: u64,
}

impl Timers {
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.set.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn take_due(&mut self, now: Instant, due: &mut Vec<Waker>) {
        while let Some(entry) = self.set.first_entry().filter(|entry| entry.key().0 <= now) {
            due.push(entry.remove());
        }
    }
}

/// A sleep. It takes its timer with it when dropped.
pub(super) struct Sleep {
    core: Arc<Core>,
    node: NodeId,
    at: Instant,
    timer: Option<u64>,
}

impl Sleep {
    pub(super) fn new(core: Arc<Core>, node: NodeId, at: Instant) -> Self {
        Self { core, node, at, timer: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let core = self.core.clone();
        let mut state = core.lock();
        if state.node_time(self.node) >= self.at {
            return Poll::Ready(());
        }
        // A sleep without end sets no timer, or a deadlock would pass for a long wait.
        if self.at < Instant::NEVER {
            let node = &mut state.nodes[self.node.0];
            let timers = &mut node.timers;
            let timer = *self.timer.get_or_insert_with(|| {
                timers.next += 1;
                timers.next
            });
            if timers.next_due().is_none_or(|first| self.at < first) {
                node.due.set(None);
            }
            node.timers.set.insert((self.at, timer), context.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            let mut state = self.core.lock();
            let node = &mut state.nodes[self.node.0];
            if node.timers.next_due() == Some(self.at) {
                node.due.set(None);
            }
            node.timers.set.remove(&(self.at, timer));
        }
    }
}
