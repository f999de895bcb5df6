//! The real thing: three real etcd members and several client processes, under faults, checked as simulated
//! runs are.
//!
//! | file | holds |
//! |---|---|
//! | `args`, `stop` | what is typed; how it ends before its time, and the exit codes |
//! | `namespaces`, `links`, `network` | network namespaces and routes; the proxy; the two together |
//! | `members`, `clients` | processes, as this one sees them |
//! | `worker`, `skew`, `line` | a client process from within, its wrong clock, and what it tells |
//! | `faults`, `inflict` | which faults there are and when a seed does them; doing them |
//! | `recorder`, `witness` | the history: what clients believed, and what the store says |
//! | `report` | what is told at the end |
//!
//! The program is its own client: it starts itself again with `client` as its first word.

#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program on real time, with real processes: nothing here is replayed"
)]

pub mod args;
pub mod clients;
pub mod faults;
pub mod inflict;
pub mod line;
pub mod links;
pub mod members;
pub mod namespaces;
pub mod network;
pub mod recorder;
pub mod report;
pub mod skew;
pub mod stop;
pub mod witness;
pub mod worker;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use tokio::runtime::{Builder, Runtime};

use crate::check::{Promise, Violation, check};
use args::Args;
use clients::{Clients, Terms};
use faults::{Kind, Schedule};
use inflict::Scene;
use members::Members;
use namespaces::Namespaces;
use network::{MEMBERS, Network};
use recorder::{Recorded, Recorder};
use report::Report;
use stop::{Failure, Stop};
use witness::Witness;

/// How long the cluster may be without a leader, all tries of an election included.
const ELECTION: Duration = Duration::from_secs(3);
/// How long a member takes to notice that a lease is over, and to have it revoked.
const EXPIRY: Duration = Duration::from_secs(1);
/// For connections that are found to be dead and made anew, and for processes that wait for a processor.
const MARGIN: Duration = Duration::from_secs(6);
/// How long members may take to serve again after a fault, before the next one.
const RECOVERY: Duration = Duration::from_secs(30);

/// The program.
pub fn main() -> ExitCode {
    let mut words: Vec<_> = std::env::args_os().collect();
    if words.get(1).is_some_and(|word| word == "client") {
        words.remove(1);
        return match worker::Orders::try_parse_from(words) {
            Ok(orders) => worker::main(orders),
            Err(error) => fail(&Failure::usage(first_line(&error.to_string()))),
        };
    }
    let args = match Args::try_parse_from(words) {
        Ok(args) => args,
        Err(error) if error.use_stderr() => return fail(&Failure::usage(first_line(&error.to_string()))),
        Err(help) => {
            print!("{help}");
            return ExitCode::SUCCESS;
        }
    };
    if args.list_faults {
        print!("{}", Kind::list());
        return ExitCode::SUCCESS;
    }
    match run(&args) {
        Ok(report) => {
            print!("{}", report.summary());
            ExitCode::from(u8::from(!report.is_good()))
        }
        Err(failure) => fail(&failure),
    }
}

fn fail(failure: &Failure) -> ExitCode {
    if !failure.why.is_empty() {
        eprintln!("leasehold-field: {}", failure.why);
    }
    ExitCode::from(failure.code)
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
}

/// What a run is made of, once it is known to be possible.
struct Plan {
    kinds: Vec<Kind>,
    lasts: Duration,
    binary: PathBuf,
    seed: u64,
    locks: Vec<String>,
    ttl: Duration,
}

impl Plan {
    fn of(args: &Args) -> Result<Self, Failure> {
        let (kinds, lasts) = (args.kinds()?, args.duration()?);
        let drawn = || u64::from(std::process::id()) << 16 ^ u64::from(stamp());
        Ok(Self {
            kinds,
            lasts,
            binary: args.binary()?,
            seed: args.seed.unwrap_or_else(drawn),
            locks: ["field/a", "field/b", "field/c"].map(str::to_owned).to_vec(),
            ttl: Duration::from_secs(args.ttl),
        })
    }

    /// How long a lock is without a holder at most.
    fn rule(&self) -> Duration {
        self.ttl + ELECTION + EXPIRY
    }

    /// How long a lock may go without a grant after a fault.
    fn bound(&self) -> Duration {
        self.rule() + worker::LONGEST_HOLD + MARGIN
    }
}

fn stamp() -> u32 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.subsec_micros())
}

/// Does a run.
///
/// # Errors
/// If there is no verdict: something is missing, or it was told to stop.
pub fn run(args: &Args) -> Result<Report, Failure> {
    let plan = Plan::of(args)?;
    let machine = |error: std::io::Error| Failure::unavailable(format!("the machine refuses: {error}"));
    // A runtime of its own, for the one below begins in the namespace.
    let signals = threads(1).map_err(machine)?;
    let stop = Stop::on_signals(signals.handle()).map_err(machine)?;
    let clients = usize::from(args.clients);
    let spaces = if args.loopback { None } else { permitted(MEMBERS + clients)? };
    stop.check()?;
    let where_ = if spaces.is_some() { "in network namespaces" } else { "on loopback" };
    println!("seed {}: three etcd members and {clients} clients {where_}", plan.seed);

    let runtime = threads(2).map_err(machine)?;
    let network = Network::make(spaces, clients, runtime.handle().clone()).map_err(machine)?;
    let network = Arc::new(network);
    let recorder = Recorder::new().map_err(|error| Failure::unavailable(error.to_string()))?;
    let began = recorder.now();
    let mut members = Members::start(plan.binary.clone(), network.clone(), &stop)?;
    let addresses: Vec<SocketAddr> = (0..MEMBERS).map(|member| network.member(member).client).collect();
    let witness = Witness::start(addresses, plan.locks.clone());
    let terms = Terms { locks: &plan.locks, ttl: args.ttl, seed: plan.seed, clock_error: args.clock_error };
    let mut clients = Clients::start(clients, &terms, network.clone(), recorder.clone()).map_err(machine)?;

    let mut found = Vec::new();
    let mut scene = Scene {
        members: &mut members,
        clients: &mut clients,
        network: &network,
        witness: &witness,
        recorder: &recorder,
        stop: &stop,
        ttl: plan.ttl,
    };
    let (done, regained) = play(&plan, &mut scene, &mut found)?;
    clients.look();
    clients.end();
    found.extend(leftovers(&plan, &members, &recorder, &stop)?);
    let (entries, gaps) = conclude(witness, &members, &stop)?;
    let lasted = recorder.now().since(began);
    let Recorded { mut history, faults, surprises, failures, violations } = recorder.finish();
    history.entries = entries;
    let failures = [failures, gaps].concat();
    drop((clients, members));
    let mut checked = check(&history, Duration::ZERO);
    checked.violations.extend(found);
    checked.violations.extend(violations);
    let report = Report {
        setting: args.setting(),
        seed: plan.seed,
        lasted,
        began,
        history,
        faults,
        surprises,
        done,
        regained,
        rule: plan.rule(),
        bound: plan.bound(),
        failures,
        checked,
    };
    if let Some(file) = &args.story {
        std::fs::write(file, report.whole_story())
            .map_err(|error| Failure::unavailable(format!("cannot write {}: {error}", file.display())))?;
    }
    Ok(report)
}

fn threads(count: usize) -> std::io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(count).enable_all().build()
}

/// Namespaces, if they are permitted; if not, that is said.
fn permitted(nodes: usize) -> Result<Option<Namespaces>, Failure> {
    match Namespaces::make(nodes) {
        Ok(spaces) => Ok(Some(spaces)),
        Err(why) => {
            eprintln!(
                "leasehold-field: namespaces are not permitted here: proxies on loopback alone ({why})"
            );
            Ok(None)
        }
    }
}

type Played = (BTreeMap<Kind, usize>, Vec<Duration>);

/// Does the schedule until the time is over.
fn play(plan: &Plan, scene: &mut Scene<'_>, found: &mut Vec<Violation>) -> Result<Played, Failure> {
    let (mut done, mut times) = (BTreeMap::new(), Vec::new());
    // All clients must be there first.
    regain(plan, scene, found, &mut Vec::new())?;
    let end = Instant::now() + plan.lasts;
    let mut schedule = Schedule::new(plan.seed, &plan.kinds);
    while Instant::now() < end {
        let Some(step) = schedule.next() else {
            scene.stop.pause(end.saturating_duration_since(Instant::now()));
            break;
        };
        scene.play(&step).map_err(Failure::unavailable)?;
        for (kind, _) in &step.faults {
            *done.entry(*kind).or_default() += 1;
        }
        regain(plan, scene, found, &mut times)?;
        if !scene.members.recovered(RECOVERY, scene.stop) {
            scene.recorder.failure(format!("a member does not serve {RECOVERY:?} after {step:?}"));
        }
        scene.clients.look();
        scene.stop.pause(step.calm);
        scene.stop.check()?;
    }
    Ok((done, times))
}

/// Waits until every lock was granted anew, and notes how long that took.
fn regain(
    plan: &Plan,
    scene: &Scene<'_>,
    found: &mut Vec<Violation>,
    times: &mut Vec<Duration>,
) -> Result<(), Failure> {
    let (from, bound) = (scene.recorder.now(), plan.bound());
    let mut waiting: Vec<usize> = (0..plan.locks.len()).collect();
    while !waiting.is_empty() {
        let grants = scene.recorder.last_grants(&plan.locks);
        let regained = waiting.extract_if(.., |lock| grants[*lock] > from);
        times.extend(regained.map(|lock| grants[lock].since(from)));
        let now = scene.recorder.now();
        if now.since(from) > bound {
            for lock in &waiting {
                let what = format!("{} was not granted for {bound:?} after a fault", plan.locks[*lock]);
                found.push(Violation { promise: Promise::Progress, at: now, what });
            }
            break;
        }
        scene.stop.check()?;
        scene.stop.pause(Duration::from_millis(10));
    }
    Ok(())
}

/// After all clients have ended nothing of theirs may be left, once the leases of those killed are over.
fn leftovers(
    plan: &Plan,
    members: &Members,
    recorder: &Recorder,
    stop: &Stop,
) -> Result<Option<Violation>, Failure> {
    let from = Instant::now();
    loop {
        // Every lease ends, and with it its keys: a lock key without a lease would be seen as an entry never
        // removed.
        let left = members.gateway(0).leases();
        if left.as_ref().is_ok_and(Vec::is_empty) {
            return Ok(None);
        }
        if from.elapsed() > plan.bound() {
            let what = format!("leases after all clients have ended: {left:?}");
            return Ok(Some(Violation { promise: Promise::Leftover, at: recorder.now(), what }));
        }
        stop.check()?;
        stop.pause(Duration::from_millis(100));
    }
}

/// The witness's story, up to the store's present revision.
fn conclude(
    witness: Witness,
    members: &Members,
    stop: &Stop,
) -> Result<(Vec<crate::history::Entry>, Vec<String>), Failure> {
    members.recovered(RECOVERY, stop);
    let known = (0..MEMBERS).filter_map(|member| members.gateway(member).status().ok());
    let newest = known.map(|status| status.revision).max();
    let newest = newest.ok_or_else(|| Failure::unavailable("no member answers at the end"))?;
    let reached = witness.reaches(newest, RECOVERY);
    let (entries, mut gaps) = witness.finish();
    if !reached {
        gaps.push(format!("the witness did not come up to revision {newest}"));
    }
    Ok((entries, gaps))
}
