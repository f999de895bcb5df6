use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use leasehold_mvcc::{Code, KeyRange, LeaseId, Revision, StoreError, WatchRequest, WatchResponse};

use super::scripted::{Manner, WatchEnd, message, not_done, unknown};
use super::{client, client_of};
use crate::error::{Error, ErrorKind, Result};
use crate::etcd::remote::verdict::judge;
use crate::etcd::remote::{Credentials, Lane, RemoteOptions, WireError};
use crate::etcd::{Etcd, Updates, WatchUpdate};
use crate::runtime::Runtime;

fn follow(key: &'static str) -> WatchRequest {
    WatchRequest::range(KeyRange::key(key))
}

/// What came so far, for reading: `=7` confirmed at 7, `k@8` an event, `..9` progress, `!` an error.
fn told(updates: &mut Updates) -> String {
    let mut all = Vec::new();
    while let Some(Some(update)) = updates.next().now_or_never() {
        all.push(match update {
            Ok(WatchUpdate::Confirmed(revision)) => format!("={revision}"),
            Ok(WatchUpdate::Progress(revision)) => format!("..{revision}"),
            Ok(WatchUpdate::Events { events, .. }) => {
                let name =
                    |event: &leasehold_mvcc::Event| format!("{}@{}", event.kv.key, event.kv.mod_revision);
                events.iter().map(name).collect::<Vec<_>>().join(",")
            }
            Err(error) => format!("!{:?}", error.kind()),
        });
    }
    all.join(" ")
}

fn failure(updates: &mut Updates) -> Error {
    let error = |update: Result<WatchUpdate>| update.err();
    std::iter::from_fn(|| updates.next().now_or_never().flatten()).find_map(error).expect("an error")
}

#[test]
fn created_answers_belong_to_the_creates_in_their_order_whatever_their_numbers() {
    let (remote, wire, runtime) = client("a:1");
    runtime.block_on(async {
        let (mut a, mut b, mut c) =
            (remote.watch(follow("a")), remote.watch(follow("b")), remote.watch(follow("c")));
        runtime.settle().await;
        let mut line = wire.watch_line();
        assert_eq!(line.starts(), [0, 0, 0]);
        line.created(5, 10);
        // Refused: it has no number.
        let refusal = || WatchResponse {
            canceled: true,
            cancel_reason: "etcdserver: permission denied".into(),
            ..message(-1, 10)
        };
        line.answer(WatchResponse { created: true, ..refusal() });
        line.created(0, 11);
        line.events(0, &[(12, "c")]);
        line.events(5, &[(13, "a")]);
        runtime.settle().await;
        assert_eq!((told(&mut a), told(&mut c)), ("=10 a@13".into(), "=11 c@12".into()));
        assert_eq!(failure(&mut b).kind(), ErrorKind::Auth);
        assert!(b.next().await.is_none(), "after an error there is nothing");
    });
}

#[test]
fn a_broken_stream_is_opened_anew_elsewhere_and_no_event_is_lost_or_doubled() {
    let (remote, wire, runtime) = client("a:1,b:1");
    runtime.block_on(async {
        let mut seen = remote.watch(follow("a"));
        let mut idle = remote.watch(follow("b"));
        let mut old = remote.watch(follow("c").since(Revision::new(3)));
        runtime.settle().await;
        let line = wire.watch_line();
        for (id, revision) in [(0, 10), (1, 10), (2, 10)] {
            line.created(id, revision);
        }
        line.events(0, &[(11, "a"), (14, "a")]);
        runtime.settle().await;
        line.fail(unknown());
        runtime.settle().await;

        let mut line = wire.watch_line();
        assert_eq!((line.endpoint.clone(), line.starts()), ("b:1".into(), vec![15, 11, 3]));
        // The numbers of the new stream mean other watches than those of the old one.
        for (id, revision) in [(2, 30), (1, 30), (0, 30)] {
            line.created(id, revision);
        }
        line.events(2, &[(14, "a"), (15, "a")]);
        line.events(0, &[(4, "c")]);
        runtime.settle().await;
        assert_eq!(told(&mut seen), "=10 a@11,a@14 =14 a@15");
        assert_eq!(told(&mut idle), "=10 =10");
        assert_eq!(told(&mut old), "=2 =2 c@4");
    });
}

#[test]
fn a_watch_that_was_not_confirmed_starts_at_now_again() {
    let (remote, wire, runtime) = client("a:1,b:1");
    runtime.block_on(async {
        let mut updates = remote.watch(follow("a"));
        runtime.settle().await;
        wire.watch_line().fail(not_done());
        runtime.settle().await;
        let mut line = wire.watch_line();
        assert_eq!(line.starts(), [0]);
        line.created(0, 20);
        runtime.settle().await;
        assert_eq!(told(&mut updates), "=20");
    });
}

#[test]
fn compaction_ends_the_watch_it_hits_and_no_other() {
    let (remote, wire, runtime) = client("a:1");
    runtime.block_on(async {
        let (mut hit, mut other) =
            (remote.watch(follow("a").since(Revision::new(2))), remote.watch(follow("b")));
        runtime.settle().await;
        let line = wire.watch_line();
        line.created(0, 50);
        line.created(1, 50);
        line.answer(WatchResponse { canceled: true, compact_revision: Revision::new(40), ..message(0, 50) });
        line.events(1, &[(51, "b")]);
        runtime.settle().await;
        assert!(
            matches!(failure(&mut hit), Error::Compacted { compacted } if compacted == Revision::new(40))
        );
        assert_eq!(told(&mut other), "=50 b@51");
    });
}

#[test]
fn a_revision_cut_off_in_the_middle_is_completed_after_the_break() {
    let (remote, wire, runtime) = client("a:1,b:1");
    runtime.block_on(async {
        let mut updates = remote.watch(follow("a"));
        runtime.settle().await;
        let line = wire.watch_line();
        line.created(0, 10);
        line.fragment(0, &[(11, "a"), (12, "a")]);
        runtime.settle().await;
        line.fail(unknown());
        runtime.settle().await;
        let mut line = wire.watch_line();
        assert_eq!(line.starts(), [12]);
        line.created(0, 12);
        line.events(0, &[(12, "a"), (12, "b")]);
        runtime.settle().await;
        assert_eq!(told(&mut updates), "=10 a@11,a@12 =11 b@12");
    });
}

#[test]
fn progress_of_a_watch_moves_its_start_and_is_told_to_who_asked() {
    let (remote, wire, runtime) = client("a:1,b:1");
    runtime.block_on(async {
        let (mut silent, mut curious) =
            (remote.watch(follow("a")), remote.watch(WatchRequest { progress_notify: true, ..follow("b") }));
        runtime.settle().await;
        let line = wire.watch_line();
        line.created(0, 10);
        line.created(1, 10);
        line.answer(message(0, 60));
        line.answer(message(1, 61));
        // Word on the whole stream may come ahead of events it covers: no start moves by it.
        line.answer(message(-1, 99));
        runtime.settle().await;
        assert_eq!((told(&mut silent), told(&mut curious)), ("=10".into(), "=10 ..61".into()));
        line.fail(unknown());
        runtime.settle().await;
        assert_eq!(wire.watch_line().starts(), [61, 62]);
    });
}

#[test]
fn a_stream_that_falls_silent_is_tested_and_left_if_it_fails() {
    let (remote, wire, runtime) = client("a:1,b:1");
    runtime.block_on(async {
        let mut updates = remote.watch(follow("a"));
        runtime.settle().await;
        let mut line = wire.watch_line();
        line.created(0, 10);
        runtime.settle().await;
        assert_eq!(line.said().len(), 1);

        // Alive: it answers the probe, which is ended again.
        runtime.pass(Duration::from_secs(3)).await;
        let probe = line.creates();
        assert!(matches!(probe.as_slice(), [probe] if probe.no_put && probe.no_delete), "{probe:?}");
        line.created(1, 10);
        runtime.settle().await;
        assert_eq!(line.cancels(), [1]);

        // Dead: it does not.
        runtime.pass(Duration::from_secs(4)).await;
        assert_eq!(line.creates().len(), 1);
        assert!(!line.is_dropped());
        runtime.pass(Duration::from_millis(1_100)).await;
        assert!(line.is_dropped());
        assert_eq!(wire.distrusted(), ["a:1"]);
        let mut line = wire.watch_line();
        assert_eq!((line.endpoint.clone(), line.starts()), ("b:1".into(), vec![11]));
        line.created(0, 12);
        line.events(0, &[(11, "a")]);
        runtime.settle().await;
        assert_eq!(told(&mut updates), "=10 =10 a@11");
    });
}

#[test]
fn an_endpoint_that_never_answers_a_new_stream_is_left() {
    let (remote, wire, runtime) = client("a:1,b:1");
    runtime.block_on(async {
        let _updates = remote.watch(follow("a"));
        runtime.settle().await;
        let silent = wire.watch_line();
        runtime.pass(Duration::from_secs(5)).await;
        assert!(silent.is_dropped());
        assert_eq!(wire.watch_line().endpoint, "b:1");
    });
}

#[test]
fn who_drops_the_updates_ends_the_watch_also_before_it_stands() {
    let (remote, wire, runtime) = client("a:1");
    runtime.block_on(async {
        let (standing, early, mut kept) =
            (remote.watch(follow("a")), remote.watch(follow("b")), remote.watch(follow("c")));
        runtime.settle().await;
        let mut line = wire.watch_line();
        line.created(3, 10);
        runtime.settle().await;
        drop(standing);
        drop(early);
        runtime.settle().await;
        assert_eq!(line.cancels(), [3]);
        line.created(4, 10);
        line.created(5, 10);
        line.events(4, &[(11, "b")]);
        line.events(3, &[(11, "a")]);
        runtime.settle().await;
        assert_eq!(line.cancels(), [4]);
        assert_eq!(told(&mut kept), "=10");
    });
}

#[test]
fn watches_share_streams_by_the_dozen() {
    let (remote, wire, runtime) = client("a:1");
    runtime.block_on(async {
        let mut all: Vec<_> = (0..65).map(|_| remote.watch(follow("a"))).collect();
        runtime.settle().await;
        assert_eq!(wire.opened(), vec![("a:1".to_owned(), Lane::Calls); 2]);
        assert_eq!((wire.watch_line().starts().len(), wire.watch_line().starts().len()), (64, 1));
        all.truncate(60);
        runtime.settle().await;
        all.push(remote.watch(follow("a")));
        all.push(remote.dedicated().watch(follow("a")));
        runtime.settle().await;
        assert_eq!(wire.opened(), [("a:1".to_owned(), Lane::Leases)]);
    });
}

#[test]
fn a_watch_that_nobody_reads_pauses_and_goes_on_from_the_servers_history() {
    let (remote, wire, runtime) = client("a:1");
    runtime.block_on(async {
        let mut updates = remote.watch(follow("a"));
        runtime.settle().await;
        let mut line = wire.watch_line();
        line.created(0, 10);
        for revision in 11..3_000 {
            line.events(0, &[(revision, "a")]);
        }
        runtime.settle().await;
        assert_eq!(line.cancels(), [0]);
        let (mut read, mut resumed) = (0, false);
        while let Some(Some(update)) = updates.next().now_or_never() {
            update.unwrap();
            read += 1;
        }
        runtime.settle().await;
        for request in line.creates() {
            resumed = true;
            assert_eq!(
                request.start_revision.get(),
                10 + read,
                "the confirmation, and an event for each revision"
            );
        }
        assert!(resumed);
        line.created(1, 3_000);
        line.events(1, &[(10 + read, "a")]);
        runtime.settle().await;
        assert_eq!(told(&mut updates), format!("={} a@{}", 9 + read, 10 + read));
    });
}

#[test]
fn a_refusal_of_the_whole_stream_ends_its_watches() {
    let (remote, wire, runtime) = client("a:1,b:1");
    runtime.block_on(async {
        let no = StoreError::new(Code::Unauthenticated, "etcdserver: invalid auth token");
        wire.set("a:1", Manner::Fails(WireError::Refused(no)));
        let mut updates = remote.watch(follow("a"));
        runtime.settle().await;
        assert_eq!(failure(&mut updates).kind(), ErrorKind::Auth);
    });
}

#[test]
fn while_nobody_can_be_reached_tries_are_few_and_the_watch_lives() {
    let (remote, wire, runtime) = client("a:1,b:1");
    runtime.block_on(async {
        wire.set("a:1", Manner::Fails(not_done()));
        wire.set("b:1", Manner::Fails(not_done()));
        let mut updates = remote.watch(follow("a"));
        runtime.pass(Duration::from_secs(60)).await;
        let tries = wire.opened().len();
        assert!((60..300).contains(&tries), "{tries}");
        wire.set("a:1", Manner::Answers);
        runtime.pass(Duration::from_millis(1_100)).await;
        wire.watch_line().created(0, 10);
        runtime.settle().await;
        assert_eq!(told(&mut updates), "=10");
    });
}

/// B25: no way of breaking is a reason to open the next stream without a pause, however well the last one began.
#[test]
fn b25_streams_that_break_right_after_their_first_word_are_opened_now_and_then() {
    let no = |words: &str| judge(StoreError::new(Code::Unauthenticated, words));
    for (endpoints, end) in [
        ("a:1", Some(unknown())),
        ("a:1,b:1,c:1", Some(unknown())),
        ("a:1,b:1,c:1", Some(not_done())),
        ("a:1,b:1,c:1", Some(WireError::NotEtcd { why: "it speaks HTTP/1".into(), sent: false })),
        ("a:1,b:1,c:1", Some(no("etcdserver: invalid auth token"))),
        ("a:1,b:1,c:1", None),
    ] {
        let credentials = Credentials::new("someone", "right").unwrap();
        let (remote, wire, runtime) =
            client_of(RemoteOptions::new(endpoints).unwrap().credentials(credentials));
        wire.forget_tokens();
        runtime.block_on(async {
            let _updates = remote.watch(follow("a"));
            let until = runtime.now() + Duration::from_secs(20);
            let mut opened = 0;
            while runtime.now() < until {
                runtime.settle().await;
                while let Some(line) = wire.next_watch_line() {
                    opened += 1;
                    line.created(0, 10);
                    if let Some(end) = &end {
                        line.fail(end.clone());
                    }
                }
            }
            assert!(opened < 150 && wire.logins() < 10, "{endpoints}, {end:?}: {opened} streams in 20 s");
        });
    }
}

#[test]
fn closing_ends_watches_tasks_and_streams() {
    let (remote, wire, runtime) = client("a:1");
    runtime.block_on(async {
        let mut updates = remote.watch(follow("a"));
        let mut renewal = remote.lease_keep_alive(LeaseId::new(1));
        assert!((&mut renewal).now_or_never().is_none());
        runtime.settle().await;
        let (line, renewals) = (wire.watch_line(), wire.renewal_line());
        renewals.answer(super::scripted::renewed(LeaseId::new(1), 15));
        renewal.await.unwrap();
        line.created(0, 10);
        runtime.settle().await;
        remote.close().await;
        runtime.settle().await;
        assert_eq!(told(&mut updates), "=10 !Closed");
        assert_eq!(told(&mut remote.watch(follow("b"))), "!Closed");
        assert!(line.is_dropped() && renewals.is_dropped());
        assert_eq!(runtime.tasks(), 0);
    });
}

#[test]
fn a_stream_without_watches_is_kept_for_a_while_and_then_let_go() {
    let (remote, wire, runtime) = client("a:1");
    runtime.block_on(async {
        drop(remote.watch(follow("a")));
        let mut again = remote.watch(follow("b"));
        runtime.settle().await;
        let line: WatchEnd = wire.watch_line();
        line.created(0, 10);
        line.created(1, 10);
        runtime.settle().await;
        assert_eq!(told(&mut again), "=10");
        drop(again);
        runtime.pass(Duration::from_secs(30)).await;
        assert!(!line.is_dropped());
        runtime.pass(Duration::from_secs(31)).await;
        assert!(line.is_dropped());
        assert_eq!(runtime.tasks(), 0);
        // And a new one begins where there is need.
        let _next = remote.watch(follow("c"));
        runtime.settle().await;
        assert_eq!(wire.watch_line().starts(), [0]);
    });
}

#[test]
fn who_drops_the_client_drops_its_tasks_once_no_watch_is_read() {
    let (remote, wire, runtime) = client("a:1");
    runtime.block_on(async {
        let mut updates = remote.watch(follow("a"));
        runtime.settle().await;
        let line = wire.watch_line();
        drop(remote);
        line.created(0, 10);
        runtime.settle().await;
        assert_eq!(told(&mut updates), "=10", "an open watch keeps itself alive");
        drop(updates);
        runtime.settle().await;
        assert!(line.is_dropped());
        assert_eq!(runtime.tasks(), 0);
    });
    assert!(runtime.now().as_nanos() < 1_000_000_000);
}
