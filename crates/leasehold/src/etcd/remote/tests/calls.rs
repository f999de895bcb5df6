use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join_all;
use leasehold_mvcc::{Code, Compare, DeleteRequest, PutRequest, RangeRequest, StoreError, Txn, TxnOp};

use super::client;
use super::scripted::{Manner, not_done, unknown};
use crate::error::{Error, ErrorKind};
use crate::etcd::Etcd;
use crate::etcd::remote::{Lane, WireError};
use crate::runtime::Runtime;

fn read() -> RangeRequest {
    RangeRequest::key("k")
}

fn write() -> Txn {
    Txn::new().then(PutRequest::new("k", "v"))
}

#[test]
fn one_endpoint_is_asked_until_it_fails_and_then_the_next() {
    let (remote, wire, runtime) = client("a:1,b:1,c:1");
    runtime.block_on(async {
        remote.range(read()).await.unwrap();
        wire.set("a:1", Manner::Fails(not_done()));
        remote.txn(write()).await.unwrap();
        remote.range(read()).await.unwrap();
        assert_eq!(wire.asked(), ["a:1", "a:1", "b:1", "b:1"]);
    });
}

#[test]
fn a_write_of_unknown_outcome_is_sent_once_and_the_next_call_goes_elsewhere() {
    let (remote, wire, runtime) = client("a:1,b:1");
    runtime.block_on(async {
        wire.set("a:1", Manner::Fails(unknown()));
        let error = remote.txn(write()).await.unwrap_err();
        assert!(error.is_outcome_unknown() && error.to_string().contains("a:1"), "{error}");
        assert_eq!(wire.asked(), ["a:1"]);
        remote.txn(write()).await.unwrap();
        assert_eq!(wire.asked(), ["b:1"]);
    });
}

#[test]
fn a_read_of_unknown_outcome_is_asked_again() {
    let (remote, wire, runtime) = client("a:1,b:1");
    runtime.block_on(async {
        wire.set("a:1", Manner::Fails(unknown()));
        remote.range(read()).await.unwrap();
        remote.lease_time_to_live(leasehold_mvcc::LeaseId::new(1), false).await.unwrap_err();
        assert_eq!(wire.asked(), ["a:1", "b:1", "b:1"]);
    });
}

#[test]
fn a_transaction_that_only_reads_is_a_read() {
    let reads = || Txn::new().when(Compare::absent("k")).then(Txn::new().then(read())).otherwise(read());
    let writes = |op: TxnOp| [reads().then(op.clone()), reads().otherwise(Txn::new().otherwise(op))];
    let (put, delete) = (PutRequest::new("k", "v"), DeleteRequest::key("k"));
    for (txn, again) in [(reads(), true), (Txn::new(), true)]
        .into_iter()
        .chain(writes(put.into()).into_iter().chain(writes(delete.into())).map(|txn| (txn, false)))
    {
        let (remote, wire, runtime) = client("a:1,b:1");
        wire.set("a:1", Manner::Fails(unknown()));
        let answered = runtime.block_on(remote.txn(txn.clone()));
        assert_eq!((answered.is_ok(), wire.asked().len()), (again, if again { 2 } else { 1 }), "{txn:?}");
    }
}

#[test]
fn a_frozen_member_costs_a_part_of_a_calls_time() {
    let (remote, wire, runtime) = client("a:1,b:1,c:1");
    runtime.block_on(async {
        wire.set("a:1", Manner::Frozen);
        remote.range(read()).await.unwrap();
        assert_eq!(runtime.now().as_nanos(), 2_000_000_000, "a third of 6 s");
        assert_eq!(wire.distrusted(), ["a:1"]);
        remote.range(read()).await.unwrap();
        assert_eq!(wire.asked(), ["a:1", "b:1", "b:1"]);

        wire.set("b:1", Manner::Frozen);
        let error = remote.txn(write()).await.unwrap_err();
        assert!(error.is_outcome_unknown(), "{error}");
        assert_eq!(runtime.now().as_nanos(), 5_000_000_000, "half of 6 s");
        remote.txn(write()).await.unwrap();
        assert_eq!(wire.asked(), ["b:1", "c:1"]);
    });
}

#[test]
fn every_call_ends_within_its_bound_and_says_what_each_endpoint_did() {
    for (manner, said) in
        [(Manner::Frozen, "no answer within"), (Manner::Fails(not_done()), "connection refused")]
    {
        let (remote, wire, runtime) = client("a:1,b:1");
        runtime.block_on(async {
            wire.set("a:1", manner.clone());
            wire.set("b:1", manner);
            let error = remote.range(read()).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
            assert!(
                error.to_string().contains("a:1,b:1") && error.to_string().matches(said).count() == 2,
                "{error}"
            );
            assert!(runtime.now().as_nanos() <= 6_000_000_000, "{:?}", runtime.now());
            assert!(wire.asked().len() < 50, "with pauses between the rounds");
        });
    }
}

#[test]
fn a_write_that_nobody_took_was_not_done() {
    let (remote, wire, runtime) = client("a:1,b:1");
    runtime.block_on(async {
        wire.set("a:1", Manner::Fails(not_done()));
        wire.set("b:1", Manner::Fails(not_done()));
        assert_eq!(remote.txn(write()).await.unwrap_err().kind(), ErrorKind::Unavailable);
    });
}

#[test]
fn a_read_whose_answer_is_too_large_for_all_is_not_asked_for_over_and_over() {
    let (remote, wire, runtime) = client("a:1,b:1");
    runtime.block_on(async {
        let cause = "Error, decoded message length too large: found 9 bytes".to_owned();
        for member in ["a:1", "b:1"] {
            wire.set(member, Manner::Fails(WireError::OutcomeUnknown { cause: cause.clone() }));
        }
        let error = remote.range(read()).await.unwrap_err();
        assert!(error.to_string().contains("too large"), "{error}");
        assert_eq!(wire.asked(), ["a:1", "b:1"]);
    });
}

#[test]
fn a_no_is_not_asked_for_twice() {
    let (remote, wire, runtime) = client("a:1,b:1");
    runtime.block_on(async {
        let no = StoreError::new(Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted");
        wire.set("a:1", Manner::Fails(WireError::Refused(no.clone())));
        assert_eq!(remote.range(read()).await.unwrap_err().refusal(), Some(&no));
        assert_eq!(remote.range(read()).await.unwrap_err().refusal(), Some(&no));
        assert_eq!(wire.asked(), ["a:1", "a:1"]);
    });
}

#[test]
fn many_calls_that_fail_together_move_on_by_one_endpoint() {
    let (remote, wire, runtime) = client("a:1,b:1,c:1");
    runtime.block_on(async {
        wire.set("a:1", Manner::Frozen);
        join_all((0..5).map(|_| remote.range(read()))).await.into_iter().for_each(|read| drop(read.unwrap()));
        assert_eq!(wire.asked()[5..], ["b:1"; 5]);
    });
}

#[test]
fn a_caller_of_little_patience_is_not_sent_to_a_frozen_member_for_ever() {
    let (remote, wire, runtime) = client("a:1,b:1");
    runtime.block_on(async {
        wire.set("a:1", Manner::Frozen);
        let mut call = remote.range(read());
        assert!((&mut call).now_or_never().is_none());
        drop(call);
        assert!(
            remote.range(read()).now_or_never().is_none(),
            "dropped at once, it says nothing about the member"
        );

        let mut call = remote.range(read());
        assert!((&mut call).now_or_never().is_none());
        runtime.pass(Duration::from_millis(300)).await;
        drop(call);
        remote.range(read()).await.unwrap();
        assert_eq!(wire.asked(), ["a:1", "a:1", "a:1", "b:1"]);
    });
}

#[test]
fn what_is_no_etcd_is_said_to_be_none_unless_another_endpoint_is_one() {
    let web_server = WireError::NotEtcd { why: "it speaks HTTP/1".into(), sent: false };
    let (remote, wire, runtime) = client("a:1");
    wire.set("a:1", Manner::Fails(web_server.clone()));
    runtime.block_on(async {
        let error = remote.txn(write()).await.unwrap_err();
        assert!(matches!(&error, Error::Protocol { endpoint, .. } if endpoint == "a:1"), "{error}");
    });

    let (remote, wire, runtime) = client("a:1,b:1");
    wire.set("a:1", Manner::Fails(web_server));
    runtime.block_on(async { remote.txn(write()).await.unwrap() });
    assert_eq!(wire.asked(), ["a:1", "b:1"]);
}

#[test]
fn a_write_that_nonsense_answers_is_not_sent_again() {
    let (remote, wire, runtime) = client("a:1,b:1");
    wire.set("a:1", Manner::Fails(WireError::NotEtcd { why: "no header".into(), sent: true }));
    runtime.block_on(async {
        assert_eq!(remote.txn(write()).await.unwrap_err().kind(), ErrorKind::Protocol);
        assert_eq!(wire.asked(), ["a:1"]);
    });
}

#[test]
fn the_dedicated_handle_has_a_lane_and_a_pin_of_its_own() {
    let (remote, wire, runtime) = client("a:1,b:1");
    runtime.block_on(async {
        let dedicated = remote.dedicated();
        wire.set("a:1", Manner::Fails(not_done()));
        dedicated.range(read()).await.unwrap();
        wire.set("a:1", Manner::Answers);
        remote.range(read()).await.unwrap();
        dedicated.range(read()).await.unwrap();
        let (calls, leases) = (Lane::Calls, Lane::Leases);
        let asked = [("a:1", leases), ("b:1", leases), ("a:1", calls), ("b:1", leases)];
        assert_eq!(wire.asked_by_lane(), asked.map(|(endpoint, lane)| (endpoint.to_owned(), lane)));
    });
}

#[test]
fn after_close_every_clone_says_so_and_asks_nobody() {
    let (remote, wire, runtime) = client("a:1");
    runtime.block_on(async {
        let (clone, dedicated) = (remote.clone(), remote.dedicated());
        remote.close().await;
        assert_eq!(clone.range(read()).await.unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(dedicated.txn(write()).await.unwrap_err().kind(), ErrorKind::Closed);
        assert_eq!(
            clone.lease_keep_alive(leasehold_mvcc::LeaseId::new(1)).await.unwrap_err().kind(),
            ErrorKind::Closed
        );
        assert!(wire.is_closed() && wire.asked().is_empty());
    });
}
