//! Takes down what happens: for the checkers, and for whoever reads a failed run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::runtime::{Instant, Runtime};
use leasehold::{Guard, LossCause};

use crate::check::{Promise, Violation};
use crate::executor::{Node, SeededHandle};
use crate::history::{End, History, Hold, Operation, Step, Write};

/// One line of the story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When.
    pub at: Duration,
    /// Whose column it stands in.
    pub who: String,
    /// What happened.
    pub what: String,
}

/// A clone is another handle on the same notes.
#[derive(Clone)]
pub(super) struct Recorder {
    world: SeededHandle,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    history: History,
    story: Vec<Line>,
    violations: Vec<Violation>,
    losses: BTreeMap<String, u64>,
}

impl Recorder {
    pub(super) fn new(world: SeededHandle) -> Self {
        Self { world, state: Arc::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, who: &str, what: &str) {
        let at = self.world.true_now().since(Instant::ZERO);
        self.world.note(format_args!("{who}: {what}"));
        self.lock().story.push(Line { at, who: who.to_owned(), what: what.to_owned() });
    }

    /// Lets true time pass.
    pub(super) async fn pause(&self, duration: Duration) {
        self.world.sleep_until(self.world.now() + duration).await;
    }

    /// A hold of somebody who believes in nothing.
    pub(super) fn foreign(&self, hold: Hold) {
        self.note("foreign", &format!("holds {} by {} ({})", hold.lock, hold.token, hold.key));
        self.lock().history.holds.push(hold);
    }

    pub(super) fn violation(&self, promise: Promise, what: String) {
        let violation = Violation { promise, at: self.world.true_now(), what };
        self.lock().violations.push(violation);
    }

    pub(super) fn write(&self, write: Write) {
        self.lock().history.writes.push(write);
    }

    /// An operation begins. Until more is known its outcome is not: whoever asked may be killed before the answer.
    pub(super) fn calls(&self, client: &str, key: &str, step: Step) -> usize {
        let called = self.world.true_now();
        let (client, key) = (client.to_owned(), key.to_owned());
        let mut state = self.lock();
        state.history.operations.push(Operation { client, key, called, answered: None, step });
        state.history.operations.len() - 1
    }

    /// What came of it: the answer, or that it was certainly not carried out.
    pub(super) fn answered(&self, operation: usize, answer: Option<Step>) {
        let now = self.world.true_now();
        let mut state = self.lock();
        let operation = &mut state.history.operations[operation];
        operation.answered = Some(now);
        // What was not carried out read something, and what that was is not known.
        operation.step = answer.unwrap_or(Step::Read(None));
    }

    pub(super) fn restored(&self) {
        let now = self.world.true_now();
        self.lock().history.restores.push(now);
    }

    /// A hold begins. It ends when what is returned is released or dropped.
    pub(super) fn hold(&self, node: &Node, client: &str, guard: Guard) -> Held {
        let hold = Hold {
            lock: guard.name().to_string(),
            key: guard.key().to_string(),
            client: client.to_owned(),
            token: guard.token().as_u64(),
            created: guard.create_revision(),
            proven: guard.grant_revision(),
            from: self.world.true_now(),
            until: Instant::NEVER,
            end: End::Holding,
        };
        self.note(client, &format!("holds {} by {} ({})", hold.lock, hold.token, hold.key));
        let index = {
            let mut state = self.lock();
            state.history.holds.push(hold);
            state.history.holds.len() - 1
        };
        // Told on the library's side, so that it is known even while the program itself is blocked.
        let (recorder, lost) = (self.clone(), guard.lost());
        let client = client.to_owned();
        let told = {
            let client = client.clone();
            async move {
                let cause = lost.wait().await;
                recorder.told(index, &client, cause);
            }
        };
        node.runtime().spawn("recorder: loss", Box::pin(told)).detach();
        Held { recorder: self.clone(), node: node.clone(), index, client, guard: Some(guard) }
    }

    fn told(&self, index: usize, client: &str, cause: LossCause) {
        if cause == LossCause::Released {
            return;
        }
        let now = self.world.true_now();
        {
            let mut state = self.lock();
            let hold = &mut state.history.holds[index];
            if hold.end != End::Holding {
                return;
            }
            hold.end = End::Lost(format!("{cause:?}"));
            hold.until = hold.until.min(now);
            *state.losses.entry(format!("{cause:?}")).or_default() += 1;
        }
        self.note(client, &format!("lost: {cause:?}"));
    }

    /// A hold is given up, or its machine has died, at this moment: it counted until then, or until its deadline.
    fn over(&self, index: usize, deadline: Instant, end: End) {
        let now = self.world.true_now();
        let mut state = self.lock();
        let hold = &mut state.history.holds[index];
        hold.until = hold.until.min(now).min(deadline);
        if hold.end == End::Holding {
            hold.end = end;
        }
    }

    pub(super) fn story(&self) -> Vec<Line> {
        self.lock().story.clone()
    }

    pub(super) fn history(&self) -> History {
        self.lock().history.clone()
    }

    pub(super) fn violations(&self) -> Vec<Violation> {
        self.lock().violations.clone()
    }

    pub(super) fn losses(&self) -> BTreeMap<String, u64> {
        self.lock().losses.clone()
    }
}

/// A guard whose end is taken down.
pub(super) struct Held {
    recorder: Recorder,
    node: Node,
    index: usize,
    client: String,
    guard: Option<Guard>,
}

impl Held {
    pub(super) fn guard(&self) -> &Guard {
        self.guard.as_ref().expect("there until the end")
    }

    /// Gives it up, and waits for that.
    pub(super) async fn release(mut self) {
        let Some(guard) = self.end() else { return };
        self.recorder.note(&self.client, "releases");
        let _ = guard.release().await;
    }

    fn end(&mut self) -> Option<Guard> {
        let guard = self.guard.take()?;
        let deadline = self.node.true_time(guard.valid_until());
        let end = if self.node.is_dead() { End::Killed } else { End::Released };
        self.recorder.over(self.index, deadline, end);
        Some(guard)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(guard) = self.end() {
            self.recorder.note(&self.client, "drops its guard");
            drop(guard);
        }
    }
}
