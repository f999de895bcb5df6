//! Watches: a few streams to the server carry all of them, and each goes on by itself when its stream breaks.

mod board;
mod cursor;
mod feed;
mod stream;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::stream as streams;
use leasehold_mvcc::WatchRequest;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use super::auth::{Login, Pass};
use super::pin::Pin;
use super::{Lane, Updates, WHAT, WatchUpdate, Wire, WireError};
use crate::error::Error;
use crate::exclusive::Exclusive;
use crate::runtime::{Runtime, Task};
use board::Ticket;
use feed::{Feed, Seat};

/// Watches on one stream. etcd buffers 128 messages a stream, whatever it carries, and slows down all of it when they are
/// not read; and a stream that breaks has to be told of all its watches again.
const SEATS: usize = 64;

/// How long a stream without a watch is kept for the next one.
const IDLE: Duration = Duration::from_secs(60);

/// What the task of a stream is told.
enum Message {
    Watch(Ticket, WatchRequest, Feed),
    Remove(Ticket),
    Resume(Ticket),
    Close,
}

/// What all streams of a lane have in common.
#[derive(Clone, Debug)]
pub(super) struct Road {
    pub(super) lane: Lane,
    pub(super) pin: Arc<Pin>,
    pub(super) wire: Arc<dyn Wire>,
    pub(super) login: Arc<Login>,
    pub(super) runtime: Arc<dyn Runtime>,
    pub(super) connect_timeout: Duration,
    /// How long a stream may be silent before it is put to the test.
    pub(super) silence: Duration,
}

impl Road {
    /// What the next stream is opened with.
    async fn pass(self) -> Result<Pass, WireError> {
        let endpoint = self.pin.current().1.clone();
        // As long as a stream may take to stand and to say its first word.
        let patience = self.connect_timeout + self.silence;
        self.login.pass(&*self.wire, &*self.runtime, (&endpoint, self.lane), patience).await
    }
}

/// The watch streams of one lane.
#[derive(Debug)]
pub(super) struct Pool {
    road: Road,
    streams: Exclusive<Streams>,
}

#[derive(Debug, Default)]
struct Streams {
    closed: bool,
    watches_so_far: u64,
    streams_so_far: u64,
    open: Vec<Open>,
}

#[derive(Debug)]
struct Open {
    number: u64,
    messages: UnboundedSender<Message>,
    seats: Arc<AtomicUsize>,
    task: Task,
}

impl Pool {
    pub(super) fn new(road: Road) -> Arc<Self> {
        Arc::new(Self { road, streams: Exclusive::new(Streams::default()) })
    }

    /// Starts a watch. It is on its way when this returns; nobody needs to poll for that.
    pub(super) fn watch(self: &Arc<Self>, request: WatchRequest) -> Updates {
        let mut streams = self.streams.lock();
        if streams.closed {
            return Box::pin(streams::iter([Err(Error::Closed { what: WHAT })]));
        }
        streams.watches_so_far += 1;
        let ticket = Ticket(streams.watches_so_far);
        streams.open.retain(|stream| !stream.messages.is_closed());
        let free = streams.open.iter().find(|stream| stream.seats.load(Ordering::SeqCst) < SEATS);
        let (messages, seats) = match free {
            Some(stream) => (stream.messages.clone(), stream.seats.clone()),
            None => self.start(&mut streams),
        };
        let (feed, reader) = feed::feed(ticket, Seat::take(&seats), messages.clone(), self.clone());
        // Under the lock, so that a stream does not retire between being chosen and being told.
        let _ = messages.send(Message::Watch(ticket, request, feed));
        Box::pin(reader)
    }

    fn start(self: &Arc<Self>, streams: &mut Streams) -> (UnboundedSender<Message>, Arc<AtomicUsize>) {
        let (messages, received) = mpsc::unbounded_channel();
        let seats = Arc::new(AtomicUsize::new(0));
        streams.streams_so_far += 1;
        let number = streams.streams_so_far;
        let retirement = Retirement { pool: Arc::downgrade(self), number };
        let task = Box::pin(stream::run(self.road.clone(), received, retirement));
        let task = match self.road.lane {
            Lane::Calls => self.road.runtime.spawn("watch stream", task),
            Lane::Leases => self.road.runtime.spawn_dedicated("watch stream", task),
        };
        streams.open.push(Open { number, messages: messages.clone(), seats: seats.clone(), task });
        (messages, seats)
    }

    /// Ends every watch with [`Error::Closed`].
    pub(super) fn close(&self) {
        let open = {
            let mut streams = self.streams.lock();
            streams.closed = true;
            std::mem::take(&mut streams.open)
        };
        for stream in open {
            let _ = stream.messages.send(Message::Close);
            stream.task.detach();
        }
    }
}

/// How the task of a stream leaves the pool.
struct Retirement {
    pool: Weak<Pool>,
    number: u64,
}

impl Retirement {
    /// Takes the stream out of the pool, unless a watch was given to it in the meantime.
    fn retire(&self, received: &UnboundedReceiver<Message>) -> bool {
        let Some(pool) = self.pool.upgrade() else { return true };
        let gone = {
            let mut streams = pool.streams.lock();
            if !received.is_empty() {
                return false;
            }
            let place = streams.open.iter().position(|stream| stream.number == self.number);
            place.map(|place| streams.open.swap_remove(place))
        };
        if let Some(stream) = gone {
            stream.task.detach();
        }
        true
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Watch(ticket, request, _) => f.debug_tuple("Watch").field(ticket).field(request).finish(),
            Self::Remove(ticket) => f.debug_tuple("Remove").field(ticket).finish(),
            Self::Resume(ticket) => f.debug_tuple("Resume").field(ticket).finish(),
            Self::Close => f.write_str("Close"),
        }
    }
}
