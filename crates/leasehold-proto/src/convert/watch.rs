//! Both directions of a watch stream.

use bytes::Bytes;
use leasehold_mvcc::{Event, Revision, WatchId, WatchRequest, WatchResponse};

use super::entry::{header_of, range_of};
use crate::DecodeError;
use crate::pb::etcdserverpb as pb;
use pb::watch_create_request::FilterType;
use pb::watch_request::RequestUnion;

/// What a client says on a watch stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchCommand {
    /// Start a watch.
    Create(WatchCreate),
    /// End a watch.
    Cancel(WatchId),
    /// Ask how far the whole stream has come.
    Progress,
}

/// A watch to be started, with what the wire asks beside the [`WatchRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct WatchCreate {
    /// What to follow.
    pub request: WatchRequest,
    /// The id it shall have on its stream; without one, the server chooses.
    pub id: Option<WatchId>,
    /// Whether the client can put answers together that were sent in pieces.
    pub fragment: bool,
}

impl WatchCommand {
    /// What the client said; nothing if the message is empty, which etcd passes over.
    pub fn from_message(message: pb::WatchRequest) -> Option<Self> {
        Some(match message.request_union? {
            RequestUnion::CreateRequest(create) => Self::Create(create.into()),
            RequestUnion::CancelRequest(cancel) => Self::Cancel(WatchId::new(cancel.watch_id)),
            RequestUnion::ProgressRequest(pb::WatchProgressRequest {}) => Self::Progress,
        })
    }
}

impl From<WatchCommand> for pb::WatchRequest {
    fn from(command: WatchCommand) -> Self {
        let union = match command {
            WatchCommand::Create(create) => RequestUnion::CreateRequest(create.into()),
            WatchCommand::Cancel(id) => {
                RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id: id.get() })
            }
            WatchCommand::Progress => RequestUnion::ProgressRequest(pb::WatchProgressRequest {}),
        };
        Self { request_union: Some(union) }
    }
}

impl From<WatchCreate> for pb::WatchCreateRequest {
    fn from(create: WatchCreate) -> Self {
        Self {
            watch_id: create.id.unwrap_or_default().get(),
            fragment: create.fragment,
            ..Self::from(create.request)
        }
    }
}

impl From<pb::WatchCreateRequest> for WatchCreate {
    fn from(create: pb::WatchCreateRequest) -> Self {
        // On the wire 0 is no id: a watch can have id 0 only by the server's choice.
        let id = (create.watch_id != 0).then(|| WatchId::new(create.watch_id));
        Self { id, fragment: create.fragment, request: create.into() }
    }
}

impl From<WatchRequest> for pb::WatchCreateRequest {
    fn from(request: WatchRequest) -> Self {
        let filters = [(request.no_put, FilterType::Noput), (request.no_delete, FilterType::Nodelete)];
        Self {
            key: request.range.start.to_bytes(),
            range_end: request.range.end.to_bytes(),
            start_revision: request.start_revision.get(),
            progress_notify: request.progress_notify,
            filters: filters
                .into_iter()
                .filter(|(wanted, _)| *wanted)
                .map(|(_, filter)| filter.into())
                .collect(),
            prev_kv: request.prev_kv,
            watch_id: 0,
            fragment: false,
        }
    }
}

/// Filters of unknown number are passed over, and an empty key is the smallest there is, as in etcd.
impl From<pb::WatchCreateRequest> for WatchRequest {
    fn from(create: pb::WatchCreateRequest) -> Self {
        let has = |filter: FilterType| create.filters.contains(&i32::from(filter));
        let (no_put, no_delete) = (has(FilterType::Noput), has(FilterType::Nodelete));
        let key = if create.key.is_empty() { SMALLEST_KEY } else { create.key };
        Self {
            range: range_of(key, create.range_end),
            start_revision: Revision::new(create.start_revision),
            prev_kv: create.prev_kv,
            no_put,
            no_delete,
            progress_notify: create.progress_notify,
        }
    }
}

const SMALLEST_KEY: Bytes = Bytes::from_static(b"\0");

impl From<WatchResponse> for pb::WatchResponse {
    fn from(response: WatchResponse) -> Self {
        Self {
            header: Some(response.header.into()),
            watch_id: response.watch_id.get(),
            created: response.created,
            canceled: response.canceled,
            compact_revision: response.compact_revision.get(),
            cancel_reason: response.cancel_reason,
            fragment: response.fragment,
            events: response.events.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<pb::WatchResponse> for WatchResponse {
    type Error = DecodeError;

    fn try_from(response: pb::WatchResponse) -> Result<Self, DecodeError> {
        Ok(Self {
            header: header_of("WatchResponse", response.header)?,
            watch_id: WatchId::new(response.watch_id),
            created: response.created,
            canceled: response.canceled,
            compact_revision: Revision::new(response.compact_revision),
            cancel_reason: response.cancel_reason,
            fragment: response.fragment,
            events: response.events.into_iter().map(Event::try_from).collect::<Result<_, _>>()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use leasehold_mvcc::KeyRange;

    use super::*;

    #[test]
    fn an_empty_message_is_passed_over() {
        assert_eq!(WatchCommand::from_message(pb::WatchRequest::default()), None);
    }

    #[test]
    fn an_unknown_filter_is_passed_over() {
        let create = pb::WatchCreateRequest { key: "k".into(), filters: vec![9, 1, 1], ..Default::default() };
        let wanted = WatchRequest { no_delete: true, ..WatchRequest::range(KeyRange::key("k")) };
        assert_eq!(WatchRequest::from(create), wanted);
    }

    #[test]
    fn an_empty_key_is_the_smallest() {
        let create = pb::WatchCreateRequest { range_end: KeyRange::OPEN_END.into(), ..Default::default() };
        assert_eq!(WatchRequest::from(create).range, KeyRange::all());
    }

    #[test]
    fn a_response_without_a_header_is_refused() {
        let missing = DecodeError::Missing { message: "WatchResponse", field: "header" };
        assert_eq!(WatchResponse::try_from(pb::WatchResponse::default()), Err(missing));
    }
}
