use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::join;
use leasehold_mvcc::LeaseId;

use super::client;
use super::scripted::{Manner, not_done, renewed, unknown};
use crate::etcd::Etcd;
use crate::etcd::remote::Lane;
use crate::runtime::Runtime;

const LEASE: LeaseId = LeaseId::new(7);

#[test]
fn one_stream_of_the_lease_lane_carries_all_renewals_of_a_lease() {
    let (remote, wire, runtime) = client("a:1");
    runtime.block_on(async {
        let mut first = remote.lease_keep_alive(LEASE);
        assert!((&mut first).now_or_never().is_none());
        let mut line = wire.renewal_line();
        line.answer(renewed(LEASE, 15));
        assert_eq!(first.await.unwrap().ttl, 15);
        line.answer(renewed(LEASE, 14));
        assert_eq!(remote.lease_keep_alive(LEASE).await.unwrap().ttl, 14);
        assert_eq!(line.said(), [LEASE, LEASE]);
        assert_eq!(wire.opened(), [("a:1".to_owned(), Lane::Leases)]);
    });
}

#[test]
fn leases_do_not_share_streams() {
    let (remote, wire, runtime) = client("a:1");
    runtime.block_on(async {
        let other = LeaseId::new(8);
        let both = join(remote.lease_keep_alive(LEASE), remote.lease_keep_alive(other));
        let answer = async {
            runtime.settle().await;
            let (mut first, mut second) = (wire.renewal_line(), wire.renewal_line());
            assert_eq!((first.said(), second.said()), (vec![LEASE], vec![other]));
            second.answer(renewed(other, 2));
            first.answer(renewed(LEASE, 1));
        };
        let ((first, second), ()) = join(both, answer).await;
        assert_eq!((first.unwrap().ttl, second.unwrap().ttl), (1, 2));
    });
}

#[test]
fn a_dropped_renewal_takes_its_late_answer_along() {
    let (remote, wire, runtime) = client("a:1");
    runtime.block_on(async {
        let mut dropped = remote.lease_keep_alive(LEASE);
        assert!((&mut dropped).now_or_never().is_none());
        drop(dropped);
        let late = wire.renewal_line();
        assert!(late.is_dropped());
        late.answer(renewed(LEASE, 99));

        let mut second = remote.lease_keep_alive(LEASE);
        assert!((&mut second).now_or_never().is_none());
        wire.renewal_line().answer(renewed(LEASE, 15));
        assert_eq!(second.await.unwrap().ttl, 15);
    });
}

#[test]
fn a_renewal_that_is_not_answered_is_tried_at_the_next_member_on_a_new_stream() {
    let (remote, wire, runtime) = client("a:1,b:1,c:1");
    runtime.block_on(async {
        let mut call = remote.lease_keep_alive(LEASE);
        assert!((&mut call).now_or_never().is_none());
        let frozen = wire.renewal_line();
        let answer = async {
            runtime.pass(Duration::from_millis(2_001)).await;
            assert!(frozen.is_dropped());
            let line = wire.renewal_line();
            assert_eq!(line.endpoint, "b:1");
            line.answer(renewed(LEASE, 15));
        };
        let (answered, ()) = join(call, answer).await;
        assert_eq!(answered.unwrap().ttl, 15);
        assert_eq!(wire.distrusted(), ["a:1"]);
    });
}

#[test]
fn a_renewal_given_up_by_its_caller_moves_the_next_one_to_another_member() {
    let (remote, wire, runtime) = client("a:1,b:1");
    runtime.block_on(async {
        let mut call = remote.lease_keep_alive(LEASE);
        assert!((&mut call).now_or_never().is_none());
        runtime.pass(Duration::from_millis(333)).await;
        drop(call);
        assert!(remote.lease_keep_alive(LEASE).now_or_never().is_none());
        assert_eq!(
            (wire.renewal_line().endpoint, wire.renewal_line().endpoint),
            ("a:1".into(), "b:1".into())
        );
    });
}

#[test]
fn a_lease_that_is_gone_is_an_answer_and_ends_its_stream() {
    let (remote, wire, runtime) = client("a:1");
    runtime.block_on(async {
        let mut call = remote.lease_keep_alive(LEASE);
        assert!((&mut call).now_or_never().is_none());
        let line = wire.renewal_line();
        line.answer(renewed(LEASE, 0));
        assert_eq!(call.await.unwrap().ttl, 0);
        assert!(line.is_dropped());
    });
}

#[test]
fn a_renewal_ends_within_its_bound_and_says_whether_it_may_have_happened() {
    for (failure, may_have) in [(not_done(), false), (unknown(), true)] {
        let (remote, wire, runtime) = client("a:1,b:1");
        wire.set("a:1", Manner::Fails(failure.clone()));
        wire.set("b:1", Manner::Fails(failure));
        runtime.block_on(async {
            let error = remote.lease_keep_alive(LEASE).await.unwrap_err();
            assert_eq!(error.is_outcome_unknown(), may_have, "{error}");
            assert!(error.is_transient());
            assert!(runtime.now().as_nanos() <= 6_000_000_000);
        });
    }
}

#[test]
fn an_answer_about_another_lease_is_not_taken() {
    let (remote, wire, runtime) = client("a:1,b:1");
    runtime.block_on(async {
        let mut call = remote.lease_keep_alive(LEASE);
        assert!((&mut call).now_or_never().is_none());
        wire.renewal_line().answer(renewed(LeaseId::new(8), 15));
        assert!((&mut call).now_or_never().is_none());
        let second = wire.renewal_line();
        assert_eq!(second.endpoint, "b:1");
        second.answer(renewed(LEASE, 14));
        assert_eq!(call.await.unwrap().ttl, 14);
    });
}
