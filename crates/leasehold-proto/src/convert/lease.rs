//! Leases.

use leasehold_mvcc::{
    KeepAliveAnswer, Key, LeaseGrantAnswer, LeaseGrantRequest, LeaseId, LeaseRevokeAnswer,
    LeaseTimeToLiveAnswer, LeasesAnswer,
};

use super::entry::header_of;
use crate::DecodeError;
use crate::pb::etcdserverpb as pb;

impl From<LeaseGrantRequest> for pb::LeaseGrantRequest {
    fn from(request: LeaseGrantRequest) -> Self {
        Self { ttl: request.ttl, id: request.id.get() }
    }
}

impl From<pb::LeaseGrantRequest> for LeaseGrantRequest {
    fn from(request: pb::LeaseGrantRequest) -> Self {
        Self { ttl: request.ttl, id: LeaseId::new(request.id) }
    }
}

impl From<LeaseGrantAnswer> for pb::LeaseGrantResponse {
    fn from(answer: LeaseGrantAnswer) -> Self {
        Self {
            header: Some(answer.header.into()),
            id: answer.id.get(),
            ttl: answer.ttl,
            error: String::new(),
        }
    }
}

/// The field `error` is passed over, as Go does: etcd refuses with a status and never sets it.
impl TryFrom<pb::LeaseGrantResponse> for LeaseGrantAnswer {
    type Error = DecodeError;

    fn try_from(response: pb::LeaseGrantResponse) -> Result<Self, DecodeError> {
        let header = header_of("LeaseGrantResponse", response.header)?;
        Ok(Self { header, id: LeaseId::new(response.id), ttl: response.ttl })
    }
}

impl From<KeepAliveAnswer> for pb::LeaseKeepAliveResponse {
    fn from(answer: KeepAliveAnswer) -> Self {
        Self { header: Some(answer.header.into()), id: answer.id.get(), ttl: answer.ttl }
    }
}

impl TryFrom<pb::LeaseKeepAliveResponse> for KeepAliveAnswer {
    type Error = DecodeError;

    fn try_from(response: pb::LeaseKeepAliveResponse) -> Result<Self, DecodeError> {
        let header = header_of("LeaseKeepAliveResponse", response.header)?;
        Ok(Self { header, id: LeaseId::new(response.id), ttl: response.ttl })
    }
}

impl From<LeaseRevokeAnswer> for pb::LeaseRevokeResponse {
    fn from(answer: LeaseRevokeAnswer) -> Self {
        Self { header: Some(answer.header.into()) }
    }
}

impl TryFrom<pb::LeaseRevokeResponse> for LeaseRevokeAnswer {
    type Error = DecodeError;

    fn try_from(response: pb::LeaseRevokeResponse) -> Result<Self, DecodeError> {
        Ok(Self { header: header_of("LeaseRevokeResponse", response.header)? })
    }
}

impl From<LeaseTimeToLiveAnswer> for pb::LeaseTimeToLiveResponse {
    fn from(answer: LeaseTimeToLiveAnswer) -> Self {
        Self {
            header: Some(answer.header.into()),
            id: answer.id.get(),
            ttl: answer.ttl,
            granted_ttl: answer.granted_ttl,
            keys: answer.keys.iter().map(Key::to_bytes).collect(),
        }
    }
}

impl TryFrom<pb::LeaseTimeToLiveResponse> for LeaseTimeToLiveAnswer {
    type Error = DecodeError;

    fn try_from(response: pb::LeaseTimeToLiveResponse) -> Result<Self, DecodeError> {
        let header = header_of("LeaseTimeToLiveResponse", response.header)?;
        Ok(Self {
            header,
            id: LeaseId::new(response.id),
            ttl: response.ttl,
            granted_ttl: response.granted_ttl,
            keys: response.keys.into_iter().map(Key::from).collect(),
        })
    }
}

impl From<LeasesAnswer> for pb::LeaseLeasesResponse {
    fn from(answer: LeasesAnswer) -> Self {
        Self {
            header: Some(answer.header.into()),
            leases: answer.leases.iter().map(|lease| pb::LeaseStatus { id: lease.get() }).collect(),
        }
    }
}

impl TryFrom<pb::LeaseLeasesResponse> for LeasesAnswer {
    type Error = DecodeError;

    fn try_from(response: pb::LeaseLeasesResponse) -> Result<Self, DecodeError> {
        let header = header_of("LeaseLeasesResponse", response.header)?;
        Ok(Self { header, leases: response.leases.iter().map(|lease| LeaseId::new(lease.id)).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renewal_without_a_header_is_refused() {
        // Its raft term is what tells a renewal by a leader from one by a leader deposed.
        let response = pb::LeaseKeepAliveResponse { header: None, id: 7, ttl: 15 };
        let missing = DecodeError::Missing { message: "LeaseKeepAliveResponse", field: "header" };
        assert_eq!(KeepAliveAnswer::try_from(response), Err(missing));
    }
}
