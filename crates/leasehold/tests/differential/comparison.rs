//! A list of operations, done to both sides step by step until they differ.

use std::fmt::{self, Debug};

use leasehold_mvcc::{Answer, Command, Header, Revision, StoreError, WatchRequest};
use leasehold_testbed::Version;

use crate::known;
use crate::operation::{Operation, Origin, readable};
use crate::side::{FirstWord, Reference, Side, Told, Way};

/// The side that is compared, made to stand at an origin and at a header's revision.
pub(crate) type Subject = fn(Origin, Header) -> Box<dyn Side>;

/// The two sides.
pub(crate) struct Comparison {
    pub(crate) version: Version,
    pub(crate) etcd: Box<dyn Reference>,
    pub(crate) subject: Subject,
}

/// Where the sides differ first.
#[derive(Clone, Debug)]
pub(crate) struct Difference {
    /// After which step it showed.
    pub(crate) step: usize,
    what: String,
    etcd: String,
    ours: String,
    /// The revision of the sides when the list began.
    first: Revision,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { step, what, etcd, ours, first } = self;
        writeln!(f, "they differ at [{step}] in {what}, where revision 1 above was {first}:")?;
        writeln!(f, "  etcd: {}", readable(etcd))?;
        write!(f, "  ours: {}", readable(ours))
    }
}

impl Comparison {
    /// Does a list from its origin; gives the first difference, if there is any.
    pub(crate) fn run(&mut self, origin: Origin, list: &[Operation]) -> Option<Difference> {
        let header = self.etcd.begin(origin);
        let compacted = if origin == Origin::Fresh { Revision::ZERO } else { header.revision };
        let mut run = Run {
            version: self.version,
            etcd: &mut *self.etcd,
            ours: (self.subject)(origin, header),
            first: header.revision,
            now: header.revision,
            compacted,
            watches: Vec::new(),
        };
        for (step, operation) in list.iter().enumerate() {
            if let Err(found) = run.step(operation.starting_at(header.revision)) {
                return Some(Difference { step, ..*found });
            }
        }
        let ended = run.settle();
        ended.err().map(|found| Difference { step: list.len().saturating_sub(1), ..*found })
    }
}

struct Run<'a> {
    version: Version,
    etcd: &'a mut dyn Reference,
    ours: Box<dyn Side>,
    first: Revision,
    now: Revision,
    compacted: Revision,
    watches: Vec<Opened>,
}

struct Opened {
    request: WatchRequest,
    /// Whether it is on the steady stream and can be cancelled.
    steady: bool,
}

type Step = Result<(), Box<Difference>>;

impl Run<'_> {
    fn step(&mut self, operation: Operation) -> Step {
        match operation {
            Operation::Call(command) => self.call(command),
            Operation::Watch(request) => self.watch(request),
            Operation::Cancel(nth) => self.cancel(nth),
            Operation::Restart => {
                self.settle()?;
                self.etcd.restart();
                self.ours.hang_up();
                self.watches.clear();
                Ok(())
            }
        }
    }

    fn call(&mut self, command: Command) -> Step {
        let compaction = match &command {
            Command::Compact(request) => Some(request.revision),
            _ => None,
        };
        if compaction.is_some_and(|revision| revision > self.compacted && revision <= self.now) {
            // A real etcd that has not told a watch of what is now forgotten does not tell it any more.
            self.settle()?;
        }
        let mut etcd = self.etcd.call(command.clone());
        let mut ours = self.ours.call(command.clone());
        known::take_out(self.version, &command, &mut etcd, &mut ours);
        self.must_agree("the answer", &etcd, &ours)?;
        if let (Ok(_), Some(revision)) = (&etcd, compaction) {
            self.compacted = revision;
        }
        self.now = revision_of(&etcd).unwrap_or(self.now);
        Ok(())
    }

    fn watch(&mut self, request: WatchRequest) -> Step {
        let start = request.start_revision;
        let none = Revision::ZERO;
        if start < none && self.version == Version::V35 {
            // A known difference: 3.5 takes it, and such a watch never hears of anything.
            return Ok(());
        }
        let is_empty = !request.range.is_single()
            && !request.range.is_open()
            && request.range.start >= request.range.end;
        let (later, gone) = (start > self.now, start > none && start < self.compacted);
        self.open(if later || gone { Way::Loose } else { Way::Steady }, &request)?;
        // By the trait too, if it need not catch up: it has no way to say when it has, and a compaction must wait for that.
        if start <= none || later || gone || is_empty {
            self.open(Way::Trait, &request)?;
        }
        Ok(())
    }

    fn open(&mut self, way: Way, request: &WatchRequest) -> Step {
        let etcd = self.etcd.watch(way, request.clone());
        let ours = self.ours.watch(way, request.clone());
        let (etcd, ours) = (without_term(etcd), without_term(ours));
        self.must_agree("the first word on the watch", &etcd, &ours)?;
        let refused = matches!(&ours, FirstWord::Stream(created) if created.canceled);
        self.watches.push(Opened { request: request.clone(), steady: way == Way::Steady && !refused });
        Ok(())
    }

    fn cancel(&mut self, nth: usize) -> Step {
        let steady: Vec<usize> =
            (0..self.watches.len()).filter(|watch| self.watches[*watch].steady).collect();
        let Some(watch) = steady.get(nth % steady.len().max(1)) else { return Ok(()) };
        // What happened before must have been told, or it never is.
        self.settle()?;
        self.watches[*watch].steady = false;
        let etcd = without_term(FirstWord::Stream(self.etcd.cancel(*watch)));
        let ours = without_term(FirstWord::Stream(self.ours.cancel(*watch)));
        self.must_agree("the end of the watch", &etcd, &ours)
    }

    /// Compares what all watches have been told.
    fn settle(&mut self) -> Step {
        let ours_complete = self.ours.settle(&[]);
        let etcd_complete = self.etcd.settle(&self.ours.told());
        let (etcd, ours) = (self.etcd.told(), self.ours.told());
        for (watch, (etcd, ours)) in etcd.iter().zip(&ours).enumerate() {
            self.tell_the_same(watch, etcd, ours)?;
        }
        self.must_agree("how far the watches are", &etcd_complete, &ours_complete)
    }

    fn tell_the_same(&self, watch: usize, etcd: &Told, ours: &Told) -> Step {
        if etcd == ours {
            return Ok(());
        }
        let request = Operation::Watch(self.watches[watch].request.clone());
        for at in 0..etcd.events.len().max(ours.events.len()) {
            let what = format!("event {at} of {request}");
            self.must_agree(&what, &etcd.events.get(at), &ours.events.get(at))?;
        }
        self.must_agree(&format!("the end of {request}"), &etcd.end, &ours.end)?;
        let what = format!("whether events came before their revision on {request}");
        self.must_agree(&what, &etcd.ahead_of_itself, &ours.ahead_of_itself)
    }

    fn must_agree<T: PartialEq + Debug>(&self, what: &str, etcd: &T, ours: &T) -> Step {
        if etcd == ours {
            return Ok(());
        }
        let (etcd, ours) = (format!("{etcd:?}"), format!("{ours:?}"));
        Err(Box::new(Difference { step: 0, what: what.to_owned(), etcd, ours, first: self.first }))
    }
}

fn without_term(mut word: FirstWord) -> FirstWord {
    if let FirstWord::Stream(message) = &mut word {
        message.header.raft_term = 0;
    }
    word
}

fn revision_of(outcome: &Result<Answer, StoreError>) -> Option<Revision> {
    let Ok(answer) = outcome else { return None };
    let mut answer = answer.clone();
    Some(known::header(&mut answer).revision)
}
