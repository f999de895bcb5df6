//! A client's clock that is wrong: another origin, another rate.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::BoxFuture;
use leasehold::runtime::{Instant, Runtime, SystemRuntime, Task};

const MILLION: i128 = 1_000_000;

/// The machine's runtime, seen through a wrong clock.
#[derive(Debug)]
pub struct Skewed {
    inner: Arc<SystemRuntime>,
    /// A true instant, and what this clock shows then.
    origin: (Instant, Instant),
    rate: i128,
}

impl Skewed {
    /// A clock that shows `offset` now and runs faster by so many millionths; below zero it is slow.
    pub fn new(inner: Arc<SystemRuntime>, offset: Duration, ppm: i64) -> Self {
        let origin = (inner.now(), Instant::ZERO + offset);
        Self { inner, origin, rate: MILLION + i128::from(ppm) }
    }

    /// The true time.
    pub fn true_now(&self) -> Instant {
        self.inner.now()
    }

    /// The true time at which this clock shows, or will show, `shown`.
    pub fn true_of(&self, shown: Instant) -> Instant {
        convert(shown, (self.origin.1, self.origin.0), MILLION, self.rate)
    }

    fn shown_at(&self, at: Instant) -> Instant {
        convert(at, self.origin, self.rate, MILLION)
    }
}

/// Along the line through `origin` that rises by `up` for each `over`.
fn convert(at: Instant, origin: (Instant, Instant), up: i128, over: i128) -> Instant {
    if at == Instant::NEVER {
        return at;
    }
    let passed = i128::from(at.as_nanos()) - i128::from(origin.0.as_nanos());
    let there = i128::from(origin.1.as_nanos()) + passed * up / over;
    Instant::from_nanos(u64::try_from(there.max(0)).unwrap_or(u64::MAX))
}

impl Runtime for Skewed {
    fn now(&self) -> Instant {
        self.shown_at(self.inner.now())
    }

    fn wall_clock(&self) -> SystemTime {
        self.inner.wall_clock()
    }

    fn sleep_until(&self, at: Instant) -> BoxFuture<'static, ()> {
        // A nanosecond later rather than earlier: whoever slept must find the time past.
        self.inner.sleep_until(self.true_of(at) + Duration::from_nanos(1))
    }

    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Task {
        self.inner.spawn(name, task)
    }

    fn spawn_dedicated(&self, name: &'static str, task: BoxFuture<'static, ()>) -> Task {
        self.inner.spawn_dedicated(name, task)
    }

    fn random_u64(&self) -> u64 {
        self.inner.random_u64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_it_shows_is_translated_back_to_true_time() {
        let inner = SystemRuntime::shared().unwrap();
        for ppm in [-20_000, 0, 20_000] {
            let clock = Skewed::new(inner.clone(), Duration::from_secs(5_000_000), ppm);
            let later = clock.origin.0 + Duration::from_secs(1000);
            let shown = clock.shown_at(later);
            let error = clock.true_of(shown).as_nanos().abs_diff(later.as_nanos());
            assert!(error <= 2, "{ppm}: {error} ns");
            let ran = shown.since(clock.origin.1).as_micros();
            assert_eq!(ran, u128::from((1_000_000 + ppm).unsigned_abs()) * 1000, "{ppm}");
        }
        let clock = Skewed::new(inner, Duration::ZERO, 1);
        assert_eq!(clock.true_of(Instant::NEVER), Instant::NEVER);
    }
}
