//! The history of a run, as it comes in: from the clients' lines, and from the resource that this process is.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use leasehold::runtime::{Instant, Runtime, SystemRuntime};
use leasehold_mvcc::Revision;

use super::line::{Ask, Line, Told};
use crate::check::{Promise, Violation};
use crate::history::{End, History, Hold, Operation, Step, Write};

/// When something happened, and what.
pub type Noted = (Instant, String);

/// Records a run. A clone is the same.
#[derive(Clone, Debug)]
pub struct Recorder {
    clock: Arc<SystemRuntime>,
    record: Arc<Mutex<Record>>,
}

/// What is known so far.
#[derive(Debug, Default)]
struct Record {
    history: History,
    /// Holds that have not ended: where they stand, and until when they are valid if nothing more is heard.
    open: BTreeMap<(String, u64), (usize, Instant)>,
    /// Operations not answered yet.
    asked: BTreeMap<(String, u64), usize>,
    /// Those that were certainly not carried out.
    refused: Vec<usize>,
    /// The resource: the highest token that each lock's register has seen.
    registers: BTreeMap<String, u64>,
    last_grant: BTreeMap<String, Instant>,
    faults: Vec<Noted>,
    surprises: Vec<Noted>,
    /// What makes the run worthless as a proof.
    failures: Vec<String>,
    violations: Vec<Violation>,
}

/// A run, as it was recorded.
#[derive(Debug)]
pub struct Recorded {
    /// What happened.
    pub history: History,
    /// When faults began and ended.
    pub faults: Vec<Noted>,
    /// What no fault explains, although it breaks no promise.
    pub surprises: Vec<Noted>,
    /// What makes the run worthless as a proof.
    pub failures: Vec<String>,
    /// What contradicts a promise by itself.
    pub violations: Vec<Violation>,
}

impl Recorder {
    /// A recorder of nothing yet.
    ///
    /// # Errors
    /// If the machine's clock cannot be had.
    pub fn new() -> leasehold::Result<Self> {
        Ok(Self { clock: SystemRuntime::shared()?, record: Arc::default() })
    }

    /// The true time.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    fn record(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes what a client process says; `client` is a name that no other process of the run has.
    pub fn hear(&self, client: &str, line: Line) {
        let mut record = self.record();
        // Read inside, so that the times of writes are in the order in which they came.
        let now = self.now();
        record.hear(client, line, now);
    }

    /// A client process was killed, and all that it said before has been heard.
    pub fn killed(&self, client: &str, at: Instant) {
        self.record().killed(client, at);
    }

    /// When each of these locks was granted last.
    pub fn last_grants(&self, locks: &[String]) -> Vec<Instant> {
        let record = self.record();
        locks.iter().map(|lock| record.last_grant.get(lock).copied().unwrap_or(Instant::ZERO)).collect()
    }

    /// Notes the beginning or the end of a fault.
    pub fn fault(&self, what: String) {
        let now = self.now();
        self.record().faults.push((now, what));
    }

    /// Notes that something did not do its part, so that the run proves nothing.
    pub fn failure(&self, what: String) {
        let failures = &mut self.record().failures;
        if !failures.contains(&what) {
            failures.push(what);
        }
    }

    /// All that was recorded.
    pub fn finish(&self) -> Recorded {
        let mut record = std::mem::take(&mut *self.record());
        record.refused.sort_unstable();
        for place in record.refused.into_iter().rev() {
            record.history.operations.swap_remove(place);
        }
        let Record { history, faults, surprises, failures, violations, .. } = record;
        Recorded { history, faults, surprises, failures, violations }
    }
}

impl Record {
    fn hear(&mut self, client: &str, line: Line, now: Instant) {
        let own = |id| (client.to_owned(), id);
        match line {
            Line::Held { id, task, lock, key, token, created, proven, from, valid } => {
                let from = Instant::from_nanos(from);
                let last = self.last_grant.entry(lock.clone()).or_default();
                *last = from.max(*last);
                self.open.insert(own(id), (self.history.holds.len(), Instant::from_nanos(valid)));
                self.history.holds.push(Hold {
                    lock,
                    key,
                    client: task,
                    token,
                    created: Revision::new(created),
                    proven: Revision::new(proven),
                    from,
                    until: Instant::NEVER,
                    end: End::Holding,
                });
            }
            Line::Valid { id, until } => {
                if let Some((_, valid)) = self.open.get_mut(&own(id)) {
                    *valid = Instant::from_nanos(until);
                }
            }
            Line::Ended { id, until, lost } => {
                if let Some((place, _)) = self.open.remove(&own(id)) {
                    let hold = &mut self.history.holds[place];
                    hold.until = Instant::from_nanos(until);
                    hold.end = lost.map_or(End::Released, End::Lost);
                }
            }
            Line::Write { task, lock, token } => {
                let highest = self.registers.entry(lock.clone()).or_default();
                let accepted = token >= *highest;
                *highest = token.max(*highest);
                self.history.writes.push(Write { lock, client: task, token, at: now, accepted });
            }
            Line::Called { id, key, at, ask } => {
                self.asked.insert(own(id), self.history.operations.len());
                let step = match ask {
                    Ask::Read => Step::Read(None),
                    Ask::Put(new) => Step::Put(new),
                    Ask::Delete => Step::Delete(None),
                    Ask::Swap { expected, new } => Step::CompareAndPut { expected, new, done: None },
                };
                let (client, called) = (client.to_owned(), Instant::from_nanos(at));
                self.history.operations.push(Operation { client, key, called, answered: None, step });
            }
            Line::Answered { id, at, told } => {
                let Some(place) = self.asked.remove(&own(id)) else { return };
                let operation = &mut self.history.operations[place];
                match (told, &mut operation.step) {
                    (Told::Unknown, _) => return,
                    (Told::Refused, _) => return self.refused.push(place),
                    (Told::Value(value), Step::Read(read)) => *read = Some(value),
                    (Told::Done(there), Step::Delete(deleted)) => *deleted = Some(there),
                    (Told::Done(written), Step::CompareAndPut { done, .. }) => *done = Some(written),
                    _ => {}
                }
                operation.answered = Some(Instant::from_nanos(at));
            }
            Line::Overdue { id, asked, until } => {
                let (asked, until) = (Instant::from_nanos(asked), Instant::from_nanos(until));
                let what =
                    format!("hold {id} of {client} was called valid {:?} too late", asked.since(until));
                self.violations.push(Violation { promise: Promise::BeliefOverlap, at: asked, what });
            }
            Line::Surprise { what } => self.surprises.push((now, format!("{client}: {what}"))),
        }
    }

    fn killed(&mut self, client: &str, at: Instant) {
        let holds: Vec<_> = self.open.keys().filter(|(whose, _)| whose == client).cloned().collect();
        for key in holds {
            let Some((place, valid)) = self.open.remove(&key) else { continue };
            let hold = &mut self.history.holds[place];
            // Frozen before, it may have stopped counting on it earlier.
            hold.until = at.min(valid).max(hold.from);
            hold.end = End::Killed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(id: u64, from: u64, valid: u64) -> Line {
        let (task, lock, key) = ("c/t".to_owned(), "l".to_owned(), "l/k".to_owned());
        Line::Held { id, task, lock, key, token: 9, created: 1, proven: 2, from, valid }
    }

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    #[test]
    fn a_hold_ends_with_its_process_or_with_the_validity_known_last() {
        let mut record = Record::default();
        record.hear("c", held(1, 10, 100), at(11));
        record.hear("c", held(2, 20, 100), at(21));
        record.hear("c", Line::Valid { id: 2, until: 200 }, at(30));
        record.hear("d", held(1, 20, 1000), at(21));
        record.killed("c", at(150));
        let ends: Vec<_> = record.history.holds.iter().map(|hold| (hold.until, hold.end.clone())).collect();
        let expected = [(at(100), End::Killed), (at(150), End::Killed), (Instant::NEVER, End::Holding)];
        assert_eq!(ends, expected);
    }

    #[test]
    fn a_check_that_says_yes_too_late_is_a_violation() {
        let recorder = Recorder::new().unwrap();
        recorder.hear("c", Line::Overdue { id: 1, asked: 20, until: 10 });
        assert_eq!(recorder.finish().violations[0].promise, Promise::BeliefOverlap);
    }

    #[test]
    fn the_resource_refuses_a_token_below_the_highest() {
        let mut record = Record::default();
        for token in [5, 7, 5, 7] {
            record.hear("c", Line::Write { task: "t".into(), lock: "l".into(), token }, at(token));
        }
        let accepted: Vec<_> = record.history.writes.iter().map(|write| write.accepted).collect();
        assert_eq!(accepted, [true, true, false, true]);
    }

    #[test]
    fn an_operation_that_was_not_carried_out_leaves_no_trace_and_one_of_unknown_outcome_does() {
        let recorder = Recorder::new().unwrap();
        for (id, told) in [(1, Told::Refused), (2, Told::Unknown), (3, Told::Done(true))] {
            let ask = Ask::Put(id.to_string());
            recorder.hear("c", Line::Called { id, key: "k".into(), at: id, ask });
            recorder.hear("c", Line::Answered { id, at: 9, told });
        }
        let mut operations = recorder.finish().history.operations;
        operations.sort_by_key(|operation| operation.called);
        let answered: Vec<_> = operations.iter().map(|operation| operation.answered).collect();
        assert_eq!(answered, [None, Some(at(9))]);
    }
}
