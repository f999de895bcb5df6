//! Where there is no `CLOCK_BOOTTIME`. On macOS `CLOCK_MONOTONIC` goes on in sleep; elsewhere this falls back to what
//! the standard library has, which may stop: there a suspended holder is covered by its fencing token alone.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::runtime::Instant;

#[cfg(unix)]
pub(super) fn now() -> Instant {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let (seconds, nanos) =
        (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    Instant::from_nanos(seconds * 1_000_000_000 + nanos)
}

#[cfg(not(unix))]
pub(super) fn now() -> Instant {
    use std::sync::OnceLock;
    static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
    Instant::ZERO + ORIGIN.get_or_init(std::time::Instant::now).elapsed() + std::time::Duration::from_secs(1)
}

/// One alarm. Setting it again replaces what was set before.
#[derive(Debug)]
pub(super) struct Alarm {
    at: Mutex<Instant>,
    changed: Condvar,
}

impl Alarm {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { at: Mutex::new(Instant::NEVER), changed: Condvar::new() })
    }

    /// Rings at `at`, from any thread.
    pub(super) fn set(&self, at: Instant) {
        *self.at.lock().unwrap_or_else(PoisonError::into_inner) = at;
        self.changed.notify_one();
    }

    /// Blocks this thread until it rings, or for a second: the wait below may not count suspension, so the caller looks
    /// at the clock that often at least.
    pub(super) fn rung(&self) {
        let at = self.at.lock().unwrap_or_else(PoisonError::into_inner);
        let nap = at.since(now()).min(std::time::Duration::from_secs(1));
        drop(self.changed.wait_timeout(at, nap));
    }
}
