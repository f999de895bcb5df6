//! A machine that sleeps for longer than a lease lives: the first look at the clock after waking says that all is lost.
//!
//! A machine cannot be put to sleep here. That the clock counts sleep is seen in a time namespace whose clock of that kind
//! is another one; what comes of it, by stopping everything there is.

use std::io::Write;
use std::process::Command;
use std::time::{Duration, Instant};

use leasehold::runtime::{Runtime, SystemRuntime};
use leasehold::{DistributedLock, Mutex, Ttl};
use leasehold_testbed::{Options, RealEtcd, Version, block_on, connect};

use crate::{Contained, open};

/// Tells a process of this program which part it plays.
const PART: &str = "LEASEHOLD_SLEEP_PART";

fn played_elsewhere(part: &str) -> Option<String> {
    std::env::var(PART).ok().and_then(|parts| parts.strip_prefix(part).map(str::to_owned))
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(format!("\n{line}\n").as_bytes()).and_then(|()| out.flush());
}

/// What a program reads on the library's clock, before and after a sleep on it.
#[test]
fn part_of_the_clock() {
    let Some(_) = played_elsewhere("clock") else { return };
    let runtime = SystemRuntime::shared().unwrap();
    let begun = runtime.now();
    block_on(runtime.sleep_until(begun + Duration::from_millis(50)));
    say(&format!("read {} {}", begun.as_nanos(), runtime.now().as_nanos()));
}

#[test]
fn d36_d38_deadlines_and_timers_are_of_the_clock_that_counts_sleep() {
    let ahead = Duration::from_secs(100_000);
    let own = std::env::current_exe().unwrap();
    let output = Command::new("unshare")
        .args(["--time", "--fork", "--boottime", &ahead.as_secs().to_string()])
        .arg(own)
        .args(["--exact", "sleep::part_of_the_clock", "--nocapture"])
        .env(PART, "clock")
        .output();
    let said = output.as_ref().map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let read = said.as_deref().ok().and_then(|said| said.lines().find_map(|line| line.strip_prefix("read ")));
    let Some(read) = read else {
        // Wants privileges, and a kernel that has such namespaces.
        eprintln!("left out: no time namespace here ({output:?})");
        return;
    };
    let read: Vec<u64> = read.split(' ').map(|nanos| nanos.parse().unwrap()).collect();
    let here = SystemRuntime::shared().unwrap().now().as_nanos();
    let (begun, ended) = (Duration::from_nanos(read[0]), Duration::from_nanos(read[1]));
    let offset = Duration::from_nanos(here).abs_diff(begun);
    assert!(offset.abs_diff(ahead) < Duration::from_secs(60), "{offset:?} of {ahead:?}");
    let slept = ended - begun;
    assert!(slept >= Duration::from_millis(50) && slept < Duration::from_secs(30), "{slept:?}");
}

/// Holds, and looks at nothing but the clock; says what the first check says after a gap in its own life.
#[test]
fn part_of_the_sleeper() {
    let Some(endpoint) = played_elsewhere("sleeper ") else { return };
    block_on(async {
        let etcd = connect(&[endpoint]);
        let session = open(etcd.clone(), 2).await;
        let guard = Mutex::new(&session, "lock".parse().unwrap()).lock().await.unwrap();
        let other = DistributedLock::new(etcd, "key", "sleeper", Ttl::seconds(2).unwrap()).unwrap();
        assert!(other.try_lock().await.unwrap());
        say("held");
        // On a thread that never gives way, so that this is the first of the process to look. Where it is stopped is a
        // matter of chance, also between two of these checks.
        let mut last = Instant::now();
        loop {
            let before = (guard.ensure_held(Duration::ZERO), other.held());
            let now = Instant::now();
            if now - last > Duration::from_secs(2) {
                let (checked, held) = (guard.ensure_held(Duration::ZERO), other.held());
                let run = guard.run_while_held(std::future::ready("worked")).await;
                say(&format!("woke {checked:?} {held} {run:?}"));
                return;
            }
            assert_eq!(before, (Ok(()), true));
            last = now;
        }
    });
}

#[test]
fn d36_d39_the_first_check_after_everything_was_stopped_for_longer_than_the_ttl_says_lost() {
    let Some(server) = RealEtcd::start(Version::V37, Options::default()) else { return };
    let own = std::env::current_exe().unwrap();
    let program =
        leasehold_testbed::Program::new(own).args(["--exact", "sleep::part_of_the_sleeper", "--nocapture"]);
    let mut sleeper: Contained = program.env(PART, format!("sleeper {}", server.endpoint())).start();
    let mut lines = sleeper.lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "held"));
    std::thread::sleep(Duration::from_millis(300));
    // The server too: its clock has not moved either, and it would renew.
    sleeper.freeze();
    server.freeze();
    std::thread::sleep(Duration::from_secs(4));
    server.thaw();
    sleeper.thaw();
    let woke = lines.find(|line| line.starts_with("woke")).expect("it wakes");
    assert_eq!(woke, "woke Err(Deadline) false Err(Deadline)");
    lines.for_each(drop);
}
