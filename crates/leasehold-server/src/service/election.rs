//! Election: the same line as a lock's, with the candidate's value in the key. The first of the line leads.

mod observation;

use futures_util::stream;
use leasehold_mvcc::{Compare, DeleteRequest, Key, LeaseId, PutRequest, Revision, Txn};
use leasehold_proto::pb::v3electionpb as pb;
use pb::election_server::Election;
use tonic::codegen::{BoxStream, async_trait};
use tonic::{Request, Response, Status};

use crate::line::Line;
use observation::Observation;

pub(crate) struct ElectionCalls {
    line: Line,
}

impl ElectionCalls {
    pub(crate) fn new(line: Line) -> Self {
        Self { line }
    }
}

#[async_trait]
impl Election for ElectionCalls {
    /// If the client gives up while queued, this future is dropped, and its candidacy with it.
    async fn campaign(
        &self,
        request: Request<pb::CampaignRequest>,
    ) -> Result<Response<pb::CampaignResponse>, Status> {
        let pb::CampaignRequest { name, lease, value } = request.into_inner();
        let place = self.line.enter(&name, LeaseId::new(lease), value.clone())?;
        if *place.value() != value {
            // The lease is a candidate already, with another value.
            let put = PutRequest::new(place.key(), value).on(place.lease());
            let answer = self.line.transact(Txn::new().when(place.still_there()).then(put))?;
            if !answer.succeeded {
                return Err(not_leader());
            }
        }
        let header = place.first(|| Status::unknown("election: session is expired")).await?;
        let (rev, lease) = (place.create_revision().get(), place.lease().get());
        let leader = pb::LeaderKey { name, key: place.keep(), rev, lease };
        Ok(Response::new(pb::CampaignResponse { header: Some(header.into()), leader: Some(leader) }))
    }

    async fn proclaim(
        &self,
        request: Request<pb::ProclaimRequest>,
    ) -> Result<Response<pb::ProclaimResponse>, Status> {
        let request = request.into_inner();
        let leader = request.leader.ok_or_else(no_leader_key)?;
        let lease = self.line.lease_or_new(LeaseId::new(leader.lease))?;
        let put = PutRequest::new(leader.key.clone(), request.value).on(lease.id());
        let answer = self.line.transact(Txn::new().when(leads(&leader)).then(put))?;
        if !answer.succeeded {
            return Err(not_leader());
        }
        lease.keep();
        Ok(Response::new(pb::ProclaimResponse { header: Some(answer.header.into()) }))
    }

    async fn leader(
        &self,
        request: Request<pb::LeaderRequest>,
    ) -> Result<Response<pb::LeaderResponse>, Status> {
        let (header, first) = self.line.first(&request.get_ref().name)?;
        let kv = first.ok_or_else(|| Status::unknown("election: no leader"))?;
        Ok(Response::new(pb::LeaderResponse { header: Some(header.into()), kv: Some(kv.into()) }))
    }

    async fn observe(
        &self,
        request: Request<pb::LeaderRequest>,
    ) -> Result<Response<BoxStream<pb::LeaderResponse>>, Status> {
        let observation = Observation::new(self.line.clone(), request.into_inner().name);
        let seen = stream::unfold(Some(observation), |open| async move {
            let mut observation = open?;
            let leader = observation.next().await;
            let open = leader.is_ok().then_some(observation);
            Some((leader, open))
        });
        Ok(Response::new(Box::pin(seen)))
    }

    /// Giving up what is lost already is no failure, as in etcd.
    async fn resign(
        &self,
        request: Request<pb::ResignRequest>,
    ) -> Result<Response<pb::ResignResponse>, Status> {
        let leader = request.into_inner().leader.ok_or_else(no_leader_key)?;
        let delete = DeleteRequest::key(leader.key.clone());
        let answer = self.line.transact(Txn::new().when(leads(&leader)).then(delete))?;
        Ok(Response::new(pb::ResignResponse { header: Some(answer.header.into()) }))
    }
}

/// That the leader's key is still the one that was elected.
fn leads(leader: &pb::LeaderKey) -> Compare {
    Compare::created_at(Key::from(leader.key.clone()), Revision::new(leader.rev))
}

fn no_leader_key() -> Status {
    Status::unknown("\"leader\" field must be provided")
}

fn not_leader() -> Status {
    Status::unknown("election: not leader")
}
