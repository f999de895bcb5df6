//! What ranges return.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that meets the unexpected should stop"
)]

mod asking;

use asking::{Ask, fresh, lease, names, refused, rev};
use leasehold_mvcc::{Code, KeyRange, PutRequest, RangeRequest, Revision, SortOrder, SortTarget, Store};

/// `c` at 2, `a` at 3, `b` at 4, then `a` again at 5.
fn three_keys() -> Store {
    let mut store = fresh();
    store.write("c", "3");
    store.write("a", "1");
    store.write("b", "2");
    store.write("a", "9");
    store
}

#[test]
fn an_end_that_is_empty_means_one_key_and_one_of_a_zero_byte_means_all_from_the_start() {
    let mut store = three_keys();
    for (range, expected) in [
        (KeyRange::key("b"), vec!["b"]),
        (KeyRange::from("b"), vec!["b", "c"]),
        (KeyRange::between("a", "c"), vec!["a", "b"]),
        (KeyRange::all(), vec!["a", "b", "c"]),
        (KeyRange::between("c", "a"), vec![]),
        (KeyRange::between("b", "b"), vec![]),
    ] {
        assert_eq!(names(&store.read(RangeRequest::range(range.clone())).unwrap()), expected, "{range:?}");
    }
    refused(Code::InvalidArgument, "etcdserver: key is not provided", store.read(RangeRequest::default()));
}

#[test]
fn an_old_revision_is_read_as_it_was_under_the_header_of_now() {
    let mut store = three_keys();
    store.remove("c");
    let all = |revision| RangeRequest { revision, ..RangeRequest::prefix("") };
    let then = store.read(all(rev(3))).unwrap();
    assert_eq!((names(&then), then.count), (vec!["a".into(), "c".into()], 2));
    assert_eq!((then.kvs[0].value.as_ref(), then.kvs[0].version), (&b"1"[..], 1));
    assert_eq!(then.header.revision, rev(6));
    assert_eq!(names(&store.read(all(rev(5))).unwrap()), ["a", "b", "c"]);
    assert_eq!(names(&store.read(all(rev(6))).unwrap()), ["a", "b"]);
    assert_eq!(names(&store.read(all(rev(1))).unwrap()), Vec::<String>::new());
    assert_eq!(names(&store.read(all(rev(-5))).unwrap()), ["a", "b"], "a negative one is the current one");
}

#[test]
fn a_revision_that_is_compacted_or_to_come_is_refused() {
    let mut store = three_keys();
    let at = |revision| RangeRequest { revision: rev(revision), ..RangeRequest::prefix("") };
    refused(Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision", store.read(at(6)));
    store.compact(4).unwrap();
    refused(Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted", store.read(at(3)));
    assert_eq!(store.read(at(4)).unwrap().count, 3, "the compacted revision itself can be read");
}

// E20
#[test]
fn filters_act_on_the_keys_returned_and_not_on_the_count() {
    let mut store = three_keys();
    let all = RangeRequest::prefix("");
    for (request, expected) in [
        (RangeRequest { min_mod_revision: rev(4), ..all.clone() }, vec!["a", "b"]),
        (RangeRequest { max_mod_revision: rev(4), ..all.clone() }, vec!["b", "c"]),
        (RangeRequest { min_create_revision: rev(3), ..all.clone() }, vec!["a", "b"]),
        (RangeRequest { max_create_revision: rev(3), ..all.clone() }, vec!["a", "c"]),
        (RangeRequest { min_mod_revision: rev(3), max_create_revision: rev(3), ..all.clone() }, vec!["a"]),
    ] {
        let answer = store.read(request.clone()).unwrap();
        assert_eq!(
            (names(&answer), answer.count, answer.more),
            (expected, 3, false).map_names(),
            "{request:?}"
        );
        let counted = store.read(RangeRequest { count_only: true, ..request }).unwrap();
        assert_eq!((counted.count, counted.kvs.len()), (3, 0));
    }
    let answer = store.read(RangeRequest { min_mod_revision: rev(4), limit: 1, ..all }).unwrap();
    assert_eq!((names(&answer), answer.count, answer.more), (vec!["a".into()], 3, true));
}

trait MapNames {
    fn map_names(self) -> (Vec<String>, i64, bool);
}

impl MapNames for (Vec<&str>, i64, bool) {
    fn map_names(self) -> (Vec<String>, i64, bool) {
        (self.0.into_iter().map(String::from).collect(), self.1, self.2)
    }
}

#[test]
fn a_limit_cuts_after_the_sort_and_says_that_there_is_more() {
    let mut store = three_keys();
    let newest = RangeRequest::prefix("").sorted(SortTarget::Create, SortOrder::Descend).limited(2);
    let answer = store.read(newest).unwrap();
    assert_eq!((names(&answer), answer.count, answer.more), (vec!["b".into(), "a".into()], 3, true));
    let answer = store.read(RangeRequest::prefix("").limited(3)).unwrap();
    assert!(!answer.more, "nothing was cut off");
    let answer = store.read(RangeRequest::prefix("").limited(-1)).unwrap();
    assert_eq!((answer.kvs.len(), answer.more), (3, false), "a negative limit is none");
}

#[test]
fn a_sort_target_without_an_order_means_ascending() {
    let mut store = three_keys();
    for (target, expected) in [
        (SortTarget::Key, ["a", "b", "c"]),
        (SortTarget::Version, ["b", "c", "a"]),
        (SortTarget::Create, ["c", "a", "b"]),
        (SortTarget::Mod, ["c", "b", "a"]),
        (SortTarget::Value, ["b", "c", "a"]),
    ] {
        for order in [SortOrder::None, SortOrder::Ascend] {
            let answer = store.read(RangeRequest::prefix("").sorted(target, order)).unwrap();
            assert_eq!(names(&answer), expected, "{target:?} {order:?}");
        }
    }
}

// Seen on 3.5.23 and 3.7.2 alike.
#[test]
fn a_sort_target_without_an_order_sorts_only_what_the_limit_lets_through() {
    let mut store = fresh();
    for key in ["d", "c", "b", "a"] {
        store.write(key, "");
    }
    let by_create = RangeRequest::prefix("").sorted(SortTarget::Create, SortOrder::None);
    assert_eq!(
        names(&store.read(by_create.clone().limited(1)).unwrap()),
        ["b"],
        "of a and b, the first by key"
    );
    let ascending = RangeRequest { sort_order: SortOrder::Ascend, ..by_create };
    assert_eq!(names(&store.read(ascending.limited(1)).unwrap()), ["d"]);
}

#[test]
fn equals_come_in_the_order_of_their_keys_whichever_way_the_sort_goes() {
    let mut store = fresh();
    for key in ["b", "a", "c"] {
        store.write(key, "same");
    }
    for order in [SortOrder::Ascend, SortOrder::Descend] {
        for limit in [0, 2] {
            let request = RangeRequest::prefix("").sorted(SortTarget::Value, order).limited(limit);
            let expected = if limit == 0 { vec!["a", "b", "c"] } else { vec!["a", "b"] };
            assert_eq!(names(&store.read(request).unwrap()), expected, "{order:?}");
        }
    }
}

#[test]
fn keys_without_values_come_without_leases_too_unless_sorted_by_value() {
    let mut store = fresh();
    store.grant(1, 10).unwrap();
    store.put(PutRequest::new("k", "v").on(lease(1))).unwrap();
    let request = RangeRequest { keys_only: true, ..RangeRequest::key("k") };
    let kv = store.read(request.clone()).unwrap().kvs.remove(0);
    assert_eq!((kv.value.len(), kv.lease, kv.version), (0, lease(0), 1));
    let kv = store.read(request.sorted(SortTarget::Value, SortOrder::Ascend)).unwrap().kvs.remove(0);
    assert_eq!((kv.value.len(), kv.lease), (0, lease(1)));
}

#[test]
fn a_shared_reference_reads_the_same() {
    let mut store = three_keys();
    let request = RangeRequest::prefix("").sorted(SortTarget::Mod, SortOrder::Descend);
    assert_eq!(store.range(&request), store.read(request));
    assert_eq!(store.header().revision, rev(5));
    assert!(Revision::ZERO.is_zero());
}
