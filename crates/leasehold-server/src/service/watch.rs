//! Watch: one stream of a client, which carries many watches.

mod conversation;
mod pieces;

use std::time::Duration;

use futures_util::stream;
use leasehold::Embedded;
use leasehold_proto::pb::etcdserverpb as pb;
use pb::watch_server::Watch;
use tokio_util::sync::CancellationToken;
use tonic::codegen::{BoxStream, async_trait};
use tonic::{Request, Response, Status, Streaming};

use conversation::Conversation;

pub(crate) struct WatchCalls {
    etcd: Embedded,
    progress_interval: Duration,
    stopping: CancellationToken,
}

impl WatchCalls {
    pub(crate) fn new(etcd: Embedded, progress_interval: Duration, stopping: CancellationToken) -> Self {
        Self { etcd, progress_interval, stopping }
    }
}

#[async_trait]
impl Watch for WatchCalls {
    /// The answer owns all that the watches need, and there is no task besides: when the client resets the stream or
    /// its connection breaks, the answer is dropped and the watches are gone.
    async fn watch(
        &self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> Result<Response<BoxStream<pb::WatchResponse>>, Status> {
        let conversation = Conversation::new(
            &self.etcd,
            request.into_inner(),
            self.progress_interval,
            self.stopping.clone(),
        );
        let messages = stream::unfold(Some(conversation), |open| async move {
            let mut conversation = open?;
            let message = conversation.next().await;
            let open = message.is_ok().then_some(conversation);
            Some((message, open))
        });
        Ok(Response::new(Box::pin(messages)))
    }
}
