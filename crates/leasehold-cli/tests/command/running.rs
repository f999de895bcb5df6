//! A command under a lock: what it gets, what comes back, what is passed on.

use leasehold::{EtcdExt, Key};
use leasehold_testbed::block_on;
use nix::sys::signal::Signal;

use crate::stage::{Served, Stage, runs, soon};

#[test]
fn the_commands_exit_code_is_passed_on_exactly() {
    let stage = Stage::new();
    for code in [0, 1, 7, 75, 123, 255] {
        stage.run(stage.shell(&["--local"], &format!("exit {code}"))).ended_with(code);
    }
}

#[test]
fn a_command_killed_by_a_signal_gives_128_and_its_number() {
    let stage = Stage::new();
    stage.run(stage.shell(&["--local"], "kill -KILL $$")).ended_with(137);
    stage.run(stage.shell(&["--local"], "kill -TERM $$")).ended_with(143);
}

#[test]
fn the_command_is_told_its_key_its_revision_and_its_token() {
    let stage = Stage::new();
    let told = stage
        .run(stage.shell(&["--local"], "echo $ETCD_LOCK_KEY; echo $ETCD_LOCK_REV; echo $LEASEHOLD_TOKEN"));
    let lines: Vec<_> = told.stdout.lines().collect();
    let [key, revision, token] = lines[..] else { panic!("{told:?}") };
    assert!(key.starts_with("demo/"), "{key}");
    assert_eq!(token.parse::<u64>().unwrap() >> 16, revision.parse::<u64>().unwrap());
    assert!(told.stderr.contains("excludes only this user on this machine"), "{told:?}");
}

#[test]
fn a_later_run_has_a_higher_token() {
    let stage = Stage::new();
    let token = || -> u64 {
        let told = stage.run(stage.shell(&["--local"], "echo $LEASEHOLD_TOKEN")).ended_with(0);
        told.stdout.trim().parse().unwrap()
    };
    let first = token();
    assert!(token() > first);
}

#[test]
fn a_nested_run_is_told_of_the_inner_lock() {
    let stage = Stage::new();
    let inner =
        "echo $ETCD_LOCK_KEY; \"$0\" run --local inner -- sh -c 'echo $ETCD_LOCK_KEY'; echo $ETCD_LOCK_KEY";
    let told =
        stage.run(["run", "--local", "outer", "--", "sh", "-c", inner, env!("CARGO_BIN_EXE_leasehold")]);
    let lines: Vec<_> = told.stdout.lines().collect();
    let [before, within, after] = lines[..] else { panic!("{told:?}") };
    assert!(before.starts_with("outer/") && within.starts_with("inner/") && after == before, "{told:?}");
}

#[test]
fn standard_input_is_passed_on() {
    let stage = Stage::new();
    let mut running = stage.start(["run", "--local", "demo", "cat"]);
    running.write("one\ntwo\n");
    let outcome = running.outcome().ended_with(0);
    assert_eq!(outcome.stdout, "one\ntwo\n");
}

#[test]
fn two_dashes_are_the_commands_own_after_it_began() {
    let stage = Stage::new();
    let outcome = stage.run(["run", "--local", "demo", "printf", "%s.", "--ttl", "--", "-n"]).ended_with(0);
    assert_eq!(outcome.stdout.trim_end(), "--ttl.--.-n.");
}

#[test]
fn nothing_is_left_in_etcd_after_a_run() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let outcome =
        stage.run(["run", "--endpoints", &served.endpoint, "demo", "--", "sh", "-c", "echo $ETCD_LOCK_KEY"]);
    let key = outcome.ended_with(0).stdout.trim().to_owned();
    block_on(async {
        let etcd = served.etcd();
        assert_eq!(etcd.get(Key::from(key.clone())).await.unwrap(), None);
        let lease = key.strip_prefix("demo/").and_then(|rest| rest.split('-').next()).unwrap();
        let lease = leasehold::LeaseId::new(i64::from_str_radix(lease, 16).unwrap());
        use leasehold::etcd::Etcd as _;
        let left = etcd.lease_time_to_live(lease, true).await.unwrap();
        assert_eq!(left.ttl, -1, "the lease is revoked");
    });
}

#[test]
fn a_command_that_only_turns_out_to_be_none_leaves_nothing_either() {
    let stage = Stage::new();
    let script = stage.path("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    stage.run(["run", "--local", "demo", script.to_str().unwrap()]).ended_with(127);
    stage.run(["run", "--local", "-n", "demo", "true"]).ended_with(0);
}

#[test]
fn the_next_one_runs_as_soon_as_the_first_has_ended() {
    let stage = Stage::new();
    let mut first = stage.start(stage.shell(&["--local"], "echo in; read line; echo out"));
    assert_eq!(first.line(), "in");
    let second = stage.start(stage.shell(&["--local", "--verbose"], "echo in too"));
    soon("it says for whom it waits", || {
        second.said().contains("waiting; held by leasehold run sh (pid").then_some(())
    });
    assert_eq!(block_on(waiting(&stage)), 2);
    first.write("\n");
    assert_eq!(first.line(), "out");
    assert_eq!(second.line(), "in too");
    second.outcome().ended_with(0);
}

async fn waiting(stage: &Stage) -> usize {
    use leasehold::etcd::Etcd as _;
    let queue = leasehold::mvcc::RangeRequest::range(leasehold::mvcc::KeyRange::prefix("demo/"));
    stage.local_etcd().range(queue).await.unwrap().kvs.len()
}

#[test]
fn a_busy_lock_is_told_from_a_command_that_failed() {
    let stage = Stage::new();
    let holder = stage.start(stage.shell(&["--local"], "echo in; read line"));
    assert_eq!(holder.line(), "in");
    for (options, code) in [
        (&["--local", "-n"][..], 75),
        (&["--local", "-n", "-E", "1"], 1),
        (&["--local", "--nonblock", "--conflict-exit-code", "200"], 200),
        (&["--local", "-w", "300ms"], 75),
        (&["--local", "--wait", "0s"], 75),
        (&["--local", "-w", "300ms", "-E", "0"], 0),
    ] {
        let outcome = stage.run(stage.shell(options, "echo must not run")).ended_with(code);
        assert_eq!(outcome.stdout, "", "{options:?}");
        assert!(outcome.stderr.contains("held by leasehold run sh"), "{options:?}: {}", outcome.stderr);
    }
    assert_eq!(block_on(waiting(&stage)), 1, "the refused ones left the queue");
}

#[test]
fn signals_are_passed_on_to_the_whole_group() {
    let stage = Stage::new();
    for (signal, name) in [
        (Signal::SIGINT, "INT"),
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGQUIT, "QUIT"),
        (Signal::SIGUSR1, "USR1"),
        (Signal::SIGUSR2, "USR2"),
        (Signal::SIGWINCH, "WINCH"),
    ] {
        // The inner shell is not a child of leasehold's: it hears the signal only by way of the group. The outer one sees
        // to its own signal once the inner has ended.
        let script = format!(
            "trap 'echo outer got {name}; exit 9' {name}; \
             sh -c 'trap \"echo inner got {name}; exit\" {name}; echo inner; while :; do sleep 0.05; done'; \
             while :; do sleep 0.05; done"
        );
        let running = stage.start(stage.shell(&["--local"], &script));
        assert_eq!(running.line(), "inner");
        running.signal(signal);
        assert_eq!(
            [running.line(), running.line()],
            [format!("inner got {name}"), format!("outer got {name}")]
        );
        running.outcome().ended_with(9);
    }
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let stage = Stage::new();
    let script =
        "trap '' HUP; exec \"$0\" run --local demo -- sh -c 'kill -HUP $$; echo still here; read line'";
    let mut command = stage.program("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_leasehold")]);
    let mut running = crate::stage::Running::start(command);
    assert_eq!(running.line(), "still here");
    running.signal(Signal::SIGHUP);
    running.write("\n");
    running.outcome().ended_with(0);
}

#[test]
fn a_signal_ends_a_wait_and_leaves_the_queue() {
    let stage = Stage::new();
    let mut holder = stage.start(stage.shell(&["--local"], "echo in; read line"));
    assert_eq!(holder.line(), "in");
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130), (Signal::SIGHUP, 129)] {
        let waiter = stage.start(stage.shell(&["--local"], "echo must not run"));
        soon("it waits", || (block_on(waiting(&stage)) == 2).then_some(()));
        waiter.signal(signal);
        let outcome = waiter.outcome().ended_with(code);
        assert!(outcome.stdout.is_empty() && outcome.stderr.contains("\"demo\""), "{outcome:?}");
        assert_eq!(block_on(waiting(&stage)), 1);
    }
    assert!(holder.is_running());
}

#[test]
fn a_run_outlives_many_ttls() {
    let stage = Stage::new();
    let outcome = stage.run(stage.shell(&["--local", "--ttl", "2s"], "sleep 5; echo done"));
    assert_eq!(outcome.ended_with(0).stdout, "done\n");
}

#[test]
fn what_the_command_leaves_running_does_not_keep_the_lock() {
    let stage = Stage::new();
    let mut running = stage.start(stage.shell(&["--local"], "sleep 1000 >/dev/null 2>&1 & echo $!"));
    let left = running.line();
    assert!(running.status().success());
    assert!(runs(&left));
    stage.run(stage.shell(&["--local", "-n"], "true")).ended_with(0);
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(left.parse().unwrap()), Signal::SIGKILL).unwrap();
}
