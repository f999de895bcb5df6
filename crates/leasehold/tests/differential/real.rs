//! Etcd's side: a server of its own, over the real wire.
//!
//! What the library's client can ask is asked through it, so that its way there and back is compared too; the rest,
//! and what a watch stream says word by word, is asked with the bare stubs.

use std::collections::BTreeMap;
use std::future::Future;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use leasehold::etcd::{Etcd, Updates, WatchUpdate};
use leasehold::{Error, Remote};
use leasehold_mvcc::{
    Answer, Command, DeleteRequest, Header, KeyRange, LeaseGrantRequest, LeaseId, RangeRequest, Revision,
    StoreError, WatchId, WatchRequest, WatchResponse,
};
use leasehold_proto::pb::etcdserverpb as pb;
use leasehold_proto::{Call, Request, WatchCommand, WatchCreate, code_from_number};
use leasehold_testbed::{Options, RealEtcd, Version};
use pb::kv_client::KvClient;
use pb::lease_client::LeaseClient;
use pb::watch_client::WatchClient;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::{Response, Status};

use crate::connection::Connection;
use crate::embedded::empty;
use crate::known::header;
use crate::operation::Origin;
use crate::side::{FirstWord, Followed, Reference, Side, Told, Way, deliver, is_steady};

/// Large values come several at a time.
const LARGEST_ANSWER: usize = 64 << 20;
/// No answer of a server that lives takes so long.
const TOO_LONG: Duration = Duration::from_secs(20);
/// How long an event may take that the other side had. It is sent before the write is answered, so this is generous.
const LATE: Duration = Duration::from_secs(2);
/// After this long what was done is in etcd's backend, which is written every 100 ms.
const WRITTEN: Duration = Duration::from_millis(300);

pub(crate) struct Real {
    runtime: Runtime,
    server: RealEtcd,
    remote: Remote,
    connection: Connection,
    streams: BTreeMap<Way, Line>,
    updates: BTreeMap<usize, Updates>,
    followed: Vec<Followed>,
    /// Whether anything was ever asked of this store.
    used: bool,
    /// The revision of the last answer.
    now: Revision,
}

/// A watch stream.
struct Line {
    say: UnboundedSender<pb::WatchRequest>,
    heard: UnboundedReceiver<WatchResponse>,
}

impl Real {
    /// `None` if there is no such etcd here.
    pub(crate) fn start(version: Version) -> Option<Self> {
        // Refusals are half of what is asked for here; its log would be full of them.
        let options = Options { args: vec!["--log-level=error".into()], ..Options::default() };
        let server = RealEtcd::start(version, options)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.expect("the machine gives a runtime");
        let remote = Remote::connect(server.endpoint()).expect("the endpoint is usable");
        let connection = runtime.block_on(Connection::open(&server.endpoint()));
        let (streams, updates, followed) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let (used, now) = (false, Revision::ZERO);
        Some(Self { runtime, server, remote, connection, streams, updates, followed, used, now })
    }

    fn send(&self, command: Command) -> Result<Answer, StoreError> {
        let remote = &self.remote;
        match command {
            Command::Range(request) => by_client(self.in_time(remote.range(request)), Answer::Range),
            Command::Txn(txn) => by_client(self.in_time(remote.txn(txn)), Answer::Txn),
            Command::LeaseGrant(request) => {
                by_client(self.in_time(remote.lease_grant(request)), Answer::LeaseGrant)
            }
            Command::LeaseKeepAlive(id) => {
                by_client(self.in_time(remote.lease_keep_alive(id)), Answer::LeaseKeepAlive)
            }
            Command::LeaseRevoke(id) => by_client(self.in_time(remote.lease_revoke(id)), Answer::LeaseRevoke),
            Command::LeaseTimeToLive(id, keys) => {
                by_client(self.in_time(remote.lease_time_to_live(id, keys)), Answer::LeaseTimeToLive)
            }
            other => self.ask(other),
        }
    }

    /// Calls by the bare stubs.
    fn ask(&self, command: Command) -> Result<Answer, StoreError> {
        let (connection, origin) = (self.connection.clone(), self.connection.origin.clone());
        let mut lease = LeaseClient::with_origin(connection.clone(), origin.clone());
        let mut kv = KvClient::with_origin(connection, origin).max_decoding_message_size(LARGEST_ANSWER);
        let request = Request::from_command(command).expect("etcd can be asked that");
        self.in_time(async move {
            match request {
                Request::Put(request) => answer::<pb::PutRequest>(kv.put(request).await),
                Request::DeleteRange(request) => {
                    answer::<pb::DeleteRangeRequest>(kv.delete_range(request).await)
                }
                Request::Compact(request) => answer::<pb::CompactionRequest>(kv.compact(request).await),
                Request::LeaseLeases(request) => {
                    answer::<pb::LeaseLeasesRequest>(lease.lease_leases(request).await)
                }
                other => panic!("the library's client can ask {other:?}"),
            }
        })
    }

    fn in_time<T>(&self, future: impl Future<Output = T>) -> T {
        let limited = async { tokio::time::timeout(TOO_LONG, future).await };
        self.runtime.block_on(limited).unwrap_or_else(|_| panic!("etcd does not answer"))
    }

    fn say(&mut self, way: Way, command: WatchCommand) {
        let (runtime, connection) = (&self.runtime, &self.connection);
        let line = self.streams.entry(way).or_insert_with(|| open(runtime, connection.clone()));
        line.say.send(command.into()).expect("the stream is open");
    }

    /// The next message of a stream, if one comes within that time.
    fn hear(&mut self, way: Way, within: Duration) -> Option<WatchResponse> {
        let heard = &mut self.streams.get_mut(&way)?.heard;
        let message = self.runtime.block_on(async { tokio::time::timeout(within, heard.recv()).await });
        message.ok().map(|message| message.expect("the watch stream stands"))
    }

    /// The next message that is as wanted; those before it are delivered.
    fn hear_until(&mut self, way: Way, wanted: fn(&WatchResponse) -> bool) -> WatchResponse {
        loop {
            let message = self.hear(way, TOO_LONG).expect("etcd answers");
            if wanted(&message) {
                return message;
            }
            deliver(&mut self.followed, way, message);
        }
    }

    /// Waits until the steady stream says it is complete.
    fn progress(&mut self) -> Revision {
        let start = Instant::now();
        loop {
            // Etcd passes over the question while a watch still has to catch up, and does not come back to it.
            self.say(Way::Steady, WatchCommand::Progress);
            while let Some(message) = self.hear(Way::Steady, Duration::from_millis(20)) {
                let is_progress = message.watch_id == WatchId::new(-1) && !message.created;
                // One from before is the late answer to a question that was asked twice.
                if is_progress && message.header.revision >= self.now {
                    return message.header.revision;
                }
                deliver(&mut self.followed, Way::Steady, message);
            }
            assert!(start.elapsed() < TOO_LONG, "etcd does not say how far its watches are");
        }
    }

    /// Waits until a watch has been told as much as expected.
    fn catch_up(&mut self, watch: usize, expected: &Told) {
        let start = Instant::now();
        loop {
            let Followed { way, told, .. } = &self.followed[watch];
            let (way, left) = (*way, LATE.saturating_sub(start.elapsed()));
            let has_all =
                told.events.len() >= expected.events.len() && told.end.is_some() >= expected.end.is_some();
            if has_all || left.is_zero() {
                return;
            }
            if way != Way::Trait {
                if let Some(message) = self.hear(way, left) {
                    deliver(&mut self.followed, way, message);
                }
            } else if let Some(updates) = self.updates.get_mut(&watch) {
                let next = async { tokio::time::timeout(left, updates.next()).await };
                if let Ok(Some(update)) = self.runtime.block_on(next)
                    && self.followed[watch].told.update(update)
                {
                    self.updates.remove(&watch);
                }
            } else {
                return;
            }
        }
    }

    fn reconnect(&mut self) {
        self.hang_up();
        self.connection = self.runtime.block_on(Connection::open(&self.server.endpoint()));
    }

    fn first_update(&mut self, request: WatchRequest) -> (Result<WatchUpdate, String>, Updates) {
        let mut updates = self.remote.watch(request);
        let first = self.in_time(updates.next()).expect("a watch begins with a word");
        (first.map_err(|error| error.to_string()), updates)
    }
}

fn open(runtime: &Runtime, connection: Connection) -> Line {
    let (say, said) = unbounded_channel();
    let (tell, heard) = unbounded_channel();
    let said = stream::unfold(said, |mut said: UnboundedReceiver<pb::WatchRequest>| async move {
        said.recv().await.map(|message| (message, said))
    });
    runtime.spawn(async move {
        // Etcd opens its half only when it has something to say.
        let origin = connection.origin.clone();
        let mut client =
            WatchClient::with_origin(connection, origin).max_decoding_message_size(LARGEST_ANSWER);
        let Ok(answers) = client.watch(said).await else { return };
        let mut answers = answers.into_inner();
        while let Ok(Some(message)) = answers.message().await {
            let message = WatchResponse::try_from(message).expect("etcd's messages can be read");
            if tell.send(message).is_err() {
                return;
            }
        }
    });
    Line { say, heard }
}

fn answer<R: Call>(response: Result<Response<R::Response>, Status>) -> Result<Answer, StoreError> {
    match response {
        Ok(response) => Ok(R::answer(response.into_inner()).expect("etcd's answers can be read")),
        Err(status) => Err(StoreError::new(code_from_number(status.code().into()), status.message())),
    }
}

/// The answer of a call of the library's client.
fn by_client<T>(outcome: Result<T, Error>, wrap: fn(T) -> Answer) -> Result<Answer, StoreError> {
    match outcome {
        Ok(answer) => Ok(wrap(answer)),
        Err(Error::Refused { source, .. }) => Err(source),
        Err(other) => panic!("no answer of etcd's: {other}"),
    }
}

impl Side for Real {
    fn call(&mut self, command: Command) -> Result<Answer, StoreError> {
        self.used = true;
        let mut outcome = self.send(command);
        if let Ok(answer) = &mut outcome {
            self.now = header(answer).revision;
        }
        outcome
    }

    fn watch(&mut self, way: Way, request: WatchRequest) -> FirstWord {
        if way == Way::Trait {
            let (first, updates) = self.first_update(request);
            if first.is_ok() {
                self.updates.insert(self.followed.len(), updates);
            }
            self.followed.push(Followed::by_trait(&first));
            return FirstWord::Trait(first);
        }
        self.say(way, WatchCommand::Create(WatchCreate { request, ..WatchCreate::default() }));
        let created = self.hear_until(way, |message| message.created);
        self.followed.push(Followed::on_stream(way, &created));
        FirstWord::Stream(created)
    }

    fn cancel(&mut self, watch: usize) -> WatchResponse {
        let Followed { way, id, .. } = self.followed[watch];
        self.say(way, WatchCommand::Cancel(id));
        let canceled = self.hear_until(way, |message| message.canceled);
        deliver(&mut self.followed, way, canceled.clone());
        canceled
    }

    fn settle(&mut self, expected: &[Told]) -> Option<Revision> {
        let complete = is_steady(&self.followed).then(|| self.progress());
        for (watch, expected) in expected.iter().enumerate() {
            if self.followed[watch].way != Way::Steady {
                self.catch_up(watch, expected);
            }
        }
        complete
    }

    fn told(&self) -> Vec<Told> {
        self.followed.iter().map(|watch| watch.told.clone()).collect()
    }

    fn hang_up(&mut self) {
        self.streams.clear();
        self.updates.clear();
        self.followed.clear();
    }
}

impl Reference for Real {
    fn begin(&mut self, origin: Origin) -> Header {
        self.hang_up();
        match origin {
            Origin::Fresh if self.used => {
                self.server.wipe_and_restart();
                self.reconnect();
                self.used = false;
            }
            Origin::Fresh => {}
            Origin::Emptied => {
                let Ok(Answer::Leases(all)) = self.call(Command::Leases) else {
                    panic!("leases can be listed")
                };
                for lease in all.leases {
                    self.call(Command::LeaseRevoke(lease)).expect("what is listed can be revoked");
                }
                let all = DeleteRequest::range(KeyRange::all());
                self.call(Command::Delete(all)).expect("all keys can be deleted");
                empty(&mut |command| self.call(command));
            }
        }
        let read = self.call(Command::Range(RangeRequest::key("mark")));
        self.used = origin == Origin::Emptied;
        let Ok(Answer::Range(read)) = read else { panic!("a key can be read") };
        read.header
    }

    /// With nothing left to be replayed: etcd 3.5 replays even what it refused since its last write to disk, and then
    /// carries out the puts of a transaction that it had refused for reading a compacted revision.
    fn restart(&mut self) {
        let lease = LeaseGrantRequest { ttl: 1000, id: LeaseId::new(99) };
        self.call(Command::LeaseGrant(lease)).expect("the lease is new");
        self.call(Command::LeaseRevoke(lease.id)).expect("the lease is there");
        std::thread::sleep(WRITTEN);
        self.server.restart();
        self.reconnect();
    }
}
