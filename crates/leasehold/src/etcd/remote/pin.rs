//! Which of several endpoints is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::Endpoint;
use crate::runtime::{Instant, Runtime};

/// A request that its caller gave up on after this long says something about the member; a shorter one does not.
const TELLING: Duration = Duration::from_millis(200);

/// One endpoint is used by all until somebody fares badly with it; then all go on to the next one.
#[derive(Debug)]
pub(super) struct Pin {
    endpoints: Arc<[Endpoint]>,
    at: AtomicUsize,
}

impl Pin {
    /// Begins anywhere, so that the clients of a fleet spread over the members.
    pub(super) fn new(endpoints: Arc<[Endpoint]>, runtime: &dyn Runtime) -> Self {
        let count = u64::try_from(endpoints.len()).unwrap_or(1).max(1);
        let first = usize::try_from(runtime.random_u64() % count).unwrap_or(0);
        Self { endpoints, at: AtomicUsize::new(first) }
    }

    pub(super) fn count(&self) -> usize {
        self.endpoints.len()
    }

    /// The endpoint to use now, with the place to name when leaving it.
    pub(super) fn current(&self) -> (usize, &Endpoint) {
        let at = self.at.load(Ordering::Relaxed);
        (at, self.endpoint(at))
    }

    /// The endpoint at a place that [`Self::current`] gave.
    pub(super) fn endpoint(&self, at: usize) -> &Endpoint {
        &self.endpoints[at]
    }

    /// Goes on to the next endpoint, unless somebody did so before: many requests that fail at one endpoint at the same
    /// time move everybody by one place, not by many.
    pub(super) fn leave(&self, at: usize) {
        let next = (at + 1) % self.endpoints.len();
        let _ = self.at.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// All of them, for messages.
    pub(super) fn names(&self) -> String {
        self.endpoints.iter().map(Endpoint::to_string).collect::<Vec<_>>().join(",")
    }
}

/// A try under way. If its caller drops it after it has waited a telling while, the endpoint is left: otherwise a caller
/// whose patience is shorter than ours would meet the same frozen member for ever.
#[derive(Debug)]
pub(super) struct Trial<'a> {
    pin: &'a Pin,
    runtime: &'a dyn Runtime,
    at: usize,
    since: Instant,
    ended: bool,
}

impl<'a> Trial<'a> {
    pub(super) fn new(pin: &'a Pin, at: usize, runtime: &'a dyn Runtime) -> Self {
        Self { pin, runtime, at, since: runtime.now(), ended: false }
    }

    /// An answer came, whatever it says.
    pub(super) fn answered(mut self) {
        self.ended = true;
    }

    /// The endpoint is no good now.
    pub(super) fn failed(mut self) {
        self.ended = true;
        self.pin.leave(self.at);
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        if !self.ended && self.runtime.now().since(self.since) >= TELLING {
            self.pin.leave(self.at);
        }
    }
}
