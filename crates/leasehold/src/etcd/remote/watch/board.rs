//! What one watch stream carries: which watches, how they stand, and what each message means for them. No I/O.

use std::collections::{BTreeMap, VecDeque};
use std::mem;

use leasehold_mvcc::{Code, KeyRange, Revision, StoreError, WatchId, WatchRequest, WatchResponse};

use super::WatchUpdate;
use super::cursor::Cursor;
use super::feed::{Fed, Feed};
use crate::error::Error;
use crate::etcd::remote::WatchOrder;
use crate::etcd::remote::verdict::STALE;

/// The number of a watch on this side; never used again, unlike the server's numbers, which begin anew on each stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(pub(super) u64);

#[derive(Debug)]
struct Watch {
    request: WatchRequest,
    cursor: Cursor,
    stage: Stage,
    /// It was refused once for the stream's token, as it seemed.
    denied: bool,
    feed: Feed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// To be asked for, or asked for and not answered.
    Asked,
    /// It stands on the current stream.
    Open(WatchId),
    /// Its receiver has too much to read. It goes on, from the server's history, when that is done.
    Paused,
}

/// What is to be created on the current stream, in the order in which it was asked.
#[derive(Clone, Copy, Debug)]
enum Create {
    Watch(Ticket),
    /// A watch that sees nothing, made and ended to see whether the stream lives.
    Probe,
}

#[derive(Debug, Default)]
pub(super) struct Board {
    watches: BTreeMap<Ticket, Watch>,
    creates: VecDeque<Create>,
    open: BTreeMap<WatchId, Ticket>,
    orders: Vec<WatchOrder>,
}

impl Board {
    pub(super) fn is_empty(&self) -> bool {
        self.watches.is_empty()
    }

    /// Whether the server owes an answer.
    pub(super) fn is_owed(&self) -> bool {
        !self.creates.is_empty()
    }

    /// What is to be said to the server.
    pub(super) fn orders(&mut self) -> Vec<WatchOrder> {
        mem::take(&mut self.orders)
    }

    pub(super) fn add(&mut self, ticket: Ticket, request: WatchRequest, feed: Feed) {
        let cursor = Cursor::new(request.start_revision);
        self.watches.insert(ticket, Watch { request, cursor, stage: Stage::Asked, denied: false, feed });
        self.create(ticket);
    }

    fn create(&mut self, ticket: Ticket) {
        let Some(watch) = self.watches.get_mut(&ticket) else { return };
        watch.stage = Stage::Asked;
        // Progress keeps the start of an idle watch ahead of compaction, whether or not its receiver cares.
        let request = WatchRequest {
            start_revision: watch.cursor.start(),
            progress_notify: true,
            ..watch.request.clone()
        };
        self.creates.push_back(Create::Watch(ticket));
        self.orders.push(WatchOrder::Create(request));
    }

    /// Asks the server for a sign of life that it always gives. A request for progress would not do: it is passed over
    /// while any watch of the stream starts in the future (seen on 3.5.23 and 3.7.2) or is not in step (etcd#17507).
    pub(super) fn probe(&mut self) {
        // A range that some watch has: who may watch that, may watch it twice.
        let range = self
            .watches
            .values()
            .next()
            .map_or_else(|| KeyRange::key("\0"), |watch| watch.request.range.clone());
        self.creates.push_back(Create::Probe);
        self.orders.push(WatchOrder::Create(WatchRequest {
            no_put: true,
            no_delete: true,
            ..WatchRequest::range(range)
        }));
    }

    /// The receiver has gone.
    pub(super) fn remove(&mut self, ticket: Ticket) {
        // One that is not confirmed yet is ended when its number is known.
        if let Some(Watch { stage: Stage::Open(id), .. }) = self.watches.remove(&ticket) {
            self.open.remove(&id);
            self.orders.push(WatchOrder::Cancel(id));
        }
    }

    /// The receiver has read what there was.
    pub(super) fn resume(&mut self, ticket: Ticket) {
        if self.watches.get(&ticket).is_some_and(|watch| watch.stage == Stage::Paused) {
            self.create(ticket);
        }
    }

    /// A new stream takes the place of one that broke: every watch is asked for again, from where it stands.
    pub(super) fn restart(&mut self) {
        self.creates.clear();
        self.open.clear();
        self.orders.clear();
        let paused = |watch: &Watch| watch.stage == Stage::Paused;
        let tickets: Vec<_> =
            self.watches.iter().filter(|(_, watch)| !paused(watch)).map(|(ticket, _)| *ticket).collect();
        for ticket in tickets {
            self.create(ticket);
        }
    }

    /// Ends every watch.
    pub(super) fn fail(&mut self, error: &Error) {
        self.creates.clear();
        self.open.clear();
        self.orders.clear();
        for watch in mem::take(&mut self.watches).into_values() {
            watch.feed.end(error.clone());
        }
    }

    /// What a message of the server's says; a refusal if it is one that a new stream with a new token may mend. `mended`
    /// says whether there can be such a token.
    pub(super) fn receive(&mut self, response: WatchResponse, mended: bool) -> Option<StoreError> {
        if response.created {
            return self.created(&response, mended);
        }
        self.told(response);
        None
    }

    fn told(&mut self, response: WatchResponse) {
        let Some(&ticket) = self.open.get(&response.watch_id) else {
            // A watch that was ended here; or word on the stream as a whole, which is no more than a sign of life: some
            // versions of etcd send it ahead of events that it covers (etcd#15220).
            return;
        };
        if response.canceled {
            self.open.remove(&response.watch_id);
            if let Some(watch) = self.watches.remove(&ticket) {
                watch.feed.end(cancelled(&response));
            }
            return;
        }
        let Some(watch) = self.watches.get_mut(&ticket) else { return };
        let revision = response.header.revision;
        let update = if response.events.is_empty() {
            watch.cursor.progressed(revision);
            if !watch.request.progress_notify {
                return;
            }
            WatchUpdate::Progress(revision)
        } else {
            if watch.feed.is_full() {
                return self.pause(ticket, response.watch_id);
            }
            let events = watch.cursor.take(response.events, response.fragment);
            if events.is_empty() {
                return;
            }
            WatchUpdate::Events { revision, events }
        };
        watch.feed.tell(update);
    }

    /// An answer to the create that was sent first of those unanswered, whatever number it carries: a refused one has
    /// none of its own, and comes with -1 or 0.
    fn created(&mut self, response: &WatchResponse, mended: bool) -> Option<StoreError> {
        let created = self.creates.pop_front();
        let watch = match created {
            Some(Create::Watch(ticket)) => self.watches.get_mut(&ticket).map(|watch| (ticket, watch)),
            Some(Create::Probe) | None => None,
        };
        match watch {
            None if response.canceled => {}
            None => self.orders.push(WatchOrder::Cancel(response.watch_id)),
            Some((ticket, watch)) if response.canceled => {
                let why = cancelled(response);
                // A member that has forgotten a token may say no more than that permission is denied (3.4).
                if mended
                    && !watch.denied
                    && let Error::Refused { source, .. } = &why
                    && matches!(source.code, Code::PermissionDenied | Code::Unauthenticated)
                {
                    watch.denied = true;
                    return Some(source.clone());
                }
                if let Some(watch) = self.watches.remove(&ticket) {
                    watch.feed.end(why);
                }
            }
            Some((ticket, watch)) => {
                watch.denied = false;
                watch.stage = Stage::Open(response.watch_id);
                let after = watch.cursor.confirmed(response.header.revision);
                watch.feed.tell(WatchUpdate::Confirmed(after));
                self.open.insert(response.watch_id, ticket);
            }
        }
        None
    }

    /// Ends a watch on the stream until its receiver has read what waits for it.
    fn pause(&mut self, ticket: Ticket, id: WatchId) {
        self.open.remove(&id);
        self.orders.push(WatchOrder::Cancel(id));
        let Some(watch) = self.watches.get_mut(&ticket) else { return };
        watch.stage = Stage::Paused;
        if watch.feed.pause() == Fed::Drained {
            self.create(ticket);
        }
    }
}

/// Why the server ended a watch that nobody here had ended.
fn cancelled(response: &WatchResponse) -> Error {
    if response.compact_revision > Revision::ZERO {
        return Error::Compacted { compacted: response.compact_revision };
    }
    let reason = &response.cancel_reason;
    // On a watch the code is lost, and only the words are there.
    let code = if reason.contains("permission denied") {
        Code::PermissionDenied
    } else if STALE.iter().any(|stale| reason.contains(stale)) {
        Code::Unauthenticated
    } else {
        Code::Cancelled
    };
    let message = if reason.is_empty() { "the server ended the watch and gave no reason" } else { reason };
    Error::Refused { operation: "watch", source: StoreError::new(code, message) }
}
