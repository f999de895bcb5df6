//! The etcd that starts by itself: one for each user, there when needed, gone when not.

use std::fs;
use std::os::unix::net::UnixListener;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::stage::{Running, Stage, daemons, runs, soon};

#[test]
fn commands_that_start_at_once_share_one_etcd() {
    let stage = Stage::new();
    let counter = stage.path("counter");
    fs::write(&counter, "0").unwrap();
    // Each reads, waits and writes: without the lock some would be lost.
    let script = format!("n=$(cat {0}); sleep 0.02; echo $((n + 1)) > {0}", counter.display());
    let all: Vec<Running> = (0..8).map(|_| stage.start(stage.shell(&["--local"], &script))).collect();
    for running in all {
        running.outcome().ended_with(0);
    }
    assert_eq!(fs::read_to_string(&counter).unwrap().trim(), "8");
    assert_eq!(daemons(&stage.path("")).len(), 1);
}

#[test]
fn it_leaves_when_nobody_needs_it_and_its_revisions_go_on() {
    let stage = Stage::new();
    let revision = || -> u64 {
        let mut command = stage.leasehold(stage.shell(&["--local"], "echo $ETCD_LOCK_REV"));
        command.env("LEASEHOLD_LOCAL_IDLE", "100ms");
        Running::start(command).outcome().ended_with(0).stdout.trim().parse().unwrap()
    };
    let first = revision();
    soon("it leaves", || daemons(&stage.path("")).is_empty().then_some(()));
    let second = revision();
    assert!(
        second > first && second < first + 1000,
        "{first}, then {second}: it ended well, so no number is wasted"
    );
}

#[test]
fn it_stays_for_a_command_that_runs_longer_than_it_would_wait() {
    let stage = Stage::new();
    let mut command = stage.leasehold(stage.shell(&["--local"], "sleep 1; echo done"));
    command.env("LEASEHOLD_LOCAL_IDLE", "50ms");
    let running = Running::start(command);
    assert_eq!(running.outcome().ended_with(0).stdout, "done\n");
}

#[test]
fn one_that_crashed_is_replaced_and_its_revisions_never_come_again() {
    let stage = Stage::new();
    let revision = || -> u64 {
        let outcome = stage.run(stage.shell(&["--local"], "echo $ETCD_LOCK_REV"));
        outcome.ended_with(0).stdout.trim().parse().unwrap()
    };
    let first = revision();
    let before = daemons(&stage.path(""));
    kill(Pid::from_raw(before[0]), Signal::SIGKILL).unwrap();
    soon("it is dead", || (!runs(&before[0].to_string())).then_some(()));
    assert!(stage.local_socket().exists(), "a stale socket is left");
    let second = revision();
    assert!(second > first);
    assert_ne!(daemons(&stage.path("")), before);
}

#[test]
fn a_socket_that_nobody_serves_is_replaced() {
    let stage = Stage::new();
    stage.run(["run", "--local", "demo", "true"]).ended_with(0);
    for pid in daemons(&stage.path("")) {
        kill(Pid::from_raw(pid), Signal::SIGTERM).unwrap();
        soon("it ends", || (!runs(&pid.to_string())).then_some(()));
    }
    let _ = fs::remove_file(stage.local_socket());
    drop(UnixListener::bind(stage.local_socket()).unwrap());
    stage.run(["run", "--local", "demo", "true"]).ended_with(0);
}

#[test]
fn a_crash_ends_the_commands_and_none_starts_beside_one_that_has_not_ended() {
    let stage = Stage::new();
    // It takes its time to end, and says when it has.
    let slow = "trap 'sleep 0.5; echo ended; exit' TERM; echo in; while :; do sleep 0.05; done";
    let holder = stage.start(stage.shell(&["--local"], slow));
    assert_eq!(holder.line(), "in");
    kill(Pid::from_raw(daemons(&stage.path(""))[0]), Signal::SIGKILL).unwrap();
    let next = stage.start(stage.shell(&["--local"], "echo in too"));
    assert_eq!(next.line(), "in too");
    assert_eq!(holder.line(), "ended");
    let outcome = holder.outcome().ended_with(123);
    assert!(outcome.stderr.contains("the etcd of --local has ended"), "{}", outcome.stderr);
    next.outcome().ended_with(0);
}

#[test]
fn it_is_not_the_one_of_another_runtime_folder() {
    let (stage, other) = (Stage::new(), Stage::new());
    let holder = stage.start(["lock", "--local", "demo"]);
    holder.line();
    other.run(["run", "--local", "-n", "demo", "true"]).ended_with(0);
    stage.run(["run", "--local", "-n", "demo", "true"]).ended_with(75);
}

#[test]
fn nothing_of_the_first_commands_environment_outlives_it_there() {
    let stage = Stage::new();
    let mut command = stage.leasehold(["run", "--local", "demo", "true"]);
    command.env("SECRET", "hush");
    Running::start(command).outcome().ended_with(0);
    let pid = daemons(&stage.path(""))[0];
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap();
    assert!(!String::from_utf8_lossy(&environment).contains("hush"));
}
