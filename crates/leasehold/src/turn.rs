//! One task at a time does what many need.

use tokio::sync::Mutex;

use crate::error::{Error, Result};
use crate::exclusive::Exclusive;

/// Lets one task at a time do something slow; whoever waited meanwhile shares its failure. Otherwise many who wait for a
/// server that does not answer would wait for one time-out after the other.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    turn: Mutex<()>,
    /// How often it failed, and how the last time.
    failed: Exclusive<(u64, Option<Error>)>,
}

impl Turn {
    /// What `done` finds once it is this task's turn; if that is nothing, what `work` comes to.
    ///
    /// # Cancel safety
    /// Dropped, it gives its turn to the next.
    pub(crate) async fn take<T>(
        &self,
        done: impl Fn() -> Result<Option<T>>,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let before = self.failed.lock().0;
        let _turn = self.turn.lock().await;
        if let Some(done) = done()? {
            return Ok(done);
        }
        if let (failures, Some(error)) = &*self.failed.lock()
            && *failures > before
        {
            return Err(error.clone());
        }
        work.await.inspect_err(|error| {
            let mut failed = self.failed.lock();
            *failed = (failed.0 + 1, Some(error.clone()));
        })
    }
}
