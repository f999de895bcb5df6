//! Auth: it is off. Clients that are given a password ask anyway, and go on when they hear so.

use leasehold::Embedded;
use leasehold_proto::pb::etcdserverpb as pb;
use pb::auth_server::Auth;
use tonic::codegen::async_trait;
use tonic::{Request, Response, Status};

pub(crate) struct AuthCalls {
    etcd: Embedded,
}

impl AuthCalls {
    pub(crate) fn new(etcd: Embedded) -> Self {
        Self { etcd }
    }
}

#[async_trait]
impl Auth for AuthCalls {
    async fn auth_status(
        &self,
        _request: Request<pb::AuthStatusRequest>,
    ) -> Result<Response<pb::AuthStatusResponse>, Status> {
        let header = Some(self.etcd.header().into());
        Ok(Response::new(pb::AuthStatusResponse { header, enabled: false, auth_revision: 1 }))
    }

    async fn authenticate(
        &self,
        _request: Request<pb::AuthenticateRequest>,
    ) -> Result<Response<pb::AuthenticateResponse>, Status> {
        Err(Status::failed_precondition("etcdserver: authentication is not enabled"))
    }
}
