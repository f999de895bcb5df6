//! What the other messages are made of: headers, keys with their values, events.

use bytes::Bytes;
use leasehold_mvcc::{Event, EventKind, Header, Key, KeyRange, KeyValue, LeaseId, Revision};

use crate::DecodeError;
use crate::pb::{etcdserverpb as pb, mvccpb};

impl From<Header> for pb::ResponseHeader {
    fn from(header: Header) -> Self {
        Self {
            cluster_id: header.cluster_id,
            member_id: header.member_id,
            revision: header.revision.get(),
            raft_term: header.raft_term,
        }
    }
}

impl From<pb::ResponseHeader> for Header {
    fn from(header: pb::ResponseHeader) -> Self {
        Self {
            cluster_id: header.cluster_id,
            member_id: header.member_id,
            revision: Revision::new(header.revision),
            raft_term: header.raft_term,
        }
    }
}

/// The header of a response, which must be there. `message` names the response in the error.
pub fn header_of(message: &'static str, header: Option<pb::ResponseHeader>) -> Result<Header, DecodeError> {
    header.map(Header::from).ok_or(DecodeError::Missing { message, field: "header" })
}

/// A range as the wire has it, in two fields of a larger message.
pub(super) fn range_of(key: Bytes, range_end: Bytes) -> KeyRange {
    KeyRange { start: Key::from(key), end: Key::from(range_end) }
}

impl From<KeyValue> for mvccpb::KeyValue {
    fn from(kv: KeyValue) -> Self {
        Self {
            key: kv.key.to_bytes(),
            value: kv.value,
            create_revision: kv.create_revision.get(),
            mod_revision: kv.mod_revision.get(),
            version: kv.version,
            lease: kv.lease.get(),
        }
    }
}

impl From<mvccpb::KeyValue> for KeyValue {
    fn from(kv: mvccpb::KeyValue) -> Self {
        Self {
            key: Key::from(kv.key),
            value: kv.value,
            create_revision: Revision::new(kv.create_revision),
            mod_revision: Revision::new(kv.mod_revision),
            version: kv.version,
            lease: LeaseId::new(kv.lease),
        }
    }
}

impl From<EventKind> for mvccpb::event::EventType {
    fn from(kind: EventKind) -> Self {
        match kind {
            EventKind::Put => Self::Put,
            EventKind::Delete => Self::Delete,
        }
    }
}

impl From<mvccpb::event::EventType> for EventKind {
    fn from(kind: mvccpb::event::EventType) -> Self {
        match kind {
            mvccpb::event::EventType::Put => Self::Put,
            mvccpb::event::EventType::Delete => Self::Delete,
        }
    }
}

impl From<Event> for mvccpb::Event {
    fn from(event: Event) -> Self {
        Self {
            r#type: mvccpb::event::EventType::from(event.kind).into(),
            kv: Some(event.kv.into()),
            prev_kv: event.prev_kv.map(Into::into),
        }
    }
}

impl TryFrom<mvccpb::Event> for Event {
    type Error = DecodeError;

    fn try_from(event: mvccpb::Event) -> Result<Self, DecodeError> {
        let unknown = DecodeError::UnknownNumber { message: "Event", field: "type", number: event.r#type };
        let kind = mvccpb::event::EventType::try_from(event.r#type).map_err(|_| unknown)?;
        let kv = event.kv.ok_or(DecodeError::Missing { message: "Event", field: "kv" })?;
        Ok(Self { kind: kind.into(), kv: kv.into(), prev_kv: event.prev_kv.map(Into::into) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_of_an_unknown_kind_is_not_taken_for_a_put() {
        let event = mvccpb::Event { r#type: 2, kv: Some(mvccpb::KeyValue::default()), prev_kv: None };
        let unknown = DecodeError::UnknownNumber { message: "Event", field: "type", number: 2 };
        assert_eq!(Event::try_from(event), Err(unknown));
    }

    #[test]
    fn an_event_of_no_key_is_refused() {
        let missing = DecodeError::Missing { message: "Event", field: "kv" };
        assert_eq!(Event::try_from(mvccpb::Event::default()), Err(missing));
    }
}
