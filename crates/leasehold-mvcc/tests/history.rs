//! Compaction, and what watches that start in the past are sent.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that meets the unexpected should stop"
)]

mod asking;

use asking::{Ask, everything, fresh, lease, refused, rev, told};
use leasehold_mvcc::{
    Code, Command, Compacted, KeyRange, PutRequest, RangeRequest, Revision, Store, StoreOptions, Txn,
    WatchRequest,
};

/// `a` put at 2, `b` at 3, `a` at 4, `b` deleted at 5, `c` put at 6.
fn five_commits() -> Store {
    let mut store = fresh();
    store.write("a", "1");
    store.write("b", "1");
    store.write("a", "2");
    store.remove("b");
    store.write("c", "1");
    store
}

fn since(store: &Store, from: i64) -> Result<Vec<(i64, String)>, Compacted> {
    store.history(&everything(), rev(from)).map(|commits| told(&commits))
}

// E13
#[test]
fn revision_1_is_the_beginning() {
    let all = [(2, "+a"), (3, "+b"), (4, "+a"), (5, "-b"), (6, "+c")];
    assert_eq!(since(&five_commits(), 1).unwrap(), all.map(|(at, what)| (at, what.to_owned())));
    assert_eq!(since(&five_commits(), 7).unwrap(), [], "what is to come has not happened");
}

// E07, E08
#[test]
fn a_list_and_the_history_after_it_are_all_that_ever_happened() {
    let mut store = five_commits();
    let mut at_every_step = Vec::new();
    for revision in 1..=6 {
        let list = RangeRequest { revision: rev(revision), ..RangeRequest::prefix("") };
        let mut keys: Vec<_> =
            store.read(list).unwrap().kvs.into_iter().map(|kv| (kv.key.clone(), kv)).collect();
        for commit in store.history(&everything(), rev(revision).next()).unwrap() {
            for event in commit.events {
                keys.retain(|(key, _)| *key != event.kv.key);
                if event.kind == leasehold_mvcc::EventKind::Put {
                    keys.push((event.kv.key.clone(), event.kv));
                }
            }
        }
        keys.sort_by(|a, b| a.0.cmp(&b.0));
        at_every_step.push(keys);
    }
    let now: Vec<_> = store.read(RangeRequest::prefix("")).unwrap().kvs;
    assert!(at_every_step.iter().all(|keys| keys.iter().map(|(_, kv)| kv).eq(&now)));
}

#[test]
fn the_history_is_what_the_commits_were() {
    let mut store = fresh();
    let mut commits = Vec::new();
    for command in [
        Command::Put(PutRequest::new("a", "1")),
        Command::Txn(Txn::new().then(PutRequest::new("a", "2")).then(PutRequest::new("b", "1"))),
        Command::Delete(leasehold_mvcc::DeleteRequest::range(KeyRange::all())),
    ] {
        commits.extend(store.ask(command).commits);
    }
    let watch = WatchRequest { prev_kv: true, ..everything() };
    assert_eq!(store.history(&watch, rev(1)), Ok(commits));
}

#[test]
fn a_watch_sees_only_its_range_and_what_it_does_not_filter_out() {
    let store = five_commits();
    let told_to = |watch: &WatchRequest| told(&store.history(watch, rev(1)).unwrap());
    let b = WatchRequest::range(KeyRange::key("b"));
    assert_eq!(told_to(&b), [(3, "+b".into()), (5, "-b".into())]);
    assert_eq!(told_to(&b.clone().deletes_only()), [(5, "-b".into())]);
    assert_eq!(told_to(&WatchRequest { no_delete: true, ..b.clone() }), [(3, "+b".into())]);
    assert_eq!(told_to(&WatchRequest { no_put: true, no_delete: true, ..b }), []);
    assert_eq!(told_to(&WatchRequest::range(KeyRange::from("b"))).len(), 3);
}

#[test]
fn a_delete_event_holds_the_name_and_the_revision_only() {
    let mut store = fresh();
    store.grant(1, 10).unwrap();
    store.put(PutRequest::new("k", "v").on(lease(1))).unwrap();
    store.revoke(1);
    let watch = WatchRequest { prev_kv: true, ..everything() };
    let event = store.history(&watch, rev(3)).unwrap().remove(0).events.remove(0);
    assert_eq!((event.kv.key.to_string(), event.kv.mod_revision), ("k".into(), rev(3)));
    assert_eq!((event.kv.value.len(), event.kv.version, event.kv.create_revision), (0, 0, Revision::ZERO));
    assert_eq!(event.kv.lease, lease(0));
    assert_eq!(event.prev_kv.unwrap().lease, lease(1));
}

// E11
#[test]
fn a_watch_may_start_at_the_compacted_revision_but_not_below() {
    let mut store = five_commits();
    store.compact(4).unwrap();
    let gone = Compacted { compact_revision: rev(4) };
    assert_eq!(since(&store, 3), Err(gone));
    assert_eq!(since(&store, 1), Err(gone));
    assert_eq!(since(&store, -1), Err(gone));
    assert_eq!(since(&store, 4).unwrap().len(), 3);
    assert_eq!(since(&store, 5).unwrap().len(), 2);
}

// E15
#[test]
fn a_delete_at_the_compacted_revision_is_still_told() {
    let mut store = five_commits();
    store.compact(5).unwrap();
    assert_eq!(since(&store, 5).unwrap(), [(5, "-b".into()), (6, "+c".into())]);
    store.compact(6).unwrap();
    assert_eq!(since(&store, 5), Err(Compacted { compact_revision: rev(6) }));
}

// E15
#[test]
fn a_store_that_replaces_another_refuses_watches_of_that_ones_time() {
    let store = Store::new(StoreOptions { first_revision: rev(100), ..StoreOptions::default() });
    assert_eq!(store.revision(), rev(100));
    assert_eq!(since(&store, 99), Err(Compacted { compact_revision: rev(100) }));
    assert_eq!(since(&store, 100), Ok(Vec::new()));
    let old = RangeRequest { revision: rev(99), ..RangeRequest::key("k") };
    refused(Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", store.range(&old));
}

// E16
#[test]
fn what_stood_before_the_compacted_revision_is_missing_in_its_events() {
    let mut store = five_commits();
    let watch = WatchRequest { prev_kv: true, ..WatchRequest::range(KeyRange::key("b")) };
    let before = |store: &Store| store.history(&watch, rev(5)).unwrap()[0].events[0].prev_kv.clone();
    assert!(before(&store).is_some());
    store.compact(4).unwrap();
    assert!(before(&store).is_some());
    store.compact(5).unwrap();
    assert_eq!(before(&store), None);
}

// E17
#[test]
fn a_watch_below_the_compaction_learns_where_it_can_start() {
    let mut store = five_commits();
    store.compact(3).unwrap();
    let gone = store.history(&everything(), rev(2)).unwrap_err();
    assert_eq!(gone.compact_revision, store.compacted_revision());
    assert_eq!(gone.to_string(), "etcdserver: mvcc: required revision has been compacted");
}

#[test]
fn compaction_goes_forward_and_not_beyond_now() {
    let mut store = five_commits();
    let compacted = "etcdserver: mvcc: required revision has been compacted";
    let future = "etcdserver: mvcc: required revision is a future revision";
    refused(Code::OutOfRange, compacted, store.compact(-1));
    refused(Code::OutOfRange, future, store.compact(7));
    assert_eq!(store.compact(0), Ok(()), "as etcd does, once");
    refused(Code::OutOfRange, compacted, store.compact(0));
    assert_eq!(store.compact(6), Ok(()));
    refused(Code::OutOfRange, compacted, store.compact(6));
    refused(Code::OutOfRange, compacted, store.compact(5));
    refused(Code::OutOfRange, future, store.compact(7));
    assert_eq!(store.read(RangeRequest::prefix("")).unwrap().count, 2, "what is current stays");
}

#[test]
fn a_limit_keeps_the_newest_revisions() {
    let mut store = Store::new(StoreOptions { history_limit: Some(10), ..StoreOptions::default() });
    for _ in 0..9 {
        store.write("k", "v");
    }
    assert_eq!(store.compacted_revision(), Revision::ZERO, "nothing is compacted before the limit");
    for _ in 0..91 {
        store.write("k", "v");
    }
    assert_eq!((store.revision(), store.compacted_revision()), (rev(101), rev(91)));
    assert_eq!(since(&store, 91).unwrap().len(), 11);
    assert_eq!(store.compact(95), Ok(()), "compactions asked for go on working");
    assert_eq!(store.compacted_revision(), rev(95));
}
