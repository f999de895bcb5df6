//! Many seeds: how far has been looked, and what was found.

#![allow(
    clippy::disallowed_methods,
    reason = "how long a search may take is a matter of real time and real threads"
)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::runtime::Instant as VirtualInstant;
use rustix::time::{ClockId, clock_gettime};

use crate::check::Violation;
use crate::fault::Weights;
use crate::run::{Outcome, Plan, run};
use crate::shrink::shrink;
use crate::timeline;

/// What to search.
#[derive(Clone, Debug)]
pub struct Search {
    /// The first seed.
    pub first: u64,
    /// How many at most.
    pub seeds: u64,
    /// How long at most, in real time.
    pub time: Duration,
    /// What goes wrong.
    pub weights: Weights,
    /// How often.
    pub gap: Duration,
    /// Threads that search.
    pub threads: usize,
}

/// What was searched.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Seeds run.
    pub seeds: u64,
    /// Simulated time.
    pub simulated: Duration,
    /// Processor time of the search, all threads together.
    pub worked: Duration,
    /// Holds granted.
    pub grants: u64,
    /// Plain operations checked, and keys for which the check was not decided.
    pub operations: (u64, u64),
    /// Faults begun, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Holds lost, by cause.
    pub losses: BTreeMap<String, u64>,
    /// What the faults brought about.
    pub seen: BTreeMap<&'static str, u64>,
    /// The first seed that broke a promise, and how.
    pub failure: Option<(Plan, Vec<Violation>)>,
}

impl Found {
    fn add(&mut self, plan: &Plan, outcome: &Outcome) {
        self.seeds += 1;
        self.simulated += outcome.simulated;
        self.grants += outcome.grants;
        self.operations.0 += outcome.operations.0;
        self.operations.1 += outcome.operations.1;
        for fault in &plan.faults {
            *self.faults.entry(fault.kind.name()).or_default() += 1;
        }
        for (cause, count) in &outcome.losses {
            *self.losses.entry(cause.clone()).or_default() += count;
        }
        for (what, count) in &outcome.seen {
            *self.seen.entry(what).or_default() += count;
        }
    }

    /// In a few lines.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        let list = |counts: Vec<String>| counts.join(", ");
        let hours = self.simulated.as_secs_f64() / 3600.0;
        let pace = self.simulated.as_secs_f64() / self.worked.as_secs_f64().max(1e-9);
        let _ = writeln!(text, "seeds: {}", self.seeds);
        let _ = writeln!(text, "simulated: {hours:.1} hours ({pace:.0} s for each second of a processor)");
        let _ = writeln!(text, "grants: {}", self.grants);
        let (operations, undecided) = self.operations;
        let _ = writeln!(text, "plain operations: {operations} ({undecided} keys not decided)");
        let count = |(name, count): (&&str, &u64)| format!("{name} {count}");
        let _ = writeln!(text, "faults: {}", list(self.faults.iter().map(count).collect()));
        let _ = writeln!(text, "brought about: {}", list(self.seen.iter().map(count).collect()));
        let losses = self.losses.iter().map(|(cause, count)| format!("{cause} {count}"));
        let _ = writeln!(text, "holds lost: {}", list(losses.collect()));
        let result = match &self.failure {
            None => "no promise broken".to_owned(),
            Some((plan, _)) => format!("seed {} breaks a promise", plan.seed),
        };
        let _ = write!(text, "result: {result}");
        text
    }
}

/// Searches until a promise is broken, the seeds are through, or the time is over.
pub fn search(search: &Search) -> Found {
    let (next, stop) = (AtomicU64::new(search.first), AtomicBool::new(false));
    let (found, end) = (Mutex::new(Found::default()), Instant::now() + search.time);
    let look = || {
        let begun = processor_time();
        loop {
            let seed = next.fetch_add(1, Ordering::SeqCst);
            let over = seed - search.first >= search.seeds || Instant::now() >= end;
            if over || stop.load(Ordering::SeqCst) {
                break;
            }
            let plan = Plan::contended(seed, &search.weights, search.gap);
            let outcome = run(&plan);
            let Ok(mut found) = found.lock() else { break };
            found.add(&plan, &outcome);
            if !outcome.violations.is_empty() {
                stop.store(true, Ordering::SeqCst);
                // Of two that fail at once the lower seed is told, so that a search replays.
                if found.failure.as_ref().is_none_or(|(other, _)| plan.seed < other.seed) {
                    found.failure = Some((plan, outcome.violations));
                }
            }
        }
        if let Ok(mut found) = found.lock() {
            found.worked += processor_time().saturating_sub(begun);
        }
    };
    thread::scope(|scope| {
        for _ in 0..search.threads.max(1) {
            scope.spawn(look);
        }
    });
    found.into_inner().unwrap_or_default()
}

/// What this thread has had of a processor, whatever else that did.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// A failing plan told in full: what broke, the fewest faults that still do, and how it came about.
pub fn tell(plan: &Plan, violations: &[Violation]) -> String {
    let Some(first) = violations.first() else { return "no promise broken".to_owned() };
    let (smaller, outcome) = shrink(plan, first.promise);
    let mut text = format!("seed {} breaks a promise:\n", plan.seed);
    for violation in violations.iter().take(5) {
        let _ = writeln!(text, "  {violation}");
    }
    let _ = writeln!(text, "\nthe fewest of its {} faults that still do:", plan.faults.len());
    for fault in &smaller.faults {
        let _ = writeln!(text, "  {fault}");
    }
    let shown = outcome.violations.iter().find(|violation| violation.promise == first.promise);
    if let Some(violation) = shown {
        let at = violation.at.since(VirtualInstant::ZERO);
        let _ = writeln!(text, "\nwith these: {violation}\n");
        text.push_str(&timeline::show(&outcome.story, at, Duration::from_secs(20)));
    }
    text
}
