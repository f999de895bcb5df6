//! Watches on the store: who follows what, and the queues by which commits reach them.
//!
//! Everything a stream carries goes through its one queue, filled while the store is locked. So its messages have the
//! order of the store's revisions, and a progress message never overtakes an event.

use std::collections::BTreeMap;

use leasehold_mvcc::{
    Commit, Event, EventKind, Header, Key, KeyRange, Revision, WatchId, WatchRequest, WatchResponse,
};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::Embedded;
use crate::error::Error;
use crate::error::advice::EMBEDDED;

/// The watch id of messages that concern no single watch (etcd's `InvalidWatchID`).
const WHOLE_STREAM: WatchId = WatchId::new(-1);

const SMALLEST_KEY: &[u8] = b"\0";

/// How many messages may wait for a stream's reader. One that falls behind further is cut off, or it would grow the
/// store's memory without bound; it can read on from the last revision it was told.
const MOST_WAITING: usize = 16_384;

/// How many events of the past go into one message.
const PAST_AT_ONCE: usize = 1000;

type StreamId = u64;

#[derive(Debug, Default)]
pub(super) struct Fanout {
    streams: BTreeMap<StreamId, Open>,
    next_stream: StreamId,
    watches: BTreeMap<(StreamId, WatchId), WatchRequest>,
    /// Which watches follow one key: by far the most do.
    by_key: BTreeMap<Key, Vec<(StreamId, WatchId)>>,
    /// Which follow a range.
    by_range: Vec<(StreamId, WatchId)>,
}

#[derive(Debug)]
struct Open {
    queue: Sender<WatchResponse>,
    next_watch: i64,
}

impl Fanout {
    pub(super) fn len(&self) -> usize {
        self.watches.len()
    }

    /// Sends a commit to all who follow any of it: one message a watch.
    pub(super) fn send(&mut self, header: Header, commit: &Commit) {
        if self.watches.is_empty() {
            return;
        }
        let mut told: BTreeMap<(StreamId, WatchId), Vec<Event>> = BTreeMap::new();
        for event in &commit.events {
            let single = self.by_key.get(&event.kv.key).into_iter().flatten();
            for id in single.chain(&self.by_range) {
                let Some(request) = self.watches.get(id) else { continue };
                if wanted(request, commit.revision, event) {
                    told.entry(*id).or_default().push(as_asked(request, event));
                }
            }
        }
        for ((stream, watch_id), events) in told {
            self.queue(stream, WatchResponse { header, watch_id, events, ..WatchResponse::default() });
        }
    }

    /// Ends all streams.
    pub(super) fn close(&mut self) {
        *self = Self { next_stream: self.next_stream, ..Self::default() };
    }

    fn queue(&mut self, stream: StreamId, response: WatchResponse) {
        // A receiver that has gone takes its stream with it in a moment; one that is full has been left behind.
        if self.streams.get(&stream).is_some_and(|open| open.queue.try_send(response).is_err()) {
            self.remove_stream(stream);
        }
    }

    fn add(&mut self, stream: StreamId, id: WatchId, request: WatchRequest) {
        if request.range.is_single() {
            self.by_key.entry(request.range.start.clone()).or_default().push((stream, id));
        } else {
            self.by_range.push((stream, id));
        }
        self.watches.insert((stream, id), request);
    }

    fn remove(&mut self, stream: StreamId, id: WatchId) -> bool {
        let Some(request) = self.watches.remove(&(stream, id)) else { return false };
        if !request.range.is_single() {
            self.by_range.retain(|entry| *entry != (stream, id));
        } else if let Some(followers) = self.by_key.get_mut(&request.range.start) {
            followers.retain(|entry| *entry != (stream, id));
            if followers.is_empty() {
                self.by_key.remove(&request.range.start);
            }
        }
        true
    }

    fn remove_stream(&mut self, stream: StreamId) {
        let ids: Vec<WatchId> = self
            .watches
            .range((stream, WatchId::new(i64::MIN))..=(stream, WatchId::new(i64::MAX)))
            .map(|((_, id), _)| *id)
            .collect();
        for id in ids {
            self.remove(stream, id);
        }
        self.streams.remove(&stream);
    }
}

/// What etcd says to the second watch with an id.
const TAKEN: &str = "mvcc: duplicate watch ID provided on the WatchStream";

/// Why etcd would not take such a watch, if so. It looks in this order.
fn refusal(request: &WatchRequest) -> Option<&'static str> {
    let KeyRange { start, end } = &request.range;
    if request.start_revision < Revision::ZERO {
        // As etcd 3.7; older ones take it, and such a watch never hears of anything.
        Some("etcdserver: mvcc: required revision has been compacted")
    } else if !request.range.is_single() && !request.range.is_open() && start >= end {
        Some("mvcc: watcher range is empty")
    } else {
        None
    }
}

/// The answer to a wish for a watch that is refused. It has no id, and comes in the order of the answers to the others:
/// by that order clients match answers to wishes.
fn refused(header: Header, reason: &str) -> WatchResponse {
    WatchResponse {
        header,
        watch_id: WHOLE_STREAM,
        created: true,
        canceled: true,
        cancel_reason: reason.into(),
        ..WatchResponse::default()
    }
}

fn wanted(request: &WatchRequest, revision: Revision, event: &Event) -> bool {
    let kind_wanted = match event.kind {
        EventKind::Put => !request.no_put,
        EventKind::Delete => !request.no_delete,
    };
    kind_wanted && revision >= request.start_revision && request.range.contains(&event.kv.key)
}

fn as_asked(request: &WatchRequest, event: &Event) -> Event {
    let prev_kv = if request.prev_kv { event.prev_kv.clone() } else { None };
    Event { kind: event.kind, kv: event.kv.clone(), prev_kv }
}

/// Opens a stream.
pub(super) fn open(etcd: Embedded) -> (WatchControl, WatchStream) {
    let (queue, messages) = channel(MOST_WAITING);
    let mut state = etcd.inner.state.lock();
    let stream = state.fanout.next_stream;
    state.fanout.next_stream += 1;
    if !etcd.inner.closed.load(std::sync::atomic::Ordering::Acquire) {
        state.fanout.streams.insert(stream, Open { queue, next_watch: 0 });
    }
    drop(state);
    (WatchControl { etcd: etcd.clone(), stream }, WatchStream { etcd, stream, messages })
}

/// The asking end of a watch stream.
///
/// ```
/// use leasehold::mvcc::{KeyRange, WatchRequest};
/// use leasehold::{Embedded, EtcdExt};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let etcd = Embedded::start()?;
/// let (control, mut stream) = etcd.watch_stream();
/// let watch = control.create(WatchRequest::range(KeyRange::key("motto")));
/// assert!(stream.next().await.unwrap().created);
/// etcd.put("motto", "one at a time", Default::default()).await?;
/// assert_eq!(Some(stream.next().await.unwrap().watch_id), watch);
/// # Ok::<(), leasehold::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct WatchControl {
    etcd: Embedded,
    stream: StreamId,
}

impl WatchControl {
    /// Opens a watch with the stream's next id and returns that. The stream answers with a `created` message, then
    /// with events; or, for a revision that is compacted, with a `created` and a `canceled` one. What etcd refuses (a
    /// range without keys, a negative revision) it answers with one message that is both, and there is no watch.
    pub fn create(&self, request: WatchRequest) -> Option<WatchId> {
        self.open(None, request)
    }

    /// The same with an id of the caller's, which is refused if the stream has it already.
    pub fn create_as(&self, id: WatchId, request: WatchRequest) -> Option<WatchId> {
        self.open(Some(id), request)
    }

    fn open(&self, chosen: Option<WatchId>, mut request: WatchRequest) -> Option<WatchId> {
        if request.range.start.is_empty() {
            // There is no such key; to etcd's watches it is where all keys begin.
            request.range.start = SMALLEST_KEY.into();
        }
        let mut state = self.etcd.inner.state.lock();
        let super::State { store, fanout, .. } = &mut *state;
        let open = fanout.streams.get_mut(&self.stream)?;
        let taken = |id| fanout.watches.contains_key(&(self.stream, id));
        if let Some(reason) = refusal(&request).or_else(|| chosen.is_some_and(taken).then_some(TAKEN)) {
            fanout.queue(self.stream, refused(store.header(), reason));
            return None;
        }
        let id = match chosen {
            Some(id) => id,
            None => {
                while fanout.watches.contains_key(&(self.stream, WatchId::new(open.next_watch))) {
                    open.next_watch += 1;
                }
                open.next_watch += 1;
                WatchId::new(open.next_watch - 1)
            }
        };
        let header = store.header();
        let message = WatchResponse { header, watch_id: id, ..WatchResponse::default() };
        fanout.queue(self.stream, WatchResponse { created: true, ..message.clone() });
        if !request.start_revision.is_zero() && request.start_revision <= header.revision {
            match store.history(&request, request.start_revision) {
                Ok(commits) => {
                    let mut part = Vec::new();
                    for commit in commits {
                        // What happened at one revision is never told in two messages.
                        part.extend(commit.events);
                        if part.len() >= PAST_AT_ONCE {
                            let events = std::mem::take(&mut part);
                            fanout.queue(self.stream, WatchResponse { events, ..message.clone() });
                        }
                    }
                    if !part.is_empty() {
                        fanout.queue(self.stream, WatchResponse { events: part, ..message.clone() });
                    }
                }
                Err(_) => {
                    let compact_revision = store.compacted_revision();
                    // Etcd names no other revision here.
                    let header = Header { revision: Revision::ZERO, ..header };
                    let canceled = WatchResponse { header, canceled: true, compact_revision, ..message };
                    fanout.queue(self.stream, canceled);
                    return Some(id);
                }
            }
        }
        // A stream that is full is cut off, and takes no more.
        fanout.streams.contains_key(&self.stream).then(|| fanout.add(self.stream, id, request))?;
        Some(id)
    }

    /// Ends a watch. The stream confirms with a `canceled` message if there was such a watch on it.
    pub fn cancel(&self, id: WatchId) {
        let mut state = self.etcd.inner.state.lock();
        let header = state.store.header();
        if state.fanout.remove(self.stream, id) {
            let canceled = WatchResponse { header, watch_id: id, canceled: true, ..WatchResponse::default() };
            state.fanout.queue(self.stream, canceled);
        }
    }

    /// Says of one watch, if it is there: everything of it up to this revision has been sent.
    pub fn progress_of(&self, id: WatchId) {
        let mut state = self.etcd.inner.state.lock();
        if state.fanout.watches.contains_key(&(self.stream, id)) {
            let header = state.store.header();
            state
                .fanout
                .queue(self.stream, WatchResponse { header, watch_id: id, ..WatchResponse::default() });
        }
    }

    /// Asks for a message that says: everything up to this revision has been sent.
    pub fn progress(&self) {
        let mut state = self.etcd.inner.state.lock();
        let header = state.store.header();
        state
            .fanout
            .queue(self.stream, WatchResponse { header, watch_id: WHOLE_STREAM, ..WatchResponse::default() });
    }
}

/// The receiving end of a watch stream. Dropping it ends all its watches.
#[derive(Debug)]
pub struct WatchStream {
    etcd: Embedded,
    stream: StreamId,
    messages: Receiver<WatchResponse>,
}

impl WatchStream {
    /// The next message; `None` once the etcd is closed, or this stream was cut off for falling too far behind.
    ///
    /// # Cancel safety
    /// A dropped future takes no message with it.
    pub async fn next(&mut self) -> Option<WatchResponse> {
        self.messages.recv().await
    }
}

impl WatchStream {
    pub(super) fn why_it_ended(&self) -> Error {
        if self.etcd.inner.closed.load(std::sync::atomic::Ordering::Acquire) {
            return Error::Closed { what: EMBEDDED };
        }
        Error::Unavailable {
            operation: "watch",
            endpoints: EMBEDDED.into(),
            cause: format!(
                "more than {MOST_WAITING} messages were not read; watch again from the last revision"
            ),
        }
    }
}

impl Drop for WatchStream {
    fn drop(&mut self) {
        self.etcd.inner.state.lock().fanout.remove_stream(self.stream);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::StreamExt;
    use futures_util::future::FutureExt;
    use leasehold_mvcc::{KeyRange, LeaseId};

    use super::*;
    use crate::error::ErrorKind;
    use crate::etcd::{Etcd, EtcdExt, WatchUpdate};

    fn put(etcd: &Embedded, times: usize) {
        for _ in 0..times {
            etcd.put("key", "value", LeaseId::NONE).now_or_never().unwrap().unwrap();
        }
    }

    #[test]
    fn a_watch_that_is_not_read_is_cut_off_and_says_so() {
        let etcd = Embedded::start().unwrap();
        let mut updates = etcd.watch(WatchRequest::range(KeyRange::key("key")));
        put(&etcd, MOST_WAITING + 1);
        assert_eq!(etcd.watch_count(), 0);
        let mut events = 0;
        let end = loop {
            match updates.next().now_or_never().unwrap().unwrap() {
                Ok(WatchUpdate::Events { .. }) => events += 1,
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!((events, end.kind()), (MOST_WAITING - 1, ErrorKind::Unavailable), "{end}");
    }

    #[test]
    fn a_long_past_fits_into_few_messages() {
        let etcd = Embedded::start().unwrap();
        put(&etcd, 2500);
        let (control, mut stream) = etcd.watch_stream();
        control.create(WatchRequest::range(KeyRange::key("key")).since(Revision::new(2)));
        let messages: Vec<usize> = std::iter::from_fn(|| stream.next().now_or_never().flatten())
            .map(|message| message.events.len())
            .collect();
        assert_eq!(messages, [0, 1000, 1000, 500]);
    }
}
