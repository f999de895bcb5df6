//! The cases of `consul lock`.

use nix::sys::signal::Signal;

use super::{Peer, variable};
use crate::stage::{STUBBORN, runs};

#[test]
fn the_child_fails() {
    Peer::new().run(&[], "exit 3").ended_with(3);
}

#[test]
fn the_lock_is_lost() {
    let peer = Peer::new();
    let running = peer.start(&["--ttl", "4s"], &format!("echo $ETCD_LOCK_KEY; {STUBBORN}"));
    let key = running.line();
    let pids = [running.line(), running.line(), running.line()];
    peer.revoke(peer.lease_of(&key));
    running.outcome().ended_with(123);
    assert!(!pids.iter().any(|pid| runs(pid)), "the whole group is ended, not one process: {pids:?}");
}

#[test]
fn the_longest_wait_is_over() {
    let peer = Peer::new();
    let _holder = peer.holder();
    let outcome = peer.run(&["--wait", "200ms"], "echo must not run").ended_with(75);
    assert_eq!(outcome.stdout, "");
    assert_eq!(peer.queue().len(), 1, "it left the queue");
}

#[test]
fn the_arguments_are_kept_as_they_are() {
    let peer = Peer::new();
    let outcome = peer.verb("run", &["demo", "--", "printf", "%s|", "a b", "$HOME", "c;d"]).ended_with(0);
    assert_eq!(outcome.stdout.trim_end(), "a b|$HOME|c;d|");
}

#[test]
fn the_child_learns_that_it_holds() {
    let outcome = Peer::new().run(&[], "env").ended_with(0);
    for name in ["ETCD_LOCK_KEY", "ETCD_LOCK_REV", "LEASEHOLD_TOKEN"] {
        assert!(
            variable(&outcome.stdout, name).is_some_and(|value| !value.is_empty()),
            "{name}: {outcome:?}"
        );
    }
}

#[test]
fn the_childs_standard_input() {
    let peer = Peer::new();
    let mut running = peer.start(&[], "cat");
    running.write("passed on\n");
    assert_eq!(running.outcome().ended_with(0).stdout, "passed on\n");
}

#[test]
fn term_reaches_the_child_once_and_it_takes_its_time() {
    let peer = Peer::new();
    // Longer than consul's five seconds would need a long test; what matters is that nothing follows the one signal.
    let script =
        "trap 'echo told' TERM; echo in; n=0; while [ $n -lt 40 ]; do sleep 0.05; n=$((n + 1)); done; exit 6";
    let running = peer.start(&[], script);
    assert_eq!(running.line(), "in");
    running.signal(Signal::SIGTERM);
    assert_eq!(running.outcome().ended_with(6).stdout, "told\n");
}

#[test]
fn hup_and_quit_reach_the_child() {
    let peer = Peer::new();
    for (signal, name) in [(Signal::SIGHUP, "HUP"), (Signal::SIGQUIT, "QUIT")] {
        let script = format!("trap 'echo told; exit 6' {name}; echo in; while :; do sleep 0.05; done");
        let running = peer.start(&[], &script);
        assert_eq!(running.line(), "in");
        running.signal(signal);
        assert_eq!(running.outcome().ended_with(6).stdout, "told\n");
    }
}

#[test]
fn a_stop_ends_a_wait_at_once() {
    let peer = Peer::new();
    let mut holder = peer.holder();
    let waiter = peer.waiter("echo must not run");
    waiter.signal(Signal::SIGINT);
    waiter.outcome().ended_with(130);
    assert!(holder.is_running());
}

#[test]
fn there_is_no_delay_after_a_loss() {
    let peer = Peer::new();
    let running = peer.start(&[], "echo $ETCD_LOCK_KEY; trap 'exit 0' TERM; while :; do sleep 0.05; done");
    let key = running.line();
    peer.revoke(peer.lease_of(&key));
    running.outcome().ended_with(123);
    peer.run(&["--nonblock"], "exit 0").ended_with(0);
}
