//! The watch on a held key: whoever deletes it gives the lock away at once, so the holder must hear of it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use leasehold_mvcc::{Compare, Key, KeyRange, RangeRequest, Revision, Txn, WatchRequest};

use super::Lease;
use crate::error::Error;
use crate::etcd::WatchUpdate;
use crate::hold::{LossCause, Lost};
use crate::runtime::{Backoff, before};

/// How long the question "is it the lease or only the key" may delay the news.
const CAUSE_BOUND: Duration = Duration::from_millis(500);

/// Watches a held key until it is gone, and tells. Stopped by dropping.
pub(super) async fn watch(lease: Arc<Lease>, key: Key, created: Revision, lost: Lost) {
    let runtime = &**lease.runtime();
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
    'open: while lost.cause().is_none() {
        let request = WatchRequest::range(KeyRange::key(key.clone())).deletes_only();
        let mut updates = lease.dedicated().watch(request);
        while let Some(update) = updates.next().await {
            let look = match update {
                // It says nothing about what came before it.
                Ok(WatchUpdate::Confirmed(_) | WatchUpdate::Events { .. }) => true,
                Ok(WatchUpdate::Progress(_)) => false,
                Err(Error::Closed { .. }) => return,
                Err(_) => {
                    backoff.pause(runtime).await;
                    continue 'open;
                }
            };
            if lost.cause().is_some() {
                // The end of a hold that is over is no news.
                return;
            }
            if look && is_gone(&lease, &key, created).await {
                tell(&lease, &key, &lost).await;
                return;
            }
        }
        backoff.pause(runtime).await;
    }
}

/// Whether the key as created is not there any more. Where there is no answer it is thought to be there: the deadline
/// watches over that.
async fn is_gone(lease: &Lease, key: &Key, created: Revision) -> bool {
    let look = Txn::new()
        .when(Compare::created_at(key.clone(), created))
        .then(RangeRequest::key(key.clone()))
        .otherwise(RangeRequest::key(key.clone()));
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
    loop {
        let seen = lease.seen();
        match lease.dedicated().txn(look.clone()).await {
            // One that is not of this history ends the lease, with its own cause.
            Ok(answer) => return lease.follow(seen, answer.header).is_err() || !answer.succeeded,
            Err(error) if error.is_transient() => backoff.pause(&**lease.runtime()).await,
            Err(_) => return false,
        }
    }
}

/// Tells that the key is gone, and why: with the lease, for everyone on it, or alone.
pub(crate) async fn tell(lease: &Lease, key: &Key, lost: &Lost) -> LossCause {
    let runtime = lease.runtime();
    let asked = lease.dedicated().lease_time_to_live(lease.id(), false);
    let answer = before(&**runtime, runtime.now() + CAUSE_BOUND, asked).await;
    if matches!(&answer, Some(Ok(answer)) if answer.ttl < 0) {
        lease.end(LossCause::LeaseGone);
    }
    if lost.set(LossCause::KeyDeleted) {
        tracing::warn!(lease = %lease.id(), %key, "hold or place lost: {}", LossCause::KeyDeleted);
    }
    lost.cause().unwrap_or(LossCause::KeyDeleted)
}
