//! What is said in each conversation. Each scene gives what it heard, without what must differ.

use leasehold_proto::pb::etcdserverpb as pb;
use leasehold_proto::pb::{v3electionpb as election, v3lockpb as lock};
use pb::watch_create_request::FilterType;
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::support::{
    self, Watching, delete, grant, in_time, put, put_on, revoke, spoken, watch, watch_prefix,
};

type Heard = Vec<String>;

macro_rules! scenes {
    ($theirs:expr, $ours:expr, [$($scene:ident),* $(,)?]) => {{
        let mut told = Vec::new();
        $(told.push((stringify!($scene), $scene($theirs).await, $scene($ours).await));)*
        told
    }};
}

pub(crate) async fn play(theirs: &Channel, ours: &Channel) -> Vec<(&'static str, Heard, Heard)> {
    scenes!(
        theirs,
        ours,
        [
            a_watch_from_now_on,
            ids_chosen_by_server_and_client,
            a_range_without_keys,
            starts_in_the_past_and_the_future,
            filters_and_previous_values,
            cancelling,
            progress_on_request,
            below_the_compaction,
            leases_that_end,
            renewals_in_one_stream,
            requests_that_are_refused,
            locks_by_the_server,
            elections_by_the_server,
        ]
    )
}

fn told<T: std::fmt::Debug>(outcome: Result<Response<T>, Status>) -> String {
    match outcome {
        Ok(response) => plain(&response.into_inner()),
        Err(status) => format!("{:?}: {}", status.code(), status.message()),
    }
}

/// A message as text, without the ids of cluster and member.
fn plain(message: &impl std::fmt::Debug) -> String {
    let mut text = format!("{message:?}");
    for id in ["cluster_id: ", "member_id: "] {
        while let Some(at) = text.find(id) {
            let end = text[at..].find(',').map_or(text.len(), |comma| at + comma + 2);
            text.replace_range(at..end, "");
        }
    }
    text
}

async fn hear(watching: &mut Watching) -> String {
    match watching.outcome().await {
        Ok(message) => plain(&message),
        Err(status) => told::<()>(Err(status)),
    }
}

async fn a_watch_from_now_on(channel: &Channel) -> Heard {
    let mut watching = Watching::open(channel, watch("now")).await;
    let mut heard = vec![hear(&mut watching).await];
    put(channel, "now", "1").await;
    heard.push(hear(&mut watching).await);
    delete(channel, "now").await;
    heard.push(hear(&mut watching).await);
    heard
}

async fn ids_chosen_by_server_and_client(channel: &Channel) -> Heard {
    let mut watching = Watching::open(channel, watch("id")).await;
    let mut heard = vec![hear(&mut watching).await];
    for id in [0, 2, 2, 0, 0, -1, -7, 1, i64::MAX] {
        watching.create(pb::WatchCreateRequest { watch_id: id, ..watch("id") });
        heard.push(format!("{id}: {}", hear(&mut watching).await));
    }
    watching.cancel(2);
    heard.push(hear(&mut watching).await);
    for id in [2, 0, 0] {
        watching.create(pb::WatchCreateRequest { watch_id: id, ..watch("id") });
        heard.push(format!("{id}: {}", hear(&mut watching).await));
    }
    heard
}

async fn a_range_without_keys(channel: &Channel) -> Heard {
    let mut watching = Watching::open(channel, watch("first")).await;
    let mut heard = vec![hear(&mut watching).await];
    for (key, end) in [("b", "a"), ("b", "b"), ("b", "\0"), ("", ""), ("", "\0"), ("", "a"), ("\0", "\0")] {
        let create = pb::WatchCreateRequest {
            key: key.into(),
            range_end: end.into(),
            ..pb::WatchCreateRequest::default()
        };
        watching.create(create);
        heard.push(format!("{key:?} {end:?}: {}", hear(&mut watching).await));
    }
    heard
}

async fn starts_in_the_past_and_the_future(channel: &Channel) -> Heard {
    let mut heard = Vec::new();
    let first = put(channel, "past", "1").await;
    let second = put(channel, "past", "2").await;
    for start in [first, second, second + 1, second + 3] {
        let mut watching =
            Watching::open(channel, pb::WatchCreateRequest { start_revision: start, ..watch("past") }).await;
        heard.push(hear(&mut watching).await);
        if start <= second {
            // Whether etcd sends the past in one message or in several is a matter of its rounds: events count.
            let mut events = Vec::new();
            while events.len() < usize::try_from(second - start + 1).unwrap() {
                events.extend(watching.hear().await.events.iter().map(plain));
            }
            heard.extend(events);
        }
    }
    // A watch from the future passes over what comes before.
    let start_revision = second + 2;
    let mut future =
        Watching::open(channel, pb::WatchCreateRequest { start_revision, ..watch("past") }).await;
    heard.push(hear(&mut future).await);
    put(channel, "past", "too early").await;
    put(channel, "past", "in time").await;
    heard.push(hear(&mut future).await);
    heard
}

async fn filters_and_previous_values(channel: &Channel) -> Heard {
    let mut heard = Vec::new();
    let with = |filters: &[FilterType]| pb::WatchCreateRequest {
        filters: filters.iter().map(|filter| i32::from(*filter)).collect(),
        prev_kv: true,
        ..watch("filter")
    };
    let mut puts = Watching::open(channel, with(&[FilterType::Nodelete])).await;
    let mut deletes = Watching::open(channel, with(&[FilterType::Noput])).await;
    let mut both = Watching::open(channel, with(&[])).await;
    for watching in [&mut puts, &mut deletes, &mut both] {
        heard.push(hear(watching).await);
    }
    put(channel, "filter", "1").await;
    put(channel, "filter", "2").await;
    delete(channel, "filter").await;
    put(channel, "filter", "3").await;
    for (watching, count) in [(&mut puts, 3), (&mut deletes, 1), (&mut both, 4)] {
        let mut events = Vec::new();
        while events.len() < count {
            events.extend(watching.hear().await.events.iter().map(plain));
        }
        heard.extend(events);
    }
    heard
}

async fn cancelling(channel: &Channel) -> Heard {
    let mut watching = Watching::open(channel, watch("cancel")).await;
    let mut heard = vec![hear(&mut watching).await];
    watching.cancel(5);
    watching.cancel(-1);
    watching.cancel(0);
    heard.push(hear(&mut watching).await);
    watching.cancel(0);
    watching.create(watch("cancel"));
    heard.push(hear(&mut watching).await);
    put(channel, "cancel", "1").await;
    heard.push(hear(&mut watching).await);
    heard
}

async fn progress_on_request(channel: &Channel) -> Heard {
    let mut watching = Watching::open(channel, watch("progress")).await;
    let mut heard = vec![hear(&mut watching).await];
    put(channel, "progress", "1").await;
    heard.push(hear(&mut watching).await);
    put(channel, "elsewhere", "1").await;
    watching.ask_progress();
    heard.push(hear(&mut watching).await);
    heard
}

async fn below_the_compaction(channel: &Channel) -> Heard {
    put(channel, "compact", "1").await;
    let at = put(channel, "compact", "2").await;
    put(channel, "compact", "3").await;
    let compaction = pb::CompactionRequest { revision: at, physical: false };
    let mut heard = vec![told(support::kv(channel).compact(compaction).await)];
    let from = |start_revision| pb::WatchCreateRequest { start_revision, ..watch("compact") };
    let mut watching = Watching::open(channel, from(at - 1)).await;
    heard.push(hear(&mut watching).await);
    heard.push(hear(&mut watching).await);
    // The stream lives, and the id can be had again.
    watching.create(from(at));
    heard.push(hear(&mut watching).await);
    let mut events = Vec::new();
    while events.len() < 2 {
        events.extend(watching.hear().await.events.iter().map(plain));
    }
    heard.extend(events);
    heard
}

async fn renewals_in_one_stream(channel: &Channel) -> Heard {
    grant(channel, 71, 100).await;
    grant(channel, 72, 200).await;
    let (say, said) = spoken();
    for id in [71, 99, 72, 0] {
        say.send(pb::LeaseKeepAliveRequest { id }).unwrap();
    }
    let mut answers = support::lease(channel).lease_keep_alive(said).await.unwrap().into_inner();
    let mut heard = Vec::new();
    for _ in 0..4 {
        heard.push(plain(&in_time("an answer", answers.message()).await.unwrap()));
    }
    drop(say);
    heard.push(plain(&in_time("the end", answers.message()).await.unwrap()));
    revoke(channel, 71).await;
    revoke(channel, 72).await;
    heard
}

async fn requests_that_are_refused(channel: &Channel) -> Heard {
    let (mut kv, mut lease) = (support::kv(channel), support::lease(channel));
    let big =
        |size: usize| pb::PutRequest { key: "big".into(), value: vec![7; size].into(), ..Default::default() };
    let ops = |count| pb::TxnRequest {
        success: (0..count).map(|n| read(&format!("k{n}"))).collect(),
        ..pb::TxnRequest::default()
    };
    let mut heard = vec![
        told(kv.put(pb::PutRequest::default()).await),
        told(kv.range(pb::RangeRequest::default()).await),
        told(kv.txn(pb::TxnRequest { success: vec![pb::RequestOp::default()], ..Default::default() }).await),
        told(kv.txn(ops(1)).await),
        told(kv.txn(ops(129)).await),
        told(kv.put(big(3 << 19)).await),
        told(kv.put(big(2 << 20)).await),
        told(kv.put(big(3 << 20)).await),
        told(kv.put(pb::PutRequest { key: "k".into(), lease: 12345, ..Default::default() }).await),
        told(lease.lease_revoke(pb::LeaseRevokeRequest { id: 12345 }).await),
        told(lease.lease_time_to_live(pb::LeaseTimeToLiveRequest { id: 12345, keys: true }).await),
        told(lease.lease_grant(pb::LeaseGrantRequest { id: 77, ttl: 9_000_000_001 }).await),
        told(lease.lease_grant(pb::LeaseGrantRequest { id: 77, ttl: 0 }).await),
        told(lease.lease_grant(pb::LeaseGrantRequest { id: 78, ttl: -5 }).await),
        told(lease.lease_grant(pb::LeaseGrantRequest { id: 79, ttl: 100 }).await),
        told(lease.lease_grant(pb::LeaseGrantRequest { id: 79, ttl: 100 }).await),
        told(lease.lease_leases(pb::LeaseLeasesRequest {}).await),
    ];
    for id in [77, 78, 79] {
        heard.push(told(lease.lease_revoke(pb::LeaseRevokeRequest { id }).await));
    }
    heard
}

fn read(key: &str) -> pb::RequestOp {
    let request = pb::RangeRequest { key: key.to_owned().into(), ..Default::default() };
    pb::RequestOp { request: Some(pb::request_op::Request::RequestRange(request)) }
}

async fn locks_by_the_server(channel: &Channel) -> Heard {
    let mut client = lock::lock_client::LockClient::new(channel.clone());
    let request = |lease| lock::LockRequest { name: "lock".into(), lease };
    grant(channel, 0x51, 100).await;
    grant(channel, 0x52, 100).await;
    let mut heard = vec![
        told(client.lock(request(0x51)).await),
        told(client.lock(request(0x51)).await),
        told(client.lock(request(0x5ff)).await),
    ];
    let mut second = client.clone();
    let queued = tokio::spawn(async move { second.lock(request(0x52)).await });
    while support::keys(channel, "lock/").await.len() < 2 {}
    heard.push(format!("{:?}", support::keys(channel, "lock/").await));
    heard.push(told(client.unlock(lock::UnlockRequest { key: "lock/51".into() }).await));
    heard.push(told(in_time("the turn", queued).await.unwrap()));
    heard.push(told(client.unlock(lock::UnlockRequest { key: "lock/52".into() }).await));
    heard.push(told(client.unlock(lock::UnlockRequest { key: "lock/52".into() }).await));
    heard.push(told(client.unlock(lock::UnlockRequest::default()).await));
    // A lock of a prefix that another name has as well.
    heard.push(told(client.lock(lock::LockRequest { name: "".into(), lease: 0x51 }).await));
    revoke(channel, 0x51).await;
    revoke(channel, 0x52).await;
    heard
}

async fn elections_by_the_server(channel: &Channel) -> Heard {
    let mut client = election::election_client::ElectionClient::new(channel.clone());
    grant(channel, 0x61, 100).await;
    grant(channel, 0x62, 100).await;
    let campaign = |lease, value: &'static str| election::CampaignRequest {
        name: "vote".into(),
        lease,
        value: value.into(),
    };
    let who = || election::LeaderRequest { name: "vote".into() };
    let mut heard = vec![told(client.leader(who()).await)];
    let elected = client.campaign(campaign(0x61, "one")).await;
    heard.push(told(elected));
    heard.push(told(client.leader(who()).await));
    let mut view = client.observe(who()).await.unwrap().into_inner();
    heard.push(plain(&in_time("the leader", view.message()).await.unwrap()));

    let leader = election::LeaderKey { name: "vote".into(), key: "vote/61".into(), rev: 0, lease: 0x61 };
    let found = client.leader(who()).await.unwrap().into_inner().kv.unwrap();
    let leader = election::LeaderKey { rev: found.create_revision, ..leader };
    let proclaim = |leader: Option<election::LeaderKey>, value: &'static str| election::ProclaimRequest {
        leader,
        value: value.into(),
    };
    heard.push(told(client.proclaim(proclaim(Some(leader.clone()), "uno")).await));
    heard.push(plain(&in_time("the value", view.message()).await.unwrap()));
    heard.push(told(client.proclaim(proclaim(None, "x")).await));
    let stale = election::LeaderKey { rev: leader.rev - 1, ..leader.clone() };
    heard.push(told(client.proclaim(proclaim(Some(stale.clone()), "x")).await));
    heard.push(told(client.resign(election::ResignRequest { leader: Some(stale) }).await));
    heard.push(told(client.resign(election::ResignRequest::default()).await));
    // The header is newer than etcd's, which is that of the entry: only what was elected must agree.
    heard.push(plain(&client.campaign(campaign(0x61, "again")).await.unwrap().into_inner().leader));
    heard.push(plain(&in_time("the value", view.message()).await.unwrap()));
    heard.push(told(client.campaign(campaign(0x6ff, "dead")).await));

    let mut second = client.clone();
    let queued = tokio::spawn(async move { second.campaign(campaign(0x62, "two")).await });
    while support::keys(channel, "vote/").await.len() < 2 {}
    heard.push(told(client.resign(election::ResignRequest { leader: Some(leader) }).await));
    let elected = in_time("the turn", queued).await.unwrap().unwrap().into_inner();
    heard.push(plain(&elected.leader));
    heard.push(plain(&in_time("the next", view.message()).await.unwrap()));
    revoke(channel, 0x61).await;
    revoke(channel, 0x62).await;
    heard
}

// Leased keys go in one message, one for each revision.
async fn leases_that_end(channel: &Channel) -> Heard {
    let mut watching = Watching::open(channel, watch_prefix("leased/")).await;
    let mut heard = vec![hear(&mut watching).await];
    grant(channel, 0x81, 100).await;
    put_on(channel, "leased/b", 0x81).await;
    put_on(channel, "leased/a", 0x81).await;
    revoke(channel, 0x81).await;
    for _ in 0..3 {
        heard.push(hear(&mut watching).await);
    }
    heard
}
