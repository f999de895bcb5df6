//! Being asked to go, by `leasehold break`.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Fuse};
use leasehold::runtime::Runtime;
use leasehold::{Guard, eviction};

/// A hold that is over sooner is spared the traffic. A request that comes earlier stands there and is heard then.
const WORTH_LISTENING: Duration = Duration::from_millis(200);

/// A request to go, which is heard once.
pub(crate) struct Request<'a>(Fuse<BoxFuture<'a, String>>);

impl<'a> Request<'a> {
    pub(crate) fn to_leave(guard: &'a Guard, runtime: Arc<dyn Runtime>) -> Self {
        let heard = async move {
            runtime.sleep_until(runtime.now() + WORTH_LISTENING).await;
            eviction::asked(guard).await
        };
        Self(heard.boxed().fuse())
    }

    /// Who asks, by its own account. Never ends once it was heard.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    pub(crate) async fn heard(&mut self) -> String {
        let by = (&mut self.0).await;
        by.escape_debug().to_string()
    }
}
