//! What puts and deletes do to keys and revisions.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that meets the unexpected should stop"
)]

mod asking;

use asking::{Ask, fresh, lease, refused, rev};
use leasehold_mvcc::{
    Code, Command, DeleteRequest, Key, KeyRange, PutRequest, RangeRequest, Revision, Store, StoreOptions,
};

// E13
#[test]
fn an_empty_store_is_at_revision_1() {
    assert_eq!(fresh().revision(), rev(1));
    assert_eq!(fresh().compacted_revision(), Revision::ZERO);
}

// E07, E27
#[test]
fn revisions_rise_by_one_with_each_commit_and_equal_the_headers_and_the_keys() {
    let mut store = fresh();
    for expected in 2..100 {
        let outcome = store.ask(Command::Put(PutRequest::new("k", "v")));
        assert_eq!(outcome.commits.len(), 1);
        assert_eq!(outcome.commits[0].revision, rev(expected));
        assert_eq!(store.revision(), rev(expected));
        assert_eq!(store.get("k").unwrap().mod_revision, rev(expected));
    }
}

// E07
#[test]
fn what_changes_nothing_makes_no_revision() {
    let mut store = fresh();
    store.write("a", "1");
    for command in [
        Command::Delete(DeleteRequest::key("missing")),
        Command::Delete(DeleteRequest::range(KeyRange::between("x", "z"))),
        Command::Range(RangeRequest::prefix("")),
        Command::Leases,
    ] {
        let outcome = store.ask(command);
        assert!(outcome.answer.is_ok() && outcome.commits.is_empty());
    }
    assert_eq!(store.revision(), rev(2));
}

#[test]
fn a_put_keeps_the_create_revision_and_counts_the_version_up() {
    let mut store = fresh();
    store.write("k", "1");
    store.write("other", "1");
    store.write("k", "2");
    let kv = store.get("k").unwrap();
    assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (rev(2), rev(4), 2));
}

#[test]
fn a_key_that_was_deleted_starts_anew() {
    let mut store = fresh();
    store.write("k", "1");
    store.remove("k");
    store.write("k", "2");
    let kv = store.get("k").unwrap();
    assert_eq!((kv.create_revision, kv.mod_revision, kv.version), (rev(4), rev(4), 1));
}

#[test]
fn a_put_gives_what_was_there_before_only_if_asked() {
    let mut store = fresh();
    let put = PutRequest { prev_kv: true, ..PutRequest::new("k", "new") };
    assert_eq!(store.put(put.clone()).unwrap().prev_kv, None);
    store.write("k", "old");
    assert_eq!(store.put(put).unwrap().prev_kv.unwrap().value, "old");
    assert_eq!(store.put(PutRequest::new("k", "newer")).unwrap().prev_kv, None);
}

#[test]
fn a_put_may_keep_the_value_or_the_lease_of_a_key_that_exists() {
    let mut store = fresh();
    store.grant(1, 10).unwrap();
    store.put(PutRequest::new("k", "old").on(lease(1))).unwrap();

    store.put(PutRequest { ignore_value: true, ..PutRequest::new("k", "") }).unwrap();
    let kv = store.get("k").unwrap();
    assert_eq!((kv.value.as_ref(), kv.lease), (&b"old"[..], lease(0)));

    store.put(PutRequest::new("k", "old").on(lease(1))).unwrap();
    store.put(PutRequest { ignore_lease: true, ..PutRequest::new("k", "new") }).unwrap();
    let kv = store.get("k").unwrap();
    assert_eq!((kv.value.as_ref(), kv.lease), (&b"new"[..], lease(1)));
}

#[test]
fn a_put_that_contradicts_itself_is_refused_with_etcds_words() {
    let mut store = fresh();
    let keep_value = PutRequest { ignore_value: true, ..PutRequest::new("k", "") };
    let keep_lease = PutRequest { ignore_lease: true, ..PutRequest::new("k", "v") };
    let invalid = Code::InvalidArgument;
    refused(invalid, "etcdserver: key is not provided", store.put(PutRequest::new("", "v")));
    refused(invalid, "etcdserver: key not found", store.put(keep_value.clone()));
    refused(invalid, "etcdserver: key not found", store.put(keep_lease.clone()));
    refused(
        invalid,
        "etcdserver: value is provided",
        store.put(PutRequest { value: "v".into(), ..keep_value }),
    );
    refused(invalid, "etcdserver: lease is provided", store.put(keep_lease.on(lease(1))));
    assert_eq!(store.revision(), rev(1), "a refusal changes nothing");
}

#[test]
fn a_delete_of_a_range_gives_its_keys_in_order() {
    let mut store = fresh();
    for key in ["c", "a", "b", "d"] {
        store.write(key, key);
    }
    let request = DeleteRequest { prev_kv: true, ..DeleteRequest::range(KeyRange::between("a", "d")) };
    let answer = store.delete(request).unwrap();
    let keys: Vec<_> = answer.prev_kvs.iter().map(|kv| kv.key.to_string()).collect();
    assert_eq!((answer.deleted, keys), (3, vec!["a".into(), "b".into(), "c".into()]));
    assert_eq!(answer.header.revision, rev(6));
    refused(Code::InvalidArgument, "etcdserver: key is not provided", store.delete(DeleteRequest::key("")));
}

// E43
#[test]
fn a_write_of_more_than_one_and_a_half_mebibytes_is_refused() {
    let mut store = Store::new(StoreOptions { member_id: 0x8000, ..StoreOptions::default() });
    // The largest value that etcd 3.5.23 takes under a key of one byte, found by bisection.
    let largest = 1_572_839;
    assert!(store.put(PutRequest::new("k", vec![b'x'; largest])).is_ok());
    refused(
        Code::InvalidArgument,
        "etcdserver: request is too large",
        store.put(PutRequest::new("k", vec![b'x'; largest + 1])),
    );
    refused(
        Code::InvalidArgument,
        "etcdserver: request is too large",
        store.delete(DeleteRequest::key(vec![b'x'; 1_600_000])),
    );
    assert!(store.read(RangeRequest::key(vec![b'x'; 1_600_000])).is_ok(), "reads have no such limit");
}

// E03
#[test]
fn keys_are_bytes_and_nothing_in_them_is_a_pattern() {
    let mut store = fresh();
    let odd: [&'static [u8]; 9] =
        [b"a_b", b"axb", b"a%b", b"a*b", b"a?b", b"a\\b", b"\"a'", b"a\0b", b"\xff\xfe invalid"];
    for key in odd {
        store.put(PutRequest::new(key, "v")).unwrap();
    }
    for key in odd {
        let found = store.read(RangeRequest::key(key)).unwrap();
        assert_eq!((found.count, found.kvs[0].key.as_bytes()), (1, key));
    }
    assert_eq!(store.read(RangeRequest::prefix("a")).unwrap().count, 7);
    for key in odd {
        assert_eq!(store.delete(DeleteRequest::key(Key::from(key))).unwrap().deleted, 1);
    }
}
