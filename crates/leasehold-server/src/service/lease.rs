//! Lease: each call is one command to the store, and each message of a renewal stream is one.

use futures_util::future::Either;
use futures_util::stream;
use leasehold::Embedded;
use leasehold_proto::pb::etcdserverpb as pb;
use pb::lease_server::Lease;
use tokio_util::sync::CancellationToken;
use tonic::codegen::{BoxStream, async_trait};
use tonic::{Request, Response, Status, Streaming};

use crate::answer::{answer, message, status};
use crate::stopping::stopped;
use leasehold::runtime::race;

pub(crate) struct LeaseCalls {
    etcd: Embedded,
    stopping: CancellationToken,
}

impl LeaseCalls {
    pub(crate) fn new(etcd: Embedded, stopping: CancellationToken) -> Self {
        Self { etcd, stopping }
    }
}

#[async_trait]
impl Lease for LeaseCalls {
    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        answer(&self.etcd, request)
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        answer(&self.etcd, request)
    }

    /// Each message has its answer, one for a lease that is gone too, with a TTL of 0. The stream goes on until the
    /// client ends its half.
    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<BoxStream<pb::LeaseKeepAliveResponse>>, Status> {
        let open = (request.into_inner(), self.etcd.clone(), self.stopping.clone());
        let answers = stream::unfold(Some(open), |open| async move {
            let (mut requests, etcd, stopping) = open?;
            let request = match race(stopping.cancelled(), requests.message()).await {
                Either::Left(()) => return Some((Err(stopped()), None)),
                Either::Right(Ok(request)) => request?,
                Either::Right(Err(broken)) => return Some((Err(broken), None)),
            };
            let answer = message(&etcd, request).map_err(status);
            Some((answer, Some((requests, etcd, stopping))))
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveResponse>, Status> {
        answer(&self.etcd, request)
    }

    async fn lease_leases(
        &self,
        request: Request<pb::LeaseLeasesRequest>,
    ) -> Result<Response<pb::LeaseLeasesResponse>, Status> {
        answer(&self.etcd, request)
    }
}
