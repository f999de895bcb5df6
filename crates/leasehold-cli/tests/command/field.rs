//! What went wrong with other locks in the field, each tried as its whole kind. The number is that of the report.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, pending};
use leasehold::etcd::{EmbeddedOptions, Etcd, WatchUpdate};
use leasehold::mvcc::{KeyRange, LeaseGrantRequest, WatchRequest};
use leasehold::runtime::{self, Runtime, SystemRuntime, Task};
use leasehold::{Embedded, EtcdExt, Key, LeaseId, Remote};
use leasehold_server::{Address, Server};
use leasehold_testbed::{Options, Proxy, RealEtcd, Version, block_on};
use nix::sys::signal::Signal;

use crate::stage::{PATIENCE, Running, STUBBORN, Served, Stage, runs, soon};

/// A runtime on which nothing happens by itself.
#[derive(Debug)]
struct Negligent(Arc<SystemRuntime>);

impl Runtime for Negligent {
    fn now(&self) -> runtime::Instant {
        self.0.now()
    }

    fn wall_clock(&self) -> std::time::SystemTime {
        self.0.wall_clock()
    }

    fn sleep_until(&self, _at: runtime::Instant) -> BoxFuture<'static, ()> {
        Box::pin(pending())
    }

    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Task {
        self.0.spawn(name, task)
    }

    fn spawn_dedicated(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Task {
        self.0.spawn_dedicated(name, task)
    }

    fn random_u64(&self) -> u64 {
        self.0.random_u64()
    }
}

/// The address of an etcd that never ends a lease, however far past its end.
fn negligent_etcd() -> String {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let clock = Arc::new(Negligent(SystemRuntime::shared().unwrap()));
            let etcd = Embedded::new(clock, EmbeddedOptions::default());
            let server = Server::bind(Address::loopback(0), etcd).await.unwrap();
            tell.send(server.address().to_string()).unwrap();
            server.serve(pending()).await;
        });
    });
    told.recv().unwrap()
}

#[test]
fn a33_a_holder_whose_lease_is_past_its_end_is_told_to_whoever_waits_or_gives_up() {
    let stage = Stage::new();
    let endpoint = negligent_etcd();
    block_on(async {
        let etcd = Remote::connect(&endpoint).unwrap();
        let lease = etcd.lease_grant(LeaseGrantRequest { ttl: 2, id: LeaseId::new(0x1f) }).await.unwrap();
        assert!(etcd.put_if_not_exists("demo/1f", "", lease.id).await.unwrap());
    });
    let overdue = "past its end by";
    let busy = |options: &[&str]| {
        let args = [&["run", "--endpoints", &endpoint][..], options, &["demo", "true"]].concat();
        stage.run(args).ended_with(75).stderr
    };
    soon("it is past its end", || busy(&["-n"]).contains(overdue).then_some(()));
    assert!(busy(&["--wait", "200ms"]).contains(overdue));
    let said = busy(&["-n"]);
    assert!(said.contains("on lease 1f, which is") && said.contains("`leasehold break demo`"), "{said}");
    let waiter = stage.start(["run", "--verbose", "--endpoints", &endpoint, "demo", "true"]);
    soon("the waiter says so", || waiter.said().contains(overdue).then_some(()));
}

#[test]
fn a59_a_hold_through_a_connection_ends_with_it_if_that_is_asked_for() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    // The first process stands for the far end of an ssh or docker exec: it dies without a word.
    let script = "{ echo $PPID >&2; exec sleep 1000; } | \"$0\" lock --until-eof --endpoints \"$1\" demo";
    let mut through = stage.program("sh");
    through.args(["-c", script, env!("CARGO_BIN_EXE_leasehold"), &served.endpoint]);
    let mut through = Running::start(through);
    through.line();
    stage.run(["run", "-n", "--endpoints", &served.endpoint, "demo", "true"]).ended_with(75);
    let far_end = soon("the far end is there", || {
        let children = format!("/proc/{0}/task/{0}/children", through.pid());
        let children = std::fs::read_to_string(children).unwrap_or_default();
        children.split_whitespace().find_map(|pid| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
            (name.trim() == "sleep").then(|| pid.parse::<i32>().unwrap())
        })
    });
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(far_end), Signal::SIGKILL).unwrap();
    assert_eq!(through.status().code(), Some(0));
    stage.run(["run", "-n", "--endpoints", &served.endpoint, "demo", "true"]).ended_with(0);
}

#[test]
fn a59_a_hold_ends_at_once_when_its_terminal_is_cut() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    for verb in [
        "lock --ttl 60s --endpoints AT demo",
        "run --ttl 60s --endpoints AT demo -- sh -c 'echo demo/in; sleep 1000'",
    ] {
        let scene = format!("LEASEHOLD {}\n", verb.replace("AT", &served.endpoint));
        let Some(terminal) = crate::terminal::at_terminal(&stage, &scene) else { return };
        while !terminal.line().starts_with("demo/") {}
        terminal.signal(Signal::SIGKILL);
        let next = stage.run(["run", "--wait", "15s", "--endpoints", &served.endpoint, "demo", "true"]);
        next.ended_with(0);
    }
}

#[test]
fn a59_after_a_kill_from_outside_the_next_one_waits_for_a_ttl_and_finds_nobody_running() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let mut killed = stage.program("timeout");
    killed.args(["-s", "KILL", "1", env!("CARGO_BIN_EXE_leasehold")]);
    killed.args(stage.shell(&["--endpoints", &served.endpoint, "--ttl", "2s"], STUBBORN));
    let killed = Running::start(killed);
    let pids = [killed.line(), killed.line(), killed.line()];
    let next = stage.start(["run", "--endpoints", &served.endpoint, "demo", "cat"]);
    soon("the next one holds", || {
        let said =
            std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", next.pid())).unwrap_or_default();
        said.split_whitespace()
            .any(|pid| {
                std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "cat")
            })
            .then_some(())
    });
    assert!(!pids.iter().any(|pid| runs(pid)), "{pids:?}");
    next.outcome().ended_with(0);
}

#[test]
fn a62_each_verb_says_success_only_if_what_was_asked_for_is_so() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let at = served.endpoint.as_str();
    let one_line =
        |outcome: &crate::stage::Outcome| assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
    let run = |name: &str| stage.run(["run", "-n", "--endpoints", at, name, "--", "echo", "it ran"]);
    let lock = |name: &str| stage.start(["lock", "-n", "--ttl", "2s", "--endpoints", at, name]);

    // Free, and never heard of.
    assert_eq!(run("demo").ended_with(0).stdout, "it ran\n");
    let holder = lock("demo");
    assert!(holder.line().starts_with("demo/"));
    assert!(holder.line().parse::<u64>().is_ok());

    // Held by another.
    for refused in [run("demo"), lock("demo").outcome()] {
        let refused = refused.ended_with(75);
        assert_eq!(refused.stdout, "");
        one_line(&refused);
    }

    // Another's that has expired: its holder was killed.
    holder.signal(Signal::SIGKILL);
    soon("its lease is over", || (run("demo").code() == 0).then_some(()));
    let holder = lock("demo");
    holder.line();

    // Lost by somebody's hand.
    let running = stage.start([
        "run",
        "--endpoints",
        at,
        "other",
        "--",
        "sh",
        "-c",
        "echo $ETCD_LOCK_KEY; exec sleep 1000",
    ]);
    let key = running.line();
    block_on(async {
        served.etcd().delete(Key::from(key)).await.unwrap();
        let held = leasehold::mvcc::RangeRequest::prefix("demo/");
        for kv in served.etcd().range(held).await.unwrap().kvs {
            served.etcd().lease_revoke(kv.lease).await.unwrap();
        }
    });
    one_line(&running.outcome().ended_with(123));
    one_line(&holder.outcome().ended_with(123));

    // Nobody there to ask.
    let nowhere = "127.0.0.1:1";
    for verb in [
        &["run", "--endpoints", nowhere, "demo", "echo", "it ran"][..],
        &["lock", "--endpoints", nowhere, "demo"],
    ] {
        let refused = stage.run(verb).ended_with(69);
        assert_eq!(refused.stdout, "");
        one_line(&refused);
    }
}

#[test]
fn a68_what_the_server_grants_beyond_what_was_asked_for_counts_and_is_told() {
    let stage = Stage::new();
    // No lease of this server is shorter than one and a half times its election timeout.
    let slow = Options {
        election: Some(Duration::from_secs(4)),
        heartbeat: Some(Duration::from_millis(400)),
        ..Options::default()
    };
    let Some(server) = RealEtcd::start(Version::V37, slow) else { return };
    let endpoint = server.endpoint();
    let options = ["--verbose", "--ttl", "2s", "--endpoints", &endpoint];
    let running = stage.start(stage.shell(&options, STUBBORN));
    let pids = [running.line(), running.line(), running.line()];
    assert!(running.said().contains("of 6s (--ttl 2s)"), "{}", running.said());
    server.freeze();
    let frozen = Instant::now();
    soon("the command is ended", || (!pids.iter().any(|pid| runs(pid))).then_some(()));
    let after = frozen.elapsed();
    assert!(after > Duration::from_secs(2), "by what was granted, and not by what was asked for: {after:?}");
    assert!(after < Duration::from_millis(5500), "before the hold ends: {after:?}");
    server.thaw();
    running.outcome().ended_with(123);
}

#[test]
fn c33_a_hold_lasts_for_many_ttls_on_each_etcd_by_each_verb() {
    const TTLS: u32 = 6;
    let stage = Stage::new();
    let served = Served::start(&stage);
    let real = RealEtcd::start(Version::V37, Options::default());
    let endpoints = std::iter::once(served.endpoint.clone()).chain(real.as_ref().map(RealEtcd::endpoint));
    let mut holders = Vec::new();
    let mut etcds = Vec::new();
    for endpoint in endpoints {
        for verb in [
            &["lock", "--ttl", "2s", "--endpoints", &endpoint, "held/by-lock"][..],
            &[
                "run",
                "--ttl",
                "2s",
                "--endpoints",
                &endpoint,
                "held/by-run",
                "--",
                "sh",
                "-c",
                "echo in; read line",
            ],
        ] {
            let holder = stage.start(verb);
            holder.line();
            holders.push(holder);
        }
        etcds.push(Remote::connect(&endpoint).unwrap());
    }
    let gone = block_on(async {
        let watches = etcds
            .iter()
            .map(|etcd| etcd.watch(WatchRequest::range(KeyRange::prefix("held/")).deletes_only()));
        let mut watches = futures_util::stream::select_all(watches.collect::<Vec<_>>());
        let deletes = async {
            loop {
                match watches.next().await {
                    Some(Ok(WatchUpdate::Events { .. })) => return,
                    Some(Ok(_)) => {}
                    broken => panic!("{broken:?}"),
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(2) * TTLS, deletes).await
    });
    assert!(gone.is_err(), "a key went");
    for mut holder in holders {
        assert!(holder.is_running(), "{}", holder.said());
    }
}

#[test]
fn d15_a_holder_that_is_cut_off_behind_a_proxy_that_lives_ends_its_command_while_it_still_holds() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    block_on(async {
        let proxy = Proxy::start(&served.endpoint).await;
        let endpoint = proxy.endpoint();
        let script = format!("echo $ETCD_LOCK_KEY; {STUBBORN}");
        let running = stage.start(stage.shell(&["--endpoints", &endpoint, "--ttl", "4s"], &script));
        let key = running.line();
        let pids = [running.line(), running.line(), running.line()];
        proxy.cut();
        let etcd = served.etcd();
        let start = Instant::now();
        while pids.iter().any(|pid| runs(pid)) {
            assert!(start.elapsed() < PATIENCE);
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(etcd.get(Key::from(key)).await.unwrap().is_some(), "nobody else can have had the lock yet");
        proxy.heal();
        running.outcome().ended_with(123);
    });
}
