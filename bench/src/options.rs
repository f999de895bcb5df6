//! What is typed, and how long the parts of a run are.

use std::path::PathBuf;
use std::process::exit;
use std::time::Duration;

const USAGE: &str = "\
usage: leasehold-bench [--quick] [--json FILE]

  --quick       a short run: to see that it works, not to judge by
  --json FILE   write the figures to FILE too
";

/// How a run is set up.
#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) length: Length,
    pub(crate) json: Option<PathBuf>,
}

/// How long a run is. Contestants take turns within each round, so that what else happens on the machine meets all alike.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Length {
    pub(crate) quick: bool,
    /// Rounds of all measurements but that of the command.
    pub(crate) rounds: usize,
    /// Lock and unlock pairs of one client alone, for each contestant in each round.
    pub(crate) pairs: usize,
    /// How long contenders contend in each turn.
    pub(crate) turn: Duration,
    /// Runs of each command.
    pub(crate) runs: usize,
}

impl Length {
    const FULL: Self = Self { quick: false, rounds: 6, pairs: 500, turn: Duration::from_secs(3), runs: 40 };
    const QUICK: Self = Self { quick: true, rounds: 2, pairs: 100, turn: Duration::from_secs(1), runs: 8 };
}

/// Reads the command line, and ends the program if that makes no sense.
pub(crate) fn read() -> Options {
    let mut options = Options { length: Length::FULL, json: None };
    let mut args = std::env::args_os().skip(1);
    while let Some(arg) = args.next() {
        match arg.to_str() {
            Some("--quick") => options.length = Length::QUICK,
            Some("--json") => match args.next() {
                Some(file) => options.json = Some(file.into()),
                None => refuse("--json needs a file"),
            },
            Some("--help" | "-h") => {
                print!("{USAGE}");
                exit(0);
            }
            _ => refuse(&format!("unknown argument {}", arg.display())),
        }
    }
    options
}

fn refuse(why: &str) -> ! {
    eprint!("leasehold-bench: {why}\n{USAGE}");
    exit(2)
}
