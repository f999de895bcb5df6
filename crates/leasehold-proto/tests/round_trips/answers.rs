//! Answers, and what comes on a watch stream.

use leasehold_mvcc::{
    Answer, CompactAnswer, DeleteAnswer, Event, EventKind, KeepAliveAnswer, LeaseGrantAnswer,
    LeaseRevokeAnswer, LeaseTimeToLiveAnswer, LeasesAnswer, PutAnswer, RangeAnswer, TxnAnswer, TxnOpAnswer,
    WatchId, WatchResponse,
};
use leasehold_proto::pb::etcdserverpb as pb;
use leasehold_proto::{Call, code_from_number, code_number};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::over_the_wire;
use crate::words::{header, key, key_value, lease, number, revision};

prop_compose! {
    fn range_answer()(
        header in header(), kvs in vec(key_value(), 0..3), more in any::<bool>(), count in number(),
    ) -> RangeAnswer {
        RangeAnswer { header, kvs, more, count }
    }
}

prop_compose! {
    fn put_answer()(header in header(), prev_kv in prop::option::of(key_value())) -> PutAnswer {
        PutAnswer { header, prev_kv }
    }
}

prop_compose! {
    fn delete_answer()(
        header in header(), deleted in number(), prev_kvs in vec(key_value(), 0..3),
    ) -> DeleteAnswer {
        DeleteAnswer { header, deleted, prev_kvs }
    }
}

fn txn_answer() -> impl Strategy<Value = TxnAnswer> {
    let plain = prop_oneof![
        range_answer().prop_map(TxnOpAnswer::Range),
        put_answer().prop_map(TxnOpAnswer::Put),
        delete_answer().prop_map(TxnOpAnswer::Delete),
    ];
    let op = plain.prop_recursive(3, 12, 3, |op| txn_answer_of(op).prop_map(TxnOpAnswer::Txn));
    txn_answer_of(op)
}

fn txn_answer_of(op: impl Strategy<Value = TxnOpAnswer>) -> impl Strategy<Value = TxnAnswer> {
    (header(), any::<bool>(), vec(op, 0..3)).prop_map(|(header, succeeded, ops)| TxnAnswer {
        header,
        succeeded,
        ops,
    })
}

prop_compose! {
    fn time_to_live_answer()(
        header in header(), id in lease(), ttl in number(), granted_ttl in number(), keys in vec(key(), 0..3),
    ) -> LeaseTimeToLiveAnswer {
        LeaseTimeToLiveAnswer { header, id, ttl, granted_ttl, keys }
    }
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        range_answer().prop_map(Answer::Range),
        put_answer().prop_map(Answer::Put),
        delete_answer().prop_map(Answer::Delete),
        txn_answer().prop_map(Answer::Txn),
        (header(), lease(), number()).prop_map(|(header, id, ttl)| Answer::LeaseGrant(LeaseGrantAnswer {
            header,
            id,
            ttl
        })),
        (header(), lease(), number()).prop_map(|(header, id, ttl)| Answer::LeaseKeepAlive(KeepAliveAnswer {
            header,
            id,
            ttl
        })),
        header().prop_map(|header| Answer::LeaseRevoke(LeaseRevokeAnswer { header })),
        time_to_live_answer().prop_map(Answer::LeaseTimeToLive),
        (header(), vec(lease(), 0..4))
            .prop_map(|(header, leases)| Answer::Leases(LeasesAnswer { header, leases })),
        header().prop_map(|header| Answer::Compact(CompactAnswer { header })),
    ]
}

prop_compose! {
    fn event()(
        kind in prop::sample::select(vec![EventKind::Put, EventKind::Delete]),
        kv in key_value(), prev_kv in prop::option::of(key_value()),
    ) -> Event {
        Event { kind, kv, prev_kv }
    }
}

prop_compose! {
    fn watch_response()(
        header in header(), id in number(), flags in any::<[bool; 3]>(), compact_revision in revision(),
        cancel_reason in ".{0,12}", events in vec(event(), 0..4),
    ) -> WatchResponse {
        let [created, canceled, fragment] = flags;
        let watch_id = WatchId::new(id);
        WatchResponse { header, watch_id, created, canceled, compact_revision, cancel_reason, fragment, events }
    }
}

/// The answer as the client of such a call has it.
fn answered<C: Call>(answer: Answer) -> Answer
where
    C::Response: prost::Message + Default,
{
    let response = C::response(answer).expect("it answers this call");
    C::answer(over_the_wire(&response)).expect("what we send, we understand")
}

proptest! {
    #[test]
    fn an_answer_comes_back_as_it_was(answer in answer()) {
        let received = match answer.clone() {
            it @ Answer::Range(_) => answered::<pb::RangeRequest>(it),
            it @ Answer::Put(_) => answered::<pb::PutRequest>(it),
            it @ Answer::Delete(_) => answered::<pb::DeleteRangeRequest>(it),
            it @ Answer::Txn(_) => answered::<pb::TxnRequest>(it),
            it @ Answer::LeaseGrant(_) => answered::<pb::LeaseGrantRequest>(it),
            it @ Answer::LeaseKeepAlive(_) => answered::<pb::LeaseKeepAliveRequest>(it),
            it @ Answer::LeaseRevoke(_) => answered::<pb::LeaseRevokeRequest>(it),
            it @ Answer::LeaseTimeToLive(_) => answered::<pb::LeaseTimeToLiveRequest>(it),
            it @ Answer::Leases(_) => answered::<pb::LeaseLeasesRequest>(it),
            it @ Answer::Compact(_) => answered::<pb::CompactionRequest>(it),
            Answer::Expire(_) => unreachable!("expiry has no message"),
        };
        prop_assert_eq!(received, answer);
    }

    #[test]
    fn what_comes_on_a_watch_stream_comes_back_as_it_was(response in watch_response()) {
        let received = over_the_wire(&pb::WatchResponse::from(response.clone()));
        prop_assert_eq!(WatchResponse::try_from(received), Ok(response));
    }

    #[test]
    fn a_code_is_a_code_again(number in any::<i32>()) {
        let code = code_from_number(number);
        prop_assert_eq!(code_from_number(code_number(code)), code);
    }
}
