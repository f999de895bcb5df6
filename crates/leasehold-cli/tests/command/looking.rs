//! `ls` and `show`: on the small etcd and on real ones, beside etcdctl, and among keys of other kinds.

use leasehold::{DistributedLock, EtcdExt, LeaseId, Remote, Ttl};
use leasehold_testbed::{Etcdctl, Options, RealEtcd, Version, block_on};
use serde_json::Value;

use crate::stage::{Running, Served, Stage, soon};

fn look(stage: &Stage, endpoint: &str, args: &[&str]) -> String {
    let line = [args, &["--endpoints", endpoint]].concat();
    let outcome = stage.run(line).ended_with(0);
    assert_eq!(outcome.stderr, "");
    outcome.stdout
}

fn look_json(stage: &Stage, endpoint: &str, args: &[&str]) -> Value {
    serde_json::from_str(&look(stage, endpoint, &[args, &["--json"]].concat())).unwrap()
}

/// Waits until so many stand in a lock's queue.
fn queued(stage: &Stage, endpoint: &str, name: &str, count: usize) -> Value {
    soon("the queue is as long as it should be", || {
        let seen = look_json(stage, endpoint, &["show", name]);
        (seen["queue"].as_array().unwrap().len() == count).then_some(seen)
    })
}

fn names(listed: &Value) -> Vec<&str> {
    listed["locks"].as_array().unwrap().iter().map(|lock| lock["name"].as_str().unwrap()).collect()
}

#[test]
fn who_holds_and_who_waits_is_shown_to_people_and_to_programs() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let at = served.endpoint.as_str();
    assert_eq!(
        look(&stage, at, &["show", "demo"]),
        "lock \"demo\": nobody holds it and nobody waits for it\n"
    );
    assert!(look_json(&stage, at, &["ls"])["locks"].as_array().unwrap().is_empty());

    let holder = stage.start([
        "run",
        "--endpoints",
        at,
        "--ttl",
        "20s",
        "demo",
        "--",
        "sh",
        "-c",
        "echo in; read line; true",
    ]);
    assert_eq!(holder.line(), "in");
    let waiter = stage.start(["lock", "--endpoints", at, "demo"]);
    let seen = queued(&stage, at, "demo", 2);
    let (first, second) = (&seen["queue"][0], &seen["queue"][1]);
    assert_eq!((&first["program"], &first["pid"]), (&"leasehold run sh".into(), &holder.pid().into()));
    assert_eq!((&second["program"], &second["pid"]), (&"leasehold lock".into(), &waiter.pid().into()));
    let host = nix_host();
    for (one, ttl) in [(first, 20), (second, 15)] {
        assert_eq!((&one["form"], &one["host"]), (&"leasehold".into(), &host.as_str().into()));
        assert_eq!(one["lease_granted_s"], ttl);
        assert!((1..=ttl).contains(&one["lease_left_s"].as_i64().unwrap()), "{one}");
        assert!(
            one["key"].as_str().unwrap().starts_with(&format!("demo/{}-", one["lease"].as_str().unwrap()))
        );
        let since = one["since"].as_str().unwrap();
        assert!(since.starts_with("20") && since.ends_with('Z'), "{since}");
    }
    assert_eq!((&seen["nested_keys"], &seen["plain"]), (&0.into(), &Value::Null));

    let table = look(&stage, at, &["show", "demo"]);
    let lines: Vec<_> = table.lines().collect();
    let [heading, first, second] = lines[..] else { panic!("{table}") };
    assert!(heading.starts_with("PLACE  WHO"), "{table}");
    assert!(first.starts_with("holds  leasehold run sh") && first.contains("s of 20s"), "{table}");
    assert!(
        second.starts_with("1      leasehold lock") && second.contains(&waiter.pid().to_string()),
        "{table}"
    );
    let list = look(&stage, at, &["ls"]);
    let line = list.lines().nth(1).unwrap();
    assert!(line.starts_with("demo  leasehold run sh") && line.contains("s of 20s  1"), "{list}");
    assert_eq!(names(&look_json(&stage, at, &["ls", "de"])), ["demo"]);
    assert!(names(&look_json(&stage, at, &["ls", "other"])).is_empty());
    waiter.signal(nix::sys::signal::Signal::SIGTERM);
    waiter.outcome().ended_with(143);
    holder.outcome().ended_with(0);
    assert_eq!(look(&stage, at, &["ls"]).lines().count(), 1);
}

fn nix_host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim().to_owned()
}

/// C12: the lock of etcdctl is the lock of that name, and is shown as such.
#[test]
fn c12_locks_of_etcdctl_are_shown_too() {
    for version in Version::ALL {
        let Some(etcd) = RealEtcd::start(version, Options::default()) else { continue };
        let Some(etcdctl) = Etcdctl::find(&etcd.endpoints()) else { continue };
        let (stage, at) = (Stage::new(), etcd.endpoint());
        let theirs = etcdctl.start(&["lock", "--ttl", "30", "demo"]);
        queued(&stage, &at, "demo", 1);
        let ours = stage.start(["lock", "--endpoints", &at, "demo"]);
        let seen = queued(&stage, &at, "demo", 2);
        let first = &seen["queue"][0];
        assert_eq!(
            (&first["form"], &first["program"], &first["lease_granted_s"]),
            (&"lease".into(), &Value::Null, &30.into())
        );
        assert_eq!(seen["queue"][1]["form"], "leasehold");
        let list = look(&stage, &at, &["ls"]);
        assert!(list.lines().nth(1).unwrap().starts_with("demo  etcdctl or Go  -"), "{list}");
        drop((theirs, ours));
    }
}

/// A17: a lock whose name is another lock's prefix; keys of other kinds, and without a lease, below a lock.
#[test]
fn a17_what_lies_among_a_locks_keys_is_told_apart_and_pointed_out() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let at = served.endpoint.as_str();
    let [outer, inner] = ["a", "a/b"].map(|name| {
        let running = stage.start(["lock", "--endpoints", at, name]);
        (running.line(), running)
    });
    block_on(async {
        let etcd = served.etcd();
        etcd.put("a/settings", "x\u{1b}[2J", LeaseId::NONE).await.unwrap();
        etcd.put("a/7-0", "", LeaseId::NONE).await.unwrap();
        let lock = DistributedLock::new(etcd.clone(), "a", "worker\u{1b}1", Ttl::default()).unwrap();
        assert!(lock.try_lock().await.unwrap());
        let seen = look_json(&stage, at, &["show", "a"]);
        let keys: Vec<_> =
            seen["queue"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
        assert_eq!(keys, [outer.0.as_str(), "a/settings", "a/7-0"]);
        assert_eq!((&seen["nested_keys"], &seen["plain"]["value"]), (&1.into(), &"worker\u{1b}1".into()));
        assert_eq!(
            (&seen["queue"][1]["form"], &seen["queue"][1]["lease"]),
            (&"foreign".into(), &Value::Null)
        );
        let table = look(&stage, at, &["show", "a"]);
        assert!(!table.contains('\u{1b}'), "{table:?}");
        for wanted in [
            "note: the key a/settings is no lock's entry by its form",
            "note: the entry a/7-0 hangs on no lease",
            "note: the key a itself is there, on lease",
            "with token worker\\u{1b}1",
            "note: 1 keys belong to locks nested below a/",
        ] {
            assert!(table.contains(wanted), "{wanted}: {table}");
        }
        let list = look_json(&stage, at, &["ls"]);
        assert_eq!(names(&list), ["a", "a", "a/b"], "the lock of one key is another one");
        assert_eq!(names(&look_json(&stage, at, &["ls", "a/"])), ["a/b"]);
        let nested = look_json(&stage, at, &["show", "a/b"]);
        assert_eq!(nested["queue"][0]["key"], inner.0.as_str());
        let list = look(&stage, at, &["ls"]);
        assert!(list.lines().nth(1).unwrap().ends_with("  1 foreign, 2 without a lease"), "{list}");
        lock.unlock().await.unwrap();
    });
}

#[test]
fn looking_leaves_nothing_and_needs_the_right_to_read_alone() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let before = block_on(async { served.etcd().get("x").await.map(|_| ()) });
    before.unwrap();
    for args in [&["ls"][..], &["show", "demo"]] {
        look(&stage, &served.endpoint, args);
    }
    let etcd: Remote = served.etcd();
    block_on(async {
        use leasehold::etcd::Etcd as _;
        let all = leasehold::mvcc::RangeRequest::range(leasehold::mvcc::KeyRange::all());
        let answer = etcd.range(all).await.unwrap();
        assert_eq!(answer.count, 0);
    });
    // On the etcd that starts by itself, too.
    let outcome = stage.run(["ls", "--local"]).ended_with(0);
    assert_eq!(outcome.stdout.lines().count(), 1, "{outcome:?}");
    for (args, names) in [
        (&["show"][..], "<NAME>"),
        (&["show", "--local", ""], "lock name"),
        (&["ls"], "--local"),
        (&["ls", "--local", "--endpoints", "a:1"], "--local"),
    ] {
        let outcome = stage.run(args).ended_with(64);
        assert!(outcome.stderr.contains(names) && outcome.stderr.lines().count() == 1, "{outcome:?}");
    }
    let outcome =
        stage.run(["ls", "--endpoints", "127.0.0.1:1", "--connect-timeout", "300ms"]).ended_with(69);
    assert!(
        outcome.stderr.contains("the list of locks") && outcome.stderr.contains("127.0.0.1:1"),
        "{outcome:?}"
    );
}

#[test]
fn whoever_reads_the_list_may_stop_before_its_end() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let mut command = stage.program("sh");
    let leasehold = env!("CARGO_BIN_EXE_leasehold");
    command.args([
        "-c",
        &format!("set -o pipefail 2>/dev/null; {leasehold} ls --endpoints {} | :", served.endpoint),
    ]);
    let outcome = Running::start(command).outcome();
    assert_eq!(outcome.stderr, "", "{outcome:?}");
}

#[test]
fn the_help_of_each_verb_has_its_options_and_the_exit_codes() {
    let stage = Stage::new();
    let access = [
        "--endpoints",
        "--local",
        "--cacert",
        "--cert",
        "--key",
        "--user",
        "--password",
        "--connect-timeout",
    ];
    for (verb, own) in [
        ("run", &["--ttl"][..]),
        ("lock", &["--ttl"]),
        ("ls", &["--json", "[PREFIX]"]),
        ("show", &["--json", "<NAME>"]),
        ("break", &["--wait", "--force", "--revoke-lease", "--foreign", "<NAME>"]),
    ] {
        let help = stage.run([verb, "--help"]).ended_with(0).stdout;
        for wanted in access.iter().chain(own).chain(&["64", "69", "74", "76", "77"]) {
            assert!(help.contains(wanted), "{verb}: no {wanted} in {help}");
        }
    }
    let help = stage.run(["--help"]).ended_with(0).stdout;
    for verb in ["run", "lock", "ls", "show", "break", "serve"] {
        assert!(
            help.lines().any(|line| line.trim_start().starts_with(&format!("{verb} "))),
            "{verb}: {help}"
        );
    }
}
