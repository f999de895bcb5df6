//! Builds each wrong version of the library and says within how many seeds the simulation catches it.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a command that waits for others, on real time"
)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Parser;
use leasehold_sim::Random;
use leasehold_sim::mutant::Mutant;

/// What was asked for makes no sense.
const USAGE: u8 = 64;

/// How long one search may take; beyond that, and a minute more, a wrong version is one that turns in circles.
const MINUTES: u64 = 5;

/// Applies each mutant to a copy of the workspace, builds the simulation there, and searches.
///
/// Exit codes: 0 all caught, 1 one survived or does not build, 64 wrong use.
#[derive(Debug, Parser)]
#[command(name = "leasehold-mutants", max_term_width = 100)]
struct Args {
    /// Only see whether each still applies.
    #[arg(long)]
    check: bool,
    /// Only those whose names contain this.
    #[arg(long)]
    only: Option<String>,
    /// Only so many, drawn by --seed.
    #[arg(long)]
    some: Option<usize>,
    /// What --some draws by.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Seeds to try for each.
    #[arg(long, default_value_t = 500)]
    seeds: u64,
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) if error.use_stderr() => {
            let text = error.to_string();
            eprintln!("leasehold-mutants: {}", text.lines().next().unwrap_or_default());
            return ExitCode::from(USAGE);
        }
        Err(help) => {
            print!("{help}");
            return ExitCode::SUCCESS;
        }
    };
    match run(&args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("leasehold-mutants: {why}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<bool, String> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).ok_or("no workspace")?;
    let mut mutants = Mutant::all(workspace)?;
    mutants.retain(|mutant| args.only.as_ref().is_none_or(|only| mutant.name.contains(only)));
    if let Some(some) = args.some {
        let mut random = Random::new(args.seed);
        while mutants.len() > some {
            mutants.remove(random.below(mutants.len()));
        }
    }
    if mutants.is_empty() {
        return Err("no mutant has such a name".to_owned());
    }
    for mutant in &mutants {
        mutant.applied(workspace)?;
    }
    if args.check {
        println!("{} mutants apply", mutants.len());
        return Ok(true);
    }
    let bench = Bench::new(workspace)?;
    let mut survivors = 0;
    for mutant in &mutants {
        let told = bench.try_out(mutant, args.seeds)?;
        survivors += usize::from(told.is_none());
        let told = match told {
            Some(by) => format!("caught by {by}"),
            None => format!("SURVIVED {} seeds: {}", args.seeds, mutant.what),
        };
        println!("{:<32} {told}", mutant.name);
    }
    println!("{} of {} caught", mutants.len() - survivors, mutants.len());
    Ok(survivors == 0)
}

/// A copy of the sources to change, and a place to build them.
struct Bench {
    workspace: PathBuf,
    copy: PathBuf,
    target: PathBuf,
}

impl Bench {
    fn new(workspace: &Path) -> Result<Self, String> {
        let target =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| workspace.join("target"), PathBuf::from);
        let copy = target.join("mutants/tree");
        let _ = fs::remove_dir_all(&copy);
        for part in ["Cargo.toml", "Cargo.lock", "crates", "bench"] {
            copy_all(&workspace.join(part), &copy.join(part))?;
        }
        Ok(Self { workspace: workspace.to_owned(), copy, target: target.join("mutants/build") })
    }

    /// By what a mutant is caught, if it is.
    fn try_out(&self, mutant: &Mutant, seeds: u64) -> Result<Option<String>, String> {
        for (file, text) in mutant.applied(&self.workspace)? {
            write(&self.copy.join(file), &text)?;
        }
        let told = self.build(mutant).and_then(|()| self.search(mutant, seeds));
        for change in &mutant.changes {
            copy_all(&self.workspace.join(&change.file), &self.copy.join(&change.file))?;
        }
        told
    }

    fn build(&self, mutant: &Mutant) -> Result<(), String> {
        let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["build", "--quiet", "--profile", "sim", "-p", "leasehold-sim", "--bin", "leasehold-sim"])
            .current_dir(&self.copy)
            .env("CARGO_TARGET_DIR", &self.target)
            .env("RUSTFLAGS", "-Awarnings")
            .output()
            .map_err(|error| format!("cargo cannot be run: {error}"))?;
        if !built.status.success() {
            let why = String::from_utf8_lossy(&built.stderr);
            return Err(format!("mutant {} does not build:\n{why}", mutant.name));
        }
        Ok(())
    }

    fn search(&self, mutant: &Mutant, seeds: u64) -> Result<Option<String>, String> {
        let mut command = Command::new(self.target.join("sim/leasehold-sim"));
        command.args(["--brief", "--minutes", &MINUTES.to_string(), "--seeds", &seeds.to_string()]);
        if let Some(faults) = &mutant.faults {
            command.args(["--faults", faults]);
        }
        if let Some(gap) = &mutant.gap {
            command.args(["--gap", gap]);
        }
        let failed = |error: std::io::Error| format!("the simulation cannot be run: {error}");
        let told = self.target.join("told");
        command.stdout(fs::File::create(&told).map_err(failed)?).stderr(Stdio::null());
        let mut child = command.spawn().map_err(failed)?;
        let end = Instant::now() + Duration::from_secs(60 * (MINUTES + 1));
        while child.try_wait().map_err(failed)?.is_none() {
            if Instant::now() > end {
                let _ = child.kill().and_then(|()| child.wait());
                return Ok(Some("a run that never gets on".to_owned()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        let text = fs::read_to_string(&told).map_err(failed)?;
        let mut broken = text.lines().skip_while(|line| !line.starts_with("result: seed "));
        let Some(result) = broken.next() else { return Ok(None) };
        let seed = result.split_whitespace().nth(2).unwrap_or_default();
        let seen: Vec<&str> = broken.filter(|line| !line.is_empty()).collect();
        // The promise that it is meant to break, if that is among those broken.
        let shown = seen.iter().find(|line| line.starts_with(&mutant.breaks)).or_else(|| seen.first());
        let shown = shown.map_or("", |line| line.split(':').next().unwrap_or_default());
        Ok(Some(format!("seed {seed}: {}", shown.split(" at ").next().unwrap_or_default())))
    }
}

fn copy_all(from: &Path, to: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", from.display());
    if from.is_dir() {
        for entry in fs::read_dir(from).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            copy_all(&entry.path(), &to.join(entry.file_name()))?;
        }
        return Ok(());
    }
    write(to, &fs::read(from).map_err(failed)?)
}

fn write(to: &Path, text: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", to.display());
    if let Some(folder) = to.parent() {
        fs::create_dir_all(folder).map_err(failed)?;
    }
    fs::write(to, text).map_err(failed)
}
