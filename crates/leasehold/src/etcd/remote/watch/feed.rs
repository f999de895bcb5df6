//! From the stream's task to the receiver of one watch.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use super::board::Ticket;
use super::{Message, Pool, WatchUpdate};
use crate::error::{Error, Result};

/// A receiver that leaves this many messages of events unread makes its watch pause, so that it costs bounded memory.
const FULL: usize = 1024;

#[derive(Debug, Default)]
struct Gauge {
    unread: AtomicUsize,
    paused: AtomicBool,
}

/// The sending half.
#[derive(Debug)]
pub(super) struct Feed {
    updates: UnboundedSender<Result<WatchUpdate>>,
    gauge: Arc<Gauge>,
    /// Counts the watches of the stream; one leaves with this.
    _seat: Seat,
}

/// Whether a feed that pauses has to be resumed by the one who paused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fed {
    /// The receiver has something to read, and will say when it has read it.
    Waiting,
    /// It has read everything in the meantime.
    Drained,
}

impl Feed {
    pub(super) fn is_full(&self) -> bool {
        self.gauge.unread.load(Ordering::SeqCst) >= FULL
    }

    pub(super) fn tell(&self, update: WatchUpdate) {
        self.gauge.unread.fetch_add(1, Ordering::SeqCst);
        // A receiver that has gone sends word of its own.
        let _ = self.updates.send(Ok(update));
    }

    pub(super) fn end(&self, error: Error) {
        let _ = self.updates.send(Err(error));
    }

    /// Notes that nothing more is told until the receiver has read everything.
    pub(super) fn pause(&self) -> Fed {
        self.gauge.paused.store(true, Ordering::SeqCst);
        // The receiver may have read the last one just before that, and not seen it.
        if self.gauge.unread.load(Ordering::SeqCst) == 0 && self.gauge.paused.swap(false, Ordering::SeqCst) {
            return Fed::Drained;
        }
        Fed::Waiting
    }
}

/// One watch's place on a stream.
#[derive(Debug)]
pub(super) struct Seat(Arc<AtomicUsize>);

impl Seat {
    pub(super) fn take(taken: &Arc<AtomicUsize>) -> Self {
        taken.fetch_add(1, Ordering::SeqCst);
        Self(taken.clone())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The receiving half: what [`Etcd::watch`](crate::etcd::Etcd::watch) gives.
pub(super) struct Reader {
    updates: UnboundedReceiver<Result<WatchUpdate>>,
    gauge: Arc<Gauge>,
    ticket: Ticket,
    messages: UnboundedSender<Message>,
    ended: bool,
    /// The tasks live as long as somebody reads.
    _pool: Arc<Pool>,
}

pub(super) fn feed(
    ticket: Ticket,
    seat: Seat,
    messages: UnboundedSender<Message>,
    pool: Arc<Pool>,
) -> (Feed, Reader) {
    let (sender, updates) = mpsc::unbounded_channel();
    let gauge = Arc::new(Gauge::default());
    let feed = Feed { updates: sender, gauge: gauge.clone(), _seat: seat };
    (feed, Reader { updates, gauge, ticket, messages, ended: false, _pool: pool })
}

impl Stream for Reader {
    type Item = Result<WatchUpdate>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        let Poll::Ready(update) = self.updates.poll_recv(context) else { return Poll::Pending };
        match &update {
            Some(Ok(_)) => {
                let was_last = self.gauge.unread.fetch_sub(1, Ordering::SeqCst) == 1;
                if was_last && self.gauge.paused.swap(false, Ordering::SeqCst) {
                    let _ = self.messages.send(Message::Resume(self.ticket));
                }
            }
            Some(Err(_)) => self.ended = true,
            None => {
                self.ended = true;
                return Poll::Ready(Some(Err(Error::Closed { what: super::WHAT })));
            }
        }
        Poll::Ready(update)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let _ = self.messages.send(Message::Remove(self.ticket));
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}
