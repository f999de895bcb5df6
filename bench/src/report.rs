//! What was measured, as a table for people and as JSON for machines.

use std::fmt;
use std::fs;

use serde_json::{Value, json};

use crate::options::Length;
use crate::samples::Summary;

/// What one measurement found.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) rows: Vec<Row>,
    /// The raw material.
    pub(crate) samples: Vec<Summary>,
}

/// One claim, and what came of it.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) goal: Goal,
    pub(crate) found: Found,
}

#[derive(Debug)]
pub(crate) enum Found {
    Measured {
        ours: Figure,
        /// Who it is compared with, and what that one reached. Without one, the goal is for our own figure.
        peer: Option<(&'static str, Figure)>,
        /// The value compared with the goal, in each round alone: how far it can be trusted.
        rounds: Vec<f64>,
    },
    NotMeasured {
        why: String,
    },
}

/// The bound for the ratio of our figure to the peer's, or for our own figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Figure {
    Seconds(f64),
    PerSecond(f64),
}

impl Figure {
    pub(crate) fn value(self) -> f64 {
        match self {
            Self::Seconds(value) | Self::PerSecond(value) => value,
        }
    }

    fn unit(self) -> &'static str {
        match self {
            Self::Seconds(_) => "seconds",
            Self::PerSecond(_) => "per second",
        }
    }
}

impl Goal {
    fn is_met(self, value: f64) -> bool {
        match self {
            Self::AtMost(bound) => value <= bound,
            Self::AtLeast(bound) => value >= bound,
        }
    }
}

/// How the value is written that a goal is compared with: ratios with two decimals, rates without.
fn plain(value: f64) -> String {
    if value >= 1000.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

impl Row {
    /// The value compared with the goal.
    fn value(&self) -> Option<f64> {
        match &self.found {
            Found::Measured { ours, peer, .. } => {
                Some(ours.value() / peer.as_ref().map_or(1.0, |(_, figure)| figure.value()))
            }
            Found::NotMeasured { .. } => None,
        }
    }

    fn verdict(&self) -> &'static str {
        match self.value() {
            Some(value) if self.goal.is_met(value) => "met",
            Some(_) => "NOT met",
            None => "not measured",
        }
    }

    fn markdown(&self) -> String {
        let Self { what, goal, found } = self;
        let verdict = self.verdict();
        match found {
            Found::NotMeasured { why } => format!("| {what} | | | | {goal} | {verdict}: {why} |\n"),
            Found::Measured { ours, peer, rounds } => {
                let value = plain(self.value().unwrap_or(f64::NAN));
                let low = plain(rounds.iter().copied().fold(f64::INFINITY, f64::min));
                let high = plain(rounds.iter().copied().fold(f64::NEG_INFINITY, f64::max));
                let (ratio, peer) = match peer {
                    Some((name, figure)) => {
                        (format!("{value} ({low} to {high})"), format!("{name}: {figure}"))
                    }
                    None => (format!("({low} to {high})"), String::new()),
                };
                format!("| {what} | {ours} | {peer} | {ratio} | {goal} | {verdict} |\n")
            }
        }
    }

    fn json(&self) -> Value {
        let (bound, target) = match self.goal {
            Goal::AtMost(bound) => ("at most", bound),
            Goal::AtLeast(bound) => ("at least", bound),
        };
        let mut row = json!({
            "what": self.what,
            "target": { "bound": bound, "value": target },
            "verdict": self.verdict(),
        });
        let found = match &self.found {
            Found::NotMeasured { why } => json!({ "why": why }),
            Found::Measured { ours, peer, rounds } => json!({
                "unit": ours.unit(),
                "leasehold": ours.value(),
                "peer": peer.as_ref().map(|(name, figure)| json!({ "name": name, "value": figure.value() })),
                "compared": self.value(),
                "rounds": rounds,
            }),
        };
        if let (Value::Object(row), Value::Object(found)) = (&mut row, found) {
            row.extend(found);
        }
        row
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seconds(value) => write!(f, "{:.2} ms", value * 1e3),
            Self::PerSecond(value) => write!(f, "{value:.0}/s"),
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AtMost(bound) => write!(f, "at most {bound}"),
            Self::AtLeast(bound) => write!(f, "at least {bound}"),
        }
    }
}

/// All of a run.
#[derive(Debug)]
pub(crate) struct Report {
    length: Length,
    load_at_begin: String,
    findings: Findings,
}

impl Report {
    pub(crate) fn begin(length: Length) -> Self {
        Self { length, load_at_begin: load(), findings: Findings::default() }
    }

    /// Takes one measurement, saying which on standard error: a run takes minutes.
    pub(crate) fn add(&mut self, name: &str, measure: impl FnOnce() -> Findings) {
        eprintln!("measuring: {name}");
        let Findings { rows, samples } = measure();
        self.findings.rows.extend(rows);
        self.findings.samples.extend(samples);
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = String::from(
            "| what | Leasehold | peer | ratio (by round) | target | |\n|---|---|---|---|---|---|\n",
        );
        text.extend(self.findings.rows.iter().map(Row::markdown));
        text.push('\n');
        text.push_str(Summary::HEAD);
        text.extend(self.findings.samples.iter().map(Summary::markdown));
        let (length, begin, end) =
            (if self.length.quick { "quick" } else { "full" }, &self.load_at_begin, load());
        text + &format!("\netcd 3.7.2, fsync on; {} cores; load {begin} to {end}; a {length} run\n", cores())
    }

    pub(crate) fn json(&self) -> Value {
        json!({
            "etcd": "3.7.2",
            "cores": cores(),
            "load": { "begin": self.load_at_begin, "end": load() },
            "quick": self.length.quick,
            "rows": self.findings.rows.iter().map(Row::json).collect::<Vec<_>>(),
            "samples": self.findings.samples.iter().map(Summary::json).collect::<Vec<_>>(),
        })
    }
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(0, usize::from)
}

/// What else the machine is doing, by its own account: a run on a busy one is to be repeated.
fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().filter(|first| !first.is_empty()).unwrap_or("unknown").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(ours: f64, peer: Option<f64>, goal: Goal) -> Row {
        let peer = peer.map(|value| ("peer", Figure::PerSecond(value)));
        let found = Found::Measured { ours: Figure::PerSecond(ours), peer, rounds: vec![1.0] };
        Row { what: "speed".into(), goal, found }
    }

    #[test]
    fn a_goal_is_for_the_ratio_or_without_a_peer_for_the_figure() {
        assert_eq!(row(80.0, Some(10.0), Goal::AtLeast(8.0)).verdict(), "met");
        assert_eq!(row(79.0, Some(10.0), Goal::AtLeast(8.0)).verdict(), "NOT met");
        assert_eq!(row(2e5, None, Goal::AtLeast(2e5)).verdict(), "met");
        assert_eq!(row(1.06, Some(1.0), Goal::AtMost(1.05)).verdict(), "NOT met");
    }

    #[test]
    fn a_peer_that_did_nothing_is_no_victory() {
        assert_eq!(row(f64::NAN, Some(f64::NAN), Goal::AtMost(1.0)).verdict(), "NOT met");
    }

    #[test]
    fn what_is_not_measured_says_why() {
        let found = Found::NotMeasured { why: "no etcdctl".into() };
        let row = Row { what: "x".into(), goal: Goal::AtMost(1.0), found };
        assert_eq!(row.markdown(), "| x | | | | at most 1 | not measured: no etcdctl |\n");
        assert_eq!(row.json()["why"], "no etcdctl");
    }
}
