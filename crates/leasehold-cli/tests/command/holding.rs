//! `leasehold lock`: a lock held by itself.

use leasehold::EtcdExt;
use leasehold_testbed::block_on;
use nix::sys::signal::Signal;

use crate::stage::Stage;

#[test]
fn it_prints_key_and_token_and_holds_until_it_is_told_to_end() {
    let stage = Stage::new();
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let holder = stage.start(["lock", "--local", "demo"]);
        let (key, token) = (holder.line(), holder.line());
        assert!(key.starts_with("demo/"), "{key}");
        token.parse::<u64>().unwrap();
        stage.run(["run", "--local", "-n", "demo", "true"]).ended_with(75);
        holder.signal(signal);
        holder.outcome().ended_with(0);
        stage.run(["run", "--local", "-n", "demo", "true"]).ended_with(0);
    }
}

#[test]
fn it_ends_with_standard_input_if_told_to() {
    let stage = Stage::new();
    let mut holder = stage.start(["lock", "--local", "--until-eof", "demo"]);
    holder.line();
    holder.write("words that mean nothing\n");
    stage.run(["run", "--local", "-n", "demo", "true"]).ended_with(75);
    holder.close_stdin();
    assert!(holder.status().success());
    stage.run(["run", "--local", "-n", "demo", "true"]).ended_with(0);
}

#[test]
fn without_that_it_does_not_mind_standard_input() {
    let stage = Stage::new();
    let mut holder = stage.start(["lock", "--local", "demo"]);
    holder.line();
    holder.close_stdin();
    stage.run(["run", "--local", "-n", "demo", "true"]).ended_with(75);
    assert!(holder.is_running());
    holder.signal(Signal::SIGTERM);
    holder.outcome().ended_with(0);
}

#[test]
fn it_says_when_the_lock_is_lost() {
    let stage = Stage::new();
    let holder = stage.start(["lock", "--local", "demo"]);
    let key = holder.line();
    block_on(async { stage.local_etcd().delete(leasehold::Key::from(key)).await.unwrap() });
    let outcome = holder.outcome().ended_with(123);
    assert!(outcome.stderr.contains("\"demo\" is lost"), "{}", outcome.stderr);
}
