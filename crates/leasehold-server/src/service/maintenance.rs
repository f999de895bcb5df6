//! Maintenance: how the one member does.

use leasehold::Embedded;
use leasehold_proto::pb::etcdserverpb as pb;
use pb::maintenance_server::Maintenance;
use tonic::codegen::async_trait;
use tonic::{Request, Response, Status};

use crate::member::ETCD_VERSION;

pub(crate) struct MaintenanceCalls {
    etcd: Embedded,
}

impl MaintenanceCalls {
    pub(crate) fn new(etcd: Embedded) -> Self {
        Self { etcd }
    }
}

#[async_trait]
impl Maintenance for MaintenanceCalls {
    async fn status(
        &self,
        _request: Request<pb::StatusRequest>,
    ) -> Result<Response<pb::StatusResponse>, Status> {
        let header = self.etcd.header();
        // There is no log; the revision stands for its index, since it rises the same way and is never 0.
        let index = header.revision.get().cast_unsigned();
        Ok(Response::new(pb::StatusResponse {
            version: ETCD_VERSION.into(),
            leader: header.member_id,
            raft_index: index,
            raft_applied_index: index,
            raft_term: header.raft_term,
            header: Some(header.into()),
            ..pb::StatusResponse::default()
        }))
    }

    /// `etcdctl endpoint health` asks which alarms there are, and takes a refusal for ill health.
    async fn alarm(&self, request: Request<pb::AlarmRequest>) -> Result<Response<pb::AlarmResponse>, Status> {
        if request.get_ref().action != i32::from(pb::alarm_request::AlarmAction::Get) {
            return Err(Status::unimplemented("alarms can be listed, not changed"));
        }
        Ok(Response::new(pb::AlarmResponse { header: Some(self.etcd.header().into()), alarms: Vec::new() }))
    }
}
