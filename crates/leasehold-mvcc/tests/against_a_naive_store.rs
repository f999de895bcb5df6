//! The store does what a naive one does, for any list of commands.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that meets the unexpected should stop"
)]

mod naive;

use std::time::Duration;

use leasehold_mvcc::{
    Command, CompactRequest, Compare, CompareResult, CompareTarget, DeleteRequest, Event, Instant, Key,
    KeyRange, LeaseGrantRequest, LeaseId, PutRequest, RangeRequest, Revision, SortOrder, SortTarget, Store,
    StoreOptions, Txn, TxnOp, WatchRequest,
};
use naive::Naive;
use proptest::prelude::*;
use proptest::sample::select;

const KEYS: [&str; 6] = ["a", "a/1", "a/2", "a0", "b", "\0"];

fn key() -> impl Strategy<Value = Key> {
    select(KEYS.to_vec()).prop_map(Key::from)
}

fn closed_range() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        3 => key().prop_map(KeyRange::key),
        2 => (key(), key()).prop_map(|(start, end)| KeyRange { start, end })
            .prop_filter("closed", |range| !range.is_open()),
        1 => Just(KeyRange::prefix("a/")),
    ]
}

fn range() -> impl Strategy<Value = KeyRange> {
    prop_oneof![3 => closed_range(), 1 => key().prop_map(KeyRange::from), 1 => Just(KeyRange::all())]
}

fn lease() -> impl Strategy<Value = LeaseId> {
    (1..4_i64).prop_map(LeaseId::new)
}

/// A revision near those that a short run makes, mostly none.
fn revision() -> impl Strategy<Value = Revision> {
    prop_oneof![2 => Just(0), 1 => -1..30_i64].prop_map(Revision::new)
}

fn read() -> impl Strategy<Value = RangeRequest> {
    let order = select(vec![SortOrder::None, SortOrder::Ascend, SortOrder::Descend]);
    let target = select(vec![
        SortTarget::Key,
        SortTarget::Version,
        SortTarget::Create,
        SortTarget::Mod,
        SortTarget::Value,
    ]);
    let bound = || prop_oneof![4 => Just(0), 1 => 0..30_i64].prop_map(Revision::new);
    let bounds = (bound(), bound(), bound(), bound());
    let flags = (proptest::bool::weighted(0.2), proptest::bool::weighted(0.1));
    (range(), -1..4_i64, revision(), order, target, bounds, flags).prop_map(
        |(range, limit, revision, sort_order, sort_target, bounds, (keys_only, count_only))| RangeRequest {
            range,
            limit,
            revision,
            sort_order,
            sort_target,
            serializable: false,
            keys_only,
            count_only,
            min_mod_revision: bounds.0,
            max_mod_revision: bounds.1,
            min_create_revision: bounds.2,
            max_create_revision: bounds.3,
        },
    )
}

fn put() -> impl Strategy<Value = PutRequest> {
    let lease = prop_oneof![2 => Just(LeaseId::NONE), 1 => lease()];
    let value = select(vec!["", "x", "y"]);
    let rarely = || proptest::bool::weighted(0.15);
    (key(), value, lease, any::<bool>(), rarely(), rarely()).prop_map(
        |(key, value, lease, prev_kv, ignore_value, ignore_lease)| PutRequest {
            key,
            value: if ignore_value { "" } else { value }.into(),
            lease: if ignore_lease { LeaseId::NONE } else { lease },
            prev_kv,
            ignore_value,
            ignore_lease,
        },
    )
}

fn delete(range: impl Strategy<Value = KeyRange>) -> impl Strategy<Value = DeleteRequest> {
    (range, any::<bool>()).prop_map(|(range, prev_kv)| DeleteRequest { range, prev_kv })
}

fn compare() -> impl Strategy<Value = Compare> {
    let target = prop_oneof![
        (-1..3_i64).prop_map(CompareTarget::Version),
        revision().prop_map(CompareTarget::Create),
        revision().prop_map(CompareTarget::Mod),
        select(vec!["", "x", "y"]).prop_map(|value| CompareTarget::Value(value.into())),
        prop_oneof![Just(LeaseId::NONE), lease()].prop_map(CompareTarget::Lease),
    ];
    let result = select(vec![
        CompareResult::Equal,
        CompareResult::Greater,
        CompareResult::Less,
        CompareResult::NotEqual,
    ]);
    (range(), target, result).prop_map(|(range, target, result)| Compare { range, target, result })
}

fn txn() -> impl Strategy<Value = Txn> {
    // Deletes without an end are left out: etcd does not see that they overlap with a put.
    let op = prop_oneof![
        read().prop_map(TxnOp::from),
        put().prop_map(TxnOp::from),
        delete(closed_range()).prop_map(TxnOp::from),
    ];
    let ops = proptest::collection::vec(op, 0..4);
    (proptest::collection::vec(compare(), 0..3), ops.clone(), ops)
        .prop_map(|(compare, success, failure)| Txn { compare, success, failure })
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        6 => put().prop_map(Command::Put),
        3 => delete(range()).prop_map(Command::Delete),
        6 => txn().prop_map(Command::Txn),
        4 => read().prop_map(Command::Range),
        3 => (lease(), 0..20_i64).prop_map(|(id, ttl)| Command::LeaseGrant(LeaseGrantRequest { ttl, id })),
        1 => lease().prop_map(Command::LeaseRevoke),
        1 => lease().prop_map(Command::LeaseKeepAlive),
        1 => (lease(), any::<bool>()).prop_map(|(id, keys)| Command::LeaseTimeToLive(id, keys)),
        1 => Just(Command::Leases),
        2 => Just(Command::Expire),
        1 => revision().prop_map(|revision| Command::Compact(CompactRequest { revision, physical: true })),
    ]
}

/// The commands, each with how many milliseconds it comes after the one before.
fn commands() -> impl Strategy<Value = Vec<(Command, u64)>> {
    proptest::collection::vec((command(), prop_oneof![Just(0), 0..6_000_u64]), 1..60)
}

fn by_key(mut events: Vec<Event>) -> Vec<Event> {
    events.sort_by(|a, b| a.kv.key.cmp(&b.kv.key));
    events
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_list_of_commands_is_answered_as_a_naive_store_answers_it(
        commands in commands(),
        watched in range(),
        from in 0..30_i64,
    ) {
        let mut store = Store::new(StoreOptions::default());
        let mut naive = Naive::new(store.header());
        let mut now = Instant::ZERO;
        let mut commits = Vec::new();
        for (command, wait) in commands {
            now = now + Duration::from_millis(wait);
            let before = store.revision();
            let outcome = store.apply(command.clone(), now);
            let expected = naive.apply(&command, now);
            prop_assert_eq!(outcome.answer.map_err(|refusal| refusal.code), expected, "{:?}", command);

            prop_assert_eq!(store.revision().get(), naive.revision());
            prop_assert_eq!(store.next_expiry(), naive.next_expiry());
            prop_assert_eq!(store.compacted_revision().get(), naive.compacted().max(0));
            let all = store.range(&RangeRequest::range(KeyRange::all())).unwrap();
            prop_assert!(all.kvs.iter().eq(naive.now().values()));
            let made: Vec<_> = outcome.commits.iter().map(|commit| commit.revision.get()).collect();
            prop_assert_eq!(made, (before.get() + 1..=store.revision().get()).collect::<Vec<_>>());
            commits.extend(outcome.commits);
        }

        let watch = WatchRequest { prev_kv: true, ..WatchRequest::range(watched.clone()) };
        let history = store.history(&watch, Revision::new(from)).map_err(|gone| gone.compact_revision.get());
        let history = history.map(|commits| {
            commits.into_iter().map(|commit| (commit.revision.get(), by_key(commit.events))).collect::<Vec<_>>()
        });
        prop_assert_eq!(history, naive.history(&watched, from));

        let everything = WatchRequest { prev_kv: true, ..WatchRequest::range(KeyRange::all()) };
        let kept = store.history(&everything, store.compacted_revision().next()).unwrap();
        commits.retain(|commit| commit.revision > store.compacted_revision());
        prop_assert_eq!(kept, commits, "a watch in the past gets what one in the present got");
    }

    #[test]
    fn two_stores_given_the_same_commands_agree_to_the_last_byte(commands in commands()) {
        let options = StoreOptions { history_limit: Some(5), ..StoreOptions::default() };
        let (mut one, mut two) = (Store::new(options.clone()), Store::new(options));
        for (command, wait) in commands {
            let now = Instant::ZERO + Duration::from_millis(wait);
            prop_assert_eq!(one.apply(command.clone(), now), two.apply(command, now));
        }
    }
}
