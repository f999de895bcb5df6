//! Commands and what is said on a watch stream.

use leasehold_mvcc::{
    Command, CompactRequest, Compare, CompareResult, CompareTarget, DeleteRequest, LeaseGrantRequest,
    PutRequest, RangeRequest, SortOrder, SortTarget, Txn, TxnOp, WatchId, WatchRequest,
};
use leasehold_proto::{Request, WatchCommand, WatchCreate};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::over_the_wire;
use crate::words::{bytes, key, lease, number, range, revision};

prop_compose! {
    fn range_request()(
        range in range(), limit in number(), revision in revision(),
        sort_order in prop::sample::select(vec![SortOrder::None, SortOrder::Ascend, SortOrder::Descend]),
        sort_target in prop::sample::select(vec![
            SortTarget::Key, SortTarget::Version, SortTarget::Create, SortTarget::Mod, SortTarget::Value,
        ]),
        flags in any::<[bool; 3]>(), bounds in [revision(), revision(), revision(), revision()],
    ) -> RangeRequest {
        // A read of no key is refused, whatever else it says, so its order need not survive.
        let ordered = !range.start.is_empty();
        let [serializable, keys_only, count_only] = flags;
        let [min_mod_revision, max_mod_revision, min_create_revision, max_create_revision] = bounds;
        RangeRequest {
            range, limit, revision,
            sort_order: if ordered { sort_order } else { SortOrder::None },
            sort_target: if ordered { sort_target } else { SortTarget::Key },
            serializable, keys_only, count_only,
            min_mod_revision, max_mod_revision, min_create_revision, max_create_revision,
        }
    }
}

prop_compose! {
    fn put_request()(key in key(), value in bytes(), lease in lease(), flags in any::<[bool; 3]>()) -> PutRequest {
        let [prev_kv, ignore_value, ignore_lease] = flags;
        PutRequest { key, value, lease, prev_kv, ignore_value, ignore_lease }
    }
}

prop_compose! {
    fn delete_request()(range in range(), prev_kv in any::<bool>()) -> DeleteRequest {
        DeleteRequest { range, prev_kv }
    }
}

prop_compose! {
    fn compare()(
        range in range(),
        target in prop_oneof![
            number().prop_map(CompareTarget::Version),
            revision().prop_map(CompareTarget::Create),
            revision().prop_map(CompareTarget::Mod),
            bytes().prop_map(CompareTarget::Value),
            lease().prop_map(CompareTarget::Lease),
        ],
        result in prop::sample::select(vec![
            CompareResult::Equal, CompareResult::Greater, CompareResult::Less, CompareResult::NotEqual,
        ]),
    ) -> Compare {
        Compare { range, target, result }
    }
}

fn txn() -> impl Strategy<Value = Txn> {
    let plain = prop_oneof![
        range_request().prop_map(TxnOp::Range),
        put_request().prop_map(TxnOp::Put),
        delete_request().prop_map(TxnOp::Delete),
    ];
    let op = plain.prop_recursive(3, 12, 3, |op| txn_of(op).prop_map(TxnOp::Txn));
    txn_of(op)
}

fn txn_of(op: impl Strategy<Value = TxnOp> + Clone) -> impl Strategy<Value = Txn> {
    (vec(compare(), 0..3), vec(op.clone(), 0..3), vec(op, 0..3)).prop_map(|(compare, success, failure)| Txn {
        compare,
        success,
        failure,
    })
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        range_request().prop_map(Command::Range),
        put_request().prop_map(Command::Put),
        delete_request().prop_map(Command::Delete),
        txn().prop_map(Command::Txn),
        (number(), lease()).prop_map(|(ttl, id)| Command::LeaseGrant(LeaseGrantRequest { ttl, id })),
        lease().prop_map(Command::LeaseKeepAlive),
        lease().prop_map(Command::LeaseRevoke),
        (lease(), any::<bool>()).prop_map(|(id, keys)| Command::LeaseTimeToLive(id, keys)),
        Just(Command::Leases),
        (revision(), any::<bool>())
            .prop_map(|(revision, physical)| Command::Compact(CompactRequest { revision, physical })),
    ]
}

prop_compose! {
    fn watch_request()(
        range in range().prop_filter("an empty key becomes the smallest", |range| !range.start.is_empty()),
        start_revision in revision(), flags in any::<[bool; 4]>(),
    ) -> WatchRequest {
        let [prev_kv, no_put, no_delete, progress_notify] = flags;
        WatchRequest { range, start_revision, prev_kv, no_put, no_delete, progress_notify }
    }
}

fn watch_command() -> impl Strategy<Value = WatchCommand> {
    let id = number().prop_filter("0 is no id", |id| *id != 0).prop_map(WatchId::new);
    prop_oneof![
        (watch_request(), prop::option::of(id), any::<bool>())
            .prop_map(|(request, id, fragment)| WatchCommand::Create(WatchCreate { request, id, fragment })),
        number().prop_map(|id| WatchCommand::Cancel(WatchId::new(id))),
        Just(WatchCommand::Progress),
    ]
}

fn request_over_the_wire(request: Request) -> Request {
    match request {
        Request::Range(message) => Request::Range(over_the_wire(&message)),
        Request::Put(message) => Request::Put(over_the_wire(&message)),
        Request::DeleteRange(message) => Request::DeleteRange(over_the_wire(&message)),
        Request::Txn(message) => Request::Txn(over_the_wire(&message)),
        Request::Compact(message) => Request::Compact(over_the_wire(&message)),
        Request::LeaseGrant(message) => Request::LeaseGrant(over_the_wire(&message)),
        Request::LeaseKeepAlive(message) => Request::LeaseKeepAlive(over_the_wire(&message)),
        Request::LeaseRevoke(message) => Request::LeaseRevoke(over_the_wire(&message)),
        Request::LeaseTimeToLive(message) => Request::LeaseTimeToLive(over_the_wire(&message)),
        Request::LeaseLeases(message) => Request::LeaseLeases(over_the_wire(&message)),
    }
}

proptest! {
    #[test]
    fn a_command_comes_back_as_it_was(command in command()) {
        let sent = Request::from_command(command.clone()).expect("all but expiry can be asked for");
        prop_assert_eq!(request_over_the_wire(sent).into_command(), Ok(command));
    }

    #[test]
    fn what_is_said_on_a_watch_stream_comes_back_as_it_was(command in watch_command()) {
        let received = over_the_wire(&command.clone().into());
        prop_assert_eq!(WatchCommand::from_message(received), Some(command));
    }
}
