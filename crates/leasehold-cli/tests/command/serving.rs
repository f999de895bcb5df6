//! `leasehold serve`: an embedded etcd in the foreground.

use std::fs;

use leasehold::EtcdExt;
use leasehold_testbed::{Etcdctl, block_on};
use nix::sys::signal::Signal;

use crate::stage::{Served, Stage};

#[test]
fn it_ends_at_once_and_cleanly_when_told_to() {
    let stage = Stage::new();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let served = Served::start(&stage);
        assert!(served.endpoint.starts_with("127.0.0.1:"), "{}", served.endpoint);
        served.running.signal(signal);
        let outcome = served.running.outcome().ended_with(0);
        assert_eq!(outcome.stderr, "");
    }
}

#[test]
fn its_revisions_go_on_after_a_good_end_and_after_a_crash() {
    let stage = Stage::new();
    let mut last = 0;
    for signal in [Signal::SIGTERM, Signal::SIGKILL, Signal::SIGKILL, Signal::SIGTERM] {
        let mut served = Served::start(&stage);
        let put = block_on(async { served.etcd().put("k", "v", leasehold::LeaseId::NONE).await.unwrap() });
        let revision = put.header.revision.get();
        assert!(revision > last, "{revision} after {last}");
        last = revision;
        served.running.signal(signal);
        served.running.status();
    }
}

#[test]
fn it_refuses_to_start_without_a_floor_it_can_trust() {
    let stage = Stage::new();
    let state = stage.path("state/leasehold");
    fs::create_dir_all(&state).unwrap();
    fs::write(state.join("revision-floor"), "half a li").unwrap();
    let outcome = stage.run(["serve", "--listen", "127.0.0.1:0"]).ended_with(74);
    assert!(outcome.stderr.contains("revision-floor"), "{}", outcome.stderr);
}

#[test]
fn it_serves_a_socket_and_a_port_as_one_etcd() {
    let stage = Stage::new();
    let socket = stage.path("etcd.sock");
    let served = stage.start(["serve", "--listen", "127.0.0.1:0", "--socket", socket.to_str().unwrap()]);
    let (port, path) = (served.line(), served.line());
    let holder = stage.start(["lock", "--endpoints", &port, "demo"]);
    holder.line();
    stage.run(["run", "-n", "--endpoints", &path, "demo", "true"]).ended_with(75);
}

#[test]
fn an_address_that_others_can_reach_is_warned_of() {
    let stage = Stage::new();
    let served = stage.start(["serve", "--listen", "0.0.0.0:0"]);
    served.line();
    served.signal(Signal::SIGTERM);
    let outcome = served.outcome().ended_with(0);
    assert!(outcome.stderr.contains("without TLS"), "{}", outcome.stderr);
}

#[test]
fn etcdctl_and_leasehold_exclude_each_other() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let Some(etcdctl) = Etcdctl::find(std::slice::from_ref(&served.endpoint)) else { return };
    let mut theirs = etcdctl.start(&["lock", "demo"]);
    let key = theirs.lines().next().unwrap().unwrap();
    assert!(key.starts_with("demo/"), "{key}");
    stage.run(["run", "-n", "--endpoints", &served.endpoint, "demo", "true"]).ended_with(75);
    theirs.terminate();
    let ours = ["run", "--endpoints", &served.endpoint, "demo", "--", "sh", "-c", "echo $ETCD_LOCK_REV"];
    let ours: u64 = stage.run(ours).ended_with(0).stdout.trim().parse().unwrap();
    let next = etcdctl.run(&["lock", "demo", "--", "sh", "-c", "echo $ETCD_LOCK_REV"]);
    assert!(next.trim().parse::<u64>().unwrap() > ours, "{next} after {ours}");
}
