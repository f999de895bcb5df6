//! Any bytes, numbers, keys and headers.

use bytes::Bytes;
use leasehold_mvcc::{Header, Key, KeyRange, KeyValue, LeaseId, Revision};
use proptest::collection::vec;
use proptest::prelude::*;

pub(crate) fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..6).prop_map(Bytes::from)
}

pub(crate) fn key() -> impl Strategy<Value = Key> {
    bytes().prop_map(Key::from)
}

pub(crate) fn range() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        key().prop_map(KeyRange::key),
        key().prop_map(KeyRange::prefix),
        key().prop_map(KeyRange::from),
        (key(), key()).prop_map(|(start, end)| KeyRange::between(start, end)),
    ]
}

/// Small numbers, and those at the edges, which are the ones that encodings get wrong.
pub(crate) fn number() -> impl Strategy<Value = i64> {
    prop_oneof![-2i64..300, any::<i64>(), Just(i64::MIN), Just(i64::MAX)]
}

pub(crate) fn revision() -> impl Strategy<Value = Revision> {
    number().prop_map(Revision::new)
}

pub(crate) fn lease() -> impl Strategy<Value = LeaseId> {
    number().prop_map(LeaseId::new)
}

prop_compose! {
    pub(crate) fn header()(
        cluster_id in any::<u64>(), member_id in any::<u64>(), revision in revision(), raft_term in any::<u64>(),
    ) -> Header {
        Header { cluster_id, member_id, revision, raft_term }
    }
}

prop_compose! {
    pub(crate) fn key_value()(
        key in key(), value in bytes(), create_revision in revision(), mod_revision in revision(),
        version in number(), lease in lease(),
    ) -> KeyValue {
        KeyValue { key, value, create_revision, mod_revision, version, lease }
    }
}
