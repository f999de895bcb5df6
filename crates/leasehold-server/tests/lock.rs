//! The lock and election services over a real socket.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a client of the wire, on real time; a failure is a panic"
)]

mod support;

use leasehold_proto::pb::etcdserverpb as pb;
use leasehold_proto::pb::v3electionpb::{CampaignRequest, LeaderRequest, election_client::ElectionClient};
use leasehold_proto::pb::v3lockpb::{LockRequest, UnlockRequest, lock_client::LockClient};
use support::{Running, grant, in_time, keys, revoke};
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Code, Status};

fn client(channel: &Channel) -> LockClient<Channel> {
    LockClient::new(channel.clone())
}

/// Asks for the lock, in the background.
fn queue(channel: &Channel, name: &'static str, lease: i64) -> JoinHandle<Result<String, Status>> {
    let mut client = client(channel);
    tokio::spawn(async move {
        let answer = client.lock(LockRequest { name: name.into(), lease }).await?;
        Ok(String::from_utf8(answer.into_inner().key.to_vec()).unwrap())
    })
}

async fn lock(channel: &Channel, name: &'static str, lease: i64) -> String {
    in_time("the lock", queue(channel, name, lease)).await.unwrap().unwrap()
}

async fn unlock(channel: &Channel, key: &str) {
    client(channel).unlock(UnlockRequest { key: key.to_owned().into() }).await.unwrap();
}

/// Waits until so many stand in the line.
async fn in_line(channel: &Channel, prefix: &str, count: usize) {
    in_time("the line", async { while keys(channel, prefix).await.len() != count {} }).await;
}

async fn leases(channel: &Channel) -> Vec<i64> {
    let all = support::lease(channel).lease_leases(pb::LeaseLeasesRequest {}).await.unwrap();
    all.into_inner().leases.iter().map(|lease| lease.id).collect()
}

#[tokio::test]
async fn the_lock_goes_from_one_to_the_next_in_order_of_arrival() {
    let server = Running::start().await;
    let channel = server.channel().await;
    for id in 1..=4 {
        grant(&channel, id, 100).await;
    }
    assert_eq!(lock(&channel, "job", 1).await, "job/1");
    let mut waiting = Vec::new();
    for (before, id) in [(1, 4), (2, 2), (3, 3)] {
        in_line(&channel, "job/", before).await;
        waiting.push((id, queue(&channel, "job", id)));
    }
    in_line(&channel, "job/", 4).await;
    let mut holder = "job/1".to_owned();
    for (id, turn) in waiting {
        assert!(!turn.is_finished());
        unlock(&channel, &holder).await;
        holder = in_time("the turn", turn).await.unwrap().unwrap();
        assert_eq!(holder, format!("job/{id}"));
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_queued_calls_that_are_given_up_leave_no_key_no_watch_and_no_lease_of_the_servers() {
    let server = Running::start().await;
    let channel = server.channel().await;
    for id in 1..=500 {
        grant(&channel, id, 100).await;
    }
    assert_eq!(lock(&channel, "job", 1).await, "job/1");
    // On one connection: neither a limit of streams nor one of resets may stop them. Of lease 0 each makes its own.
    let leases_of_calls = (2..=500).chain([0; 501]);
    let waiting: Vec<_> = leases_of_calls.map(|id| queue(&channel, "job", id)).collect();
    in_line(&channel, "job/", 1001).await;
    for call in &waiting {
        call.abort();
    }
    in_line(&channel, "job/", 1).await;
    in_time("the end of the server's leases", async { while leases(&channel).await.len() != 500 {} }).await;
    support::until("the end of the watches", || server.etcd.watch_count() == 0).await;
    // And the connection is as good as ever.
    unlock(&channel, "job/1").await;
    assert_eq!(lock(&channel, "job", 1).await, "job/1");
    server.stop().await;
}

#[tokio::test]
async fn a_waiter_whose_lease_dies_is_told_at_once() {
    let server = Running::start().await;
    let channel = server.channel().await;
    grant(&channel, 1, 100).await;
    grant(&channel, 2, 100).await;
    lock(&channel, "job", 1).await;
    let waiting = queue(&channel, "job", 2);
    in_line(&channel, "job/", 2).await;
    revoke(&channel, 2).await;
    let refused = in_time("the refusal", waiting).await.unwrap().unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::Unknown, "mutex: session is expired"));
    assert_eq!(keys(&channel, "job/").await, ["job/1"]);
    server.stop().await;
}

#[tokio::test]
async fn a_holder_whose_lease_dies_makes_way() {
    let server = Running::start().await;
    let channel = server.channel().await;
    grant(&channel, 1, 2).await;
    grant(&channel, 2, 100).await;
    lock(&channel, "job", 1).await;
    assert_eq!(lock(&channel, "job", 2).await, "job/2");
    server.stop().await;
}

/// C23: as etcd does.
#[tokio::test]
async fn without_a_lease_the_server_makes_one_of_a_minute() {
    let server = Running::start().await;
    let channel = server.channel().await;
    let key = lock(&channel, "job", 0).await;
    let id = leases(&channel).await[0];
    assert_eq!(key, format!("job/{id:x}"));
    let time = pb::LeaseTimeToLiveRequest { id, keys: true };
    let time = support::lease(&channel).lease_time_to_live(time).await.unwrap().into_inner();
    assert_eq!((time.granted_ttl, time.keys), (60, vec![key.into()]));
    server.stop().await;
}

#[tokio::test]
async fn giving_up_a_second_call_of_one_lease_does_not_take_the_first_ones_lock() {
    let server = Running::start().await;
    let channel = server.channel().await;
    for id in 1..=2 {
        grant(&channel, id, 100).await;
    }
    lock(&channel, "job", 1).await;
    let first = queue(&channel, "job", 2);
    in_line(&channel, "job/", 2).await;
    let watches = server.etcd.watch_count();
    let second = queue(&channel, "job", 2);
    support::until("the second call", || server.etcd.watch_count() > watches).await;
    second.abort();
    support::until("the end of the second call", || server.etcd.watch_count() == watches).await;
    assert_eq!(keys(&channel, "job/").await, ["job/1", "job/2"]);
    unlock(&channel, "job/1").await;
    assert_eq!(in_time("the turn", first).await.unwrap().unwrap(), "job/2");
    server.stop().await;
}

#[tokio::test]
async fn a_stopping_server_sends_the_queued_home() {
    let server = Running::start().await;
    let channel = server.channel().await;
    grant(&channel, 1, 100).await;
    lock(&channel, "job", 1).await;
    let waiting = queue(&channel, "job", 0);
    in_line(&channel, "job/", 2).await;
    let etcd = server.etcd.clone();
    server.stop().await;
    let refused = in_time("the refusal", waiting).await.unwrap().unwrap_err();
    assert_eq!((refused.code(), refused.message()), (Code::Unavailable, "etcdserver: server stopped"));
    let rest = etcd.apply(leasehold_mvcc::Command::Leases).unwrap();
    assert!(
        matches!(rest, leasehold_mvcc::Answer::Leases(all) if all.leases.len() == 1),
        "the holder's is left"
    );
}

#[tokio::test]
async fn a_candidate_that_gives_up_is_out_and_observers_see_each_leader() {
    let server = Running::start().await;
    let channel = server.channel().await;
    for id in 1..=3 {
        grant(&channel, id, 100).await;
    }
    let run = |lease: i64| {
        let mut client = ElectionClient::new(channel.clone());
        let campaign = CampaignRequest { name: "vote".into(), lease, value: format!("v{lease}").into() };
        tokio::spawn(async move { client.campaign(campaign).await.unwrap() })
    };
    let mut client = ElectionClient::new(channel.clone());
    let mut view = client.observe(LeaderRequest { name: "vote".into() }).await.unwrap().into_inner();
    in_time("the first leader", run(1)).await.unwrap();
    let gives_up = run(2);
    in_line(&channel, "vote/", 2).await;
    let next = run(3);
    in_line(&channel, "vote/", 3).await;
    gives_up.abort();
    in_line(&channel, "vote/", 2).await;
    revoke(&channel, 1).await;
    in_time("the next leader", next).await.unwrap();
    for value in ["v1", "v3"] {
        let seen = in_time("a leader", view.message()).await.unwrap().unwrap();
        assert_eq!(seen.kv.unwrap().value, value);
    }
    server.stop().await;
}
