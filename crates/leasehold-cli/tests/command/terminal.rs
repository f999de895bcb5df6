//! At a terminal: who may read it, and what its keys do. `script` lends the terminal.

use std::process::{Command, Stdio};

use crate::stage::{Running, Stage, processes_with, soon};

/// Runs a shell script whose standard input, output and error are a terminal; `$0` is the binary.
pub(crate) fn at_terminal(stage: &Stage, script: &str) -> Option<Running> {
    if Command::new("script").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("no script(1) on this machine: not tried");
        return None;
    }
    let file = stage.path("scene.sh");
    let bin = env!("CARGO_BIN_EXE_leasehold");
    std::fs::write(&file, script.replace("LEASEHOLD", bin)).unwrap();
    let mut command = stage.program("script");
    command.args(["-qefc", &format!("bash -i {}", file.display()), "/dev/null"]);
    Some(Running::start(command))
}

#[test]
fn a_command_at_a_terminal_reads_from_it() {
    let stage = Stage::new();
    let scene =
        "LEASEHOLD run --local demo -- sh -c 'echo ready; read line; echo \"got $line\"; exit 5'\nexit $?\n";
    let Some(mut running) = at_terminal(&stage, scene) else { return };
    while running.line().trim() != "ready" {}
    running.write("hello\n");
    while running.line().trim() != "got hello" {}
    assert_eq!(running.status().code(), Some(5));
}

#[test]
fn a_command_in_a_pipeline_gets_the_terminal_when_it_asks_for_it() {
    let stage = Stage::new();
    let scene = "LEASEHOLD run --local demo -- sh -c 'echo ready; read line; echo \"got $line\"' | cat\n";
    let Some(mut running) = at_terminal(&stage, scene) else { return };
    while running.line().trim() != "ready" {}
    running.write("hello\n");
    while running.line().trim() != "got hello" {}
    assert_eq!(running.status().code(), Some(0));
}

#[test]
fn the_interrupt_key_reaches_the_command() {
    let stage = Stage::new();
    let scene = "LEASEHOLD run --local demo -- sh -c 'trap \"echo interrupted; exit 4\" INT; echo ready; while :; do sleep 0.05; done'\n\
                 echo \"code $?\"\n";
    let Some(mut running) = at_terminal(&stage, scene) else { return };
    while running.line().trim() != "ready" {}
    running.write("\u{3}");
    while !running.line().contains("interrupted") {}
    while running.line().trim() != "code 4" {}
}

#[test]
fn a_stopped_job_stops_whole_and_goes_on_whole() {
    let stage = Stage::new();
    let scene = "set -m\n\
                 LEASEHOLD run --local --ttl 20s demo -- sh -c 'echo ready; read line; echo \"got $line\"; exit 6'\n\
                 echo \"stopped with $?\"\n\
                 fg >/dev/null\n\
                 echo \"code $?\"\n";
    let Some(mut running) = at_terminal(&stage, scene) else { return };
    while running.line().trim() != "ready" {}
    running.write("\u{1a}");
    while !running.line().contains("stopped with 147") {}
    running.write("hello\n");
    while running.line().trim() != "got hello" {}
    while running.line().trim() != "code 6" {}
}

#[test]
fn a_job_that_is_stopped_for_longer_than_its_hold_is_ended_and_says_why_when_it_goes_on() {
    let stage = Stage::new();
    let marker = stage.path("marker").display().to_string();
    let scene = format!(
        "set -m\n\
         LEASEHOLD run --local --ttl 2s demo -- sh -c 'echo ready; while :; do sleep 0.05; done' {marker}\n\
         echo \"stopped with $?\"\n\
         read line\n\
         fg >/dev/null\n\
         echo \"code $?\"\n"
    );
    let Some(mut running) = at_terminal(&stage, &scene) else { return };
    while running.line().trim() != "ready" {}
    let command = |pid: &i32| {
        std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sh")
    };
    assert!(processes_with(&marker).iter().any(command));
    running.write("\u{1a}");
    while !running.line().contains("stopped with 147") {}
    soon("the guardian has ended it", || (!processes_with(&marker).iter().any(command)).then_some(()));
    running.write("\n");
    while running.line().trim() != "code 123" {}
}
