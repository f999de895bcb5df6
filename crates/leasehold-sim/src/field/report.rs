//! What is told at the end.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use leasehold::runtime::Instant;

use super::faults::Kind;
use super::recorder::Noted;
use crate::check::{Checked, Violation};
use crate::history::{End, History};

/// How much of the story stands around each violation.
const AROUND: usize = 20;

/// A run that is over.
#[derive(Debug)]
pub struct Report {
    /// How the cluster and the clients were set up.
    pub setting: String,
    /// What decided it.
    pub seed: u64,
    /// How long it was.
    pub lasted: Duration,
    /// When it began.
    pub began: Instant,
    /// What happened.
    pub history: History,
    /// When faults began and ended.
    pub faults: Vec<Noted>,
    /// What no fault explains, although it breaks no promise.
    pub surprises: Vec<Noted>,
    /// How often each kind of fault was done.
    pub done: BTreeMap<Kind, usize>,
    /// After each step, how long until a lock was granted again.
    pub regained: Vec<Duration>,
    /// How long that takes at most by the house rule: TTL, election, expiry round.
    pub rule: Duration,
    /// How long it may take here, where somebody may hold and processes wait for a processor.
    pub bound: Duration,
    /// What did not do its part, or was not seen: with any of it no verdict can be relied on.
    pub failures: Vec<String>,
    /// What the checkers say.
    pub checked: Checked,
}

impl Report {
    /// Whether all was seen and no promise broken.
    pub fn is_good(&self) -> bool {
        self.checked.violations.is_empty() && self.failures.is_empty()
    }

    /// The summary, for a person.
    pub fn summary(&self) -> String {
        let mut text = String::new();
        let holds = &self.history.holds;
        let minutes = self.lasted.as_secs_f64() / 60.0;
        let _ = writeln!(text, "seed {}, {minutes:.1} minutes, {}", self.seed, self.setting);
        let entries = self.history.entries.len();
        let _ = writeln!(text, "grants: {}, of {entries} attempts", holds.len());
        let refused = self.history.writes.iter().filter(|write| !write.accepted).count();
        let writes = self.history.writes.len();
        let _ = writeln!(text, "writes with a token: {writes}, refused as stale: {refused}");
        let mut ends: BTreeMap<String, usize> = BTreeMap::new();
        for hold in holds {
            let end = match &hold.end {
                End::Released => continue,
                End::Lost(cause) => format!("lost by {cause}"),
                End::Killed => "killed with the client".to_owned(),
                End::Holding => "never ended".to_owned(),
            };
            *ends.entry(end).or_default() += 1;
        }
        let _ = writeln!(text, "holds that were not released: {}", counts(&ends));
        let done: BTreeMap<_, _> = self.done.iter().map(|(kind, times)| (kind.name(), *times)).collect();
        let _ = writeln!(text, "faults: {}", counts(&done));
        let mut regained = self.regained.clone();
        regained.sort_unstable();
        if let (Some(slowest), Some(median)) = (regained.last(), regained.get(regained.len() / 2)) {
            let within = regained.iter().filter(|time| **time <= self.rule).count();
            let _ = writeln!(
                text,
                "a lock granted again after a fault: median {median:.2?}, slowest {slowest:.2?}; \
                 {within} of {} within TTL + election + expiry round = {:?}; allowed {:?}",
                regained.len(),
                self.rule,
                self.bound
            );
        }
        let operations = self.history.operations.len();
        let undecided = self.checked.undecided;
        let _ = writeln!(text, "plain operations: {operations}; keys not decided: {undecided}");
        for (at, what) in &self.surprises {
            let _ = writeln!(text, "surprise at {:.3} s: {what}", self.seconds(*at));
        }
        for failure in &self.failures {
            let _ = writeln!(text, "this run proves nothing: {failure}");
        }
        let _ = writeln!(text, "violations: {}", self.checked.violations.len());
        let story = if self.checked.violations.is_empty() { Vec::new() } else { self.story() };
        for violation in &self.checked.violations {
            self.tell(&mut text, violation, &story);
        }
        text
    }

    fn tell(&self, text: &mut String, violation: &Violation, story: &[Noted]) {
        let at = self.seconds(violation.at);
        let _ = writeln!(text, "\n{:?} at {at:.3} s: {}", violation.promise, violation.what);
        let end = story.partition_point(|(at, _)| *at <= violation.at + Duration::from_millis(20));
        for (at, what) in &story[end.saturating_sub(AROUND)..end] {
            let _ = writeln!(text, "  {:9.3} {what}", self.seconds(*at));
        }
    }

    /// Everything that happened, line by line.
    pub fn whole_story(&self) -> String {
        self.story().iter().map(|(at, what)| format!("{:9.4} {what}\n", self.seconds(*at))).collect()
    }

    fn story(&self) -> Vec<Noted> {
        let mut story = self.faults.clone();
        for hold in &self.history.holds {
            let who = format!("{} {}", hold.client, hold.key);
            let (created, proven) = (hold.created, hold.proven);
            let token = hold.token;
            story
                .push((hold.from, format!("{who} holds, token {token}, created {created}, proven {proven}")));
            let end = match &hold.end {
                End::Released => "released".to_owned(),
                End::Lost(cause) => format!("lost by {cause}"),
                End::Killed => "over, by a kill".to_owned(),
                End::Holding => continue,
            };
            let entry = self
                .history
                .entries
                .iter()
                .find(|entry| (&entry.key, entry.created) == (&hold.key, hold.created));
            let removed = entry.and_then(|entry| entry.removed);
            let removed = removed.map_or("never".to_owned(), |revision| format!("at {revision}"));
            story.push((hold.until, format!("{who} {end}; its key removed {removed}")));
        }
        for write in self.history.writes.iter().filter(|write| !write.accepted) {
            story.push((write.at, format!("{} was refused with token {}", write.client, write.token)));
        }
        story.sort();
        story
    }

    fn seconds(&self, at: Instant) -> f64 {
        at.since(self.began).as_secs_f64()
    }
}

fn counts<T: std::fmt::Display>(counts: &BTreeMap<T, usize>) -> String {
    if counts.is_empty() {
        return "none".to_owned();
    }
    counts.iter().map(|(what, times)| format!("{what} {times}")).collect::<Vec<_>>().join(", ")
}
