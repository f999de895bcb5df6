//! Writes, deletes and compaction.

use leasehold_mvcc::{
    CompactAnswer, CompactRequest, DeleteAnswer, DeleteRequest, Header, Key, LeaseId, PutAnswer, PutRequest,
    Revision,
};

use super::entry::{header_of, range_of};
use crate::DecodeError;
use crate::pb::etcdserverpb as pb;

impl From<PutRequest> for pb::PutRequest {
    fn from(request: PutRequest) -> Self {
        Self {
            key: request.key.to_bytes(),
            value: request.value,
            lease: request.lease.get(),
            prev_kv: request.prev_kv,
            ignore_value: request.ignore_value,
            ignore_lease: request.ignore_lease,
        }
    }
}

impl From<pb::PutRequest> for PutRequest {
    fn from(request: pb::PutRequest) -> Self {
        Self {
            key: Key::from(request.key),
            value: request.value,
            lease: LeaseId::new(request.lease),
            prev_kv: request.prev_kv,
            ignore_value: request.ignore_value,
            ignore_lease: request.ignore_lease,
        }
    }
}

impl From<PutAnswer> for pb::PutResponse {
    fn from(answer: PutAnswer) -> Self {
        Self { header: Some(answer.header.into()), prev_kv: answer.prev_kv.map(Into::into) }
    }
}

impl TryFrom<pb::PutResponse> for PutAnswer {
    type Error = DecodeError;

    fn try_from(response: pb::PutResponse) -> Result<Self, DecodeError> {
        let header = header_of("PutResponse", response.header)?;
        Ok(put_answer(header, response))
    }
}

/// The answer, with a header that was judged elsewhere.
pub(super) fn put_answer(header: Header, response: pb::PutResponse) -> PutAnswer {
    PutAnswer { header, prev_kv: response.prev_kv.map(Into::into) }
}

impl From<DeleteRequest> for pb::DeleteRangeRequest {
    fn from(request: DeleteRequest) -> Self {
        Self {
            key: request.range.start.to_bytes(),
            range_end: request.range.end.to_bytes(),
            prev_kv: request.prev_kv,
        }
    }
}

impl From<pb::DeleteRangeRequest> for DeleteRequest {
    fn from(request: pb::DeleteRangeRequest) -> Self {
        Self { range: range_of(request.key, request.range_end), prev_kv: request.prev_kv }
    }
}

impl From<DeleteAnswer> for pb::DeleteRangeResponse {
    fn from(answer: DeleteAnswer) -> Self {
        Self {
            header: Some(answer.header.into()),
            deleted: answer.deleted,
            prev_kvs: answer.prev_kvs.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<pb::DeleteRangeResponse> for DeleteAnswer {
    type Error = DecodeError;

    fn try_from(response: pb::DeleteRangeResponse) -> Result<Self, DecodeError> {
        let header = header_of("DeleteRangeResponse", response.header)?;
        Ok(delete_answer(header, response))
    }
}

/// The answer, with a header that was judged elsewhere.
pub(super) fn delete_answer(header: Header, response: pb::DeleteRangeResponse) -> DeleteAnswer {
    DeleteAnswer {
        header,
        deleted: response.deleted,
        prev_kvs: response.prev_kvs.into_iter().map(Into::into).collect(),
    }
}

impl From<CompactRequest> for pb::CompactionRequest {
    fn from(request: CompactRequest) -> Self {
        Self { revision: request.revision.get(), physical: request.physical }
    }
}

impl From<pb::CompactionRequest> for CompactRequest {
    fn from(request: pb::CompactionRequest) -> Self {
        Self { revision: Revision::new(request.revision), physical: request.physical }
    }
}

impl From<CompactAnswer> for pb::CompactionResponse {
    fn from(answer: CompactAnswer) -> Self {
        Self { header: Some(answer.header.into()) }
    }
}

impl TryFrom<pb::CompactionResponse> for CompactAnswer {
    type Error = DecodeError;

    fn try_from(response: pb::CompactionResponse) -> Result<Self, DecodeError> {
        Ok(Self { header: header_of("CompactionResponse", response.header)? })
    }
}
