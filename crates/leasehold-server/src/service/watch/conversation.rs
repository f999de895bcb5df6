//! What is said on one watch stream, both ways.

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::future::Either;
use leasehold::Embedded;
use leasehold::etcd::{Etcd, WatchControl, WatchStream};
use leasehold::runtime::Runtime;
use leasehold_mvcc::{WatchId, WatchResponse};
use leasehold_proto::pb::etcdserverpb as pb;
use leasehold_proto::{WatchCommand, WatchCreate};
use tokio_util::sync::CancellationToken;
use tonic::{Status, Streaming};

use super::pieces::split;
use crate::stopping::stopped;
use leasehold::runtime::race;

pub(super) struct Conversation {
    control: WatchControl,
    messages: WatchStream,
    /// What the client still has to say; nothing once it has ended its half, which ends no watch.
    requests: Option<Streaming<pb::WatchRequest>>,
    runtime: Arc<dyn Runtime>,
    stopping: CancellationToken,
    /// What a watch wants beyond what the store knows of.
    wishes: BTreeMap<WatchId, Wishes>,
    progress_interval: Duration,
    /// When to report progress next, while any watch wants it.
    tick: Option<BoxFuture<'static, ()>>,
    /// Whether the client is listened to before it is told, or the other way round: they take turns, so that neither a
    /// flood of events nor one of requests keeps the other waiting.
    listen_first: bool,
    /// What must be sent before anything else: the rest of a message too large for one piece.
    pieces: VecDeque<pb::WatchResponse>,
}

#[derive(Clone, Copy, Debug)]
struct Wishes {
    fragment: bool,
    progress: bool,
    /// Whether events came since the last report, which makes the next one needless.
    fresh: bool,
}

enum Heard {
    Request(Option<pb::WatchRequest>),
    Message(WatchResponse),
    Tick,
}

impl Conversation {
    pub(super) fn new(
        etcd: &Embedded,
        requests: Streaming<pb::WatchRequest>,
        progress_interval: Duration,
        stopping: CancellationToken,
    ) -> Self {
        let (control, messages) = etcd.watch_stream();
        Self {
            control,
            messages,
            requests: Some(requests),
            runtime: etcd.runtime(),
            stopping,
            wishes: BTreeMap::new(),
            progress_interval,
            tick: None,
            listen_first: false,
            pieces: VecDeque::new(),
        }
    }

    /// The next message to the client, or why the stream ends.
    pub(super) async fn next(&mut self) -> Result<pb::WatchResponse, Status> {
        loop {
            if let Some(piece) = self.pieces.pop_front() {
                return Ok(piece);
            }
            match self.hear().await? {
                Heard::Request(Some(request)) => self.take(request),
                Heard::Request(None) => self.requests = None,
                Heard::Message(message) => self.put(message),
                Heard::Tick => self.report(),
            }
        }
    }

    /// Waits for what comes next, from any side.
    async fn hear(&mut self) -> Result<Heard, Status> {
        self.listen_first = !self.listen_first;
        let request = async {
            match &mut self.requests {
                Some(requests) => requests.message().await.map(Heard::Request),
                None => pending().await,
            }
        };
        let message = async { self.messages.next().await.map(Heard::Message).ok_or_else(stopped) };
        let sides = async {
            if self.listen_first {
                either(race(request, message).await)
            } else {
                either(race(message, request).await)
            }
        };
        let tick = async {
            match &mut self.tick {
                Some(tick) => tick.await,
                None => pending().await,
            }
            Ok(Heard::Tick)
        };
        match race(self.stopping.cancelled(), race(sides, tick)).await {
            Either::Left(()) => Err(stopped()),
            Either::Right(heard) => either(heard),
        }
    }

    fn take(&mut self, request: pb::WatchRequest) {
        match WatchCommand::from_message(request) {
            Some(WatchCommand::Create(create)) => self.create(create),
            Some(WatchCommand::Cancel(id)) => {
                self.wishes.remove(&id);
                self.control.cancel(id);
            }
            Some(WatchCommand::Progress) => self.control.progress(),
            None => {}
        }
    }

    fn create(&mut self, create: WatchCreate) {
        let WatchCreate { request, id, fragment } = create;
        let progress = request.progress_notify;
        let opened = match id {
            Some(id) => self.control.create_as(id, request),
            None => self.control.create(request),
        };
        let Some(id) = opened else { return };
        if fragment || progress {
            self.wishes.insert(id, Wishes { fragment, progress, fresh: false });
        }
        if progress && self.tick.is_none() {
            self.wind_up();
        }
    }

    fn put(&mut self, message: WatchResponse) {
        let mut fragment = false;
        if message.canceled {
            self.wishes.remove(&message.watch_id);
        } else if let Some(wishes) = self.wishes.get_mut(&message.watch_id) {
            wishes.fresh |= !message.events.is_empty();
            fragment = wishes.fragment;
        }
        let message = pb::WatchResponse::from(message);
        if fragment {
            self.pieces.extend(split(message));
        } else {
            self.pieces.push_back(message);
        }
    }

    fn report(&mut self) {
        for (id, wishes) in self.wishes.iter_mut().filter(|(_, wishes)| wishes.progress) {
            if !wishes.fresh {
                // By way of the store's queue, behind the events that are on their way.
                self.control.progress_of(*id);
            }
            wishes.fresh = false;
        }
        self.tick = None;
        if self.wishes.values().any(|wishes| wishes.progress) {
            self.wind_up();
        }
    }

    fn wind_up(&mut self) {
        self.tick = Some(self.runtime.sleep_until(self.runtime.now() + self.progress_interval));
    }
}

fn either<T>(either: Either<T, T>) -> T {
    match either {
        Either::Left(value) | Either::Right(value) => value,
    }
}
