//! KV: each call is one command to the store.

use futures_util::stream;
use leasehold::Embedded;
use leasehold_proto::pb::etcdserverpb as pb;
use pb::kv_server::Kv;
use tonic::codegen::{BoxStream, async_trait};
use tonic::{Request, Response, Status};

use crate::answer::answer;

pub(crate) struct KvCalls {
    etcd: Embedded,
}

impl KvCalls {
    pub(crate) fn new(etcd: Embedded) -> Self {
        Self { etcd }
    }
}

#[async_trait]
impl Kv for KvCalls {
    async fn range(&self, request: Request<pb::RangeRequest>) -> Result<Response<pb::RangeResponse>, Status> {
        answer(&self.etcd, request)
    }

    /// The whole answer in one piece: it is in memory anyway, and the client puts pieces together whatever their size.
    async fn range_stream(
        &self,
        request: Request<pb::RangeRequest>,
    ) -> Result<Response<BoxStream<pb::RangeStreamResponse>>, Status> {
        let whole = answer(&self.etcd, request)?.into_inner();
        let piece = pb::RangeStreamResponse { range_response: Some(whole) };
        Ok(Response::new(Box::pin(stream::iter([Ok(piece)]))))
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
        answer(&self.etcd, request)
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        answer(&self.etcd, request)
    }

    async fn txn(&self, request: Request<pb::TxnRequest>) -> Result<Response<pb::TxnResponse>, Status> {
        answer(&self.etcd, request)
    }

    async fn compact(
        &self,
        request: Request<pb::CompactionRequest>,
    ) -> Result<Response<pb::CompactionResponse>, Status> {
        answer(&self.etcd, request)
    }
}
