//! Searches for a seed that breaks a promise.

#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command")]

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use leasehold_sim::explore::{Search, search, tell};
use leasehold_sim::fault::{Kind, Weights};
use leasehold_sim::model;
use leasehold_sim::run::{GAP, Plan, run};

/// A simulated world makes and drops small things all day: with the system's allocator that is a sixth of its time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What was asked for makes no sense.
const USAGE: u8 = 64;

/// Simulates Leasehold's locks on a faulty etcd cluster and checks what it promises.
///
/// Exit codes: 0 no promise broken, 1 one broken, 64 wrong use.
#[derive(Debug, Parser)]
#[command(name = "leasehold-sim", max_term_width = 100)]
struct Args {
    /// How many seeds to run at most.
    #[arg(long, default_value_t = 200)]
    seeds: u64,
    /// How long to search at most, in minutes of real time.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Run this seed alone, twice, and tell its story if it breaks a promise.
    #[arg(long)]
    seed: Option<u64>,
    /// Only these kinds of faults, separated by commas; `none` for none.
    #[arg(long, value_delimiter = ',')]
    faults: Vec<String>,
    /// How often something goes wrong, in seconds of simulated time.
    #[arg(long, default_value_t = GAP.as_secs_f64())]
    gap: f64,
    /// List the kinds of faults.
    #[arg(long)]
    list_faults: bool,
    /// Say only what is broken, without the story.
    #[arg(long)]
    brief: bool,
    /// Threads; by default as many as there are processors.
    #[arg(long)]
    threads: Option<usize>,
    /// Explore the protocol's model to its last state instead.
    #[arg(long)]
    model: bool,
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) if error.use_stderr() => {
            let text = error.to_string();
            eprintln!(
                "leasehold-sim: {}",
                text.lines().next().unwrap_or_default().trim_start_matches("error: ")
            );
            return ExitCode::from(USAGE);
        }
        Err(help) => {
            print!("{help}");
            return ExitCode::SUCCESS;
        }
    };
    if args.list_faults {
        print!("{}", Kind::list());
        return ExitCode::SUCCESS;
    }
    if args.model {
        return explore_model();
    }
    let weights = match weights(&args.faults) {
        Ok(weights) => weights,
        Err(unknown) => {
            eprintln!("leasehold-sim: {unknown}");
            return ExitCode::from(USAGE);
        }
    };
    let Ok(time) = Duration::try_from_secs_f64(args.minutes * 60.0) else {
        eprintln!("leasehold-sim: --minutes must be a number of minutes from 0 on");
        return ExitCode::from(USAGE);
    };
    let Some(gap) = Duration::try_from_secs_f64(args.gap).ok().filter(|gap| gap.as_millis() > 0) else {
        eprintln!("leasehold-sim: --gap must be a number of seconds, at least 0.001");
        return ExitCode::from(USAGE);
    };
    match args.seed {
        Some(seed) => one(&Plan::contended(seed, &weights, gap)),
        None => many(&args, weights, gap, time),
    }
}

fn weights(names: &[String]) -> Result<Weights, String> {
    if names.is_empty() {
        return Ok(Weights::default());
    }
    if names == ["none"] {
        return Ok(Weights::none());
    }
    let kinds: Result<Vec<Kind>, _> = names.iter().map(|name| name.parse()).collect();
    Ok(Weights::only(kinds?))
}

fn explore_model() -> ExitCode {
    let mut sound = true;
    for bounds in [model::Bounds::FULL, model::Bounds::COPIES] {
        let report = model::explore(bounds);
        println!("{bounds:?}\n{report}");
        sound &= report.is_sound();
    }
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn one(plan: &Plan) -> ExitCode {
    let (first, second) = (run(plan), run(plan));
    println!("seed {}: {} grants, trace {:016x}", plan.seed, first.grants, first.trace_hash);
    if first.trace_hash != second.trace_hash {
        println!("it does not replay: the second run's trace is {:016x}", second.trace_hash);
        return ExitCode::FAILURE;
    }
    if first.violations.is_empty() {
        println!("no promise broken");
        return ExitCode::SUCCESS;
    }
    println!("{}", tell(plan, &first.violations));
    ExitCode::FAILURE
}

fn many(args: &Args, weights: Weights, gap: Duration, time: Duration) -> ExitCode {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let found = search(&Search {
        first: args.first,
        seeds: args.seeds,
        time,
        weights,
        gap,
        threads: args.threads.unwrap_or(processors),
    });
    println!("{}", found.summary());
    match &found.failure {
        None => ExitCode::SUCCESS,
        Some((plan, violations)) => {
            if args.brief {
                violations.iter().for_each(|violation| println!("{violation}"));
            } else {
                println!("\n{}", tell(plan, violations));
            }
            ExitCode::FAILURE
        }
    }
}
