//! Getting the lock: at once or not at all, within a time, or however long it takes; until a signal ends the wait.

use futures_util::future::Either;
use leasehold::{Guard, LockName, Mutex, Session, TryLock};

use crate::args::Taking;
use crate::connect::Connection;
use crate::exit::{Code, Failure};
use crate::notice::Steps;
use crate::signals::Signals;
use crate::waiting;
use leasehold::runtime::race;

/// Takes the lock as the options say. Whatever is left of a failed attempt goes when the connection is closed.
pub(crate) async fn acquire(
    connection: &mut Connection,
    name: &LockName,
    taking: &Taking,
    signals: &mut Signals,
    steps: Steps,
) -> Result<Guard, Failure> {
    let session = connection.session().clone();
    let mutex = Mutex::new(&session, name.clone());
    let runtime = connection.runtime();
    let asked = runtime.now();
    let attempt = async {
        let attempt = attempt(&mutex, &session, taking);
        if !steps.wanted() {
            return attempt.await;
        }
        match race(attempt, waiting::narrate(&mutex, &session, steps)).await {
            Either::Left(guard) => guard,
            Either::Right(never) => match never {},
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

async fn attempt(mutex: &Mutex, session: &Session, taking: &Taking) -> Result<Guard, Failure> {
    let name = mutex.name().as_str();
    let failed = |error| Failure::of_library(&format!("lock {name:?}"), &error);
    let refused =
        |why: String| Failure::new(Code::new(taking.conflict_exit_code), format!("lock {name:?}: {why}"));
    match taking.wait {
        None if !taking.nonblock => mutex.lock().await.map_err(failed),
        Some(wait) if !wait.0.is_zero() => match mutex.lock_timeout(wait.0).await.map_err(failed)? {
            Some(guard) => Ok(guard),
            None => {
                let holder = waiting::holder(mutex, session).await;
                Err(refused(format!("not acquired within --wait {wait}; {holder}")))
            }
        },
        // Not to wait, or to wait for no time, which is the same.
        _ => match mutex.try_lock().await.map_err(failed)? {
            TryLock::Acquired(guard) => Ok(guard),
            TryLock::Busy(entry) => {
                Err(refused(format!("busy; {}", waiting::held_by(session, mutex, &entry).await)))
            }
        },
    }
}
