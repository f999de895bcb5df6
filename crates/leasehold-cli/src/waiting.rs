//! Whom a wait is for: who holds the lock, how many come first, and whether the holder's lease is as it should be.

use std::convert::Infallible;
use std::time::Duration;

use futures_util::StreamExt;
use leasehold::etcd::{Updates, WatchUpdate};
use leasehold::mvcc::WatchRequest;
use leasehold::runtime::before;
use leasehold::survey::{self, Life};
use leasehold::{Entry, Mutex, Session};

use crate::notice::Steps;

/// After how long a wait is worth a word.
const WORTH_A_WORD: Duration = Duration::from_millis(100);

/// How long etcd may take to say who holds a lock: for longer it is not worth waiting.
const ASK_WHO: Duration = Duration::from_millis(500);

/// How often, at most, etcd is asked again when the queue moves.
const OFTEN: Duration = Duration::from_secs(1);

/// After how long it is asked again although nothing was heard: a lease runs out in silence.
const SELDOM: Duration = Duration::from_secs(15);

/// Tells, for as long as an attempt waits, for whom, and again whenever that changes.
///
/// It does not ask over and over: entries that go are told by a watch, and what is said is asked for then.
pub(crate) async fn narrate(mutex: &Mutex, session: &Session, steps: Steps) -> Infallible {
    let runtime = session.runtime();
    runtime.sleep_until(runtime.now() + WORTH_A_WORD).await;
    let mut told = String::new();
    let mut watch: Option<Updates> = None;
    loop {
        // Opened before the look: what changes after that is told.
        let leaving = || session.etcd().watch(WatchRequest::range(mutex.name().queue()).deletes_only());
        let updates = watch.get_or_insert_with(leaving);
        let looked = runtime.now();
        let seen = before(&*runtime, looked + ASK_WHO, look(mutex, session)).await;
        // Nobody before it: it has the lock, and is about to learn it.
        if let Some(seen) = seen.unwrap_or_else(|| Some("etcd does not tell who holds it".to_owned()))
            && seen != told
        {
            steps.tell(|| format!("lock {:?}: waiting; {seen}", mutex.name().as_str()));
            told = seen;
        }
        if let Some(false) = before(&*runtime, looked + SELDOM, moved(updates)).await {
            watch = None;
        }
        runtime.sleep_until(looked + OFTEN).await;
    }
}

/// Waits until the queue may have changed. False if that will not be told any more.
async fn moved(updates: &mut Updates) -> bool {
    loop {
        match updates.next().await {
            Some(Ok(WatchUpdate::Progress(_))) => {}
            Some(Ok(_)) => return true,
            Some(Err(_)) | None => return false,
        }
    }
}

/// What there is to say of an attempt of this session that waits; nothing if it is first.
async fn look(mutex: &Mutex, session: &Session) -> Option<String> {
    let Ok(queue) = mutex.queue().await else { return Some("etcd does not tell who holds it".into()) };
    let own = session.lease_id();
    let place = queue.iter().position(|entry| Some(entry.lease) == own);
    match (queue.first(), place) {
        (_, Some(0)) => None,
        (Some(holder), Some(place)) => {
            Some(format!("{}; place {place} in the queue", held_by(session, mutex, holder).await))
        }
        (Some(holder), None) => Some(held_by(session, mutex, holder).await),
        (None, _) => Some("nobody holds it any more".into()),
    }
}

/// Who holds the lock, for people; if that is not known soon, it is not worth the wait.
pub(crate) async fn holder(mutex: &Mutex, session: &Session) -> String {
    let runtime = session.runtime();
    let ask = async {
        match mutex.holder().await {
            Ok(Some(entry)) => held_by(session, mutex, &entry).await,
            Ok(None) => "nobody holds it any more".into(),
            Err(_) => "etcd does not tell who holds it".into(),
        }
    };
    let said = before(&*runtime, runtime.now() + ASK_WHO, ask).await;
    said.unwrap_or_else(|| "etcd does not tell who holds it".into())
}

/// That this is who holds the lock, and what is wrong with that.
pub(crate) async fn held_by(session: &Session, mutex: &Mutex, holder: &Entry) -> String {
    let held = format!("held by {holder}");
    let runtime = session.runtime();
    let asked = survey::life(&**session.etcd(), holder.lease);
    match before(&*runtime, runtime.now() + ASK_WHO, asked).await {
        Some(Ok(Life::Overdue(by))) => format!(
            "{held}, which is past its end by {} s though etcd has not ended it; if the holder is dead, \
             `leasehold break {}` frees it",
            by.as_secs(),
            mutex.name()
        ),
        _ => held,
    }
}
