//! The etcd that starts by itself, where it hurts: started twice at once, beside leftovers, on a full disk, and dead or
//! frozen under a holder and under a waiter.

use std::fs;
use std::os::unix::net::UnixListener;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::stage::{Outcome, Running, Stage, daemons, runs, soon};

fn signal_daemon(stage: &Stage, signal: Signal) -> i32 {
    let [daemon] = daemons(&stage.path(""))[..] else { panic!("not one server") };
    kill(Pid::from_raw(daemon), signal).unwrap();
    daemon
}

fn kill_daemon(stage: &Stage) {
    let daemon = signal_daemon(stage, Signal::SIGKILL);
    soon("it is dead", || (!runs(&daemon.to_string())).then_some(()));
}

#[track_caller]
fn one_line(outcome: &Outcome, wanted: &[&str]) {
    let [line] = outcome.stderr.lines().collect::<Vec<_>>()[..] else { panic!("not one line: {outcome:?}") };
    for wanted in wanted {
        assert!(line.contains(wanted), "{wanted}: {line}");
    }
}

#[test]
fn two_that_start_at_once_beside_a_stale_socket_share_one_new_etcd() {
    let stage = Stage::new();
    let mut last = 0;
    for round in 0..8 {
        let both = [0, 1].map(|_| stage.start(stage.shell(&["--local"], "echo $ETCD_LOCK_REV")));
        let mut revisions: Vec<u64> =
            both.map(|one| one.outcome().ended_with(0).stdout.trim().parse().unwrap()).into();
        revisions.sort_unstable();
        assert!(last < revisions[0] && revisions[0] < revisions[1], "round {round}: {last}, {revisions:?}");
        last = revisions[1];
        // None beside it, and what it leaves when it is killed is in the way of nobody.
        kill_daemon(&stage);
        assert!(stage.local_socket().exists());
    }
}

#[test]
fn whatever_lies_where_the_socket_belongs_is_replaced_or_told() {
    let stage = Stage::new();
    stage.run(["run", "--local", "demo", "true"]).ended_with(0);
    kill_daemon(&stage);
    let socket = stage.local_socket();
    let run = || stage.run(["run", "--local", "--connect-timeout", "2s", "demo", "true"]);
    let clear = || {
        for daemon in daemons(&stage.path("")) {
            let _ = kill(Pid::from_raw(daemon), Signal::SIGKILL);
            soon("it is dead", || (!runs(&daemon.to_string())).then_some(()));
        }
        let _ = fs::remove_file(&socket).or_else(|_| fs::remove_dir(&socket));
    };
    // A file that is no socket may be somebody's: it is named, and left alone.
    clear();
    fs::write(&socket, "precious").unwrap();
    one_line(&run().ended_with(74), &["demo", "etcd.sock"]);
    assert_eq!(fs::read_to_string(&socket).unwrap(), "precious");
    clear();
    fs::create_dir(&socket).unwrap();
    one_line(&run().ended_with(74), &["demo", "etcd.sock"]);
    // Somebody who takes connections and says nothing is no etcd, and costs no more than the time that was given.
    clear();
    let silent = UnixListener::bind(&socket).unwrap();
    let started = Instant::now();
    one_line(&run().ended_with(69), &["demo", "etcd.sock"]);
    assert!(started.elapsed() < Duration::from_secs(10), "{:?}", started.elapsed());
    drop(silent);
    clear();
    run().ended_with(0);
}

#[test]
fn the_death_of_the_etcd_ends_those_who_wait_and_none_of_them_runs() {
    let stage = Stage::new();
    let holder = stage.start(["lock", "--local", "demo"]);
    holder.line();
    let waiters: Vec<Running> = [&["--verbose"][..], &["--verbose", "--wait", "60s"]]
        .into_iter()
        .map(|options| stage.start(stage.shell(&[&["--local"], options].concat(), "echo in")))
        .chain([stage.start(["lock", "--local", "--verbose", "demo"])])
        .collect();
    for waiter in &waiters {
        soon("it waits", || waiter.said().contains("in the queue").then_some(()));
    }
    kill_daemon(&stage);
    let lost = holder.outcome().ended_with(123);
    assert!(lost.stderr.contains("the etcd of --local has ended, and its locks with it"), "{lost:?}");
    for waiter in waiters {
        let outcome = waiter.outcome().ended_with(69);
        assert_eq!(outcome.stdout, "");
        let last = outcome.stderr.lines().last().unwrap();
        assert!(
            last.contains("\"demo\"") && last.contains("ended while this waited; try again"),
            "{outcome:?}"
        );
    }
    // And whoever tries again has a new one.
    stage.run(["run", "--local", "-n", "demo", "true"]).ended_with(0);
}

#[test]
fn an_etcd_that_freezes_costs_the_holder_its_lock_in_time_and_the_waiter_its_wait() {
    let stage = Stage::new();
    let holder = stage.start(stage.shell(&["--local", "--ttl", "2s"], "echo in; sleep 60"));
    assert_eq!(holder.line(), "in");
    let waiter = stage.start(stage.shell(&["--local", "--ttl", "2s", "--verbose"], "echo in too"));
    soon("it waits", || waiter.said().contains("in the queue").then_some(()));
    let daemon = signal_daemon(&stage, Signal::SIGSTOP);
    holder.outcome().ended_with(123);
    let outcome = waiter.outcome().ended_with(69);
    assert_eq!(outcome.stdout, "");
    // Others are told, too, and do not wait for ever.
    let next = stage.run(["run", "--local", "--connect-timeout", "500ms", "demo", "true"]).ended_with(69);
    one_line(&next, &["demo", "etcd.sock"]);
    kill(Pid::from_raw(daemon), Signal::SIGCONT).unwrap();
    stage.run(["run", "--local", "--wait", "10s", "demo", "true"]).ended_with(0);
}

/// Runs a script with the runtime folder on a small disk of its own; `$0` is the binary, and `fill` fills the disk.
fn on_a_small_disk(stage: &Stage, script: &str) -> Option<Outcome> {
    const FILL: &str = "fill() { dd if=/dev/zero of=$XDG_RUNTIME_DIR/full bs=1k 2>/dev/null; true; }\n";
    let mount = "mount -t tmpfs -o size=32k,mode=700 none $XDG_RUNTIME_DIR || exit 99\n";
    for unshare in [&["-m"][..], &["-rm"]] {
        let mut command = stage.program("unshare");
        let script = [mount, FILL, script].concat();
        command.args(unshare).args(["sh", "-c", &script, env!("CARGO_BIN_EXE_leasehold")]);
        // Everything is on the disk, and nothing of it outlives the test.
        command.env("LEASEHOLD_LOCAL_IDLE", "200ms");
        let outcome = Running::start(command).outcome();
        if outcome.status.success() {
            return Some(outcome);
        }
        assert!(!outcome.stdout.contains("here"), "{outcome:?}");
    }
    eprintln!("no disk of one's own on this machine: not tried");
    None
}

#[test]
fn a_full_disk_is_told_by_the_file_and_ends_nothing_that_runs() {
    let stage = Stage::new();
    let script = "\
echo here
fill
$0 run --local demo echo no; echo \"full $?\"
rm $XDG_RUNTIME_DIR/full
$0 run --local demo echo yes; echo \"free $?\"
# It has begun while there was room, and needs none while it runs.
$0 run --local demo -- sh -c \"
  dd if=/dev/zero of=$XDG_RUNTIME_DIR/full bs=1k 2>/dev/null
  $0 run --local other echo beside\"; echo \"filled $?\"
# It has left by then, or not; the next one finds its floor as it was, or says that there is no room to raise it.
rm $XDG_RUNTIME_DIR/full
$0 run --local demo echo again; echo \"again $?\"";
    let Some(outcome) = on_a_small_disk(&stage, script) else { return };
    let wanted = "here\nfull 74\nyes\nfree 0\nbeside\nfilled 0\nagain\nagain 0\n";
    assert_eq!(outcome.stdout, wanted, "{outcome:?}");
    let full = outcome.stderr.lines().next().unwrap();
    for wanted in ["lock \"demo\"", "--local", "revision-floor", "free some space there"] {
        assert!(full.contains(wanted), "{wanted}: {full}");
    }
}
