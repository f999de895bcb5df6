//! Reads.

use leasehold_mvcc::{Header, RangeAnswer, RangeRequest, Revision, SortOrder, SortTarget};

use super::entry::{header_of, range_of};
use crate::DecodeError;
use crate::pb::etcdserverpb as pb;

impl From<SortOrder> for pb::range_request::SortOrder {
    fn from(order: SortOrder) -> Self {
        match order {
            SortOrder::None => Self::None,
            SortOrder::Ascend => Self::Ascend,
            SortOrder::Descend => Self::Descend,
        }
    }
}

impl From<pb::range_request::SortOrder> for SortOrder {
    fn from(order: pb::range_request::SortOrder) -> Self {
        match order {
            pb::range_request::SortOrder::None => Self::None,
            pb::range_request::SortOrder::Ascend => Self::Ascend,
            pb::range_request::SortOrder::Descend => Self::Descend,
        }
    }
}

impl From<SortTarget> for pb::range_request::SortTarget {
    fn from(target: SortTarget) -> Self {
        match target {
            SortTarget::Key => Self::Key,
            SortTarget::Version => Self::Version,
            SortTarget::Create => Self::Create,
            SortTarget::Mod => Self::Mod,
            SortTarget::Value => Self::Value,
        }
    }
}

impl From<pb::range_request::SortTarget> for SortTarget {
    fn from(target: pb::range_request::SortTarget) -> Self {
        match target {
            pb::range_request::SortTarget::Key => Self::Key,
            pb::range_request::SortTarget::Version => Self::Version,
            pb::range_request::SortTarget::Create => Self::Create,
            pb::range_request::SortTarget::Mod => Self::Mod,
            pb::range_request::SortTarget::Value => Self::Value,
        }
    }
}

impl From<RangeRequest> for pb::RangeRequest {
    fn from(request: RangeRequest) -> Self {
        Self {
            key: request.range.start.to_bytes(),
            range_end: request.range.end.to_bytes(),
            limit: request.limit,
            revision: request.revision.get(),
            sort_order: pb::range_request::SortOrder::from(request.sort_order).into(),
            sort_target: pb::range_request::SortTarget::from(request.sort_target).into(),
            serializable: request.serializable,
            keys_only: request.keys_only,
            count_only: request.count_only,
            min_mod_revision: request.min_mod_revision.get(),
            max_mod_revision: request.max_mod_revision.get(),
            min_create_revision: request.min_create_revision.get(),
            max_create_revision: request.max_create_revision.get(),
        }
    }
}

impl TryFrom<pb::RangeRequest> for RangeRequest {
    type Error = DecodeError;

    fn try_from(request: pb::RangeRequest) -> Result<Self, DecodeError> {
        let (sort_order, sort_target) = if request.key.is_empty() {
            // etcd complains of the missing key first. So will the store, once it sees the request.
            (SortOrder::default(), SortTarget::default())
        } else {
            (sort_order(request.sort_order)?, sort_target(request.sort_target)?)
        };
        Ok(Self {
            range: range_of(request.key, request.range_end),
            limit: request.limit,
            revision: Revision::new(request.revision),
            sort_order,
            sort_target,
            serializable: request.serializable,
            keys_only: request.keys_only,
            count_only: request.count_only,
            min_mod_revision: Revision::new(request.min_mod_revision),
            max_mod_revision: Revision::new(request.max_mod_revision),
            min_create_revision: Revision::new(request.min_create_revision),
            max_create_revision: Revision::new(request.max_create_revision),
        })
    }
}

fn sort_order(number: i32) -> Result<SortOrder, DecodeError> {
    let unknown = DecodeError::UnknownNumber { message: "RangeRequest", field: "sort_order", number };
    pb::range_request::SortOrder::try_from(number).map(Into::into).map_err(|_| unknown)
}

fn sort_target(number: i32) -> Result<SortTarget, DecodeError> {
    let unknown = DecodeError::UnknownNumber { message: "RangeRequest", field: "sort_target", number };
    pb::range_request::SortTarget::try_from(number).map(Into::into).map_err(|_| unknown)
}

impl From<RangeAnswer> for pb::RangeResponse {
    fn from(answer: RangeAnswer) -> Self {
        Self {
            header: Some(answer.header.into()),
            kvs: answer.kvs.into_iter().map(Into::into).collect(),
            more: answer.more,
            count: answer.count,
        }
    }
}

impl TryFrom<pb::RangeResponse> for RangeAnswer {
    type Error = DecodeError;

    fn try_from(response: pb::RangeResponse) -> Result<Self, DecodeError> {
        let header = header_of("RangeResponse", response.header)?;
        Ok(range_answer(header, response))
    }
}

/// The answer, with a header that was judged elsewhere.
pub(super) fn range_answer(header: Header, response: pb::RangeResponse) -> RangeAnswer {
    RangeAnswer {
        header,
        kvs: response.kvs.into_iter().map(Into::into).collect(),
        more: response.more,
        count: response.count,
    }
}

#[cfg(test)]
mod tests {
    use leasehold_mvcc::{Code, StoreError};

    use super::*;

    #[test]
    fn an_unknown_order_is_refused_in_etcds_words() {
        for (sort_order, sort_target) in [(3, 0), (0, 5), (-1, 0)] {
            let request = pb::RangeRequest { key: "k".into(), sort_order, sort_target, ..Default::default() };
            let refusal = RangeRequest::try_from(request).map_err(StoreError::from);
            let words = "etcdserver: invalid sort option";
            assert_eq!(refusal, Err(StoreError::new(Code::InvalidArgument, words)));
        }
    }

    #[test]
    fn a_missing_key_comes_before_an_unknown_order() {
        let request = pb::RangeRequest { sort_order: 3, ..Default::default() };
        assert_eq!(RangeRequest::try_from(request), Ok(RangeRequest::default()));
    }

    #[test]
    fn an_answer_without_a_header_is_refused() {
        let missing = DecodeError::Missing { message: "RangeResponse", field: "header" };
        assert_eq!(RangeAnswer::try_from(pb::RangeResponse::default()), Err(missing));
    }
}
