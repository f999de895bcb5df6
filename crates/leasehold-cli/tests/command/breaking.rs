//! `break`: the holder may go by itself, and is made to go if it does not; nobody else is touched.

use leasehold::{DistributedLock, EtcdExt, Guard, LeaseId, LossCause, Mutex, Remote, Session, Ttl};
use leasehold_testbed::{Etcdctl, Options, RealEtcd, Version, block_on};
use nix::sys::signal::Signal;

use crate::stage::{Outcome, Running, Served, Stage, soon};
use crate::terminal::at_terminal;

fn break_lock(stage: &Stage, endpoint: &str, options: &[&str], name: &str) -> Running {
    stage.start([&["break", "--endpoints", endpoint], options, &[name]].concat())
}

fn forced(stage: &Stage, endpoint: &str, options: &[&str], name: &str) -> Outcome {
    break_lock(stage, endpoint, &[&["--force", "--wait", "0s"], options].concat(), name).outcome()
}

/// A holder of the lock, and its key.
fn holder(stage: &Stage, endpoint: &str, name: &str) -> (Running, String) {
    let holder = stage.start(["lock", "--endpoints", endpoint, name]);
    let key = holder.line();
    (holder, key)
}

/// A waiter behind one holder.
fn waiter(stage: &Stage, endpoint: &str, name: &str) -> Running {
    let waiter = stage.start(["lock", "--verbose", "--endpoints", endpoint, name]);
    soon("it waits", || waiter.said().contains("place 1").then_some(()));
    waiter
}

#[test]
fn a_holder_that_does_not_go_is_made_to_and_the_next_one_has_the_lock() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let real = Version::ALL.map(|version| RealEtcd::start(version, Options::default()));
    let real = real.iter().flatten().map(RealEtcd::endpoint);
    for at in std::iter::once(served.endpoint.clone()).chain(real) {
        let (first, key) = holder(&stage, &at, "demo");
        let second = waiter(&stage, &at, "demo");
        let outcome = forced(&stage, &at, &[], "demo").ended_with(0);
        assert_eq!(outcome.stdout, format!("broken {key}\n"));
        let said = &outcome.stderr;
        for wanted in [
            format!("held by leasehold lock (pid {}) on ", first.pid()),
            "whose lease ends in 1".to_owned(),
            format!("broken; now it is held by leasehold lock (pid {})", second.pid()),
        ] {
            assert!(said.contains(&wanted), "{wanted}: {said}");
        }
        let ended = first.outcome().ended_with(123);
        assert!(ended.stderr.contains("lock \"demo\" is lost"), "{ended:?}");
        let next = second.line();
        assert!(next != key, "{next}");
        second.signal(Signal::SIGTERM);
        second.outcome().ended_with(0);
    }
}

#[test]
fn a_holder_that_goes_in_time_makes_it_a_success_and_its_successor_is_left_alone() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let at = served.endpoint.as_str();
    let (first, key) = holder(&stage, at, "demo");
    let mut second = waiter(&stage, at, "demo");
    let breaking = break_lock(&stage, at, &["--force", "--wait", "60s"], "demo");
    let asked = first.outcome().ended_with(0);
    assert!(asked.stderr.contains("(leasehold break, pid "), "{asked:?}");
    assert!(asked.stderr.contains("asks for it; releasing it"), "{asked:?}");
    let outcome = breaking.outcome().ended_with(0);
    assert!(outcome.stderr.contains("asked it to end; if it does not within 60s"), "{outcome:?}");
    assert_eq!(outcome.stdout, format!("gone {key}\n"));
    assert!(
        outcome.stderr.contains("it has gone by itself; now it is held by leasehold lock"),
        "{outcome:?}"
    );
    second.line();
    assert!(second.is_running());
    second.signal(Signal::SIGTERM);
    second.outcome().ended_with(0);
    let nobody = forced(&stage, at, &[], "demo").ended_with(0);
    assert_eq!(nobody.stdout, "");
    assert!(nobody.stderr.contains("lock \"demo\": nobody holds it"), "{nobody:?}");
}

/// It ends in its own way, or not at all, and is not asked twice.
#[test]
fn a_command_that_is_asked_to_go_gets_term_and_is_left_to_end_as_it_likes() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let at = served.endpoint.as_str();
    let scripts = [
        "trap 'echo asked; exit 7' TERM; echo ready; while :; do sleep 0.01; done",
        "trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done",
    ];
    let [mut tidy, mut deaf] = ["tidy", "deaf"].map(|name| {
        let script = scripts[usize::from(name == "deaf")];
        stage.start(["run", "--endpoints", at, name, "--", "sh", "-c", script])
    });
    for one in [&mut tidy, &mut deaf] {
        assert_eq!(one.line(), "ready");
    }
    let outcome = break_lock(&stage, at, &["--force", "--wait", "60s"], "tidy").outcome().ended_with(0);
    assert!(outcome.stdout.starts_with("gone tidy/"), "{outcome:?}");
    let ended = tidy.outcome().ended_with(7);
    assert!(ended.stderr.contains("lock \"tidy\"") && ended.stderr.contains("sending TERM"), "{ended:?}");

    let outcome = break_lock(&stage, at, &["--force", "--wait", "5s"], "deaf").outcome().ended_with(0);
    assert!(outcome.stdout.starts_with("broken deaf/"), "{outcome:?}");
    assert_eq!(deaf.line(), "asked");
    let ended = deaf.outcome().ended_with(123);
    assert!(ended.stderr.contains("is lost"), "{ended:?}");
    assert_eq!(ended.stderr.matches("asks for it").count(), 1, "{ended:?}");
}

#[test]
fn without_a_terminal_it_wants_force_and_does_nothing() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let (mut first, _) = holder(&stage, &served.endpoint, "demo");
    let outcome = break_lock(&stage, &served.endpoint, &["--wait", "0s"], "demo").outcome().ended_with(64);
    assert!(outcome.stderr.contains("--force") && outcome.stderr.lines().count() == 1, "{outcome:?}");
    assert!(first.is_running());
    for (args, names) in [
        (&["break", "--force"][..], "<NAME>"),
        (&["break", "--force", "demo"], "--local"),
        (&["break", "--force", "--local", "--wait", "5", "demo"], "--wait"),
        (&["break", "--force", "--local", ""], "lock name"),
    ] {
        let outcome = stage.run(args).ended_with(64);
        assert!(outcome.stderr.contains(names) && outcome.stderr.lines().count() == 1, "{outcome:?}");
    }
}

#[test]
fn at_a_terminal_it_asks() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let at = served.endpoint.as_str();
    let scene = format!("LEASEHOLD break --endpoints {at} --wait 0s demo\necho \"code $?\"\n");
    for (typed, code, word) in [
        (Some("n\n"), "code 75", None),
        (Some("y\n"), "code 0", Some("broken ")),
        (None, "code 0", Some("gone ")),
    ] {
        let (mut first, key) = holder(&stage, at, "demo");
        let Some(mut running) = at_terminal(&stage, &scene) else { return };
        while !running.line().contains("held by leasehold lock") {}
        match typed {
            Some(typed) => running.write(typed),
            // It goes while the question stands there.
            None => first.signal(Signal::SIGTERM),
        }
        let mut told = Vec::new();
        while told.last().is_none_or(|line: &String| line != code) {
            told.push(running.line().trim().to_owned());
        }
        // The question stands on the same line if what was typed was echoed before it.
        let said = told.iter().any(|line| word.is_some_and(|word| line.ends_with(&format!("{word}{key}"))));
        assert_eq!(said, word.is_some(), "{told:?}");
        if word.is_none() {
            assert!(first.is_running());
            first.signal(Signal::SIGTERM);
        }
        first.outcome();
    }
}

/// A33, A49: entries that no time ends, as a lease past its end or a put without one leave them, are freed by hand.
#[test]
fn a33_a49_an_entry_that_stays_for_ever_is_freed() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let at = served.endpoint.as_str();
    block_on(async { served.etcd().put("demo/7-0", "", LeaseId::NONE).await.unwrap() });
    stage.run(["run", "--endpoints", at, "-n", "demo", "true"]).ended_with(75);
    let outcome = forced(&stage, at, &["--revoke-lease"], "demo").ended_with(0);
    assert_eq!(outcome.stdout, "broken demo/7-0\n");
    assert!(
        outcome.stderr.contains("on no lease") && outcome.stderr.contains("nobody waits for it"),
        "{outcome:?}"
    );
    stage.run(["run", "--endpoints", at, "-n", "demo", "true"]).ended_with(0);
}

#[test]
fn what_is_no_locks_entry_is_deleted_only_if_that_is_said() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let at = served.endpoint.as_str();
    let etcd = served.etcd();
    let get = |key: &'static str| block_on(async { etcd.get(key).await.unwrap() });
    block_on(async { etcd.put("demo/settings", "x", LeaseId::NONE).await.unwrap() });
    let outcome = forced(&stage, at, &[], "demo").ended_with(64);
    assert!(outcome.stderr.contains("demo/settings") && outcome.stderr.contains("--foreign"), "{outcome:?}");
    assert!(get("demo/settings").is_some());
    assert_eq!(forced(&stage, at, &["--foreign"], "demo").ended_with(0).stdout, "broken demo/settings\n");
    assert!(get("demo/settings").is_none());

    let lock = DistributedLock::new(etcd.clone(), "demo", "worker-1", Ttl::default()).unwrap();
    assert!(block_on(lock.try_lock()).unwrap());
    let outcome = forced(&stage, at, &[], "demo").ended_with(0);
    assert_eq!(outcome.stdout, "");
    assert!(outcome.stderr.contains("token worker-1") && outcome.stderr.contains("--foreign"), "{outcome:?}");
    let lost = lock.lost().unwrap();
    assert_eq!(forced(&stage, at, &["--foreign"], "demo").ended_with(0).stdout, "broken demo\n");
    assert_eq!(block_on(lost.wait()), LossCause::KeyDeleted);
    assert!(get("demo").is_none());
}

#[test]
fn other_locks_on_the_same_lease_go_along_only_if_that_is_said() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let at = served.endpoint.as_str();
    let etcd: Remote = served.etcd();
    let (session, locks): (Session, [Guard; 3]) = block_on(async {
        let session = Session::open(etcd.clone()).await.unwrap();
        let lock = async |name: &str| Mutex::new(&session, name.parse().unwrap()).lock().await.unwrap();
        let locks = [lock("a").await, lock("b").await, lock("c").await];
        (session, locks)
    });
    let [a, b, c] = &locks;
    forced(&stage, at, &[], "a").ended_with(0);
    assert_eq!(block_on(a.lost().wait()), LossCause::KeyDeleted);
    block_on(b.verify()).unwrap();
    let outcome = forced(&stage, at, &["--revoke-lease"], "b").ended_with(0);
    let lease = b.key().to_string();
    let lease = lease.trim_start_matches("b/").split('-').next().unwrap();
    assert_eq!(outcome.stdout, format!("broken {}\nrevoked {lease}\n", b.key()));
    block_on(c.lost().wait());
    let left = block_on(async { etcd.get(c.key().clone()).await.unwrap() });
    assert!(left.is_none());
    block_on(session.close()).unwrap();
}

#[test]
fn the_lock_of_etcdctl_is_broken_too() {
    let Some(etcd) = RealEtcd::start(Version::V37, Options::default()) else { return };
    let Some(etcdctl) = Etcdctl::find(&etcd.endpoints()) else { return };
    let (stage, at) = (Stage::new(), etcd.endpoint());
    let mut theirs = etcdctl.start(&["lock", "--ttl", "60", "demo"]);
    let key = theirs.lines().next().unwrap().unwrap();
    let second = waiter(&stage, &at, "demo");
    let outcome = forced(&stage, &at, &[], "demo").ended_with(0);
    assert_eq!(outcome.stdout, format!("broken {key}\n"));
    assert!(outcome.stderr.contains("a client that does not say who it is"), "{outcome:?}");
    second.line();
}
