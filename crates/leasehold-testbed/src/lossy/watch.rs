//! A watch that loses its connection now and then, and no event by it.

use futures_util::future::{Either, select};
use futures_util::{StreamExt, stream};
use leasehold::etcd::{Updates, WatchUpdate};
use leasehold::runtime::Instant;
use leasehold_mvcc::{Revision, WatchRequest};

use super::{Lossy, pause, up_to};

pub(super) fn broken_now_and_then(network: Lossy, request: WatchRequest) -> Updates {
    // Opened now and not at the first poll, as the inner one may be: no event of the time between may be missed.
    let updates = network.inner.watch(request.clone());
    let watch = Watch { updates, network, place: Place::new(request), breaks_at: None, ended: false };
    Box::pin(stream::unfold(watch, |mut watch| async move {
        let update = watch.next().await?;
        Some((update, watch))
    }))
}

struct Watch {
    updates: Updates,
    network: Lossy,
    place: Place,
    /// When this connection breaks, once that is drawn.
    breaks_at: Option<Instant>,
    ended: bool,
}

impl Watch {
    async fn next(&mut self) -> Option<leasehold::Result<WatchUpdate>> {
        if self.ended {
            return None;
        }
        let runtime = self.network.inner.runtime();
        loop {
            let breaks_at =
                *self.breaks_at.get_or_insert_with(|| match self.network.faults.rates().watch_life {
                    Some(mean) => runtime.now() + up_to(&*runtime, mean * 2),
                    None => Instant::NEVER,
                });
            let next = match select(self.updates.next(), runtime.sleep_until(breaks_at)).await {
                Either::Left((next, _)) => next,
                Either::Right(_) => {
                    self.breaks_at = None;
                    let rates = self.network.faults.rates();
                    if rates.watch_life.is_some() {
                        self.network.faults.count(|injected| &mut injected.broken_watches);
                        self.updates = Box::pin(stream::pending());
                        pause(&*runtime, rates.max_gap).await;
                        self.updates = self.network.inner.watch(self.place.request());
                    }
                    continue;
                }
            };
            let Some(Ok(update)) = next else {
                self.ended = true;
                return next;
            };
            if let Some(update) = self.place.take(update) {
                let rates = self.network.faults.rates();
                if self.network.faults.delays_update(&*runtime) {
                    pause(&*runtime, rates.max_delay).await;
                }
                return Some(Ok(update));
            }
        }
    }
}

/// How far a watch has come.
struct Place {
    asked: WatchRequest,
    /// Everything below this revision has been told.
    from: Revision,
    /// So many events at `from` have been told, too: a revision may come in parts.
    told: usize,
    /// So many of them are told once more by the connection of now, and are to be left out.
    again: usize,
}

impl Place {
    fn new(asked: WatchRequest) -> Self {
        Self { from: asked.start_revision, asked, told: 0, again: 0 }
    }

    /// What to ask of a new connection.
    fn request(&mut self) -> WatchRequest {
        self.again = self.told;
        self.asked.clone().since(self.from)
    }

    /// Notes what came, and leaves out what was told before.
    fn take(&mut self, update: WatchUpdate) -> Option<WatchUpdate> {
        match update {
            WatchUpdate::Events { revision, mut events } => {
                events.retain(|event| {
                    let again = self.again > 0 && event.kv.mod_revision == self.from;
                    self.again -= usize::from(again);
                    !again
                });
                for event in &events {
                    if event.kv.mod_revision != self.from {
                        (self.from, self.told, self.again) = (event.kv.mod_revision, 0, 0);
                    }
                    self.told += 1;
                }
                (!events.is_empty()).then_some(WatchUpdate::Events { revision, events })
            }
            WatchUpdate::Progress(revision) => {
                self.move_to(revision.next());
                Some(WatchUpdate::Progress(revision))
            }
            WatchUpdate::Confirmed(revision) => {
                // A watch from the past is confirmed at the revision of now, before the past is told.
                if self.from.is_zero() {
                    self.move_to(revision.next());
                }
                Some(WatchUpdate::Confirmed(revision))
            }
            other => Some(other),
        }
    }

    fn move_to(&mut self, revision: Revision) {
        if revision > self.from {
            (self.from, self.told, self.again) = (revision, 0, 0);
        }
    }
}
