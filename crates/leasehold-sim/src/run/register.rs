//! The resource that a lock protects: it remembers the highest token it saw, and refuses lower ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use leasehold::runtime::Runtime;

use super::recorder::Recorder;
use crate::executor::SeededHandle;
use crate::history::Write;

#[derive(Clone)]
pub(super) struct Register {
    world: SeededHandle,
    recorder: Recorder,
    highest: Arc<Mutex<BTreeMap<String, u64>>>,
}

impl Register {
    pub(super) fn new(world: SeededHandle, recorder: Recorder) -> Self {
        Self { world, recorder, highest: Arc::default() }
    }

    /// Sends a write that arrives after `delay`, whatever becomes of its sender.
    pub(super) fn send(&self, lock: &str, client: &str, token: u64, delay: Duration) {
        let (register, lock, client) = (self.clone(), lock.to_owned(), client.to_owned());
        let write = async move {
            register.world.sleep_until(register.world.now() + delay).await;
            let accepted = {
                let mut highest = register.highest.lock().unwrap_or_else(PoisonError::into_inner);
                let highest = highest.entry(lock.clone()).or_default();
                let accepted = token >= *highest;
                *highest = token.max(*highest);
                accepted
            };
            register.recorder.write(Write { lock, client, token, at: register.world.now(), accepted });
        };
        self.world.spawn("a write under way", Box::pin(write)).detach();
    }
}
