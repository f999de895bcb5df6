//! Getting the lock: at once or not at all, within a time, or however long it takes; until a signal ends the wait.

use std::time::Duration;

use futures_util::future::Either;
use leasehold::runtime::Runtime;
use leasehold::{Entry, Guard, LockName, Mutex, TryLock};

use crate::args::Taking;
use crate::connect::Connection;
use crate::exit::{Code, Failure};
use crate::notice::Steps;
use crate::signals::Signals;
use leasehold::runtime::{before, race};

/// After how long a wait is worth a word about whom it is for.
const WORTH_A_WORD: Duration = Duration::from_millis(100);

/// How long it may take to learn who holds a lock that was not acquired.
const ASK_WHO: Duration = Duration::from_millis(500);

/// Takes the lock as the options say. Whatever is left of a failed attempt goes when the connection is closed.
pub(crate) async fn acquire(
    connection: &mut Connection,
    name: &LockName,
    taking: &Taking,
    signals: &mut Signals,
    steps: Steps,
) -> Result<Guard, Failure> {
    let mutex = Mutex::new(connection.session(), name.clone());
    let runtime = connection.runtime();
    let asked = runtime.now();
    let attempt = attempt(&mutex, taking, &*runtime);
    let attempt = async {
        if !steps.wanted() {
            return attempt.await;
        }
        let mut attempt = Box::pin(attempt);
        match before(&*runtime, asked + WORTH_A_WORD, &mut attempt).await {
            Some(guard) => guard,
            None => {
                let holder = holder(&mutex, &*runtime).await;
                steps.tell(|| format!("lock {:?}: waiting; {holder}", name.as_str()));
                attempt.await
            }
        }
    };
    let ended = race(attempt, race(connection.gone(), signals.end())).await;
    let guard = match ended {
        Either::Left(guard) => guard?,
        Either::Right(Either::Left(())) => {
            return Err(Failure::new(
                Code::UNREACHABLE,
                format!("lock {:?}: the etcd of --local ended while this waited; try again", name.as_str()),
            ));
        }
        Either::Right(Either::Right(signal)) => {
            return Err(Failure::interrupted(signal, &format!("lock {:?}: not acquired", name.as_str())));
        }
    };
    steps.tell(|| {
        let after = runtime.now().since(asked);
        format!(
            "lock {:?}: acquired after {after:?}; key {}, token {}",
            name.as_str(),
            guard.key(),
            guard.token()
        )
    });
    Ok(guard)
}

async fn attempt(mutex: &Mutex, taking: &Taking, runtime: &dyn Runtime) -> Result<Guard, Failure> {
    let name = mutex.name().as_str();
    let failed = |error| Failure::of_library(&format!("lock {name:?}"), &error);
    let refused =
        |why: String| Failure::new(Code::new(taking.conflict_exit_code), format!("lock {name:?}: {why}"));
    match taking.wait {
        None if !taking.nonblock => mutex.lock().await.map_err(failed),
        Some(wait) if !wait.0.is_zero() => match mutex.lock_timeout(wait.0).await.map_err(failed)? {
            Some(guard) => Ok(guard),
            None => {
                Err(refused(format!("not acquired within --wait {wait}; {}", holder(mutex, runtime).await)))
            }
        },
        // Not to wait, or to wait for no time, which is the same.
        _ => match mutex.try_lock().await.map_err(failed)? {
            TryLock::Acquired(guard) => Ok(guard),
            TryLock::Busy(entry) => Err(refused(format!("busy; {}", held_by(&entry)))),
        },
    }
}

fn held_by(entry: &Entry) -> String {
    format!("held by {entry}")
}

/// Who holds the lock, for people; if that is not known soon, it is not worth the wait.
async fn holder(mutex: &Mutex, runtime: &dyn Runtime) -> String {
    match before(runtime, runtime.now() + ASK_WHO, mutex.holder()).await {
        Some(Ok(Some(entry))) => held_by(&entry),
        Some(Ok(None)) => "nobody holds it any more".into(),
        Some(Err(_)) | None => "etcd does not tell who holds it".into(),
    }
}
