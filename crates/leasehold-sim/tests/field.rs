//! The real thing, for as long as a test may take, and what it says to what cannot be.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::path::Path;
use std::process::{Command, Output};

use leasehold_testbed::Part;

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
    // Whoever has no `ip` has no namespaces.
    let mut command = Command::new(env!("CARGO_BIN_EXE_leasehold-field"));
    let output = command.env("PATH", "/nowhere").args(["--etcd", "/bin/false"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let first = said.lines().next().unwrap_or_default();
    assert!(first.contains("namespaces are not permitted here: proxies on loopback alone"), "{said}");
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
    let own = format!("-{pid}-");
    let folders = Path::read_dir(&std::env::temp_dir()).unwrap();
    let left = folders
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.contains(&own));
    let left: Vec<_> = left.collect();
    assert!(left.is_empty() || std::env::var_os("LEASEHOLD_KEEP").is_some(), "{left:?}");
}
