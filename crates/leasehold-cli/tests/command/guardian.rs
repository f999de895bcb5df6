//! Killed or stopped itself, leasehold still does not leave its command running without the lock.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::Duration;

use leasehold::{EtcdExt, Key};
use leasehold_testbed::block_on;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getsid};

use crate::stage::{Running, STUBBORN, Served, Stage, guardians, processes_with, runs, soon};

/// Says its process and its key, and ends cleanly when told to.
const POLITE: &str =
    "trap 'echo cleaned up; exit' TERM; echo $$; echo $ETCD_LOCK_KEY; while :; do sleep 0.05; done";

fn is_held(served: &Served, key: &str) -> bool {
    block_on(async { served.etcd().get(Key::from(key.to_owned())).await.unwrap().is_some() })
}

#[track_caller]
fn guardian_of(leasehold: &Running) -> Pid {
    let own = leasehold.pid();
    soon("there is a guardian", || guardians(own).first().copied().map(Pid::from_raw))
}

#[test]
fn the_command_of_a_killed_leasehold_gets_term_at_once_and_may_end_cleanly() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let mut running = stage.start(stage.shell(&["--endpoints", &served.endpoint, "--ttl", "60s"], POLITE));
    let (pid, key) = (running.line(), running.line());
    running.signal(Signal::SIGKILL);
    assert_eq!(running.line(), "cleaned up");
    running.status();
    soon("the command has ended", || (!runs(&pid)).then_some(()));
    assert!(is_held(&served, &key), "it ended while the lock was still its own");
    soon("the guardian says so", || running.said().contains("\"demo\": leasehold has died").then_some(()));
}

#[test]
fn the_stubborn_group_of_a_killed_leasehold_gets_kill_after_the_grace_grandchildren_included() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let script = format!("echo $ETCD_LOCK_KEY; {STUBBORN}");
    let options = ["--endpoints", &served.endpoint, "--ttl", "60s", "--grace", "300ms"];
    let running = stage.start(stage.shell(&options, &script));
    let key = running.line();
    let pids = [running.line(), running.line(), running.line()];
    running.signal(Signal::SIGKILL);
    soon("the group is gone", || (!pids.iter().any(|pid| runs(pid))).then_some(()));
    assert!(is_held(&served, &key), "they ended while the lock was still theirs");
}

#[test]
fn the_command_of_a_stopped_leasehold_has_ended_when_the_next_one_begins() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let running = stage.start(stage.shell(&["--endpoints", &served.endpoint, "--ttl", "3s"], STUBBORN));
    let pids = [running.line(), running.line(), running.line()];
    running.signal(Signal::SIGSTOP);
    let look = format!(
        "for pid in {}; do grep -q '^State:.[^Z]' /proc/$pid/status && echo $pid runs; done; exit 0",
        pids.join(" ")
    );
    let next = stage.run(stage.shell(&["--endpoints", &served.endpoint], &look)).ended_with(0);
    assert_eq!(next.stdout, "");
    running.signal(Signal::SIGCONT);
    let outcome = running.outcome().ended_with(123);
    assert!(outcome.stderr.contains("leasehold does not run"), "{}", outcome.stderr);
    assert!(outcome.stderr.contains("\"demo\" is lost"), "{}", outcome.stderr);
}

#[test]
fn a_leasehold_stopped_for_less_than_its_hold_goes_on_with_its_command() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let options = ["--endpoints", &served.endpoint, "--ttl", "9s"];
    let mut running = stage.start(stage.shell(&options, "echo in; read line; echo out"));
    assert_eq!(running.line(), "in");
    running.signal(Signal::SIGSTOP);
    std::thread::sleep(Duration::from_secs(1));
    running.signal(Signal::SIGCONT);
    running.write("\n");
    let outcome = running.outcome().ended_with(0);
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("out\n", ""));
}

#[test]
fn a_guardian_that_does_not_answer_is_replaced() {
    let stage = Stage::new();
    let mut running = stage.start(stage.shell(&["--local", "--ttl", "2s"], "echo in; read line; echo out"));
    assert_eq!(running.line(), "in");
    let guardian = guardian_of(&running);
    kill(guardian, Signal::SIGSTOP).unwrap();
    // Until it is found not to answer, and is replaced.
    soon("another takes its place", || {
        (!guardians(running.pid()).contains(&guardian.as_raw())).then_some(())
    });
    let _ = kill(guardian, Signal::SIGCONT);
    running.write("\n");
    assert_eq!(running.outcome().ended_with(0).stdout, "out\n");
}

#[test]
fn a_guardian_that_was_stopped_heeds_what_it_was_told_meanwhile() {
    let stage = Stage::new();
    let mut running = stage.start(stage.shell(&["--local", "--ttl", "2s"], "echo in; read line; echo out"));
    assert_eq!(running.line(), "in");
    for odd in 0..8 {
        let guardian = guardian_of(&running);
        kill(guardian, Signal::SIGSTOP).unwrap();
        // Past the time it was told last, often; it has been told a later one.
        std::thread::sleep(Duration::from_millis(930));
        let _ = kill(guardian, Signal::SIGCONT);
        std::thread::sleep(Duration::from_millis(50) + Duration::from_millis(37) * odd);
    }
    running.write("\n");
    assert_eq!(running.outcome().ended_with(0).stdout, "out\n");
}

#[test]
fn a_dead_guardian_is_replaced_and_the_new_one_does_as_well() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let running = stage.start(stage.shell(&["--endpoints", &served.endpoint, "--ttl", "60s"], POLITE));
    let (_pid, key) = (running.line(), running.line());
    let first = guardian_of(&running);
    kill(first, Signal::SIGKILL).unwrap();
    let second = soon("another takes its place", || {
        guardians(running.pid()).into_iter().find(|&guardian| guardian != first.as_raw())
    });
    soon("it is at its post", || is_posted(second).then_some(()));
    running.signal(Signal::SIGKILL);
    assert_eq!(running.line(), "cleaned up");
    assert!(is_held(&served, &key));
}

/// Whether a guardian is out of reach of others, and waits.
fn is_posted(pid: i32) -> bool {
    let waits = fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| stat.contains(") S "));
    let named =
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "lock-guardian");
    waits && named
}

#[test]
fn that_no_guardian_can_be_kept_alive_is_said() {
    let stage = Stage::new();
    let mut running = stage.start(stage.shell(&["--local"], "echo in; read line; echo out"));
    assert_eq!(running.line(), "in");
    soon("leasehold gives up on guardians", || {
        for guardian in guardians(running.pid()) {
            let _ = kill(Pid::from_raw(guardian), Signal::SIGKILL);
        }
        running.said().contains("\"demo\": it has no guardian any more").then_some(())
    });
    assert!(running.is_running(), "the lock is held all the same");
    running.write("\n");
    assert_eq!(running.outcome().ended_with(0).stdout, "out\n");
}

#[test]
fn a_command_does_not_begin_before_its_guardian_has_confirmed() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    // The guardian has to be caught on its way, which may fail.
    for attempt in 0..50 {
        let began = stage.path(&format!("began-{attempt}"));
        let marker = began.display().to_string();
        let mut running = stage.start([
            "run",
            "--endpoints",
            &served.endpoint,
            &format!("demo-{attempt}"),
            "--",
            "sh",
            "-c",
            "touch \"$0\"; exec sleep 1000",
            &marker,
        ]);
        let guardian = guardian_of(&running);
        kill(guardian, Signal::SIGSTOP).unwrap();
        let at_gate = || processes_with(&marker).into_iter().filter(|&pid| pid != running.pid()).count() == 1;
        soon("the command's process is made", || (began.exists() || at_gate()).then_some(()));
        std::thread::sleep(Duration::from_millis(200));
        let caught = !began.exists();
        running.signal(Signal::SIGKILL);
        running.status();
        kill(guardian, Signal::SIGCONT).unwrap();
        soon("nothing is left", || processes_with(&marker).is_empty().then_some(()));
        if caught {
            assert!(!began.exists(), "it began although it was not minded");
            return;
        }
    }
    panic!("the command has always begun by the time its guardian runs");
}

#[test]
fn killed_at_any_moment_of_its_start_it_leaves_nothing_running() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    for half_millis in 0..80 {
        let marker = format!("{}-{half_millis}", stage.path("marker").display());
        let script = "while :; do sleep 0.05; done";
        let mut running = stage.start([
            "run",
            "--ttl",
            "300s",
            "--grace",
            "100ms",
            "--endpoints",
            &served.endpoint,
            &marker,
            "--",
            "sh",
            "-c",
            script,
            &marker,
        ]);
        // Over the whole of a start, from before its first step to after its last.
        std::thread::sleep(Duration::from_micros(500) * half_millis);
        running.signal(Signal::SIGKILL);
        running.status();
        soon("all of it is gone", || processes_with(&marker).is_empty().then_some(()));
    }
}

#[test]
fn a_lock_within_a_lock_leaves_nothing_either() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let inner = format!(
        "exec {} run --endpoints {} --ttl 60s --grace 300ms inner -- sh -c \"$0\"",
        env!("CARGO_BIN_EXE_leasehold"),
        served.endpoint
    );
    let outer = ["run", "--endpoints", &served.endpoint, "--ttl", "60s", "--grace", "300ms", "outer", "--"];
    let running = stage.start([&outer[..], &["sh", "-c", &inner, STUBBORN]].concat());
    let pids = [running.line(), running.line(), running.line()];
    running.signal(Signal::SIGKILL);
    soon("the inner command is gone", || (!pids.iter().any(|pid| runs(pid))).then_some(()));
}

#[test]
fn the_guardian_is_out_of_reach_of_the_terminal_and_of_all_signals_that_can_be_refused() {
    let stage = Stage::new();
    let mut running = stage.start(stage.shell(&["--local"], "echo in; read line"));
    assert_eq!(running.line(), "in");
    let guardian = guardian_of(&running);
    assert_eq!(getsid(Some(guardian)), Ok(guardian), "a session of its own");
    for signal in
        [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGTSTP]
    {
        kill(guardian, signal).unwrap();
    }
    let name = fs::read_to_string(format!("/proc/{guardian}/comm")).unwrap();
    assert_eq!(name.trim(), "lock-guardian", "killall leasehold does not mean it");
    assert_eq!(guardians(running.pid()), [guardian.as_raw()]);
    running.write("\n");
    running.outcome().ended_with(0);
}

#[test]
fn the_guardian_leaves_with_leasehold_and_keeps_no_pipeline_open() {
    let stage = Stage::new();
    for end in ["exit 3", "kill -KILL $$", "sleep 1000 </dev/null >/dev/null 2>&1 & exit 3"] {
        let mut running = stage.start(stage.shell(&["--local"], &format!("echo $$; read line; {end}")));
        let group: i32 = running.line().parse().unwrap();
        let guardian = guardian_of(&running);
        running.write("\n");
        let outcome = running.outcome();
        assert!(!runs(&guardian.to_string()), "{end}: {outcome:?}");
        let _ = nix::sys::signal::killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}

#[test]
fn the_command_inherits_neither_gate_nor_line() {
    let stage = Stage::new();
    let script = "ls /proc/$$/fd; exit 0";
    let mut alone = stage.program("sh");
    alone.args(["-c", script]);
    let alone = Running::start(alone).outcome().ended_with(0);
    let under_lock = stage.run(stage.shell(&["--local"], script)).ended_with(0);
    assert_eq!(under_lock.stdout, alone.stdout);
}

#[test]
fn what_has_left_the_group_is_not_reached() {
    let stage = Stage::new();
    let marker = stage.path("marker").display().to_string();
    let script = format!(": {marker}; setsid sh -c 'echo $$; exec sleep 1000' & wait");
    let running = stage.start(stage.shell(&["--local"], &script));
    let left = running.line();
    let group = processes_with(&marker);
    assert!(!group.is_empty());
    running.signal(Signal::SIGKILL);
    soon("the group is gone", || (!group.iter().any(|pid| runs(&pid.to_string()))).then_some(()));
    assert!(runs(&left), "if this fails, the manual may promise more");
    kill(Pid::from_raw(left.parse().unwrap()), Signal::SIGKILL).unwrap();
}

#[test]
fn a_command_that_is_stopped_for_longer_than_the_ttl_keeps_its_lock_and_goes_on() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let options = ["--endpoints", &served.endpoint, "--ttl", "2s"];
    let mut running = stage.start(stage.shell(&options, "echo $$; echo $ETCD_LOCK_KEY; read line; echo out"));
    let (pid, key) = (running.line(), running.line());
    let pid = Pid::from_raw(pid.parse().unwrap());
    kill(pid, Signal::SIGSTOP).unwrap();
    std::thread::sleep(Duration::from_secs(5));
    assert!(is_held(&served, &key));
    kill(pid, Signal::SIGCONT).unwrap();
    running.write("\n");
    assert_eq!(running.outcome().ended_with(0).stdout, "out\n");
}

#[test]
fn a_standard_error_that_nobody_reads_keeps_no_command_alive() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let script = "trap '' PIPE; echo $ETCD_LOCK_KEY $$; while :; do echo 0123456789012345678901234567890123456789 >&2; done";
    for by_guardian in [false, true] {
        let mut command =
            stage.leasehold(stage.shell(&["--endpoints", &served.endpoint, "--ttl", "60s"], script));
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0).spawn().unwrap();
        let mut said = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
        let (key, pid) = said.trim().split_once(' ').unwrap();
        // It writes until there is no more room, and then waits.
        soon("it waits for a reader", || {
            fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| stat.contains(") S "))
                .then_some(())
        });
        if by_guardian {
            child.kill().unwrap();
        } else {
            block_on(async { served.etcd().delete(Key::from(key.to_owned())).await.unwrap() });
        }
        soon("it has ended", || (!runs(pid)).then_some(()));
        let ended = soon("so has leasehold", || child.try_wait().unwrap());
        assert_eq!(ended.code(), (!by_guardian).then_some(123));
    }
}
