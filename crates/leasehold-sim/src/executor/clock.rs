//! A node's own clock: an offset and a rate against true time, and whether it goes on in suspension.

use std::time::Duration;

use leasehold::runtime::Instant;

/// Parts of a rate.
const MILLION: u64 = 1_000_000;

/// How a node's clock differs from true time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockError {
    /// What it shows at true time zero.
    pub offset: Duration,
    /// How much faster it runs, in millionths; below zero it is slow.
    pub ppm: i64,
    /// Whether it stands still while the node is suspended, as Linux's `CLOCK_MONOTONIC` does and `CLOCK_BOOTTIME` does
    /// not.
    pub stops_in_suspension: bool,
}

impl ClockError {
    /// None.
    pub const NONE: Self = Self { offset: Duration::ZERO, ppm: 0, stops_in_suspension: false };
}

/// A clock: a straight line through one point, until its rate changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    error: ClockError,
    /// The point from which the line goes on.
    origin: (Instant, Instant),
    stands: bool,
}

impl Clock {
    pub(super) fn new(error: ClockError) -> Self {
        Self { error, origin: (Instant::ZERO, Instant::ZERO + error.offset), stands: false }
    }

    /// What it shows at a true time, not before its rate last changed.
    pub(super) fn at(&self, now: Instant) -> Instant {
        if self.stands {
            return self.origin.1;
        }
        let passed = now.since(self.origin.0).as_nanos() * u128::from(self.rate()) / u128::from(MILLION);
        self.origin.1 + nanos(passed)
    }

    /// When it shows a time of its own, or one after it.
    pub(super) fn true_time(&self, own: Instant) -> Instant {
        if own <= self.origin.1 {
            return self.origin.0;
        }
        if self.stands || own == Instant::NEVER {
            return Instant::NEVER;
        }
        let passed = own.since(self.origin.1).as_nanos() * u128::from(MILLION);
        self.origin.0 + nanos(passed.div_ceil(u128::from(self.rate())))
    }

    pub(super) fn set_rate(&mut self, now: Instant, ppm: i64) {
        self.origin = (now, self.at(now));
        self.error.ppm = ppm;
    }

    pub(super) fn suspend(&mut self, now: Instant) {
        if self.error.stops_in_suspension {
            self.origin = (now, self.at(now));
            self.stands = true;
        }
    }

    pub(super) fn resume(&mut self, now: Instant) {
        if std::mem::take(&mut self.stands) {
            self.origin.0 = now;
        }
    }

    fn rate(&self) -> u64 {
        MILLION.saturating_add_signed(self.error.ppm).max(1)
    }
}

fn nanos(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    fn fast() -> ClockError {
        ClockError { offset: Duration::from_secs(1000), ppm: 100_000, ..ClockError::NONE }
    }

    #[test]
    fn a_fast_clock_gains_on_true_time_and_keeps_its_offset() {
        let clock = Clock::new(fast());
        assert_eq!(clock.at(seconds(10)), seconds(1011));
        assert_eq!(clock.true_time(seconds(1011)), seconds(10));
    }

    #[test]
    fn a_timer_is_never_due_before_the_clock_shows_its_time() {
        let clock = Clock::new(ClockError { ppm: -33_333, ..fast() });
        for own in (0..10_000).map(|n| seconds(1000) + Duration::from_nanos(n * 7919)) {
            assert!(clock.at(clock.true_time(own)) >= own);
        }
    }

    #[test]
    fn a_change_of_rate_makes_no_leap() {
        let mut clock = Clock::new(fast());
        clock.set_rate(seconds(10), -500_000);
        assert_eq!(clock.at(seconds(10)), seconds(1011));
        assert_eq!(clock.at(seconds(12)), seconds(1012));
    }

    #[test]
    fn only_a_clock_that_stops_in_suspension_is_late_afterwards() {
        for (stops, shown) in [(false, 1022), (true, 1011)] {
            let mut clock = Clock::new(ClockError { stops_in_suspension: stops, ..fast() });
            clock.suspend(seconds(10));
            clock.resume(seconds(20));
            assert_eq!(clock.at(seconds(20)), seconds(shown));
        }
    }
}
