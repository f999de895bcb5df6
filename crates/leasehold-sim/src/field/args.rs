//! What is typed.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use leasehold_testbed::Version;

use super::faults::Kind;
use super::stop::Failure;

/// Runs Leasehold's locks on three real etcd members under faults, and checks what it promises.
///
/// Client processes with wrong clocks contend for locks; a seed decides which faults befall them and the
/// members. It runs in network namespaces where they are permitted (which needs root), and else behind
/// proxies on loopback, and says so.
#[derive(Clone, Debug, Parser)]
#[command(name = "leasehold-field", max_term_width = 100, after_help = EXIT)]
pub struct Args {
    /// For how long, in minutes
    #[arg(long, default_value_t = 2.0)]
    pub minutes: f64,
    /// What decides the schedule and the clients' clocks [default: drawn, and said]
    #[arg(long)]
    pub seed: Option<u64>,
    /// How many client processes
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u8).range(2..=40))]
    pub clients: u8,
    /// Only these kinds of faults, separated by commas; `none` for none
    #[arg(long, value_delimiter = ',')]
    pub faults: Vec<String>,
    /// Which etcd: 3.7 or 3.5, or the path of its program
    #[arg(long, default_value = "3.7")]
    pub etcd: String,
    /// The leases' time to live, in seconds
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(3..=30))]
    pub ttl: u64,
    /// How wrong the rates of the clients' clocks are at most, in millionths; locks stand up to 100000
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(..=500_000))]
    pub clock_error: u32,
    /// Proxies on loopback alone, without namespaces
    #[arg(long)]
    pub loopback: bool,
    /// Write the whole story of the run to this file
    #[arg(long)]
    pub story: Option<PathBuf>,
    /// Say which kinds of faults there are
    #[arg(long)]
    pub list_faults: bool,
}

const EXIT: &str = "Exit codes:
   0  no promise was broken
   1  one was
  64  an option that cannot be used
  69  something is missing: the program of etcd, or what the machine would have to permit
128+n  signal n ended it before the verdict";

impl Args {
    /// The faults to do.
    ///
    /// # Errors
    /// If one is not known.
    pub fn kinds(&self) -> Result<Vec<Kind>, Failure> {
        match &self.faults[..] {
            [] => return Ok(Kind::defaults()),
            [none] if none == "none" => return Ok(Vec::new()),
            _ => {}
        }
        self.faults.iter().map(|name| name.parse().map_err(Failure::usage)).collect()
    }

    /// How the cluster and the clients are set up, for the summary.
    pub fn setting(&self) -> String {
        let percent = f64::from(self.clock_error) / 10_000.0;
        format!("etcd {}, TTL {} s, clocks up to {percent} % wrong", self.etcd, self.ttl)
    }

    /// For how long.
    ///
    /// # Errors
    /// If that is no time.
    pub fn duration(&self) -> Result<Duration, Failure> {
        if !(0.05..=10_000.0).contains(&self.minutes) {
            return Err(Failure::usage(format!("--minutes {}: give from 0.05 to 10000", self.minutes)));
        }
        Ok(Duration::from_secs_f64(self.minutes * 60.0))
    }

    /// The program of etcd.
    ///
    /// # Errors
    /// If it is not here.
    pub fn binary(&self) -> Result<PathBuf, Failure> {
        let vendored = match self.etcd.as_str() {
            "3.7" => Version::V37,
            "3.5" => Version::V35,
            path if path.contains('/') => {
                let path = PathBuf::from(path);
                let missing = || Failure::unavailable(format!("there is no etcd at {}", path.display()));
                return if path.is_file() { Ok(path) } else { Err(missing()) };
            }
            other => {
                return Err(Failure::usage(format!(
                    "--etcd {other:?}: give 3.7, 3.5 or the path of a program"
                )));
            }
        };
        vendored
            .binary()
            .map_err(|why| Failure::unavailable(format!("there is no etcd {}: {why}", self.etcd)))
    }
}
