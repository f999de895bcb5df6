//! The shortest list of faults that still breaks a promise.

use crate::check::Promise;
use crate::fault::Fault;
use crate::run::{Outcome, Plan, run};

/// How many runs it may take.
const RUNS: usize = 400;

/// A smaller plan that breaks the same promise, and what comes of it. The plan given must break it.
pub fn shrink(plan: &Plan, promise: Promise) -> (Plan, Outcome) {
    let breaks = |outcome: &Outcome| outcome.violations.iter().any(|violation| violation.promise == promise);
    let mut best = (plan.clone(), run(plan));
    let mut left = RUNS;
    let mut try_with = |best: &mut (Plan, Outcome), faults: Vec<Fault>| {
        if left == 0 {
            return false;
        }
        left -= 1;
        let smaller = Plan { faults, ..best.0.clone() };
        let outcome = run(&smaller);
        let found = breaks(&outcome);
        if found {
            *best = (smaller, outcome);
        }
        found
    };
    // What comes after the violation cannot have caused it, unless it showed at the very end.
    if let Some(first) = best.1.violations.iter().find(|violation| violation.promise == promise) {
        let end = first.at.since(leasehold::runtime::Instant::ZERO);
        let before = best.0.faults.iter().filter(|fault| fault.at <= end).copied().collect();
        try_with(&mut best, before);
    }
    // Large parts first, then single ones.
    let mut size = best.0.faults.len().div_ceil(2);
    while size > 0 {
        let mut start = 0;
        while start < best.0.faults.len() {
            let mut faults = best.0.faults.clone();
            faults.drain(start..(start + size).min(faults.len()));
            if !try_with(&mut best, faults) {
                start += size;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    best
}
