//! Asking a holder to go, through etcd: the entry is put anew as it was, with the request in its value.
//!
//! The entry keeps its creation, and so its rank, and its lease: neither the queue nor what is bound to the creation is
//! touched, and no client waits for anything but its deletion.

use std::time::Duration;

use futures_util::StreamExt;
use leasehold_mvcc::{Code, Compare, KeyRange, KeyValue, PutRequest, RangeRequest, Txn, WatchRequest};
use serde::{Deserialize, Serialize};

use super::again;
use crate::error::Result;
use crate::etcd::{Etcd, EtcdExt, WatchUpdate};
use crate::hold::Guard;
use crate::queue::{Entry, Who};
use crate::runtime::Backoff;

/// How much of what the asker says of itself is passed on.
const LONGEST: usize = 256;

/// What came of [`ask`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The request stands in the entry. Whether anybody heeds it is the holder's affair.
    Told,
    /// The holder is a client that would not read it, such as Go's package or etcdctl. Nothing was done.
    Deaf,
    /// The entry was gone already.
    WasGone,
}

/// An entry's value with a request in it.
#[derive(Deserialize, Serialize)]
struct Request {
    #[serde(flatten)]
    who: Who,
    asked: String,
}

/// Asks the author of an entry to leave, on behalf of `by`, which is for people to read. `leasehold run` and
/// `leasehold lock` heed it; a program of yours does if it waits for [`asked`].
///
/// # Errors
/// [`Error::Refused`](crate::Error::Refused) if etcd says no, such as for want of the right to write the key;
/// [`Error::Unavailable`](crate::Error::Unavailable) or [`Error::OutcomeUnknown`](crate::Error::OutcomeUnknown) if some
/// tries went unanswered.
///
/// # Cancel safety
/// Dropped, the request may stand there or not.
pub async fn ask(etcd: &dyn Etcd, entry: &Entry, by: &str) -> Result<Asked> {
    let Some(who) = entry.who.clone() else { return Ok(Asked::Deaf) };
    let asked = by.chars().take(LONGEST).collect();
    let Ok(value) = serde_json::to_vec(&Request { who, asked }) else { return Ok(Asked::Deaf) };
    let request = Txn::new()
        .when(Compare::created_at(entry.key.clone(), entry.create_revision))
        .when(Compare::lease(entry.key.clone(), entry.lease))
        .then(PutRequest::new(entry.key.clone(), value).on(entry.lease))
        .otherwise(RangeRequest::key(entry.key.clone()));
    match again(etcd, request).await {
        Ok(answer) if answer.succeeded => Ok(Asked::Told),
        Ok(_) => Ok(Asked::WasGone),
        // Its lease has ended just now, and the entry with it.
        Err(error) if error.refusal().is_some_and(|no| no.code == Code::NotFound) => Ok(Asked::WasGone),
        Err(error) => Err(error),
    }
}

/// Waits until somebody asks this holder to go, and tells who that is, by its own account. The hold stays what it was:
/// end your work and release the guard, or do not.
///
/// It goes on waiting while etcd cannot be reached, and after the hold is lost: race it with your work.
///
/// # Cancel safety
/// It changes nothing.
pub async fn asked(guard: &Guard) -> String {
    let (etcd, key) = (guard.etcd(), guard.key());
    let runtime = etcd.runtime();
    let fresh = || Backoff::new(Duration::from_millis(50), Duration::from_secs(5));
    let mut pauses = fresh();
    loop {
        let mut updates = etcd.watch(WatchRequest::range(KeyRange::key(key.clone())));
        while let Some(Ok(update)) = updates.next().await {
            if matches!(update, WatchUpdate::Progress(_)) {
                continue;
            }
            // Events are hints, and say nothing of what came before the watch: the key says all.
            match etcd.get(key.clone()).await {
                Ok(kv) => {
                    if let Some(by) =
                        kv.filter(|kv| kv.create_revision == guard.create_revision()).and_then(request_in)
                    {
                        return by;
                    }
                    pauses = fresh();
                }
                // Looked at again with a new watch.
                Err(_) => break,
            }
        }
        pauses.pause(&*runtime).await;
    }
}

fn request_in(kv: KeyValue) -> Option<String> {
    serde_json::from_slice::<Request>(&kv.value).ok().map(|request| request.asked)
}
