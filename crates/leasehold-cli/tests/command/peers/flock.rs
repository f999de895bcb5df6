//! The cases of `flock` (util-linux).

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::Peer;
use crate::stage::runs;

#[test]
fn the_childs_exit_code() {
    let peer = Peer::new();
    for code in [0, 1, 75, 255] {
        peer.run(&[], &format!("exit {code}")).ended_with(code);
    }
}

#[test]
fn the_child_is_killed_by_term() {
    Peer::new().run(&[], "kill -TERM $$").ended_with(143);
}

#[test]
fn the_command_cannot_be_executed() {
    let peer = Peer::new();
    peer.verb("run", &["demo", "/etc/passwd"]).ended_with(126);
    peer.verb("run", &["demo", "/no/such"]).ended_with(127);
    assert!(peer.queue().is_empty());
}

#[test]
fn an_option_is_wrong() {
    Peer::new().run(&["--frob"], "true").ended_with(64);
}

#[test]
fn it_is_not_to_wait() {
    let peer = Peer::new();
    let _holder = peer.holder();
    for option in [&["-n"][..], &["--nonblock"], &["-w", "0s"]] {
        peer.run(option, "echo must not run").ended_with(75);
    }
}

#[test]
fn it_is_to_wait_for_less_than_a_second() {
    let peer = Peer::new();
    let _holder = peer.holder();
    let started = Instant::now();
    peer.run(&["-w", "300ms"], "echo must not run").ended_with(75);
    assert!(started.elapsed() >= Duration::from_millis(300));
}

#[test]
fn the_code_for_a_conflict_is_chosen() {
    let peer = Peer::new();
    let _holder = peer.holder();
    for code in [0, 1, 255] {
        peer.run(&["-n", "-E", &code.to_string()], "echo must not run").ended_with(code);
    }
}

#[test]
fn a_wait_that_succeeds_in_time() {
    let peer = Peer::new();
    let mut holder = peer.holder();
    let waiter = peer.waiter("exit 4");
    holder.write("\n");
    waiter.outcome().ended_with(4);
}

#[test]
fn a_shell_command() {
    let outcome = Peer::new().run(&[], "echo one && echo two").ended_with(0);
    assert_eq!(outcome.stdout, "one\ntwo\n");
}

#[test]
fn standard_input_output_and_error_are_the_childs() {
    let peer = Peer::new();
    let mut running = peer.start(&[], "read line; echo out $line; echo err $line >&2");
    running.write("x\n");
    let outcome = running.outcome().ended_with(0);
    assert_eq!((outcome.stdout.as_str(), outcome.stderr.as_str()), ("out x\n", "err x\n"));
}

#[test]
fn term_to_it_while_the_child_runs() {
    let peer = Peer::new();
    let running = peer.start(&[], "echo $$; exec sleep 1000");
    let child = running.line();
    running.signal(Signal::SIGTERM);
    running.outcome().ended_with(143);
    assert!(!runs(&child), "flock's child lives on and holds");
    assert!(peer.queue().is_empty());
}

#[test]
fn something_is_left_in_the_background() {
    let peer = Peer::new();
    let mut running = peer.start(&[], "sleep 1000 </dev/null >/dev/null 2>&1 & echo $$; echo $!");
    let (group, left): (i32, String) = (running.line().parse().unwrap(), running.line());
    assert!(running.status().success());
    assert!(runs(&left) && peer.queue().is_empty(), "the lock ends with the command");
    killpg(Pid::from_raw(group), Signal::SIGKILL).unwrap();
}
