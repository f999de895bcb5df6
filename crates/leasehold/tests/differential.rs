//! The embedded etcd answers as a real one does: random operations on both, compared answer by answer and event by
//! event; a list that differs is shortened for as long as it does.
//!
//! Every list begins on two empty stores at one revision, so revisions are compared as they are, and a list can be
//! done again. What is taken out of the answers first stands in `differential/known.rs`, what is never asked in
//! `differential/generator.rs`.
//!
//! | variable | effect |
//! |---|---|
//! | `LEASEHOLD_SEED` | begins with this list instead |
//! | `LEASEHOLD_OPERATIONS` | so many operations for each version instead of 20,000 |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a test, and one that speaks the bare wire"
)]

#[path = "differential/comparison.rs"]
mod comparison;
#[path = "differential/connection.rs"]
mod connection;
#[path = "differential/embedded.rs"]
mod embedded;
#[path = "differential/generator.rs"]
mod generator;
#[path = "differential/known.rs"]
mod known;
#[path = "differential/operation.rs"]
mod operation;
#[path = "differential/real.rs"]
mod real;
#[path = "differential/shrink.rs"]
mod shrink;
#[path = "differential/side.rs"]
mod side;
#[path = "differential/wrong.rs"]
mod wrong;

use std::fmt::Write;
use std::iter;
use std::ops::Range;
use std::sync::Mutex;

use comparison::Comparison;
use embedded::Ours;
use leasehold_mvcc::{Header, Revision};
use leasehold_testbed::Version;
use operation::{Operation, Origin, readable};
use real::Real;
use shrink::Shortest;

/// How many operations a list has: enough to get into trouble, few enough to be shortened soon.
const LENGTH: usize = 200;

/// How many servers of a version share the lists: most of the time goes in waiting for one.
const SERVERS: usize = 2;

#[test]
fn twenty_thousand_operations_go_as_with_etcd_3_5() {
    twenty_thousand_operations_go_as_with(Version::V35, 35_000_000);
}

#[test]
fn twenty_thousand_operations_go_as_with_etcd_3_7() {
    twenty_thousand_operations_go_as_with(Version::V37, 37_000_000);
}

fn twenty_thousand_operations_go_as_with(version: Version, seed: u64) {
    let seed = variable("LEASEHOLD_SEED").unwrap_or(seed);
    let operations = variable("LEASEHOLD_OPERATIONS").unwrap_or(20_000);
    let lists = seed..seed.saturating_add(operations.div_ceil(LENGTH as u64));
    let lists = Mutex::new(lists);
    let story = std::thread::scope(|scope| {
        let workers = [(); SERVERS].map(|()| scope.spawn(|| compare_with_a_server(version, &lists)));
        workers.into_iter().find_map(|worker| worker.join().unwrap())
    });
    if let Some(story) = story {
        panic!("etcd {version:?} and the embedded etcd differ.\n{story}");
    }
}

/// Does the lists that no other server has, until one differs; gives its story.
fn compare_with_a_server(version: Version, lists: &Mutex<Range<u64>>) -> Option<String> {
    let etcd = Box::new(Real::start(version)?);
    let subject = |origin, header| -> Box<dyn side::Side> { Box::new(Ours::begin(origin, header)) };
    let mut comparison = Comparison { version, etcd, subject };
    let next = || lists.lock().unwrap().next();
    let (_, story) = iter::from_fn(next).find_map(|seed| difference(&mut comparison, seed))?;
    // The other servers have nothing to add.
    lists.lock().unwrap().by_ref().for_each(drop);
    Some(story)
}

fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} must be a number")))
}

/// Does a list; if it differs, gives the shortest that does, and its story.
fn difference(comparison: &mut Comparison, seed: u64) -> Option<(Shortest, String)> {
    let (origin, list) = generator::list(seed, LENGTH);
    let found = comparison.run(origin, &list)?;
    let mut story = format!("LEASEHOLD_SEED={seed} LEASEHOLD_OPERATIONS={LENGTH} does it again.\n");
    tell(&mut story, "At first", origin, &list[..=found.step], &found.to_string());
    if comparison.run(origin, &list).is_none() {
        story.push_str("Not at once, though: it may be a matter of timing.\n");
    }
    let mut differs = |list: &[Operation]| comparison.run(origin, list);
    let shortest = shrink::shortest(origin, list, found, &mut differs);
    let lists = format!("Shortened in {} tries", shortest.tries);
    tell(&mut story, &lists, origin, &shortest.list, &shortest.difference.to_string());
    Some((shortest, story))
}

fn tell(story: &mut String, when: &str, origin: Origin, list: &[Operation], difference: &str) {
    writeln!(story, "{when}, from the origin {origin:?}, {} steps:", list.len()).unwrap();
    // Of a long list the end tells most; the seed gives the rest.
    let from = list.len().saturating_sub(20);
    for (step, operation) in list.iter().enumerate().skip(from) {
        writeln!(story, "  [{step}] {}", readable(&operation.to_string())).unwrap();
    }
    writeln!(story, "{difference}").unwrap();
}

/// Ours, compared with itself: it stands in for etcd where there is none.
fn in_place_of_etcd() -> Box<Ours> {
    Box::new(Ours::begin(Origin::Fresh, Header { revision: Revision::new(1), ..Header::default() }))
}

#[test]
fn the_embedded_etcd_does_not_differ_from_itself() {
    let subject = |origin, header| -> Box<dyn side::Side> { Box::new(Ours::begin(origin, header)) };
    let mut comparison = Comparison { version: Version::V37, etcd: in_place_of_etcd(), subject };
    assert!((0..50).all(|seed| difference(&mut comparison, seed).is_none()));
}

#[test]
fn a_difference_is_found_and_shrunk() {
    // A lease, a key on it, a put that is to keep the lease, and something that shows it.
    check_that_it_is_found(in_place_of_etcd(), wrong::loses_leases, 4);
    // A watch, and a transaction that writes two keys.
    check_that_it_is_found(in_place_of_etcd(), wrong::reverses_events, 2);
}

#[test]
fn a_difference_from_a_real_etcd_is_found_and_shrunk() {
    let Some(etcd) = Real::start(Version::V37) else { return };
    check_that_it_is_found(Box::new(etcd), wrong::loses_leases, 4);
}

fn check_that_it_is_found(etcd: Box<dyn side::Reference>, subject: comparison::Subject, steps: usize) {
    let mut comparison = Comparison { version: Version::V37, etcd, subject };
    let found = (1..50).find_map(|seed| difference(&mut comparison, seed));
    let (shortest, story) = found.expect("the mistake is found");
    eprintln!("{story}");
    assert!(shortest.list.len() <= steps, "{story}");
}
