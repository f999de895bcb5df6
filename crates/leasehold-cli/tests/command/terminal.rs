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

/// The word behind `name` on the next line that has it; before it the terminal may have shown a key.
fn word(running: &Running, name: &str) -> String {
    loop {
        if let Some((_, word)) = running.line().split_once(name) {
            return word.trim().to_owned();
        }
    }
}

#[test]
fn a_job_that_is_stopped_for_longer_than_the_ttl_keeps_its_lock_and_goes_on() {
    let stage = Stage::new();
    let scene = "set -m\n\
                 LEASEHOLD run --local --ttl 2s demo -- sh -c 'echo key $ETCD_LOCK_KEY; read line; echo \"got $line\"; exit 6'\n\
                 echo \"stopped with $?\"\n\
                 sleep 5\n\
                 LEASEHOLD run --local --nonblock demo true\n\
                 echo \"others get $?\"\n\
                 fg >/dev/null\n\
                 echo \"code $?\"\n";
    let Some(mut running) = at_terminal(&stage, scene) else { return };
    let key = word(&running, "key");
    running.write("\u{1a}");
    while !running.line().contains("stopped with 147") {}
    assert_eq!(word(&running, "others get"), "75");
    assert_eq!(stage.queue("demo"), [leasehold::Key::from(key)]);
    running.write("hello\n");
    while running.line().trim() != "got hello" {}
    while running.line().trim() != "code 6" {}
}

#[test]
fn a_job_can_be_stopped_again_and_again_and_continued_in_the_background() {
    let stage = Stage::new();
    let scene = "set -m\n\
                 LEASEHOLD run --local --ttl 20s demo -- sh -c 'echo ready; while [ ! -e DONE ]; do sleep 0.05; done; exit 6'\n\
                 echo \"first $?\"\n\
                 fg >/dev/null\n\
                 echo \"second $?\"\n\
                 bg >/dev/null\n\
                 echo \"in the background\"\n\
                 touch DONE\n\
                 wait %1\n\
                 echo \"code $?\"\n";
    let scene = scene.replace("DONE", &stage.path("done").display().to_string());
    let Some(mut running) = at_terminal(&stage, &scene) else { return };
    while running.line().trim() != "ready" {}
    running.write("\u{1a}");
    assert_eq!(word(&running, "first"), "147");
    // Only once the command has the terminal again does the key mean it.
    soon("it goes on", || runs_in_the_foreground(&stage).then_some(()));
    running.write("\u{1a}");
    assert_eq!(word(&running, "second"), "147");
    while running.line().trim() != "in the background" {}
    assert_eq!(word(&running, "code"), "6");
}

/// Whether a command of this stage's runs and has the terminal.
fn runs_in_the_foreground(stage: &Stage) -> bool {
    processes_with(&stage.path("done").display().to_string()).into_iter().any(|pid| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields: Vec<_> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
        // State, parent, group, session, terminal, the terminal's group.
        let is_command = fields.get(2) == Some(&pid.to_string().as_str());
        let is_shell =
            std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sh");
        is_command && is_shell && fields.first() != Some(&"T") && fields.get(2) == fields.get(5)
    })
}

#[test]
fn a_waiter_that_is_stopped_waits_on_when_it_is_continued() {
    let stage = Stage::new();
    let mut holder = stage.start(stage.shell(&["--local"], "echo in; read line"));
    assert_eq!(holder.line(), "in");
    let scene = "set -m\n\
                 LEASEHOLD run --local --ttl 20s demo -- sh -c 'echo in too; exit 6'\n\
                 echo \"stopped with $?\"\n\
                 fg >/dev/null\n\
                 echo \"code $?\"\n";
    let Some(mut running) = at_terminal(&stage, scene) else { return };
    soon("it waits", || (stage.queue("demo").len() == 2).then_some(()));
    running.write("\u{1a}");
    assert_eq!(word(&running, "stopped with"), "147");
    holder.write("\n");
    while running.line().trim() != "in too" {}
    assert_eq!(word(&running, "code"), "6");
}

#[test]
fn a_terminal_that_stops_whoever_writes_without_having_it_does_not_stop_leasehold() {
    let stage = Stage::new();
    let scene = "set -m\nstty tostop\n\
                 LEASEHOLD run --local --verbose demo -- sh -c 'echo ready; exit 6'\necho \"code $?\"\n";
    let Some(running) = at_terminal(&stage, scene) else { return };
    assert_eq!(word(&running, "code"), "6");
}

#[test]
fn a_signal_to_the_process_that_the_shell_knows_reaches_the_command_once() {
    let stage = Stage::new();
    let script = "trap \"echo told\" TERM; echo ready; n=0; while [ \\$n -lt 20 ]; do sleep 0.05; n=\\$((n + 1)); done; exit 6";
    let scene = format!(
        "set -m\nLEASEHOLD run --local demo -- sh -c \"{}\" </dev/null &\nread line\nkill -TERM $!\nwait $!\necho \"code $?\"\n",
        script.replace('"', "\\\"")
    );
    let Some(mut running) = at_terminal(&stage, &scene) else { return };
    while running.line().trim() != "ready" {}
    running.write("\n");
    let mut told = 0;
    let code = loop {
        let line = running.line();
        told += usize::from(line.contains("told"));
        if let Some((_, code)) = line.split_once("code ") {
            break code.trim().to_owned();
        }
    };
    assert_eq!((told, code.as_str()), (1, "6"));
}

#[test]
fn killed_at_a_terminal_in_either_process_it_does_not_leave_its_command_behind() {
    for behind in [false, true] {
        let stage = Stage::new();
        let marker = stage.path("marker").display().to_string();
        let scene = format!(
            "LEASEHOLD run --local --ttl 60s demo -- sh -c 'echo ready; while :; do sleep 0.05; done' {marker}\n\
             echo \"code $?\"\nsleep 1000\n"
        );
        let Some(running) = at_terminal(&stage, &scene) else { return };
        while running.line().trim() != "ready" {}
        let proper = processes_with(&format!("--front {}", front_of(&marker)));
        let killed = if behind { proper[0] } else { front_of(&marker) };
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(killed), nix::sys::signal::Signal::SIGKILL)
            .unwrap();
        assert_eq!(word(&running, "code"), "137");
        soon("nothing of it is left", || processes_with(&marker).is_empty().then_some(()));
    }
}

/// The process that the shell knows, which is the parent of the other that has these words.
fn front_of(words: &str) -> i32 {
    let all = processes_with(words);
    let of = |pid: &&i32| !processes_with(&format!("--front {pid}")).is_empty();
    *all.iter().find(of).unwrap()
}
