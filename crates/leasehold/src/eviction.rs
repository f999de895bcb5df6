//! Taking a lock away from whoever has it: for holders that are dead and whose entry stays, and for those that must go.
//!
//! Nobody can be made to stop by what is done here. The entry is removed, and with it the lock goes to the next in the queue
//! at once. A holder of this library learns that right after, and its guard is lost
//! ([`LossCause::KeyDeleted`](crate::LossCause::KeyDeleted)); a client of Go's package or etcdctl does not notice. So two may
//! be at work for a while or for long, and only the fencing token protects: the next holder's is higher. Ask the holder to go
//! first ([`ask`], which reaches clients of this library that listen, or by whatever means you have), and give it time:
//! [`gone`] waits for that.
//!
//! ```
//! use leasehold::eviction::{self, Asked, Evicted};
//! use leasehold::{Embedded, LossCause, Mutex, Session, survey};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let etcd = Embedded::start()?;
//! let session = Session::open(etcd.clone()).await?;
//! let guard = Mutex::new(&session, "stuck".parse()?).lock().await?;
//!
//! let seen = survey::lock(&etcd, &"stuck".parse()?).await?;
//! assert_eq!(eviction::ask(&etcd, &seen.queue[0].entry, "ann, for the backup").await?, Asked::Told);
//! assert_eq!(eviction::asked(&guard).await, "ann, for the backup");
//! assert_eq!(eviction::evict(&etcd, &seen.queue[0].entry).await?, Evicted::Removed);
//! assert_eq!(guard.lost().wait().await, LossCause::KeyDeleted);
//! # Ok::<(), leasehold::Error>(())
//! # }).unwrap();
//! ```

mod request;

use std::time::Duration;

use futures_util::StreamExt;
use leasehold_mvcc::{Compare, DeleteRequest, KeyRange, RangeRequest, Txn, TxnAnswer, WatchRequest};

use crate::error::{ErrorKind, Result};
use crate::etcd::{Etcd, EtcdExt, WatchUpdate};
use crate::queue::Entry;
use crate::runtime::{Backoff, before};
pub use request::{Asked, ask, asked};

/// After how long without a word the key is looked at all the same.
const SILENCE: Duration = Duration::from_secs(5);

/// How often what was not answered is asked for again.
const AGAIN: usize = 5;

/// What came of [`evict`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// The entry was there, and was removed by this.
    Removed,
    /// It was gone already: its author left, its lease ended, or an earlier, unanswered try has removed it.
    WasGone,
}

/// Waits until an entry is gone, for whatever reason: until its author leaves, its lease ends, or somebody removes it.
///
/// It waits for as long as you do; while etcd cannot be reached it goes on trying.
///
/// # Errors
/// What etcd refuses, such as to let the key be read.
///
/// # Cancel safety
/// It changes nothing.
pub async fn gone(etcd: &dyn Etcd, entry: &Entry) -> Result<()> {
    let runtime = etcd.runtime();
    let fresh = || Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
    let mut pauses = fresh();
    let mut watch = None;
    loop {
        let range = KeyRange::key(entry.key.clone());
        // Opened before the look: what happens after that is told.
        let updates = watch.get_or_insert_with(|| etcd.watch(WatchRequest::range(range).deletes_only()));
        match etcd.get(entry.key.clone()).await {
            Ok(Some(kv)) if kv.create_revision == entry.create_revision => {}
            Ok(_) => return Ok(()),
            Err(error) if error.is_transient() => {
                pauses.pause(&*runtime).await;
                continue;
            }
            Err(error) => return Err(error),
        }
        let until = runtime.now() + SILENCE;
        loop {
            match before(&*runtime, until, updates.next()).await {
                Some(Some(Ok(WatchUpdate::Progress(_)))) => {}
                None => break,
                Some(Some(Ok(_))) => {
                    pauses = fresh();
                    break;
                }
                Some(Some(Err(error))) if !error.is_transient() && error.kind() != ErrorKind::Compacted => {
                    return Err(error);
                }
                Some(Some(Err(_)) | None) => {
                    watch = None;
                    pauses.pause(&*runtime).await;
                    break;
                }
            }
        }
    }
}

/// Removes exactly this entry, and so takes the lock, or the place in its queue, from whoever made it.
///
/// It is bound to the entry's creation: another holder's entry is never touched, nor one that the same client made later. The
/// lease is left alone, for other locks may hang on it.
///
/// # Errors
/// What kept etcd from answering, after several tries; the entry may then be gone or not.
///
/// # Cancel safety
/// Once polled it may take effect, dropped or not.
pub async fn evict(etcd: &dyn Etcd, entry: &Entry) -> Result<Evicted> {
    let removal = Txn::new()
        .when(Compare::created_at(entry.key.clone(), entry.create_revision))
        .then(DeleteRequest::key(entry.key.clone()))
        .otherwise(RangeRequest::key(entry.key.clone()));
    let answer = again(etcd, removal).await?;
    Ok(if answer.succeeded { Evicted::Removed } else { Evicted::WasGone })
}

/// Does a transaction that may be done more than once, until it is answered, a few times at most.
async fn again(etcd: &dyn Etcd, txn: Txn) -> Result<TxnAnswer> {
    let runtime = etcd.runtime();
    let mut pauses = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
    let mut again = 0..AGAIN;
    loop {
        match etcd.txn(txn.clone()).await {
            Err(error) if error.is_transient() && again.next().is_some() => pauses.pause(&*runtime).await,
            answer => return answer,
        }
    }
}
