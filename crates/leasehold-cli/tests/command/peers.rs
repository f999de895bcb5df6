//! What the users of `etcdctl lock`, `consul lock` and `flock` are used to, case by case: the tables of docs/command.md.
//! Each test is a row, and its name is the case.

mod consul;
mod etcdctl;
mod flock;

use std::fs;

use leasehold::etcd::Etcd;
use leasehold::mvcc::{KeyRange, RangeRequest};
use leasehold::{EtcdExt, Key, LeaseId};
use leasehold_testbed::block_on;

use crate::stage::{Outcome, Running, Served, Stage, soon};

/// An etcd, and leasehold on it.
struct Peer {
    stage: Stage,
    served: Served,
}

impl Peer {
    fn new() -> Self {
        let stage = Stage::new();
        let served = Served::start(&stage);
        Self { stage, served }
    }

    /// `leasehold run OPTIONS demo -- sh -c SCRIPT`.
    fn start(&self, options: &[&str], script: &str) -> Running {
        self.stage
            .start(self.stage.shell(&[&["--endpoints", &self.served.endpoint], options].concat(), script))
    }

    fn run(&self, options: &[&str], script: &str) -> Outcome {
        self.start(options, script).outcome()
    }

    /// `leasehold VERB` on this etcd.
    fn verb(&self, verb: &str, args: &[&str]) -> Outcome {
        self.stage.run([&[verb, "--endpoints", &self.served.endpoint], args].concat())
    }

    /// Somebody who holds the lock until a line is written.
    fn holder(&self) -> Running {
        let holder = self.start(&[], "echo in; read line");
        assert_eq!(holder.line(), "in");
        holder
    }

    /// A command that waits for the lock behind the holder.
    fn waiter(&self, script: &str) -> Running {
        let waiter = self.start(&[], script);
        soon("it waits", || (self.queue().len() == 2).then_some(()));
        waiter
    }

    fn queue(&self) -> Vec<Key> {
        let all = RangeRequest::range(KeyRange::prefix("demo/"));
        let range = block_on(self.served.etcd().range(all)).unwrap();
        range.kvs.into_iter().map(|kv| kv.key).collect()
    }

    fn lease_of(&self, key: &str) -> LeaseId {
        block_on(async { self.served.etcd().get(Key::from(key.to_owned())).await.unwrap().unwrap().lease })
    }

    fn revoke(&self, lease: LeaseId) {
        block_on(self.served.etcd().lease_revoke(lease)).unwrap();
    }
}

/// The variable of this name in what `env` printed; the last, if there are several.
fn variable<'a>(environment: &'a str, name: &str) -> Option<&'a str> {
    environment.lines().rev().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
}

#[test]
fn the_manual_lists_each_case_by_its_test() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/command/peers");
    let manual = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/command.md")).unwrap();
    for peer in ["etcdctl", "consul", "flock"] {
        let cases = fs::read_to_string(format!("{folder}/{peer}.rs")).unwrap();
        let cases: Vec<_> =
            cases.lines().filter_map(|line| line.strip_prefix("fn ")?.strip_suffix("() {")).collect();
        assert!(cases.len() > 5, "{peer}");
        for case in cases {
            assert!(
                manual.contains(&format!("`{peer}::{case}`")),
                "{peer}::{case} is not in docs/command.md"
            );
        }
    }
}
