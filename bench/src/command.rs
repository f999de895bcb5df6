//! A command under a lock, from the shell: `leasehold run NAME -- true` against `etcdctl lock NAME true`.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use leasehold_testbed::{Etcdctl, RealEtcd};

use crate::options::Length;
use crate::report::{Figure, Findings, Found, Goal, Row};
use crate::samples::{Samples, Summary};

/// Names the `leasehold` command to measure.
const VARIABLE: &str = "LEASEHOLD_BIN";

pub(crate) fn measure(server: &RealEtcd, length: Length) -> Findings {
    let what = "`leasehold run NAME -- true`, wall time p50".into();
    let goal = Goal::AtMost(1.0);
    let (found, samples) = match contestants(server) {
        Ok((ours, theirs)) => race(ours, theirs, length),
        Err(why) => (Found::NotMeasured { why }, Vec::new()),
    };
    Findings { rows: vec![Row { what, goal, found }], samples }
}

fn race(mut ours: Command, mut theirs: Command, length: Length) -> (Found, Vec<Summary>) {
    // The first run of each reads its program from the disk.
    run(&mut ours);
    run(&mut theirs);
    let (mut our_times, mut their_times, mut rounds) = (Samples::default(), Samples::default(), Vec::new());
    let runs = length.runs / length.rounds;
    for round in 0..length.rounds {
        let (mut ours_now, mut theirs_now) = (Samples::default(), Samples::default());
        for turn in 0..runs {
            for contestant in 0..2 {
                if (round + turn + contestant) % 2 == 0 {
                    ours_now.add(run(&mut ours));
                } else {
                    theirs_now.add(run(&mut theirs));
                }
            }
        }
        rounds.push(ours_now.median() / theirs_now.median());
        our_times.extend(ours_now);
        their_times.extend(theirs_now);
    }
    let found = Found::Measured {
        ours: Figure::Seconds(our_times.median()),
        peer: Some(("`etcdctl lock NAME true`", Figure::Seconds(their_times.median()))),
        rounds,
    };
    let samples = vec![
        Summary::of("command: leasehold run", &our_times),
        Summary::of("command: etcdctl lock", &their_times),
    ];
    (found, samples)
}

/// Both commands, or what is missing.
fn contestants(server: &RealEtcd) -> Result<(Command, Command), String> {
    let leasehold = find_leasehold()?;
    let etcdctl = Etcdctl::find(&server.endpoints())
        .ok_or("there is no etcdctl 3.5 here; `.ci/fetch-etcdctl` fetches it")?
        .path()
        .to_owned();
    let endpoint = server.endpoint();
    let ours = command(leasehold, &["run", "--endpoints", &endpoint, "bench/command/ours", "--", "true"]);
    let theirs = command(etcdctl, &["--endpoints", &endpoint, "lock", "bench/command/etcdctl", "true"]);
    Ok((ours, theirs))
}

/// In the variable, or beside this program, where cargo puts both.
fn find_leasehold() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os(VARIABLE).map(PathBuf::from) {
        return if named.is_file() { Ok(named) } else { Err(format!("{VARIABLE} names no file")) };
    }
    let beside = std::env::current_exe().ok().map(|own| own.with_file_name("leasehold"));
    beside.filter(|path| path.is_file()).ok_or_else(|| {
        format!(
            "there is no `leasehold` beside this program; build leasehold-cli too, or name one in {VARIABLE}"
        )
    })
}

fn command(program: PathBuf, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    // The settings of the person who measures must not leak in.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("ETCDCTL_") || text.starts_with("LEASEHOLD_") {
            command.env_remove(&name);
        }
    }
    command
        .env("ETCDCTL_API", "3")
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

fn run(command: &mut Command) -> Duration {
    let begun = Instant::now();
    let output = command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let taken = begun.elapsed();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {said}", output.status);
    taken
}
