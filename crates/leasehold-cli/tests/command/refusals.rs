//! Bad input: one line that names the lock or the setting, an exit code of its own, nothing left behind.

use std::io::Read;
use std::net::TcpListener;
use std::time::{Duration, Instant};

use leasehold_testbed::block_on;

use crate::stage::{Outcome, Served, Stage};

#[track_caller]
fn refused(outcome: Outcome, code: i32, names: &str) {
    let outcome = outcome.ended_with(code);
    let lines: Vec<_> = outcome.stderr.lines().collect();
    let [line] = lines[..] else { panic!("not one line: {outcome:?}") };
    assert!(line.starts_with("leasehold: ") && line.contains(names), "{line:?} does not name {names:?}");
    assert_eq!(outcome.stdout, "");
}

#[test]
fn bad_input_is_refused_in_one_line_and_leaves_nothing() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let at = served.endpoint.as_str();
    let long = "x".repeat(513);
    let table: &[(&[&str], i32, &str)] = &[
        (&["run", "--endpoints", at, "", "true"], 64, "lock name"),
        (&["run", "--endpoints", at, &long, "true"], 64, "513 bytes"),
        (&["run", "--endpoints", at, "a\nb", "true"], 64, "lock name"),
        (&["run", "--endpoints", at, "a\u{1b}b", "true"], 64, "control character"),
        (&["run", "--endpoints", at, "--ttl", "1s", "demo", "true"], 64, "--ttl"),
        (&["run", "--endpoints", at, "--ttl", "1999ms", "demo", "true"], 64, "--ttl"),
        (&["run", "--endpoints", at, "--ttl", "301s", "demo", "true"], 64, "--ttl"),
        (&["run", "--endpoints", at, "--ttl", "15", "demo", "true"], 64, "15s"),
        (&["run", "--endpoints", at, "--wait", "5", "demo", "true"], 64, "--wait"),
        (&["run", "--endpoints", at, "--wait", "-5s", "demo", "true"], 64, "--wait"),
        (&["run", "--endpoints", at, "--frob", "demo", "true"], 64, "--frob"),
        (&["run", "--endpoints", at, "demo"], 64, "<CMD>"),
        (&["run", "demo", "true"], 64, "--local"),
        (&["run", "--local", "--endpoints", at, "demo", "true"], 64, "--endpoints"),
        (&["run", "--endpoints", "nonsense", "demo", "true"], 64, "--endpoints"),
        (&["run", "--endpoints", "ftp://x:1", "demo", "true"], 64, "--endpoints"),
        (&["run", "--endpoints", "", "demo", "true"], 64, "--endpoints"),
        (&["run", "--endpoints", at, "demo", "no-such-command"], 127, "no-such-command"),
        (&["run", "--endpoints", at, "demo", "/no/such"], 127, "/no/such"),
        (&["run", "--endpoints", at, "demo", "/etc/passwd"], 126, "/etc/passwd"),
        (&["run", "--endpoints", at, "demo", "/etc"], 126, "/etc"),
        (&["lock", "--endpoints", at, ""], 64, "lock name"),
        (&["lock", "demo"], 64, "--local"),
        (&["serve", "--listen", "2379", "--state-dir", "/tmp"], 64, "--listen"),
        (&["serve", "--listen", at], 74, "--listen"),
        (&["serve", "--state-dir", "/proc/no"], 74, "--state-dir"),
    ];
    for (args, code, names) in table {
        refused(stage.run(*args), *code, names);
    }
    block_on(async {
        use leasehold::etcd::Etcd as _;
        let all = leasehold::mvcc::RangeRequest::range(leasehold::mvcc::KeyRange::all());
        assert!(served.etcd().range(all).await.unwrap().kvs.is_empty());
    });
}

#[test]
fn the_environment_names_the_etcd_as_options_do() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let run = |endpoints: &str, local: &str| {
        let mut command = stage.leasehold(["run", "demo", "true"]);
        command.env("ETCDCTL_ENDPOINTS", endpoints).env("LEASEHOLD_LOCAL", local);
        crate::stage::Running::start(command).outcome()
    };
    run(&served.endpoint, "").ended_with(0);
    run("", "1").ended_with(0);
    refused(run("", ""), 64, "--endpoints");
    refused(run(&served.endpoint, "1"), 64, "ETCDCTL_ENDPOINTS");
    refused(run("", "maybe"), 64, "LEASEHOLD_LOCAL");
    refused(run("nonsense", "0"), 64, "ETCDCTL_ENDPOINTS");
}

#[test]
fn an_etcd_that_refuses_or_hangs_is_given_up_in_time() {
    let stage = Stage::new();
    // Takes connections and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let hanging = silent.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let taken: Vec<_> = silent.incoming().collect();
        drop(taken);
    });
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let refusing = free.local_addr().unwrap().to_string();
    drop(free);
    let absent = format!("unix://{}", stage.path("absent.sock").display());
    for endpoint in [&hanging, &refusing, &absent] {
        let started = Instant::now();
        let outcome = stage.run(["run", "--connect-timeout", "1s", "--endpoints", endpoint, "demo", "true"]);
        assert!(started.elapsed() < Duration::from_secs(4), "{endpoint}: {:?}", started.elapsed());
        refused(outcome, 69, endpoint);
    }
}

#[test]
fn what_is_no_etcd_is_told() {
    let stage = Stage::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for socket in listener.incoming().flatten() {
            use std::io::Write as _;
            let mut socket = socket;
            let _ = socket.read(&mut [0; 64]);
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let outcome = stage.run(["run", "--connect-timeout", "1s", "--endpoints", &endpoint, "demo", "true"]);
    assert!(matches!(outcome.code(), 69 | 76), "{outcome:?}");
    assert_eq!(outcome.stderr.lines().count(), 1, "{outcome:?}");
}

#[test]
fn a_runtime_folder_that_cannot_be_used_is_refused_by_its_name() {
    let stage = Stage::new();
    let run = |folder: &str| {
        let mut command = stage.leasehold(["run", "--local", "demo", "true"]);
        command.env("XDG_RUNTIME_DIR", folder);
        crate::stage::Running::start(command).outcome()
    };
    refused(run(&format!("/tmp/{}", "x".repeat(120))), 64, "XDG_RUNTIME_DIR");
    refused(run("relative"), 64, "XDG_RUNTIME_DIR");
    refused(run("/no/such/folder"), 74, "XDG_RUNTIME_DIR");
    let socket = format!("/tmp/{}", "x".repeat(120));
    refused(stage.run(["serve", "--socket", &socket]), 74, "--socket");
}

#[test]
fn help_lists_the_exit_codes() {
    let stage = Stage::new();
    for args in
        [&["--help"][..], &["run", "--help"], &["run", "-h"], &["lock", "--help"], &["serve", "--help"]]
    {
        let help = stage.run(args).ended_with(0).stdout;
        for code in ["64", "69", "74", "75", "123", "126", "127", "128+n"] {
            assert!(help.contains(code), "{args:?} does not list {code}");
        }
    }
    stage.run(["--version"]).ended_with(0);
    stage.run::<&str>([]).ended_with(64);
}
