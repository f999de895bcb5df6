//! Leases: their lives, their keys, and what is said of dead ones.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that meets the unexpected should stop"
)]

mod asking;

use asking::{Ask, START, after, fresh, lease, refused, rev, told};
use leasehold_mvcc::{
    Answer, Code, Command, DeleteRequest, LeaseGrantRequest, LeaseId, PutRequest, Revision, Store,
    StoreOptions, Txn,
};

fn kept_alive(store: &mut Store, id: i64, at: u64) -> i64 {
    match store.apply(Command::LeaseKeepAlive(lease(id)), after(at)).answer {
        Ok(Answer::LeaseKeepAlive(answer)) => {
            assert_eq!((answer.id, answer.header), (lease(id), store.header()));
            answer.ttl
        }
        other => panic!("not a renewal: {other:?}"),
    }
}

// A68
#[test]
fn a_life_below_the_floor_is_raised_to_it() {
    for (asked, granted) in
        [(i64::MIN, 2), (-1, 2), (0, 2), (1, 2), (2, 2), (3, 3), (9_000_000_000, 9_000_000_000)]
    {
        let mut store = fresh();
        assert_eq!(store.grant(1, asked), Ok(granted));
        assert_eq!(store.time_to_live(1).granted_ttl, granted);
    }
    let mut store = Store::new(StoreOptions { min_lease_ttl: 5, ..StoreOptions::default() });
    assert_eq!(store.grant(1, 3), Ok(5));
}

// A68
#[test]
fn a_life_above_the_limit_is_refused() {
    for ttl in [9_000_000_001, i64::MAX] {
        refused(Code::OutOfRange, "etcdserver: too large lease TTL", fresh().grant(1, ttl));
    }
}

// E37
#[test]
fn an_id_that_is_taken_is_refused_and_one_that_is_free_again_is_not() {
    let mut store = fresh();
    store.grant(-5, 10).unwrap();
    refused(Code::FailedPrecondition, "etcdserver: lease already exists", store.grant(-5, 10));
    assert!(store.revoke(-5).answer.is_ok());
    assert_eq!(store.grant(-5, 10), Ok(10));
}

#[test]
fn ids_chosen_here_are_positive_distinct_and_the_same_in_every_replay() {
    let chosen = |options: StoreOptions| {
        let mut store = Store::new(options);
        let mut ids = Vec::new();
        for _ in 0..1000 {
            let request = LeaseGrantRequest { ttl: 10, id: LeaseId::NONE };
            match store.ask(Command::LeaseGrant(request)).answer {
                Ok(Answer::LeaseGrant(answer)) => ids.push(answer.id.get()),
                other => panic!("not a grant: {other:?}"),
            }
        }
        ids.sort_unstable();
        ids.dedup();
        ids
    };
    let ids = chosen(StoreOptions::default());
    assert_eq!((ids.len(), ids.first().is_some_and(|id| *id > 0)), (1000, true));
    assert_eq!(ids, chosen(StoreOptions::default()));
    let restarted = StoreOptions { first_revision: rev(5000), ..StoreOptions::default() };
    for other in [restarted, StoreOptions { member_id: 3, ..StoreOptions::default() }] {
        assert!(chosen(other).iter().all(|id| ids.binary_search(id).is_err()));
    }
}

// E33
#[test]
fn renewing_a_dead_lease_answers_zero_under_a_full_header() {
    let mut store = fresh();
    store.grant(1, 10).unwrap();
    assert_eq!([1, 2, 1].map(|id| kept_alive(&mut store, id, 0)), [10, 0, 10]);
    assert_eq!(store.keep_alive(lease(0)).unwrap().ttl, 0);
}

#[test]
fn a_renewal_that_comes_too_late_answers_zero_even_if_nobody_ended_the_lease() {
    let mut store = fresh();
    store.grant(1, 10).unwrap();
    assert_eq!(kept_alive(&mut store, 1, 9), 10);
    assert_eq!(store.next_expiry(), Some(after(19)));
    assert_eq!(kept_alive(&mut store, 1, 19), 0);
    assert_eq!(store.next_expiry(), Some(after(19)), "it stays due");
    assert_eq!(store.lease_count(), 1);
}

// E34
#[test]
fn a_dead_lease_has_minus_one_second_left_and_cannot_be_revoked_or_used() {
    let mut store = fresh();
    store.grant(1, 10).unwrap();
    assert!(store.revoke(1).answer.is_ok());
    let answer = store.time_to_live(1);
    assert_eq!((answer.ttl, answer.granted_ttl, answer.header), (-1, 0, store.header()));
    let gone = "etcdserver: requested lease not found";
    refused(Code::NotFound, gone, store.revoke(1).answer);
    refused(Code::NotFound, gone, store.put(PutRequest::new("k", "v").on(lease(1))));
}

// E37
#[test]
fn a_put_on_a_lease_that_never_was_is_refused() {
    let mut store = fresh();
    for id in [1, -1, i64::MIN, i64::MAX] {
        let put = PutRequest::new("k", "v").on(lease(id));
        refused(Code::NotFound, "etcdserver: requested lease not found", store.put(put));
    }
    refused(Code::NotFound, "etcdserver: requested lease not found", store.revoke(0).answer);
    assert_eq!(store.revision(), rev(1));
}

// A32
#[test]
fn the_time_left_is_cut_to_whole_seconds_and_never_above_what_was_granted() {
    let mut store = fresh();
    store.grant(1, 10).unwrap();
    let mut left = |millis: u64| {
        let now = START + std::time::Duration::from_millis(millis);
        match store.apply(Command::LeaseTimeToLive(lease(1), false), now).answer {
            Ok(Answer::LeaseTimeToLive(answer)) => answer.ttl,
            other => panic!("not a time to live: {other:?}"),
        }
    };
    assert_eq!([0, 1, 5_000, 9_001, 10_000, 10_500, 12_500].map(&mut left), [10, 9, 5, 0, 0, 0, -2]);
}

// E35
#[test]
fn every_put_moves_the_key_to_its_lease_or_to_none() {
    let mut store = fresh();
    store.grant(1, 10).unwrap();
    store.grant(2, 10).unwrap();
    let put = |id| PutRequest::new("k", "v").on(lease(id));
    let mut keys_after = |request: PutRequest| {
        store.put(request).unwrap();
        (store.keys_of(1).len(), store.keys_of(2).len())
    };
    assert_eq!(keys_after(put(1)), (1, 0));
    assert_eq!(keys_after(put(2)), (0, 1));
    assert_eq!(keys_after(PutRequest { ignore_lease: true, ..put(0) }), (0, 1));
    assert_eq!(keys_after(put(0)), (0, 0));
    assert!(store.revoke(1).commits.is_empty() && store.revoke(2).commits.is_empty());
    assert!(store.get("k").is_some());
}

#[test]
fn a_deleted_key_leaves_its_lease() {
    let mut store = fresh();
    store.grant(1, 10).unwrap();
    for key in ["a", "b", "c"] {
        store.put(PutRequest::new(key, "v").on(lease(1))).unwrap();
    }
    store.remove("b");
    store.txn(Txn::new().then(DeleteRequest::key("c"))).unwrap();
    assert_eq!(store.keys_of(1), ["a"]);
}

#[test]
fn a_revoked_lease_takes_its_keys_with_it_in_their_order_and_at_one_revision() {
    let mut store = fresh();
    store.grant(1, 10).unwrap();
    for key in ["c", "a", "b"] {
        store.put(PutRequest::new(key, "v").on(lease(1))).unwrap();
    }
    store.write("free", "");
    let outcome = store.revoke(1);
    assert_eq!(told(&outcome.commits), [(6, "-a -b -c".to_owned())]);
    let Ok(Answer::LeaseRevoke(answer)) = outcome.answer else { panic!("not a revocation") };
    assert_eq!(answer.header.revision, rev(6));
    assert_eq!(store.lease_count(), 0);
    assert!(store.get("free").is_some());
}

#[test]
fn a_revoked_lease_without_keys_makes_no_revision() {
    let mut store = fresh();
    store.grant(1, 10).unwrap();
    assert!(store.revoke(1).commits.is_empty());
    assert_eq!(store.revision(), rev(1));
}

#[test]
fn leases_that_are_due_end_in_the_order_of_their_ends_and_then_of_their_ids() {
    let mut store = fresh();
    for (id, ttl) in [(4, 20), (3, 10), (1, 20), (5, 10), (2, 30)] {
        store.grant(id, ttl).unwrap();
    }
    for (key, id) in [("d", 4), ("c", 3), ("a", 1), ("b", 2), ("a2", 1)] {
        store.put(PutRequest::new(key, "v").on(lease(id))).unwrap();
    }
    assert_eq!(store.next_expiry(), Some(after(10)));
    assert_eq!(
        store.ask(Command::Leases).answer,
        Ok(Answer::Leases(leasehold_mvcc::LeasesAnswer {
            header: store.header(),
            leases: [3, 5, 1, 4, 2].map(lease).to_vec(),
        }))
    );
    let early = store.apply(Command::Expire, after(9));
    assert_eq!(early.answer, Ok(Answer::Expire(Vec::new())));

    let outcome = store.apply(Command::Expire, after(20));
    assert_eq!(outcome.answer, Ok(Answer::Expire([3, 5, 1, 4].map(lease).to_vec())));
    let commits = told(&outcome.commits);
    assert_eq!(commits, [(7, "-c".into()), (8, "-a -a2".into()), (9, "-d".into())]);
    assert_eq!(store.next_expiry(), Some(after(30)));
}

#[test]
fn an_absurd_clock_never_ends_a_lease_early() {
    let mut store = fresh();
    let late = leasehold_mvcc::Instant::from_nanos(u64::MAX - 5);
    store.apply(Command::LeaseGrant(LeaseGrantRequest { ttl: 9_000_000_000, id: lease(1) }), late);
    assert_eq!(store.next_expiry(), Some(leasehold_mvcc::Instant::NEVER));
    assert_eq!(store.apply(Command::Expire, late).answer, Ok(Answer::Expire(Vec::new())));
    assert_eq!(store.compacted_revision(), Revision::ZERO);
}
