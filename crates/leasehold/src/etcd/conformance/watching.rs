//! Watches.

use futures_util::StreamExt;
use leasehold_mvcc::{Event, EventKind, Key, KeyRange, LeaseId, PutRequest, Revision, Txn, WatchRequest};

use super::Subject;
use super::leases::grant;
use crate::error::Error;
use crate::etcd::{EtcdExt, Updates, WatchUpdate};

async fn open(subject: &Subject, request: WatchRequest) -> (Updates, Revision) {
    let mut updates = subject.etcd().watch(request);
    match subject.soon("a confirmation", updates.next()).await {
        Some(Ok(WatchUpdate::Confirmed(revision))) => (updates, revision),
        other => panic!("a watch began with {other:?}"),
    }
}

/// The next so many events.
async fn events(subject: &Subject, updates: &mut Updates, count: usize) -> Vec<Event> {
    let mut got = Vec::new();
    while got.len() < count {
        match subject.soon("an event", updates.next()).await {
            Some(Ok(WatchUpdate::Events { events, .. })) => got.extend(events),
            Some(Ok(_)) => {}
            other => panic!("a watch told {other:?}"),
        }
    }
    got
}

fn told(events: &[Event]) -> Vec<(EventKind, &Key)> {
    events.iter().map(|event| (event.kind, &event.kv.key)).collect()
}

/// A watch is confirmed first; everything after the confirmed revision is told, each thing once.
pub async fn a_watch_is_confirmed_before_it_tells(subject: &Subject) {
    let (etcd, key) = (subject.etcd(), subject.key("now"));
    let before = etcd.put(key.clone(), "before", LeaseId::NONE).await.unwrap().header.revision;
    let (mut updates, confirmed) = open(subject, WatchRequest::range(KeyRange::key(key.clone()))).await;
    assert!(confirmed >= before);
    etcd.put(key.clone(), "after", LeaseId::NONE).await.unwrap();
    etcd.delete(key.clone()).await.unwrap();
    let events = events(subject, &mut updates, 2).await;
    assert_eq!(told(&events), [(EventKind::Put, &key), (EventKind::Delete, &key)]);
    assert_eq!(events[0].kv.value, "after");
    assert!(events[0].kv.mod_revision > confirmed);
}

/// A watch from a past revision tells everything since, in order, then goes on.
pub async fn a_watch_from_the_past_tells_it_in_order(subject: &Subject) {
    let (etcd, key) = (subject.etcd(), subject.key("past"));
    let mut written = Vec::new();
    for value in ["1", "2", "3"] {
        written.push(etcd.put(key.clone(), value, LeaseId::NONE).await.unwrap().header.revision);
    }
    let request = WatchRequest::range(KeyRange::key(key.clone())).since(written[1]);
    let (mut updates, _) = open(subject, request).await;
    etcd.delete(key).await.unwrap();
    let events = events(subject, &mut updates, 3).await;
    let revisions: Vec<Revision> = events.iter().map(|event| event.kv.mod_revision).collect();
    assert_eq!(revisions[..2], written[1..]);
    assert!(revisions[2] > revisions[1] && events[2].kind == EventKind::Delete);
}

/// A watch tells nothing of keys outside its range, nor of kinds it did not ask for.
pub async fn a_watch_tells_of_its_own_keys_alone(subject: &Subject) {
    let etcd = subject.etcd();
    let (mut updates, _) =
        open(subject, WatchRequest::range(KeyRange::prefix(subject.key("mine/"))).deletes_only()).await;
    for name in ["mine", "mine/a", "mine0", "mine/b"] {
        etcd.put(subject.key(name), "x", LeaseId::NONE).await.unwrap();
    }
    for name in ["mine0", "mine/b", "mine", "mine/a"] {
        etcd.delete(subject.key(name)).await.unwrap();
    }
    let events = events(subject, &mut updates, 2).await;
    let keys = [subject.key("mine/b"), subject.key("mine/a")];
    assert_eq!(told(&events), [(EventKind::Delete, &keys[0]), (EventKind::Delete, &keys[1])]);
}

/// What one transaction did is told with one revision.
pub async fn events_of_one_transaction_have_one_revision(subject: &Subject) {
    let etcd = subject.etcd();
    let (mut updates, _) =
        open(subject, WatchRequest::range(KeyRange::prefix(subject.key("together/")))).await;
    let keys = ["c", "a", "b"].map(|name| subject.key(&format!("together/{name}")));
    let txn = keys.iter().fold(Txn::new(), |txn, key| txn.then(PutRequest::new(key.clone(), "x")));
    let revision = etcd.txn(txn).await.unwrap().header.revision;
    let events = events(subject, &mut updates, 3).await;
    assert!(events.iter().all(|event| event.kv.mod_revision == revision), "{events:?}");
    for key in keys {
        etcd.delete(key).await.unwrap();
    }
}

/// A key that goes with its lease is told like any other delete.
pub async fn the_end_of_a_lease_is_an_event(subject: &Subject) {
    let (etcd, key, lease) = (subject.etcd(), subject.key("leased"), grant(subject, 60).await);
    etcd.put(key.clone(), "x", lease).await.unwrap();
    let (mut updates, _) = open(subject, WatchRequest::range(KeyRange::key(key.clone()))).await;
    etcd.lease_revoke(lease).await.unwrap();
    let events = events(subject, &mut updates, 1).await;
    assert_eq!(told(&events), [(EventKind::Delete, &key)]);
}

/// A watch that needs compacted history ends with [`Error::Compacted`]; one from the first revision kept does not.
pub async fn a_watch_from_compacted_history_is_told_so(subject: &Subject) {
    let (etcd, key) = (subject.etcd(), subject.key("old"));
    let first = etcd.put(key.clone(), "1", LeaseId::NONE).await.unwrap().header.revision;
    let second = etcd.put(key.clone(), "2", LeaseId::NONE).await.unwrap().header.revision;
    etcd.delete(key.clone()).await.unwrap();
    (subject.compact)(second);
    let mut updates = etcd.watch(WatchRequest::range(KeyRange::key(key.clone())).since(first));
    let compacted = loop {
        match subject.soon("the word compacted", updates.next()).await {
            Some(Err(Error::Compacted { compacted })) => break compacted,
            Some(Ok(WatchUpdate::Confirmed(_))) => {}
            other => panic!("a watch told {other:?}"),
        }
    };
    assert_eq!(compacted, second);
    let (mut updates, _) = open(subject, WatchRequest::range(KeyRange::key(key.clone())).since(second)).await;
    let events = events(subject, &mut updates, 2).await;
    assert_eq!(told(&events), [(EventKind::Put, &key), (EventKind::Delete, &key)]);
}
