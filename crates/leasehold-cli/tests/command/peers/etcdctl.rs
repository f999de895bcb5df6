//! The cases of `etcdctl lock` (3.5).

use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::{Peer, variable};
use crate::stage::{STUBBORN, runs, soon};

#[test]
fn the_child_exits_7() {
    let outcome = Peer::new().run(&[], "exit 7").ended_with(7);
    assert_eq!(outcome.stderr, "", "the code says all there is to say");
}

#[test]
fn the_child_is_killed_by_a_signal() {
    let peer = Peer::new();
    peer.run(&[], "kill -KILL $$").ended_with(137);
    peer.run(&[], "kill -TERM $$").ended_with(143);
}

#[test]
fn the_command_is_not_found() {
    let peer = Peer::new();
    peer.verb("run", &["demo", "no-such-command"]).ended_with(127);
    assert!(peer.queue().is_empty());
}

#[test]
fn no_name_is_given() {
    let peer = Peer::new();
    let outcome = peer.verb("run", &[]).ended_with(64);
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
    assert!(outcome.stderr.contains("<NAME>"), "{outcome:?}");
}

#[test]
fn term_while_it_waits() {
    let peer = Peer::new();
    let mut holder = peer.holder();
    let waiter = peer.waiter("echo must not run");
    waiter.signal(Signal::SIGTERM);
    let outcome = waiter.outcome().ended_with(143);
    assert_eq!(outcome.stdout, "");
    assert_eq!(peer.queue().len(), 1, "its key is removed");
    assert!(holder.is_running());
}

#[test]
fn term_while_it_holds_without_a_command() {
    let peer = Peer::new();
    let holder = peer.stage.start(["lock", "--endpoints", &peer.served.endpoint, "demo"]);
    let (key, token) = (holder.line(), holder.line());
    assert!(key.starts_with("demo/") && token.parse::<u64>().is_ok(), "{key} {token}");
    holder.signal(Signal::SIGTERM);
    holder.outcome().ended_with(0);
    assert!(peer.queue().is_empty());
}

#[test]
fn term_to_it_while_the_child_runs() {
    let peer = Peer::new();
    let running = peer.start(&[], "trap 'echo got it; exit 5' TERM; echo in; while :; do sleep 0.05; done");
    assert_eq!(running.line(), "in");
    running.signal(Signal::SIGTERM);
    assert_eq!(running.outcome().ended_with(5).stdout, "got it\n");
}

#[test]
fn it_is_killed_while_the_child_runs() {
    let peer = Peer::new();
    let mut running = peer.start(&["--ttl", "60s", "--grace", "300ms"], STUBBORN);
    let pids = [running.line(), running.line(), running.line()];
    running.signal(Signal::SIGKILL);
    running.status();
    soon("the child and its children are gone", || (!pids.iter().any(|pid| runs(pid))).then_some(()));
    assert_eq!(peer.queue().len(), 1, "before the lock goes to another");
}

#[test]
fn the_lease_is_lost_without_a_command() {
    let peer = Peer::new();
    let holder = peer.stage.start(["lock", "--endpoints", &peer.served.endpoint, "demo"]);
    let key = holder.line();
    peer.revoke(peer.lease_of(&key));
    let outcome = holder.outcome().ended_with(123);
    assert!(outcome.stderr.contains("\"demo\" is lost"), "{outcome:?}");
}

#[test]
fn the_lease_is_lost_while_the_child_runs() {
    let peer = Peer::new();
    let script = "trap 'echo cleaned up; exit 0' TERM; echo $ETCD_LOCK_KEY; while :; do sleep 0.05; done";
    let running = peer.start(&[], script);
    let key = running.line();
    peer.revoke(peer.lease_of(&key));
    let outcome = running.outcome().ended_with(123);
    assert_eq!(outcome.stdout, "cleaned up\n");
}

#[test]
fn etcd_cannot_be_reached() {
    let peer = Peer::new();
    peer.served.running.signal(Signal::SIGSTOP);
    let started = Instant::now();
    let outcome = peer.run(&["--connect-timeout", "1s"], "echo must not run").ended_with(69);
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    assert_eq!(outcome.stdout, "");
    peer.served.running.signal(Signal::SIGCONT);
}

#[test]
fn one_runs_within_another() {
    let peer = Peer::new();
    let inner =
        format!("{} run --endpoints {} inner -- env", env!("CARGO_BIN_EXE_leasehold"), peer.served.endpoint);
    let outcome = peer.run(&[], &inner).ended_with(0);
    assert!(variable(&outcome.stdout, "ETCD_LOCK_KEY").unwrap().starts_with("inner/"), "{outcome:?}");
    let keys = outcome.stdout.lines().filter(|line| line.starts_with("ETCD_LOCK_KEY=")).count();
    assert_eq!(keys, 1, "{outcome:?}");
}

#[test]
fn the_childs_environment() {
    let peer = Peer::new();
    let outcome = peer.run(&[], "env").ended_with(0);
    let told = |name| variable(&outcome.stdout, name).unwrap_or_else(|| panic!("no {name}: {outcome:?}"));
    assert!(told("ETCD_LOCK_KEY").starts_with("demo/"));
    let revision: u64 = told("ETCD_LOCK_REV").parse().unwrap();
    assert_eq!(told("LEASEHOLD_TOKEN").parse::<u64>().unwrap() >> 16, revision);
}

#[test]
fn the_childs_standard_input() {
    let peer = Peer::new();
    let mut running = peer.start(&[], "cat");
    running.write("passed on\n");
    assert_eq!(running.outcome().ended_with(0).stdout, "passed on\n");
}

#[test]
fn the_lease_after_a_good_end() {
    use leasehold::etcd::Etcd as _;
    let peer = Peer::new();
    let mut running = peer.start(&[], "echo $ETCD_LOCK_KEY; read line");
    let key = running.line();
    let lease = peer.lease_of(&key);
    running.write("\n");
    running.outcome().ended_with(0);
    let left = leasehold_testbed::block_on(peer.served.etcd().lease_time_to_live(lease, false)).unwrap();
    assert_eq!(left.ttl, -1, "it is revoked");
}

#[test]
fn the_childs_options_without_two_dashes() {
    let peer = Peer::new();
    let outcome = peer.verb("run", &["demo", "printf", "%s.", "-n", "--ttl"]).ended_with(0);
    assert_eq!(outcome.stdout.trim_end(), "-n.--ttl.");
}
