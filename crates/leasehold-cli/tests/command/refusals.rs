//! Bad input: one line that names the lock or the setting, an exit code of its own, nothing left behind.

use std::ffi::OsStr;
use std::io::Read;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::time::{Duration, Instant};

use leasehold_testbed::block_on;

use crate::stage::{Outcome, Running, Served, Stage};

#[track_caller]
fn refused(outcome: Outcome, code: i32, names: &str) {
    let outcome = outcome.ended_with(code);
    let lines: Vec<_> = outcome.stderr.lines().collect();
    let [line] = lines[..] else { panic!("not one line: {outcome:?}") };
    assert!(line.starts_with("leasehold: ") && line.contains(names), "{line:?} does not name {names:?}");
    assert_eq!(outcome.stdout, "");
}

fn is_empty(served: &Served) -> bool {
    block_on(async {
        use leasehold::etcd::Etcd as _;
        let all = leasehold::mvcc::RangeRequest::range(leasehold::mvcc::KeyRange::all());
        served.etcd().range(all).await.unwrap().kvs.is_empty()
    })
}

#[test]
fn a_bad_name_or_option_is_refused_by_each_verb_in_one_line_and_leaves_nothing() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let at = ["--endpoints", served.endpoint.as_str()];
    let kilobytes = "x".repeat(10 << 10);
    let wide = "ü".repeat(257);
    let names: &[(&[u8], &str)] = &[
        (b"", "lock name"),
        (kilobytes.as_bytes(), "10240 bytes"),
        (wide.as_bytes(), "514 bytes"),
        (b"a\nb", "lock name"),
        (b"a\x1b[2Jb", "control character"),
        (b"a\tb", "control character"),
        (b"a\x7f", "control character"),
        ("a\u{85}b".as_bytes(), "control character"),
        (b"a\xff", "not UTF-8"),
        (b"\xc3", "lock name"),
    ];
    for verb in ["run", "lock"] {
        for (name, names) in names {
            let mut args = vec![OsStr::new(verb)];
            args.extend(at.map(OsStr::new));
            args.push(OsStr::from_bytes(name));
            if verb == "run" {
                args.push(OsStr::new("true"));
            }
            let outcome = stage.run(args);
            assert!(outcome.stderr.len() < 300, "a long name is not repeated: {outcome:?}");
            assert!(!outcome.stderr.trim_end().contains(|c: char| c.is_control()), "{outcome:?}");
            refused(outcome, 64, names);
        }
        for (option, value, names) in [
            ("--ttl", "0s", "--ttl"),
            ("--ttl", "1ms", "--ttl"),
            ("--ttl", "1s", "--ttl"),
            ("--ttl", "1999ms", "--ttl"),
            ("--ttl", "301s", "--ttl"),
            ("--ttl", "876000h", "--ttl"),
            ("--ttl", "18446744073709551615s", "--ttl"),
            ("--wait", "18446744073709551616s", "--wait"),
            ("--frob", "x", "--frob"),
        ] {
            let args = [&[verb, option, value][..], &at, &["demo"]].concat();
            refused(stage.run([&args[..], if verb == "run" { &["true"] } else { &[] }].concat()), 64, names);
        }
    }
    let options: &[&[u8]] = &[b"--ttl=\xff", b"--endpoints=\xff", b"--wait=\xff"];
    for option in options {
        let args = [OsStr::new("run"), OsStr::from_bytes(option), OsStr::new("demo"), OsStr::new("true")];
        let named = String::from_utf8_lossy(&option[..5]).into_owned();
        refused(stage.run(args), 64, &named);
    }
    assert!(is_empty(&served));
}

#[test]
fn a68_b27_each_setting_is_refused_by_its_name_if_it_is_nothing_negative_or_no_number() {
    let stage = Stage::new();
    let nowhere = ["--endpoints", "127.0.0.1:1"];
    for value in
        ["", "0", "abc", "-5", "-5s", "1.5s", "2147483648", "9223372036854775807", "9223372036854775807s"]
    {
        for setting in ["--ttl", "--wait", "--grace", "--connect-timeout"] {
            // A wait of a few hundred thousand million years is one.
            if setting == "--wait" && value == "9223372036854775807s" {
                continue;
            }
            let run = [&["run", setting, value][..], &nowhere, &["demo", "true"]].concat();
            refused(stage.run(run), 64, setting);
        }
    }
    for value in ["", "abc", "-5", "256", "1.5"] {
        let args = ["run", "--conflict-exit-code", value, "--endpoints", "127.0.0.1:1", "demo", "true"];
        refused(stage.run(args), 64, "--conflict-exit-code");
    }
    for value in ["", "0", "abc", "-5", "1.5", "a b"] {
        // Each is an option's own value, however it looks.
        refused(stage.run(["run", &format!("--endpoints={value}"), "demo", "true"]), 64, "--endpoints");
        refused(stage.run(["serve", &format!("--listen={value}")]), 64, "--listen");
        let with = |name: &str, other: &str| {
            let mut command = stage.leasehold(["run", "demo", "true"]);
            command.env(name, value).env(other, "");
            Running::start(command).outcome()
        };
        // Nothing and 0 are ways to say no there, after which nothing is named at all.
        let names = if value.is_empty() { "--endpoints" } else { "ETCDCTL_ENDPOINTS" };
        refused(with("ETCDCTL_ENDPOINTS", "LEASEHOLD_LOCAL"), 64, names);
        let names = if matches!(value, "" | "0") { "--local" } else { "LEASEHOLD_LOCAL" };
        refused(with("LEASEHOLD_LOCAL", "ETCDCTL_ENDPOINTS"), 64, names);
    }
}

#[test]
fn bad_input_is_refused_in_one_line_and_leaves_nothing() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let at = served.endpoint.as_str();
    let bare = stage.path("bare");
    std::fs::write(&bare, "echo no").unwrap();
    let bare = bare.to_str().unwrap();
    let table: &[(&[&str], i32, &str)] = &[
        (&["run", "--endpoints", at, "--ttl", "15", "demo", "true"], 64, "15s"),
        (&["run", "--endpoints", at, "--grace", "4s", "demo", "true"], 64, "--grace"),
        (&["run", "--endpoints", at, "demo"], 64, "<CMD>"),
        (&["run", "--endpoints", at], 64, "<NAME>"),
        (&["run", "demo", "true"], 64, "--local"),
        (&["run", "--local", "--endpoints", at, "demo", "true"], 64, "--endpoints"),
        (&["run", "--endpoints", "nonsense", "demo", "true"], 64, "--endpoints"),
        (&["run", "--endpoints", "ftp://x:1", "demo", "true"], 64, "--endpoints"),
        (&["run", "--endpoints", "x:99999", "demo", "true"], 64, "--endpoints"),
        (&["run", "--endpoints", "x:1,,", "demo", "true"], 64, "--endpoints"),
        (&["run", "--endpoints", at, "demo", "no-such-command"], 127, "no-such-command"),
        (&["run", "--endpoints", at, "demo", "/no/such"], 127, "/no/such"),
        (&["run", "--endpoints", at, "demo", "/etc/passwd"], 126, "/etc/passwd"),
        (&["run", "--endpoints", at, "demo", "/etc"], 126, "/etc"),
        (&["run", "--endpoints", at, "demo", bare], 126, bare),
        (&["run", "--endpoints", at, "demo", ""], 126, "\"\""),
        (&["lock", "--endpoints", at], 64, "<NAME>"),
        (&["lock", "demo"], 64, "--local"),
        (&["lock", "--endpoints", "nonsense", "demo"], 64, "--endpoints"),
        (&["lock", "--endpoints", at, "demo", "true"], 64, "true"),
        (&["serve", "--listen", "2379", "--state-dir", "/tmp"], 64, "--listen"),
        (&["serve", "--listen", at], 74, "--listen"),
        (&["serve", "--state-dir", "/proc/no"], 74, "--state-dir"),
    ];
    for (args, code, names) in table {
        refused(stage.run(*args), *code, names);
    }
    let not_text = [
        OsStr::new("run"),
        OsStr::new("--endpoints"),
        OsStr::new(at),
        OsStr::new("demo"),
        OsStr::from_bytes(b"\xff"),
    ];
    refused(stage.run(not_text), 127, "command not found");
    assert!(is_empty(&served));
}

#[test]
fn a_command_may_be_of_any_bytes() {
    let stage = Stage::new();
    let args = ["run", "--local", "demo", "printf", "%s"].map(OsStr::new);
    let outcome = stage.run(args.into_iter().chain([OsStr::from_bytes(b"a\xffb")])).ended_with(0);
    assert!(outcome.stdout.is_empty() || outcome.stdout.starts_with('a'), "{outcome:?}");
    let program = stage.path("").join(OsStr::from_bytes(b"prog\xff"));
    std::fs::write(&program, "#!/bin/sh\necho it ran\n").unwrap();
    std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let args = ["run", "--local", "demo"].map(OsStr::new);
    assert_eq!(stage.run(args.into_iter().chain([program.as_os_str()])).ended_with(0).stdout, "it ran\n");
}

#[test]
fn the_environment_names_the_etcd_as_options_do() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let run = |endpoints: &str, local: &str| {
        let mut command = stage.leasehold(["run", "demo", "true"]);
        command.env("ETCDCTL_ENDPOINTS", endpoints).env("LEASEHOLD_LOCAL", local);
        Running::start(command).outcome()
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
        let at = ["--connect-timeout", "1s", "--endpoints", endpoint, "demo"];
        for verb in [[&["run"][..], &at, &["true"]].concat(), [&["lock"][..], &at].concat()] {
            let started = Instant::now();
            let outcome = stage.run(&verb);
            assert!(started.elapsed() < Duration::from_secs(4), "{verb:?}: {:?}", started.elapsed());
            refused(outcome, 69, endpoint);
        }
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
    let at = ["--connect-timeout", "1s", "--endpoints", &endpoint, "demo"];
    for verb in [[&["run"][..], &at, &["true"]].concat(), [&["lock"][..], &at].concat()] {
        refused(stage.run(verb), 76, &endpoint);
    }
}

#[test]
fn a_runtime_folder_that_cannot_be_used_is_refused_by_its_name() {
    let stage = Stage::new();
    let run = |folder: &str| {
        let mut command = stage.leasehold(["run", "--local", "demo", "true"]);
        command.env("XDG_RUNTIME_DIR", folder);
        Running::start(command).outcome()
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
