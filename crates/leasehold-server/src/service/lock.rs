//! Lock: the server stands in the line for the client.

use leasehold::Embedded;
use leasehold_mvcc::LeaseId;
use leasehold_proto::pb::etcdserverpb::DeleteRangeRequest;
use leasehold_proto::pb::v3lockpb as pb;
use pb::lock_server::Lock;
use tonic::codegen::async_trait;
use tonic::{Request, Response, Status};

use crate::answer::{message, status_without_code};
use crate::line::Line;

pub(crate) struct LockCalls {
    etcd: Embedded,
    line: Line,
}

impl LockCalls {
    pub(crate) fn new(etcd: Embedded, line: Line) -> Self {
        Self { etcd, line }
    }
}

#[async_trait]
impl Lock for LockCalls {
    /// If the client gives up while queued, this future is dropped, and its place with it.
    async fn lock(&self, request: Request<pb::LockRequest>) -> Result<Response<pb::LockResponse>, Status> {
        let request = request.into_inner();
        let place = self.line.enter(&request.name, LeaseId::new(request.lease), Default::default())?;
        let header = place.first(|| Status::unknown("mutex: session is expired")).await?;
        Ok(Response::new(pb::LockResponse { header: Some(header.into()), key: place.keep() }))
    }

    async fn unlock(
        &self,
        request: Request<pb::UnlockRequest>,
    ) -> Result<Response<pb::UnlockResponse>, Status> {
        let delete = DeleteRangeRequest { key: request.into_inner().key, ..DeleteRangeRequest::default() };
        let deleted = message(&self.etcd, delete).map_err(status_without_code)?;
        Ok(Response::new(pb::UnlockResponse { header: deleted.header }))
    }
}
