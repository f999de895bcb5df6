//! Watch streams over a real socket.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a client of the wire, on real time; a failure is a panic"
)]

mod support;

use std::time::Duration;

use leasehold::Embedded;
use leasehold_mvcc::{Command, PutRequest};
use leasehold_proto::pb::etcdserverpb as pb;
use leasehold_server::ServerOptions;
use support::{
    Running, Watching, changed, connect, delete, grant, put, put_on, revoke, until, watch, watch_prefix,
};

#[tokio::test]
async fn events_go_on_after_the_client_ends_its_half_and_a_reset_frees_the_watches() {
    let server = Running::start().await;
    let channel = server.channel().await;
    let mut watching = Watching::open(&channel, watch_prefix("k")).await;
    watching.create(watch("other"));
    assert!(watching.hear().await.created);
    assert!(watching.hear().await.created);
    watching.half_close();
    for at in 0..10 {
        put(&channel, &format!("k{at}"), "v").await;
        assert_eq!(changed(&watching.hear().await), [format!("k{at}")]);
    }
    assert_eq!(server.etcd.watch_count(), 2);
    drop(watching);
    until("the end of the watches", || server.etcd.watch_count() == 0).await;
    server.stop().await;
}

#[tokio::test]
async fn many_short_watches_leave_nothing() {
    let server = Running::start().await;
    let channel = server.channel().await;
    for _ in 0..10 {
        let mut open = Vec::new();
        for at in 0..50 {
            open.push(Watching::open(&channel, watch(&format!("k{at}"))).await);
        }
        assert!(server.etcd.watch_count() >= 50);
    }
    until("the end of the watches", || server.etcd.watch_count() == 0).await;
    server.stop().await;
}

#[tokio::test]
async fn a_lost_connection_frees_its_watches() {
    let server = Running::start().await;
    let channel = server.channel().await;
    let watching = Watching::open(&channel, watch("k")).await;
    until("the watch", || server.etcd.watch_count() == 1).await;
    // The channel's connection closes with its last handle.
    drop((watching, channel));
    until("the end of the watch", || server.etcd.watch_count() == 0).await;
    until("the end of the connection", || server.activity.connections() == 0).await;
    server.stop().await;
}

#[tokio::test]
async fn ids_start_at_zero_on_each_stream_and_mean_nothing_on_another() {
    let server = Running::start().await;
    let channel = server.channel().await;
    let mut one = Watching::open(&channel, watch("k")).await;
    let mut two = Watching::open(&channel, watch("k")).await;
    assert_eq!((one.hear().await.watch_id, two.hear().await.watch_id), (0, 0));
    one.cancel(0);
    assert!(one.hear().await.canceled);
    put(&channel, "k", "v").await;
    assert_eq!(changed(&two.hear().await), ["k"]);
    server.stop().await;
}

#[tokio::test]
async fn a_compacted_watch_ends_alone() {
    let server = Running::start().await;
    let channel = server.channel().await;
    let first = put(&channel, "k", "1").await;
    let second = put(&channel, "k", "2").await;
    let compaction = pb::CompactionRequest { revision: second, physical: false };
    support::kv(&channel).compact(compaction).await.unwrap();

    let mut watching = Watching::open(&channel, watch("k")).await;
    assert!(watching.hear().await.created);
    watching.create(pb::WatchCreateRequest { start_revision: first, ..watch("k") });
    assert!(watching.hear().await.created);
    let ended = watching.hear().await;
    assert_eq!((ended.watch_id, ended.canceled, ended.compact_revision), (1, true, second));
    put(&channel, "k", "3").await;
    assert_eq!(watching.hear().await.watch_id, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_start_before_all_time_is_refused() {
    let server = Running::start().await;
    let channel = server.channel().await;
    let mut watching =
        Watching::open(&channel, pb::WatchCreateRequest { start_revision: -1, ..watch("k") }).await;
    let refused = watching.hear().await;
    assert!(refused.created && refused.canceled, "{refused:?}");
    assert_eq!(refused.watch_id, -1);
    assert_eq!(refused.cancel_reason, "etcdserver: mvcc: required revision has been compacted");
    assert_eq!(server.etcd.watch_count(), 0);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_never_overtakes_an_event() {
    let server = Running::start().await;
    let channel = server.channel().await;
    let mut watching = Watching::open(&channel, watch_prefix("k")).await;
    assert!(watching.hear().await.created);
    let etcd = server.etcd.clone();
    // Fewer than the messages that may wait for a reader who is slow today.
    let puts = 10_000;
    let writer = tokio::task::spawn_blocking(move || {
        for at in 0..puts {
            etcd.apply(Command::Put(PutRequest::new(format!("k{}", at % 7), "v"))).unwrap();
        }
        etcd.revision().get()
    });
    let (mut told, mut reports) = (0, 0);
    watching.ask_progress();
    let last = puts + 1;
    while told < last {
        let message = watching.hear().await;
        let revision = message.header.as_ref().unwrap().revision;
        if message.events.is_empty() {
            reports += 1;
            told = told.max(revision);
            watching.ask_progress();
        }
        for event in &message.events {
            let at = event.kv.as_ref().unwrap().mod_revision;
            assert!(at > told, "an event of revision {at} came after progress to {told}");
        }
    }
    assert_eq!(writer.await.unwrap(), last);
    assert!(reports > 1, "progress was reported {reports} times");
    server.stop().await;
}

#[tokio::test]
async fn an_idle_watch_reports_progress_if_it_asked_to() {
    let options = ServerOptions { progress_interval: Duration::from_millis(100), ..ServerOptions::default() };
    let server = Running::start_with(Embedded::start().unwrap(), options).await;
    let channel = server.channel().await;
    let mut watching = Watching::open(&channel, watch("quiet")).await;
    watching.create(pb::WatchCreateRequest { progress_notify: true, ..watch("k") });
    assert!(watching.hear().await.created);
    assert!(watching.hear().await.created);
    let revision = put(&channel, "elsewhere", "v").await;
    let report = loop {
        // One may have been on its way when the key was put.
        let report = watching.hear().await;
        assert_eq!((report.watch_id, report.events.len()), (1, 0), "only the watch that asked is told");
        if report.header.as_ref().unwrap().revision == revision {
            break report;
        }
    };
    assert!(!report.created && !report.canceled);
    assert_eq!(watching.hear().await.watch_id, 1, "and again");
    server.stop().await;
}

#[tokio::test]
async fn the_end_of_a_lease_with_many_keys_comes_in_fragments_if_the_client_can_take_them() {
    let server = Running::start().await;
    let channel = server.channel().await;
    grant(&channel, 7, 100).await;
    for at in 0..30_000 {
        let put = PutRequest::new(format!("many/{at:090}"), "").on(leasehold_mvcc::LeaseId::new(7));
        server.etcd.apply(Command::Put(put)).unwrap();
    }
    let mut whole = Watching::open(&channel, watch_prefix("many/")).await;
    let fragment = pb::WatchCreateRequest { fragment: true, ..watch_prefix("many/") };
    let mut pieces = Watching::open(&channel, fragment).await;
    assert!(whole.hear().await.created);
    assert!(pieces.hear().await.created);
    revoke(&channel, 7).await;

    let message = whole.hear().await;
    assert!(!message.fragment);
    assert_eq!(message.events.len(), 30_000);
    let (mut events, mut count) = (Vec::new(), 0);
    loop {
        let piece = pieces.hear().await;
        count += 1;
        assert!(prost::Message::encoded_len(&piece) < 2 << 20);
        assert_eq!(piece.header, message.header);
        events.extend(piece.events);
        if !piece.fragment {
            break;
        }
    }
    assert!(count > 1, "it came in one piece");
    assert_eq!(events, message.events);
    server.stop().await;
}

#[tokio::test]
async fn a_watch_hears_of_a_lease_that_runs_out() {
    let server = Running::start().await;
    let channel = server.channel().await;
    grant(&channel, 7, 2).await;
    put_on(&channel, "leased", 7).await;
    let mut watching = Watching::open(&channel, watch("leased")).await;
    assert!(watching.hear().await.created);
    let gone = watching.hear().await;
    assert_eq!(gone.events[0].r#type, 1, "{gone:?}");
    let time = pb::LeaseTimeToLiveRequest { id: 7, keys: true };
    assert_eq!(support::lease(&channel).lease_time_to_live(time).await.unwrap().into_inner().ttl, -1);
    server.stop().await;
}

#[tokio::test]
async fn a_thousand_watches_share_a_stream_and_miss_nothing() {
    let server = Running::start().await;
    let channel = server.channel().await;
    let mut watching = Watching::open(&channel, watch("k0")).await;
    for at in 1..1000 {
        watching.create(watch(&format!("k{at}")));
    }
    for at in 0..1000 {
        let created = watching.hear().await;
        assert_eq!((created.created, created.watch_id), (true, at));
    }
    for at in (0..1000).step_by(7) {
        put(&channel, &format!("k{at}"), "v").await;
        delete(&channel, &format!("k{at}")).await;
    }
    for at in (0..1000).step_by(7) {
        for _ in 0..2 {
            let message = watching.hear().await;
            assert_eq!((message.watch_id, changed(&message)), (at, vec![format!("k{at}")]));
        }
    }
    server.stop().await;
}

#[tokio::test]
async fn a_stopping_server_ends_its_watches_and_says_why() {
    let server = Running::start().await;
    let channel = server.channel().await;
    let mut watching = Watching::open(&channel, watch("k")).await;
    assert!(watching.hear().await.created);
    let etcd = server.etcd.clone();
    server.stop().await;
    let end = watching.outcome().await.unwrap_err();
    assert_eq!((end.code(), end.message()), (tonic::Code::Unavailable, "etcdserver: server stopped"));
    assert_eq!(etcd.watch_count(), 0);
}

#[tokio::test]
async fn two_clients_see_the_same_order() {
    let server = Running::start().await;
    let (one, two) = (server.channel().await, connect(&server.address.to_string()).await);
    let mut here = Watching::open(&one, watch_prefix("k")).await;
    let mut there = Watching::open(&two, watch_prefix("k")).await;
    assert!(here.hear().await.created && there.hear().await.created);
    let writes = (0..100).map(|at| {
        let channel = if at % 2 == 0 { one.clone() } else { two.clone() };
        tokio::spawn(async move { put(&channel, &format!("k{at}"), "v").await })
    });
    let writes: Vec<_> = writes.collect();
    for write in writes {
        write.await.unwrap();
    }
    let mut last = 0;
    for _ in 0..100 {
        let (a, b) = (here.hear().await, there.hear().await);
        assert_eq!(a.events, b.events);
        let at = a.events[0].kv.as_ref().unwrap().mod_revision;
        assert!(at > last);
        last = at;
    }
    server.stop().await;
}
