//! A server on a real socket, and etcd's generated clients to ask it.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::future::Future;
use std::time::Duration;

use futures_util::stream;
use leasehold::Embedded;
use leasehold_proto::pb::etcdserverpb as pb;
use leasehold_server::{Activity, Address, Server, ServerOptions};
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::watch_client::WatchClient;
use pb::watch_request::RequestUnion;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tonic::transport::{Channel, Endpoint};
use tonic::{Status, Streaming};

/// What no step of a test takes.
pub const TOO_LONG: Duration = Duration::from_secs(10);

/// A server that serves.
pub struct Running {
    pub address: Address,
    pub etcd: Embedded,
    pub activity: Activity,
    stop: Option<oneshot::Sender<()>>,
    served: Option<JoinHandle<()>>,
}

impl Running {
    pub async fn start() -> Self {
        Self::start_with(Embedded::start().unwrap(), ServerOptions::default()).await
    }

    pub async fn start_with(etcd: Embedded, options: ServerOptions) -> Self {
        let server = Server::bind(Address::loopback(0), etcd.clone()).await.unwrap().with_options(options);
        Self::serve(server, etcd)
    }

    pub fn serve(server: Server, etcd: Embedded) -> Self {
        let (address, activity) = (server.address().clone(), server.activity());
        let (stop, stopped) = oneshot::channel::<()>();
        let served = tokio::spawn(server.serve(async move { drop(stopped.await) }));
        Self { address, etcd, activity, stop: Some(stop), served: Some(served) }
    }

    pub async fn channel(&self) -> Channel {
        connect(&self.address.to_string()).await
    }

    /// Tells it to stop.
    pub fn tell_to_stop(&mut self) {
        drop(self.stop.take());
    }

    /// Tells it to stop and waits until it has.
    pub async fn stop(mut self) {
        self.tell_to_stop();
        in_time("the end of the server", self.served.take().unwrap()).await.unwrap();
    }
}

pub async fn connect(endpoint: &str) -> Channel {
    let url = if endpoint.contains("://") { endpoint.to_owned() } else { format!("http://{endpoint}") };
    in_time("a connection", Endpoint::from_shared(url).unwrap().connect()).await.unwrap()
}

/// What `future` gives, which must come soon.
pub async fn in_time<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(TOO_LONG, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} did not come within {TOO_LONG:?}"),
    }
}

/// Looks again and again until it is so. For what no message tells, such as that a server has noticed a reset.
pub async fn until(what: &str, so: impl Fn() -> bool) {
    in_time(what, async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

pub fn kv(channel: &Channel) -> KvClient<Channel> {
    KvClient::new(channel.clone()).max_decoding_message_size(64 << 20)
}

pub fn lease(channel: &Channel) -> LeaseClient<Channel> {
    LeaseClient::new(channel.clone())
}

pub async fn put(channel: &Channel, key: &str, value: &str) -> i64 {
    let request =
        pb::PutRequest { key: key.to_owned().into(), value: value.to_owned().into(), ..Default::default() };
    kv(channel).put(request).await.unwrap().into_inner().header.unwrap().revision
}

pub async fn put_on(channel: &Channel, key: &str, lease: i64) -> i64 {
    let request = pb::PutRequest { key: key.to_owned().into(), lease, ..Default::default() };
    kv(channel).put(request).await.unwrap().into_inner().header.unwrap().revision
}

pub async fn delete(channel: &Channel, key: &str) -> i64 {
    let request = pb::DeleteRangeRequest { key: key.to_owned().into(), ..Default::default() };
    kv(channel).delete_range(request).await.unwrap().into_inner().header.unwrap().revision
}

pub async fn grant(channel: &Channel, id: i64, ttl: i64) -> i64 {
    let request = pb::LeaseGrantRequest { id, ttl };
    lease(channel).lease_grant(request).await.unwrap().into_inner().id
}

pub async fn revoke(channel: &Channel, id: i64) {
    lease(channel).lease_revoke(pb::LeaseRevokeRequest { id }).await.unwrap();
}

/// The keys that start with `prefix`.
pub async fn keys(channel: &Channel, prefix: &str) -> Vec<String> {
    let range = leasehold_mvcc::KeyRange::prefix(prefix.to_owned());
    let request = pb::RangeRequest {
        key: range.start.to_bytes(),
        range_end: range.end.to_bytes(),
        keys_only: true,
        ..Default::default()
    };
    let found = kv(channel).range(request).await.unwrap().into_inner();
    found.kvs.iter().map(|kv| String::from_utf8_lossy(&kv.key).into_owned()).collect()
}

/// A stream of a client's messages, which ends with its sender.
pub fn spoken<T: Send + 'static>()
-> (mpsc::UnboundedSender<T>, impl stream::Stream<Item = T> + Send + 'static) {
    let (say, said) = mpsc::unbounded_channel();
    (say, stream::unfold(said, |mut said| async move { said.recv().await.map(|message| (message, said)) }))
}

/// A watch stream.
pub struct Watching {
    say: Option<mpsc::UnboundedSender<pb::WatchRequest>>,
    messages: Streaming<pb::WatchResponse>,
}

impl Watching {
    /// Opens a stream with a first watch on it: real etcd does not answer at all before it has something to say.
    pub async fn open(channel: &Channel, first: pb::WatchCreateRequest) -> Self {
        let (say, said) = spoken();
        say.send(request(RequestUnion::CreateRequest(first))).unwrap();
        let mut client = WatchClient::new(channel.clone()).max_decoding_message_size(64 << 20);
        let messages = in_time("an open stream", client.watch(said)).await.unwrap().into_inner();
        Self { say: Some(say), messages }
    }

    fn say(&self, union: RequestUnion) {
        self.say.as_ref().expect("the client's half is open").send(request(union)).unwrap();
    }

    pub fn create(&self, create: pb::WatchCreateRequest) {
        self.say(RequestUnion::CreateRequest(create));
    }

    pub fn cancel(&self, watch_id: i64) {
        self.say(RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id }));
    }

    pub fn ask_progress(&self) {
        self.say(RequestUnion::ProgressRequest(pb::WatchProgressRequest {}));
    }

    /// Ends the client's half of the stream.
    pub fn half_close(&mut self) {
        self.say = None;
    }

    /// The next message, or how the stream ended.
    pub async fn outcome(&mut self) -> Result<pb::WatchResponse, Status> {
        let message = in_time("a message", self.messages.message()).await?;
        Ok(message.expect("a watch stream ends with a status"))
    }

    pub async fn hear(&mut self) -> pb::WatchResponse {
        self.outcome().await.unwrap()
    }

    /// The next message, if one comes within the time.
    pub async fn hear_within(&mut self, time: Duration) -> Option<pb::WatchResponse> {
        Some(tokio::time::timeout(time, self.messages.message()).await.ok()?.unwrap().unwrap())
    }
}

fn request(union: RequestUnion) -> pb::WatchRequest {
    pb::WatchRequest { request_union: Some(union) }
}

/// A watch of one key from now on.
pub fn watch(key: &str) -> pb::WatchCreateRequest {
    pb::WatchCreateRequest { key: key.to_owned().into(), ..Default::default() }
}

/// A watch of a prefix from now on.
pub fn watch_prefix(prefix: &str) -> pb::WatchCreateRequest {
    let range = leasehold_mvcc::KeyRange::prefix(prefix.to_owned());
    let (key, range_end) = (range.start.to_bytes(), range.end.to_bytes());
    pb::WatchCreateRequest { key, range_end, ..Default::default() }
}

/// The keys of a message's events.
pub fn changed(message: &pb::WatchResponse) -> Vec<String> {
    let key = |event: &leasehold_proto::pb::mvccpb::Event| {
        String::from_utf8_lossy(&event.kv.as_ref().unwrap().key).into_owned()
    };
    message.events.iter().map(key).collect()
}
