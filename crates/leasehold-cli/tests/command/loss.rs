//! A lost lock ends the command, all of it, and in time.

use std::time::{Duration, Instant};

use leasehold::{EtcdExt, Key};
use leasehold_testbed::{Cluster, Version, block_on};
use nix::sys::signal::Signal;

use crate::stage::{STUBBORN, Served, Stage, runs, soon};

#[test]
fn a_deleted_key_ends_the_whole_group_however_stubborn() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let running = stage.start(stage.shell(&["--endpoints", &served.endpoint], STUBBORN));
    let pids = [running.line(), running.line(), running.line()];
    assert!(pids.iter().all(|pid| runs(pid)));
    block_on(async {
        use leasehold::etcd::Etcd as _;
        let etcd = served.etcd();
        let queue = leasehold::mvcc::RangeRequest::range(leasehold::mvcc::KeyRange::prefix("demo/"));
        let key = etcd.range(queue).await.unwrap().kvs[0].key.clone();
        assert!(etcd.delete(key).await.unwrap());
    });
    let outcome = running.outcome().ended_with(123);
    assert!(!pids.iter().any(|pid| runs(pid)), "{pids:?}");
    assert!(outcome.stderr.contains("somebody deleted the lock's key"), "{}", outcome.stderr);
}

#[test]
fn a_revoked_lease_gives_the_command_time_for_a_clean_end() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let script = "trap 'echo cleaned up; exit 3' TERM; echo $ETCD_LOCK_KEY; while :; do sleep 0.05; done";
    let running = stage.start(stage.shell(&["--endpoints", &served.endpoint, "--ttl", "3s"], script));
    let key = Key::from(running.line());
    block_on(async {
        use leasehold::etcd::Etcd as _;
        let etcd = served.etcd();
        let lease = etcd.get(key).await.unwrap().unwrap().lease;
        etcd.lease_revoke(lease).await.unwrap();
    });
    let outcome = running.outcome().ended_with(123);
    assert_eq!(outcome.stdout, "cleaned up\n");
}

#[test]
fn a_silent_etcd_means_term_and_kill_before_the_hold_ends() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let started = Instant::now();
    let mut running = stage.start(stage.shell(&["--endpoints", &served.endpoint, "--ttl", "4s"], STUBBORN));
    let pids = [running.line(), running.line(), running.line()];
    served.running.signal(Signal::SIGSTOP);
    let frozen = Instant::now();
    soon("the group is gone", || (!pids.iter().any(|pid| runs(pid))).then_some(()));
    let gone = Instant::now();
    // No renewal was sent after the freeze that was answered: the hold ends 3.5 s after it at the latest. No renewal was
    // due before the first third of the TTL, so it was not stopped at the first failure.
    assert!(gone < frozen + Duration::from_millis(3500), "{:?} after the freeze", gone - frozen);
    assert!(gone > started + Duration::from_millis(2500), "{:?} after the start", gone - started);
    assert_eq!(running.status().code(), Some(123));
    served.running.signal(Signal::SIGCONT);
}

#[test]
fn a_short_silence_is_ridden_out() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let mut running =
        stage.start(stage.shell(&["--endpoints", &served.endpoint, "--ttl", "6s"], "echo in; read line"));
    assert_eq!(running.line(), "in");
    served.running.signal(Signal::SIGSTOP);
    std::thread::sleep(Duration::from_millis(2500));
    served.running.signal(Signal::SIGCONT);
    std::thread::sleep(Duration::from_millis(3500));
    assert!(running.is_running());
    running.write("\n");
    running.outcome().ended_with(0);
}

#[test]
fn a_stopped_command_is_ended_too() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let running = stage.start(stage.shell(
        &["--endpoints", &served.endpoint, "--ttl", "3s"],
        "echo $$; echo $ETCD_LOCK_KEY; sleep 1000",
    ));
    let (pid, key) = (running.line(), running.line());
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.parse().unwrap()), Signal::SIGSTOP).unwrap();
    block_on(async { served.etcd().delete(Key::from(key)).await.unwrap() });
    running.outcome().ended_with(123);
    assert!(!runs(&pid));
}

/// Holds through a change of a cluster of three, for longer than the hold would last without a renewal after it.
fn ridden_out(change: impl FnOnce(&Cluster)) {
    let stage = Stage::new();
    let Some(cluster) = Cluster::start(Version::V37, 3) else { return };
    let endpoints = cluster.endpoints().join(",");
    let mut running =
        stage.start(stage.shell(&["--endpoints", &endpoints, "--ttl", "6s"], "echo in; read line"));
    assert_eq!(running.line(), "in");
    let changed = Instant::now();
    change(&cluster);
    std::thread::sleep(Duration::from_secs(6).saturating_sub(changed.elapsed()));
    assert!(running.is_running(), "{}", running.said());
    running.write("\n");
    let outcome = running.outcome().ended_with(0);
    assert_eq!(outcome.stderr, "", "nor is there an alarm");
}

#[test]
fn d17_the_death_of_a_clusters_leader_is_ridden_out() {
    ridden_out(|cluster| {
        let leader = cluster.leader();
        cluster.member(leader).kill();
        cluster.leader_besides(&[leader]);
    });
}

#[test]
fn d17_the_death_of_another_member_is_ridden_out() {
    ridden_out(|cluster| cluster.member(cluster.follower()).kill());
}

#[test]
fn d17_a_change_of_leader_is_ridden_out() {
    ridden_out(|cluster| cluster.move_leader(cluster.follower()));
}
