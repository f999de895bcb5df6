//! `CLOCK_BOOTTIME`: steady, and it counts suspension (clock_gettime(2)). `CLOCK_MONOTONIC`, which
//! [`std::time::Instant`] reads, stops while the machine sleeps: a lease judged by it outlives itself.

use std::os::fd::OwnedFd;

use crate::runtime::Instant;
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};

const NANOS: u64 = 1_000_000_000;

pub(super) fn now() -> Instant {
    let time = clock_gettime(ClockId::Boottime);
    let (seconds, nanos) =
        (u64::try_from(time.tv_sec).unwrap_or(0), u64::try_from(time.tv_nsec).unwrap_or(0));
    Instant::from_nanos(seconds * NANOS + nanos)
}

/// One alarm on the same clock. Setting it again replaces what was set before.
#[derive(Debug)]
pub(super) struct Alarm(OwnedFd);

impl Alarm {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self(timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?))
    }

    /// Rings at `at`, from any thread.
    pub(super) fn set(&self, at: Instant) {
        // A value of zero would switch the timer off.
        let nanos = at.as_nanos().max(1);
        let it_value = Timespec {
            tv_sec: i64::try_from(nanos / NANOS).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(nanos % NANOS).unwrap_or(0),
        };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        // It can only fail for a descriptor that is none or a time that is none; both are right by construction.
        let _ = timerfd_settime(&self.0, TimerfdTimerFlags::ABSTIME, &Itimerspec { it_interval, it_value });
    }

    /// Blocks this thread until it rings.
    pub(super) fn rung(&self) {
        let mut count = [0; 8];
        // Whatever else ends the wait, a signal say, makes the caller look at the clock and wait again.
        let _ = rustix::io::read(&self.0, &mut count);
    }
}
