//! Transactions: comparisons, order of effects, and what is refused.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that meets the unexpected should stop"
)]

mod asking;

use asking::{Ask, fresh, lease, names, refused, rev, told};
use leasehold_mvcc::{
    Code, Command, Compare, CompareResult, CompareTarget, DeleteRequest, Header, KeyRange, PutRequest,
    RangeRequest, Revision, Store, Txn, TxnOp, TxnOpAnswer,
};

fn put(key: &'static str) -> TxnOp {
    PutRequest::new(key, "v").into()
}

fn del(key: &'static str) -> TxnOp {
    DeleteRequest::key(key).into()
}

fn del_range(start: &'static str, end: &'static str) -> TxnOp {
    DeleteRequest::range(KeyRange::between(start, end)).into()
}

fn then(ops: impl IntoIterator<Item = TxnOp>) -> Txn {
    Txn { success: ops.into_iter().collect(), ..Txn::default() }
}

fn holds(store: &mut Store, compare: Compare) -> bool {
    store.txn(Txn::new().when(compare)).unwrap().succeeded
}

// E25
#[test]
fn operations_see_the_earlier_ones_of_the_same_transaction() {
    let mut store = fresh();
    store.write("old", "");
    let get = || TxnOp::from(RangeRequest::prefix(""));
    let outcome =
        store.ask(Command::Txn(then([get(), put("k"), get(), del("old"), get(), del("k2"), get()])));
    assert_eq!(told(&outcome.commits), [(3, "+k -old".to_owned())], "one revision");
    let Ok(leasehold_mvcc::Answer::Txn(answer)) = outcome.answer else { panic!("not a transaction") };
    let seen: Vec<_> = answer.ops.iter().filter_map(TxnOpAnswer::as_range).map(names).collect();
    assert_eq!(seen, [vec!["old"], vec!["k", "old"], vec!["k"], vec!["k"]]);
}

#[test]
fn headers_within_hold_nothing_but_the_revision_as_it_was_by_then() {
    let mut store = fresh();
    store.write("k", "");
    let get = || TxnOp::from(RangeRequest::key("k"));
    let nested = then([del("missing")]);
    let answer =
        store.txn(then([get(), del("missing"), put("k"), get(), del("missing"), nested.into()])).unwrap();
    let headers = answer.ops.iter().map(|op| match op {
        TxnOpAnswer::Range(answer) => answer.header,
        TxnOpAnswer::Put(answer) => answer.header,
        TxnOpAnswer::Delete(answer) => answer.header,
        TxnOpAnswer::Txn(answer) => answer.header,
    });
    let revisions = [2, 2, 3, 3, 3, 0];
    let expected = revisions.map(|revision| Header { revision: rev(revision), ..Header::default() });
    assert_eq!(headers.collect::<Vec<_>>(), expected);
    assert_eq!(answer.header, store.header());
}

#[test]
fn a_transaction_without_an_effect_makes_no_revision() {
    let mut store = fresh();
    store.write("k", "");
    for txn in [Txn::new(), then([del("missing")]), Txn::new().when(Compare::absent("k")).then(put("x"))] {
        let outcome = store.ask(Command::Txn(txn));
        assert!(outcome.answer.is_ok() && outcome.commits.is_empty());
    }
    assert_eq!(store.revision(), rev(2));
}

#[test]
fn a_missing_key_compares_as_zeros_but_never_as_a_value() {
    let mut store = fresh();
    store.write("elsewhere", "");
    for range in [KeyRange::key("k"), KeyRange::prefix("k"), KeyRange::between("k", "a")] {
        let mut compare = |target: CompareTarget, result| {
            holds(&mut store, Compare { range: range.clone(), target, result })
        };
        for target in [
            CompareTarget::Version(0),
            CompareTarget::Create(Revision::ZERO),
            CompareTarget::Mod(Revision::ZERO),
            CompareTarget::Lease(lease(0)),
        ] {
            assert!(compare(target.clone(), CompareResult::Equal), "{target:?}");
            assert!(!compare(target.clone(), CompareResult::NotEqual), "{target:?}");
        }
        assert!(compare(CompareTarget::Create(rev(1)), CompareResult::Less));
        assert!(compare(CompareTarget::Version(-1), CompareResult::Greater));
        for result in
            [CompareResult::Equal, CompareResult::NotEqual, CompareResult::Greater, CompareResult::Less]
        {
            assert!(!compare(CompareTarget::Value("".into()), result), "{result:?}");
        }
    }
}

#[test]
fn a_comparison_over_a_range_must_hold_for_every_key_of_it() {
    let mut store = fresh();
    store.grant(1, 10).unwrap();
    store.put(PutRequest::new("k/1", "a").on(lease(1))).unwrap();
    store.put(PutRequest::new("k/2", "b").on(lease(1))).unwrap();
    let mut over =
        |target, result| holds(&mut store, Compare { range: KeyRange::prefix("k/"), target, result });
    assert!(over(CompareTarget::Create(rev(4)), CompareResult::Less));
    assert!(!over(CompareTarget::Create(rev(3)), CompareResult::Less));
    assert!(over(CompareTarget::Lease(lease(1)), CompareResult::Equal));
    assert!(!over(CompareTarget::Value("a".into()), CompareResult::Equal));
    assert!(over(CompareTarget::Value("c".into()), CompareResult::NotEqual));
}

#[test]
fn all_comparisons_see_the_state_before_the_outermost_transaction() {
    let mut store = fresh();
    let nested = Txn::new().when(Compare::absent("k")).then(put("was absent")).otherwise(put("was there"));
    store.txn(then([put("k"), nested.into()])).unwrap();
    assert!(store.get("was absent").is_some());
}

// E22
#[test]
fn a_list_must_not_write_a_key_twice_nor_write_what_it_deletes() {
    let nest = |ops: Vec<TxnOp>| TxnOp::Txn(then(ops));
    let nest_else = |ops: Vec<TxnOp>| TxnOp::Txn(Txn { failure: ops, ..Txn::default() });
    let table = [
        (false, vec![put("k"), put("k")]),
        (false, vec![put("k"), del("k")]),
        (false, vec![del("k"), put("k")]),
        (false, vec![del_range("a", "z"), put("k")]),
        (false, vec![put("k"), del_range("k", "k\0")]),
        (true, vec![put("k"), put("k2")]),
        (true, vec![del("k"), del("k")]),
        (true, vec![del_range("a", "z"), del("k")]),
        (true, vec![del_range("a", "k"), put("k")]),
        (true, vec![del_range("z", "a"), put("k")]),
        // etcd takes the open end literally, and so sees no overlap.
        (true, vec![del_range("a", "\0"), put("k")]),
        (true, vec![put("k"), del_range("a", "\0")]),
        (false, vec![put("k"), nest(vec![put("k")])]),
        (false, vec![nest(vec![put("k")]), put("k")]),
        (false, vec![put("k"), nest(vec![del("k")])]),
        (false, vec![nest_else(vec![del("k")]), put("k")]),
        (false, vec![del("k"), nest(vec![put("k")])]),
        (false, vec![nest(vec![put("k")]), del("k")]),
        (false, vec![nest(vec![put("k")]), nest(vec![put("k")])]),
        (false, vec![nest(vec![put("k")]), nest_else(vec![put("k")])]),
        (false, vec![nest(vec![del("k")]), nest(vec![put("k")])]),
        // Of two transactions side by side, only the later one's puts are looked at.
        (true, vec![nest(vec![put("k")]), nest(vec![del("k")])]),
        (true, vec![nest(vec![del("k")]), nest(vec![del("k")])]),
        (false, vec![nest(vec![put("k"), put("k")])]),
        (true, vec![Txn::new().then(put("k")).otherwise(put("k")).into()]),
        (true, vec![Txn::new().then(put("k")).otherwise(del("k")).into()]),
        (false, vec![nest(vec![nest(vec![put("k")])]), put("k")]),
    ];
    for (allowed, ops) in table {
        for in_failure in [false, true] {
            let mut txn = then(ops.clone());
            if in_failure {
                std::mem::swap(&mut txn.success, &mut txn.failure);
            }
            let answer = fresh().txn(txn);
            if allowed {
                assert!(answer.is_ok(), "{ops:?}: {answer:?}");
            } else {
                let shown = answer.map(|_| ops.clone());
                refused(Code::InvalidArgument, "etcdserver: duplicate key given in txn request", shown);
            }
        }
    }
    assert!(
        fresh().txn(Txn::new().then(put("k")).otherwise(put("k"))).is_ok(),
        "the lists are checked apart"
    );
}

// E43
#[test]
fn a_list_of_more_than_128_is_refused_and_depth_counts() {
    let many = |count: usize| (0..count).map(|_| del("k")).collect::<Vec<_>>();
    let too_many = |txn: Txn| {
        refused(Code::InvalidArgument, "etcdserver: too many operations in txn request", fresh().txn(txn));
    };
    assert!(fresh().txn(then(many(128))).is_ok());
    assert!(fresh().txn(Txn { failure: many(128), ..then(many(128)) }).is_ok(), "the longest list counts");
    too_many(then(many(129)));
    too_many(Txn { failure: many(129), ..Txn::default() });
    too_many(Txn { compare: vec![Compare::absent("k"); 129], ..Txn::default() });

    assert!(fresh().txn(then([then(many(127)).into()])).is_ok());
    too_many(then([then(many(128)).into()]));
}

#[test]
fn what_is_wrong_anywhere_is_refused_before_anything_is_done() {
    let invalid = Code::InvalidArgument;
    let no_key = "etcdserver: key is not provided";
    let mut store = fresh();
    refused(invalid, no_key, store.txn(Txn::new().when(Compare::absent(""))));
    refused(invalid, no_key, store.txn(Txn::new().otherwise(del(""))));
    refused(invalid, no_key, store.txn(then([put("k"), then([RangeRequest::key("").into()]).into()])));

    let dead_lease = PutRequest::new("k", "v").on(lease(9));
    let no_lease = "etcdserver: requested lease not found";
    refused(Code::NotFound, no_lease, store.txn(then([put("before"), dead_lease.clone().into()])));
    assert!(store.txn(Txn::new().otherwise(dead_lease)).is_ok(), "the list that is not done is not checked");

    let keep = PutRequest { ignore_value: true, ..PutRequest::new("k", "") };
    refused(invalid, "etcdserver: key not found", store.txn(then([put("before"), keep.into()])));

    let future = RangeRequest { revision: rev(2), ..RangeRequest::key("k") };
    let message = "etcdserver: mvcc: required revision is a future revision";
    refused(Code::OutOfRange, message, store.txn(then([put("before"), future.into()])));
    assert_eq!(store.revision(), rev(1));
}

#[test]
fn each_transaction_within_does_and_checks_the_list_its_own_comparisons_choose() {
    let choose = |holds: bool, yes: TxnOp, no: TxnOp| {
        let compare = if holds { Compare::absent("k") } else { Compare::created_at("k", rev(9)) };
        TxnOp::from(Txn::new().when(compare).then(yes).otherwise(no))
    };
    // Each under a key of its own, or they would be refused as duplicates.
    let bad = |key| TxnOp::from(PutRequest::new(key, "").on(lease(9)));
    let mut store = fresh();
    let deep =
        Txn::new().then(choose(true, put("1"), bad("bad 1"))).then(choose(false, bad("bad 2"), put("2")));
    let outcome = store.ask(Command::Txn(then([
        choose(true, deep.into(), bad("bad 3")),
        choose(false, bad("bad 4"), put("3")),
        choose(true, put("4"), bad("bad 5")),
    ])));
    assert_eq!(told(&outcome.commits), [(2, "+1 +2 +3 +4".to_owned())]);

    for (first, second) in [(true, false), (false, true), (false, false)] {
        let ops = [choose(first, put("5"), bad("bad 6")), choose(second, put("6"), bad("bad 7"))];
        refused(Code::NotFound, "etcdserver: requested lease not found", store.txn(then(ops)));
    }
    assert_eq!(store.revision(), rev(2));
}

#[test]
fn a_negative_revision_is_compacted_within_a_transaction() {
    let mut store = fresh();
    store.write("k", "");
    let at = |revision| then([RangeRequest { revision: rev(revision), ..RangeRequest::key("k") }.into()]);
    let compacted = "etcdserver: mvcc: required revision has been compacted";
    refused(Code::OutOfRange, compacted, store.txn(at(-2)));
    assert!(store.txn(at(-1)).is_ok(), "but a store that never compacted counts from -1");
}

#[test]
fn a_read_of_an_old_revision_within_a_transaction_does_not_see_its_writes() {
    let mut store = fresh();
    store.write("k", "old");
    let old = RangeRequest { revision: rev(2), ..RangeRequest::prefix("") };
    let answer = store.txn(then([put("k"), put("x"), old.into()])).unwrap();
    let range = answer.ops[2].as_range().unwrap();
    assert_eq!((names(range), range.kvs[0].value.as_ref()), (vec!["k".into()], &b"old"[..]));
    assert_eq!(range.header.revision, rev(3));
}

// E42
#[test]
fn events_of_one_revision_come_in_the_order_of_the_operations() {
    let mut store = fresh();
    let outcome = store.ask(Command::Txn(then(["k9", "k1", "k5", "k3"].map(put))));
    assert_eq!(told(&outcome.commits), [(2, "+k9 +k1 +k5 +k3".to_owned())]);
    assert!(outcome.commits[0].events.iter().all(|event| event.kv.mod_revision == rev(2)));
}

#[test]
fn an_event_of_a_key_that_changed_twice_in_a_transaction_carries_what_was_before_it() {
    let mut store = fresh();
    store.write("k", "old");
    let outcome = store.ask(Command::Txn(then([put("k"), del_range("k", "\0")])));
    let events = &outcome.commits[0].events;
    assert_eq!(told(&outcome.commits), [(3, "+k -k".to_owned())]);
    assert!(events.iter().all(|event| event.prev_kv.as_ref().is_some_and(|kv| kv.value == "old")));
}
