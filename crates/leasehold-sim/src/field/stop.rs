//! How a run ends before its time, and the exit codes.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::signal::unix::{SignalKind, signal};

/// What was asked for makes no sense.
pub const USAGE: u8 = 64;
/// Something that is needed is not here.
pub const UNAVAILABLE: u8 = 69;

/// Why there is no verdict: one line, and the exit code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The exit code.
    pub code: u8,
    /// What happened, in one line; empty if that has been said.
    pub why: String,
}

impl Failure {
    /// Wrong use.
    pub fn usage(why: impl Into<String>) -> Self {
        Self { code: USAGE, why: why.into() }
    }

    /// Something is missing.
    pub fn unavailable(why: impl Into<String>) -> Self {
        Self { code: UNAVAILABLE, why: why.into() }
    }
}

/// Whether this process was told to end. A clone is the same.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicI32>);

impl Stop {
    /// Notes INT, TERM and HUP from now on instead of dying of them: there is much to clean up.
    pub fn on_signals(runtime: &Handle) -> std::io::Result<Self> {
        let stop = Self::default();
        let _inside = runtime.enter();
        for kind in [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()] {
            // Under `nohup` a hang-up stays ignored.
            if is_ignored(kind.as_raw_value()) {
                continue;
            }
            let (mut signals, noted) = (signal(kind)?, stop.clone());
            runtime.spawn(async move {
                while signals.recv().await.is_some() {
                    noted.0.store(kind.as_raw_value(), Ordering::Release);
                }
            });
        }
        Ok(stop)
    }

    /// Whether it was.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// # Errors
    /// If it was: with the exit code that shells give to such an end.
    pub fn check(&self) -> Result<(), Failure> {
        match self.0.load(Ordering::Acquire) {
            0 => Ok(()),
            signal => Err(Failure {
                code: u8::try_from(128 + signal).unwrap_or(u8::MAX),
                why: format!("stopped by signal {signal} before the verdict"),
            }),
        }
    }

    /// Waits for so long, or until it was.
    pub fn pause(&self, duration: Duration) {
        let end = Instant::now() + duration;
        while !self.is_set() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(Duration::from_millis(20)));
        }
    }
}

/// Whether a signal was ignored when this process started. (Asking the kernel by `sigaction` is unsafe.)
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    (mask >> (signal - 1)) & 1 == 1
}
