//! Cluster: one member, now and always.

use leasehold::Embedded;
use leasehold_mvcc::{Header, Revision};
use leasehold_proto::pb::etcdserverpb as pb;
use pb::cluster_server::Cluster;
use tonic::codegen::async_trait;
use tonic::{Request, Response, Status};

use crate::member::Member;

pub(crate) struct ClusterCalls {
    etcd: Embedded,
    member: Member,
}

impl ClusterCalls {
    pub(crate) fn new(etcd: Embedded, member: Member) -> Self {
        Self { etcd, member }
    }
}

#[async_trait]
impl Cluster for ClusterCalls {
    async fn member_list(
        &self,
        _request: Request<pb::MemberListRequest>,
    ) -> Result<Response<pb::MemberListResponse>, Status> {
        // Members are no keys: etcd's header has no revision here.
        let header = Header { revision: Revision::ZERO, ..self.etcd.header() };
        let member = pb::Member {
            id: header.member_id,
            name: self.member.name.clone(),
            client_ur_ls: self.member.client_urls.clone(),
            ..pb::Member::default()
        };
        Ok(Response::new(pb::MemberListResponse { header: Some(header.into()), members: vec![member] }))
    }
}
