//! The real thing, for as long as a test may take, and what it says to what cannot be.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test of real processes on real time")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use leasehold_testbed::{Part, Scratch};

fn field(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_leasehold-field")).args(args).output().unwrap()
}

fn refused(args: &[&str], code: i32, word: &str) {
    let output = field(args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    assert!(said.contains(word) && said.trim_end().lines().count() == 1, "{args:?}: {said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{args:?}");
}

#[test]
fn what_cannot_be_used_is_named_in_one_line() {
    refused(&["--seed", "lucky"], 64, "lucky");
    refused(&["--faults", "compact,flood"], 64, "flood");
    refused(&["--minutes", "0"], 64, "--minutes 0");
    refused(&["--minutes", "NaN"], 64, "--minutes NaN");
    refused(&["--clients", "1"], 64, "clients");
    refused(&["--etcd", "2.0"], 64, "2.0");
    refused(&["--fault", "compact"], 64, "--fault");
}

#[test]
fn a_missing_etcd_is_told_from_wrong_use_and_nothing_is_started() {
    refused(&["--etcd", "/nowhere/etcd"], 69, "/nowhere/etcd");
}

#[test]
fn a_program_that_is_no_etcd_is_given_up_with_nothing_left_behind() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_leasehold-field"));
    let output = child.args(["--loopback", "--etcd", "/bin/false"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(69), "{said}");
    assert!(said.contains("etcd does not serve") && said.trim_end().lines().count() == 1, "{said}");
}

#[test]
fn where_namespaces_are_not_permitted_it_says_so_and_goes_on_without() {
    // Whoever has no `ip` has no namespaces; members are started by a shell that needs two programs more.
    let tools = Scratch::new("no-ip");
    for tool in ["sh", "cat", "rm"] {
        std::os::unix::fs::symlink(Path::new("/bin").join(tool), tools.path().join(tool)).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold-field"));
    let output = command.env("PATH", tools.path()).args(["--etcd", "/bin/false"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<_> = said.lines().collect();
    assert!(lines[0].contains("namespaces are not permitted here: proxies on loopback alone"), "{said}");
    assert!(lines[1].contains("etcd does not serve") && lines.len() == 2, "{said}");
    assert_eq!(output.status.code(), Some(69));
}

#[test]
fn every_fault_is_listed_with_what_it_does() {
    let output = field(&["--list-faults"]);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success());
    assert!(said.lines().count() >= 12 && said.contains("kill-member") && said.contains("late-delivery"));
}

#[test]
fn a_quarter_of_a_minute_on_loopback_breaks_no_promise_and_leaves_nothing() {
    if Part::Etcd37.require().is_none() {
        return;
    }
    let arguments = ["--loopback", "--minutes", "0.25", "--seed", "7", "--clients", "4"];
    let child = Command::new(env!("CARGO_BIN_EXE_leasehold-field"))
        .args(arguments)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("violations: 0\n"), "{said}");
    assert_eq!(left_by(pid), [""; 0]);
}

#[test]
fn told_to_end_it_leaves_nothing_neither_with_namespaces_nor_without() {
    if Part::Etcd37.require().is_none() {
        return;
    }
    for arguments in [&["--loopback"][..], &[]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_leasehold-field"))
            .args(["--minutes", "5", "--clients", "2"])
            .args(arguments)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let pid = child.id();
        let end = Instant::now() + Duration::from_secs(20);
        while left_by(pid).iter().filter(|left| left.contains("etcd")).count() < 3 {
            assert!(Instant::now() < end, "its members do not start: {:?}", left_by(pid));
            assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
            std::thread::sleep(Duration::from_millis(20));
        }
        let told = Command::new("kill").args(["-TERM", &pid.to_string()]).status().unwrap();
        assert!(told.success());
        assert_eq!(child.wait().unwrap().code(), Some(143));
        assert_eq!(left_by(pid), [""; 0], "{arguments:?}");
    }
}

/// Members, folders and namespaces of the program that had this process id; empty if they are kept on purpose.
fn left_by(pid: u32) -> Vec<String> {
    let names = |folder: &Path| -> Vec<String> {
        let entries = Path::read_dir(folder).into_iter().flatten();
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
    };
    let folders = names(&std::env::temp_dir()).into_iter().filter(|name| name.contains(&format!("-{pid}-")));
    let kept = std::env::var_os("LEASEHOLD_KEEP").is_some();
    let spaces = names(Path::new("/run/netns")).into_iter().filter(|name| name.contains(&pid.to_string()));
    let token = format!("--initial-cluster-token=field-{pid}");
    let members = names(Path::new("/proc")).into_iter().filter_map(|process| {
        let command = std::fs::read(Path::new("/proc").join(&process).join("cmdline")).ok()?;
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        command.contains(&token).then(|| format!("etcd {process}"))
    });
    folders.filter(|_| !kept).chain(spaces).chain(members).collect()
}
