//! Putting, getting and deleting.

use futures_util::future::join_all;
use leasehold_mvcc::{Key, KeyRange, LeaseId, RangeRequest, Revision, SortOrder, SortTarget};

use super::Subject;
use crate::etcd::EtcdExt;

/// A key has the value last put, and none once deleted; deleting nothing says so and makes no revision.
pub async fn what_was_put_is_there_until_it_is_deleted(subject: &Subject) {
    let (etcd, key) = (subject.etcd(), subject.key("put"));
    assert_eq!(etcd.get(key.clone()).await.unwrap(), None);
    etcd.put(key.clone(), "one", LeaseId::NONE).await.unwrap();
    etcd.put(key.clone(), "two", LeaseId::NONE).await.unwrap();
    assert_eq!(etcd.get(key.clone()).await.unwrap().unwrap().value, "two");
    assert!(etcd.delete(key.clone()).await.unwrap());
    assert_eq!(etcd.get(key.clone()).await.unwrap(), None);
    assert!(!etcd.delete(key).await.unwrap());
}

/// Of twenty who put if there is no key yet, at once, exactly one succeeds, and its value stands.
pub async fn of_many_who_put_if_not_exists_one_succeeds(subject: &Subject) {
    let (etcd, key) = (subject.etcd(), subject.key("race"));
    let tries = (0..20).map(|n| etcd.put_if_not_exists(key.clone(), n.to_string(), LeaseId::NONE));
    let won: Vec<bool> = join_all(tries).await.into_iter().map(Result::unwrap).collect();
    let winners: Vec<usize> = (0..20).filter(|n| won[*n]).collect();
    assert_eq!(winners.len(), 1, "winners: {winners:?}");
    assert_eq!(etcd.get(key.clone()).await.unwrap().unwrap().value, winners[0].to_string());
    etcd.delete(key).await.unwrap();
}

/// A delete on condition of the value removes only that value.
pub async fn delete_if_value_spares_another_value(subject: &Subject) {
    let (etcd, key) = (subject.etcd(), subject.key("mine"));
    assert!(!etcd.delete_if_value(key.clone(), "mine").await.unwrap(), "there is no key");
    etcd.put(key.clone(), "theirs", LeaseId::NONE).await.unwrap();
    assert!(!etcd.delete_if_value(key.clone(), "mine").await.unwrap());
    assert_eq!(etcd.get(key.clone()).await.unwrap().unwrap().value, "theirs");
    assert!(etcd.delete_if_value(key.clone(), "theirs").await.unwrap());
    assert_eq!(etcd.get(key).await.unwrap(), None);
}

/// A key keeps its create revision until it is deleted, and counts its writes; each write has a higher revision.
pub async fn a_key_counts_its_writes_since_its_creation(subject: &Subject) {
    let (etcd, key) = (subject.etcd(), subject.key("count"));
    let mut last = Revision::ZERO;
    for life in 0..2 {
        let mut created = Revision::ZERO;
        for version in 1..=3 {
            let written = etcd.put(key.clone(), "x", LeaseId::NONE).await.unwrap().header.revision;
            created = if version == 1 { written } else { created };
            let kv = etcd.get(key.clone()).await.unwrap().unwrap();
            assert_eq!(
                (kv.create_revision, kv.mod_revision, kv.version),
                (created, written, version),
                "life {life}"
            );
            assert!(written > last, "{written} after {last}");
            last = written;
        }
        etcd.delete(key.clone()).await.unwrap();
    }
}

/// Keys and values may be any bytes; bytes that mean something elsewhere mean nothing here.
pub async fn keys_are_bytes(subject: &Subject) {
    let etcd = subject.etcd();
    let names: [&[u8]; 8] =
        [b"a_b", b"axb", b"a%b", b"a*b", b"a\0b", b"a\xff\xfeb", "a\u{e9}b".as_bytes(), b"a\\b"];
    let keys: Vec<Key> =
        names.iter().map(|name| Key::from([subject.key("bytes/").as_bytes(), name].concat())).collect();
    for (n, key) in keys.iter().enumerate() {
        etcd.put(key.clone(), vec![0, n as u8, 0xff], LeaseId::NONE).await.unwrap();
    }
    for (n, key) in keys.iter().enumerate() {
        let kv = etcd.get(key.clone()).await.unwrap().unwrap();
        assert_eq!((&kv.key, &kv.value[..]), (key, &[0, n as u8, 0xff][..]));
        assert!(etcd.delete(key.clone()).await.unwrap());
    }
}

/// A range gives the keys in the order asked for, no more than asked for, and says how many there are.
pub async fn a_range_is_sorted_and_cut_as_asked(subject: &Subject) {
    let (etcd, prefix) = (subject.etcd(), subject.key("sort/"));
    let key = |name: &str| subject.key(&format!("sort/{name}"));
    for name in ["b", "c", "a"] {
        etcd.put(key(name), name.to_owned(), LeaseId::NONE).await.unwrap();
    }
    etcd.put(subject.key("sort0"), "outside", LeaseId::NONE).await.unwrap();
    let all = RangeRequest::prefix(prefix.clone());
    let names = async |request: RangeRequest| {
        let answer = etcd.range(request).await.unwrap();
        let names: Vec<String> =
            answer.kvs.iter().map(|kv| String::from_utf8(kv.value.to_vec()).unwrap()).collect();
        (names.concat(), answer.count, answer.more)
    };
    assert_eq!(names(all.clone()).await, ("abc".into(), 3, false));
    assert_eq!(names(all.clone().sorted(SortTarget::Create, SortOrder::Ascend)).await.0, "bca");
    assert_eq!(
        names(all.clone().sorted(SortTarget::Create, SortOrder::Descend).limited(2)).await,
        ("ac".into(), 3, true)
    );
    let second = etcd.get(key("c")).await.unwrap().unwrap().create_revision;
    assert_eq!(names(RangeRequest { max_create_revision: second, ..all.clone() }).await.0, "bc");
    assert_eq!(names(RangeRequest { min_create_revision: second, ..all.clone() }).await.0, "ac");
    assert_eq!(names(RangeRequest { count_only: true, ..all.clone() }).await, (String::new(), 3, false));
    let from_b = RangeRequest::range(KeyRange::between(key("b"), prefix.prefix_end()));
    assert_eq!(names(from_b).await.0, "bc");
    for name in ["a", "b", "c"] {
        etcd.delete(key(name)).await.unwrap();
    }
    etcd.delete(subject.key("sort0")).await.unwrap();
}
