//! Transactions: comparing, and doing several things at one revision.

use leasehold_mvcc::{
    Code, Compare, CompareResult, CompareTarget, DeleteRequest, KeyRange, LeaseId, PutRequest, RangeRequest,
    Revision, Txn, TxnOpAnswer,
};

use super::Subject;
use crate::etcd::EtcdExt;

/// The one list of operations is done if the comparison holds, the other if not.
pub async fn a_transaction_does_the_one_or_the_other(subject: &Subject) {
    let (etcd, key) = (subject.etcd(), subject.key("claim"));
    let claim = |value: &'static str| {
        Txn::new()
            .when(Compare::absent(key.clone()))
            .then(PutRequest::new(key.clone(), value))
            .otherwise(RangeRequest::key(key.clone()))
    };
    let first = etcd.txn(claim("first")).await.unwrap();
    assert!(first.succeeded);
    let second = etcd.txn(claim("second")).await.unwrap();
    assert!(!second.succeeded);
    assert_eq!(second.ops[0].as_range().unwrap().kvs[0].value, "first");
    assert_eq!(second.ops[0].as_range().unwrap().kvs[0].create_revision, first.header.revision);
    assert!(etcd.delete(key).await.unwrap());
}

/// Each kind of comparison, each way: and all of one transaction must hold.
pub async fn every_comparison_must_hold(subject: &Subject) {
    let (etcd, key) = (subject.etcd(), subject.key("compare"));
    let at = etcd.put(key.clone(), "m", LeaseId::NONE).await.unwrap().header.revision;
    let (before, after) = (at.previous(), at.next());
    use CompareResult::{Equal, Greater, Less, NotEqual};
    use CompareTarget::{Create, Lease, Mod, Value, Version};
    let cases = [
        (Version(1), Version(0), Version(2)),
        (Create(at), Create(before), Create(after)),
        (Mod(at), Mod(before), Mod(after)),
        (Value("m".into()), Value("l".into()), Value("n".into())),
        (Lease(LeaseId::NONE), Lease(LeaseId::new(-1)), Lease(LeaseId::new(1))),
    ];
    for (same, lower, higher) in cases {
        for (target, stands) in [(same, Equal), (lower, Greater), (higher, Less)] {
            for result in [Equal, Greater, Less, NotEqual] {
                let holds = result == stands || (result == NotEqual && stands != Equal);
                let compare = Compare::key(key.clone(), target.clone(), result);
                let answer = etcd
                    .txn(Txn::new().when(compare.clone()).then(RangeRequest::key(key.clone())))
                    .await
                    .unwrap();
                assert_eq!(answer.succeeded, holds, "{compare:?}");
            }
        }
    }
    let held = Compare::created_at(key.clone(), at);
    let broken = Compare::value(key.clone(), "other");
    let both = Txn::new().when(held).when(broken).otherwise(DeleteRequest::key(key.clone()));
    assert!(!etcd.txn(both).await.unwrap().succeeded);
    assert_eq!(etcd.get(key).await.unwrap(), None);
}

/// A comparison over a range must hold for each key in it; over an empty range it is made with a key that is not there.
pub async fn a_comparison_over_a_range_must_hold_for_every_key(subject: &Subject) {
    let etcd = subject.etcd();
    let range = KeyRange::prefix(subject.key("many/"));
    let no_key = Compare {
        range: range.clone(),
        target: CompareTarget::Create(Revision::ZERO),
        result: CompareResult::Equal,
    };
    let read = RangeRequest::range(range.clone());
    let holds = async |compare: &Compare| {
        etcd.txn(Txn::new().when(compare.clone()).then(read.clone()).otherwise(read.clone()))
            .await
            .unwrap()
            .succeeded
    };
    assert!(holds(&no_key).await, "nothing is there");
    let first = etcd.put(subject.key("many/1"), "x", LeaseId::NONE).await.unwrap().header.revision;
    assert!(!holds(&no_key).await, "something is there");
    etcd.put(subject.key("many/2"), "x", LeaseId::NONE).await.unwrap();
    let not_after = |revision: Revision| Compare {
        range: range.clone(),
        target: CompareTarget::Create(revision.next()),
        result: CompareResult::Less,
    };
    assert!(!holds(&not_after(first)).await, "the second key is younger");
    etcd.delete(subject.key("many/2")).await.unwrap();
    assert!(holds(&not_after(first)).await);
    etcd.delete(subject.key("many/1")).await.unwrap();
}

/// Later operations of a transaction see earlier ones, and all have its revision.
pub async fn a_transaction_sees_its_own_writes(subject: &Subject) {
    let (etcd, key) = (subject.etcd(), subject.key("own"));
    let read = || RangeRequest::key(key.clone());
    let txn = Txn::new().then(read()).then(PutRequest::new(key.clone(), "x")).then(read());
    let answer = etcd.txn(txn).await.unwrap();
    let counts: Vec<i64> =
        answer.ops.iter().filter_map(TxnOpAnswer::as_range).map(|range| range.count).collect();
    assert_eq!(counts, [0, 1]);
    assert_eq!(answer.ops[2].as_range().unwrap().kvs[0].mod_revision, answer.header.revision);
    etcd.delete(key).await.unwrap();
}

/// A transaction within one is decided and done at the same revision.
pub async fn a_transaction_within_a_transaction_is_done_with_it(subject: &Subject) {
    let (etcd, outer, inner) = (subject.etcd(), subject.key("outer"), subject.key("inner"));
    let within = Txn::new().when(Compare::absent(inner.clone())).then(PutRequest::new(inner.clone(), "x"));
    let answer = etcd.txn(Txn::new().then(PutRequest::new(outer.clone(), "x")).then(within)).await.unwrap();
    let TxnOpAnswer::Txn(within) = &answer.ops[1] else { panic!("the second answer is {:?}", answer.ops[1]) };
    assert!(within.succeeded);
    for key in [outer, inner] {
        assert_eq!(etcd.get(key.clone()).await.unwrap().unwrap().mod_revision, answer.header.revision);
        etcd.delete(key).await.unwrap();
    }
}

/// Refusals have etcd's codes, and change nothing.
pub async fn what_etcd_refuses_is_refused_with_its_code(subject: &Subject) {
    let (etcd, key) = (subject.etcd(), subject.key("refused"));
    let put = |value: &'static str| PutRequest::new(key.clone(), value);
    let too_many =
        (0..129).fold(Txn::new(), |txn, n| txn.then(PutRequest::new(subject.key(&n.to_string()), "x")));
    let cases = [
        ("two puts of one key", Txn::new().then(put("a")).then(put("b")), Code::InvalidArgument),
        (
            "a put and a delete of one key",
            Txn::new().then(put("a")).then(DeleteRequest::key(key.clone())),
            Code::InvalidArgument,
        ),
        ("an unknown lease", Txn::new().then(put("a").on(LeaseId::new(0x7e57))), Code::NotFound),
        ("too many operations", too_many, Code::InvalidArgument),
        ("a put without a key", Txn::new().then(PutRequest::new("", "x")), Code::InvalidArgument),
        (
            "a read of the future",
            Txn::new()
                .then(RangeRequest { revision: Revision::new(i64::MAX), ..RangeRequest::key(key.clone()) }),
            Code::OutOfRange,
        ),
    ];
    for (what, txn, code) in cases {
        let error = etcd.txn(txn).await.expect_err(what);
        assert_eq!(error.refusal().map(|no| no.code), Some(code), "{what}: {error}");
        assert!(!error.is_outcome_unknown(), "{what}: {error}");
    }
    assert_eq!(etcd.get(key).await.unwrap(), None);
}
