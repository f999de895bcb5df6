//! Waiting behind one entry: nothing is asked while nothing happens.

use futures_util::StreamExt;
use futures_util::future::{Either, poll_fn};
use std::task::Poll;
use std::time::Duration;

use leasehold_mvcc::{Key, KeyRange, KeyValue, Revision, WatchRequest};

use super::backoff;
use crate::error::{Error, Result};
use crate::etcd::{Updates, WatchUpdate};
use crate::hold::place::Place;
use crate::runtime::{Backoff, Instant, race};

/// A watch that has lasted so long was a good one: if it breaks, the next may be opened soon.
const STEADY: Duration = Duration::from_secs(1);

/// The watches of one waiting attempt: its own key, for a waiter whose key is gone is out; and the entry ahead.
pub(super) struct Wait {
    own: Option<Followed>,
    ahead: Option<Followed>,
    backoff: Backoff,
}

/// A watch on one key for its end, opened at "now": a watch from a past revision would be served only with the server's
/// next round for those who lag behind, up to 100 ms later.
struct Followed {
    key: Key,
    updates: Updates,
    opened: Instant,
    /// From which revision on it tells everything.
    confirmed: Option<Revision>,
}

impl Followed {
    fn open(place: &Place, key: &Key) -> Self {
        let request = WatchRequest::range(KeyRange::key(key.clone())).deletes_only();
        let (updates, opened) = (place.lease().etcd().watch(request), place.lease().runtime().now());
        Self { key: key.clone(), updates, opened, confirmed: None }
    }
}

impl Default for Wait {
    fn default() -> Self {
        Self { own: None, ahead: None, backoff: backoff() }
    }
}

impl Wait {
    /// Waits until a new look is due: something happened, or may have, to the own entry or to `ahead`, which were last
    /// seen at `seen`.
    ///
    /// # Cancel safety
    /// The watches stay as they are; a new call goes on with them.
    pub(super) async fn behind(&mut self, place: &Place, ahead: &KeyValue, seen: Revision) -> Result<()> {
        let runtime = place.lease().runtime().clone();
        self.own.get_or_insert_with(|| Followed::open(place, place.key()));
        if self.ahead.as_ref().is_none_or(|followed| followed.key != ahead.key) {
            self.ahead = Some(Followed::open(place, &ahead.key));
        }
        // Silence is no news, but a stream can be dead without a word.
        let silence = runtime.now() + place.lease().granted() / 2;
        loop {
            if self.confirmed().is_some_and(|confirmed| confirmed > seen) {
                // What happened between the look and the watch was told to nobody.
                return Ok(());
            }
            let told = race(place.lost().wait(), race(self.next(), runtime.sleep_until(silence))).await;
            let (which, update) = match told {
                Either::Left(cause) => return Err(Error::Lost { cause }),
                Either::Right(Either::Right(())) => return Ok(()),
                Either::Right(Either::Left(told)) => told,
            };
            match update {
                Some(Ok(WatchUpdate::Confirmed(revision))) => {
                    // The first time it completes the watch; later it tells of a connection that broke.
                    if self
                        .follow(which)
                        .is_none_or(|followed| followed.confirmed.replace(revision).is_some())
                    {
                        return Ok(());
                    }
                }
                Some(Ok(WatchUpdate::Progress(_))) => {}
                Some(Ok(WatchUpdate::Events { .. })) => return Ok(()),
                Some(Err(error)) if error.ends_waits() => return Err(error),
                // Broken in whatever way: it is opened anew, but not without end in a moment.
                Some(Err(_)) | None => {
                    self.drop_watch(which, runtime.now());
                    self.backoff.pause(&*runtime).await;
                    return Ok(());
                }
            }
        }
    }

    /// From which revision on both watches tell everything.
    fn confirmed(&self) -> Option<Revision> {
        let (own, ahead) = (self.own.as_ref()?.confirmed?, self.ahead.as_ref()?.confirmed?);
        Some(own.max(ahead))
    }

    fn follow(&mut self, which: Which) -> Option<&mut Followed> {
        match which {
            Which::Own => self.own.as_mut(),
            Which::Ahead => self.ahead.as_mut(),
        }
    }

    fn drop_watch(&mut self, which: Which, now: Instant) {
        let watch = match which {
            Which::Own => self.own.take(),
            Which::Ahead => self.ahead.take(),
        };
        if watch.is_some_and(|watch| now.since(watch.opened) >= STEADY) {
            self.backoff = backoff();
        }
    }

    /// The next word of either watch; the own key's comes first.
    async fn next(&mut self) -> (Which, Option<Result<WatchUpdate>>) {
        poll_fn(|context| {
            for (which, followed) in [(Which::Own, &mut self.own), (Which::Ahead, &mut self.ahead)] {
                let Some(followed) = followed else { continue };
                if let Poll::Ready(update) = followed.updates.poll_next_unpin(context) {
                    return Poll::Ready((which, update));
                }
            }
            Poll::Pending
        })
        .await
    }
}

#[derive(Clone, Copy, Debug)]
enum Which {
    Own,
    Ahead,
}
