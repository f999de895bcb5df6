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

/// A clock: straight lines, each from where the last one ended.
#[derive(Clone, Debug)]
pub(super) struct Clock {
    error: ClockError,
    lines: Vec<Line>,
}

/// From a point on, so many of its own millionths pass in a million of true ones.
#[derive(Clone, Copy, Debug)]
struct Line {
    since: Instant,
    shown: Instant,
    rate: u64,
}

impl Line {
    fn at(&self, now: Instant) -> Instant {
        if self.rate == MILLION {
            return self.shown + now.since(self.since);
        }
        let passed = now.as_nanos().saturating_sub(self.since.as_nanos());
        // Wide numbers cost much more, and are needed for passages of hours only.
        let passed = match passed.checked_mul(self.rate) {
            Some(product) => product / MILLION,
            None => narrow(u128::from(passed) * u128::from(self.rate) / u128::from(MILLION)),
        };
        self.shown + Duration::from_nanos(passed)
    }
}

impl Clock {
    pub(super) fn new(error: ClockError) -> Self {
        let line =
            Line { since: Instant::ZERO, shown: Instant::ZERO + error.offset, rate: rate_of(error.ppm) };
        Self { error, lines: vec![line] }
    }

    fn last(&self) -> &Line {
        &self.lines[self.lines.len() - 1]
    }

    /// What it shows at a true time, not before its rate last changed.
    pub(super) fn at(&self, now: Instant) -> Instant {
        self.last().at(now)
    }

    /// When it shows a time of its own, or one after it.
    pub(super) fn true_time(&self, own: Instant) -> Instant {
        if own == Instant::NEVER {
            return Instant::NEVER;
        }
        let Some(line) = self.lines.iter().rev().find(|line| line.shown < own) else { return Instant::ZERO };
        if line.rate == 0 {
            return Instant::NEVER;
        }
        let passed = own.as_nanos() - line.shown.as_nanos();
        let passed = match passed.checked_mul(MILLION) {
            Some(product) => product.div_ceil(line.rate),
            None => narrow((u128::from(passed) * u128::from(MILLION)).div_ceil(u128::from(line.rate))),
        };
        line.since + Duration::from_nanos(passed)
    }

    pub(super) fn set_rate(&mut self, now: Instant, ppm: i64) {
        self.error.ppm = ppm;
        self.go_on(now, rate_of(ppm));
    }

    pub(super) fn suspend(&mut self, now: Instant) {
        if self.error.stops_in_suspension {
            self.go_on(now, 0);
        }
    }

    pub(super) fn resume(&mut self, now: Instant) {
        if self.last().rate == 0 {
            self.go_on(now, rate_of(self.error.ppm));
        }
    }

    fn go_on(&mut self, now: Instant, rate: u64) {
        let shown = self.at(now);
        self.lines.push(Line { since: now, shown, rate });
    }
}

fn rate_of(ppm: i64) -> u64 {
    MILLION.saturating_add_signed(ppm).max(1)
}

fn narrow(nanos: u128) -> u64 {
    u64::try_from(nanos).unwrap_or(u64::MAX)
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
        assert_eq!(clock.true_time(seconds(1012)), seconds(12));
        assert_eq!(clock.true_time(Instant::ZERO + Duration::from_millis(1_005_500)), seconds(5));
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
