//! Loss is told, in time, and with its cause.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use leasehold::{ErrorKind, EtcdExt, Guard, LossCause, Mutex, Session, Ttl};
use leasehold_testbed::{Backend, Proxy, connect, for_each_backend, join};

async fn session(backend: &Backend, ttl: u64) -> Session {
    Session::builder(backend.etcd()).ttl(Ttl::seconds(ttl).unwrap()).open().await.unwrap()
}

/// What `future` gives.
///
/// # Panics
/// If it takes much longer than anything here should.
async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(15), future)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within 15 s"))
}

/// B05, B28: the loss comes with the deed, long before the deadline.
async fn a_guard_whose_lease_is_revoked_is_lost_at_once_with_that_cause(backend: Backend) {
    let session = session(&backend, 60).await;
    let guard = Mutex::new(&session, backend.lock_name("revoked")).lock().await.unwrap();
    backend.etcd().lease_revoke(guard.lease()).await.unwrap();
    assert_eq!(soon("the loss", guard.lost().wait()).await, LossCause::LeaseGone);
    assert_eq!(guard.ensure_held(Duration::ZERO), Err(LossCause::LeaseGone));
    // The session goes on with another lease.
    let again = Mutex::new(&session, backend.lock_name("revoked")).lock().await.unwrap();
    assert_ne!(again.lease(), guard.lease());
    assert!(again.token() > guard.token());
    again.release().await.unwrap();
}
for_each_backend!(a_guard_whose_lease_is_revoked_is_lost_at_once_with_that_cause, cluster);

/// D14, D35.
async fn a_guard_whose_key_is_deleted_is_lost_at_once_with_that_cause(backend: Backend) {
    let session = session(&backend, 60).await;
    let (first, second) = (backend.lock_name("deleted"), backend.lock_name("kept"));
    let (guard, kept) = (
        Mutex::new(&session, first).lock().await.unwrap(),
        Mutex::new(&session, second).lock().await.unwrap(),
    );
    assert!(backend.etcd().delete(guard.key().clone()).await.unwrap());
    assert_eq!(soon("the loss", guard.lost().wait()).await, LossCause::KeyDeleted);
    assert_eq!(kept.ensure_held(Duration::ZERO), Ok(()), "the other lock of the session is still held");
    kept.release().await.unwrap();
}
for_each_backend!(a_guard_whose_key_is_deleted_is_lost_at_once_with_that_cause);

async fn a_hold_beyond_its_limit_is_lost_and_the_next_one_goes(backend: Backend) {
    let limit = Duration::from_millis(700);
    let session = Session::builder(backend.etcd()).max_hold(limit).open().await.unwrap();
    let mutex = Mutex::new(&session, backend.lock_name("limit"));
    let guard = mutex.lock().await.unwrap();
    let until = guard.valid_until();
    let next = soon("the next hold", mutex.lock()).await.unwrap();
    assert!(session.runtime().now() >= until);
    assert_eq!(guard.lost().cause(), Some(LossCause::MaxHold));
    next.release().await.unwrap();
}
for_each_backend!(a_hold_beyond_its_limit_is_lost_and_the_next_one_goes);

async fn a_closed_session_loses_its_guards_and_waits_and_refuses_new_ones(backend: Backend) {
    let session = session(&backend, 60).await;
    let mutex = Mutex::new(&session, backend.lock_name("closed"));
    let guard = mutex.lock().await.unwrap();
    let waiting = mutex.clone();
    let waiter = join(&*session.runtime(), "waiter", async move { waiting.lock().await });
    while mutex.queue().await.unwrap().len() != 2 {
        tokio::task::yield_now().await;
    }
    session.close().await.unwrap();
    assert_eq!(guard.lost().cause(), Some(LossCause::Closed));
    assert_eq!(soon("the wait", waiter).await.unwrap_err().loss(), Some(LossCause::Closed));
    let error = mutex.lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    assert!(error.to_string().contains(mutex.name().as_str()), "{error}");
    assert_eq!(session.close().await.map_err(|error| error.kind()), Ok(()), "closing twice is no fault");
}
for_each_backend!(a_closed_session_loses_its_guards_and_waits_and_refuses_new_ones);

/// A01, A03: it ends at once while the holder still holds, and never wins.
async fn a_waiter_whose_lease_is_revoked_ends_at_once_while_the_holder_holds(backend: Backend) {
    let (holding, waiting) = (session(&backend, 60).await, session(&backend, 60).await);
    let name = backend.lock_name("waiter");
    let guard = Mutex::new(&holding, name.clone()).lock().await.unwrap();
    let lease = waiting.lease_id().unwrap();
    let mutex = Mutex::new(&waiting, name);
    let (waiter, queue) = (mutex.clone(), mutex.clone());
    let waiter = join(&*waiting.runtime(), "waiter", async move { waiter.lock().await });
    while queue.queue().await.unwrap().len() != 2 {
        tokio::task::yield_now().await;
    }
    backend.etcd().lease_revoke(lease).await.unwrap();
    let error = soon("the wait", waiter).await.unwrap_err();
    assert_eq!(error.loss(), Some(LossCause::LeaseGone), "{error}");
    assert_eq!(guard.ensure_held(Duration::ZERO), Ok(()));
    guard.release().await.unwrap();
    // A51: the session is good for the next attempt.
    mutex.lock().await.unwrap().release().await.unwrap();
}
for_each_backend!(a_waiter_whose_lease_is_revoked_ends_at_once_while_the_holder_holds, cluster);

/// A47: an entry deleted by hand is out, and is not won by.
async fn a_waiter_whose_entry_is_deleted_ends_at_once(backend: Backend) {
    let session = session(&backend, 60).await;
    let mutex = Mutex::new(&session, backend.lock_name("entry"));
    let guard = mutex.lock().await.unwrap();
    let waiting = mutex.clone();
    let waiter = join(&*session.runtime(), "waiter", async move { waiting.lock().await });
    let entry = loop {
        if let [_, waiter] = &mutex.queue().await.unwrap()[..] {
            break waiter.key.clone();
        }
    };
    backend.etcd().delete(entry).await.unwrap();
    assert_eq!(soon("the wait", waiter).await.unwrap_err().loss(), Some(LossCause::KeyDeleted));
    guard.release().await.unwrap();
}
for_each_backend!(a_waiter_whose_entry_is_deleted_ends_at_once);

/// B21: renewal needs no thread of the caller's.
async fn a_session_outlives_every_worker_of_the_callers_runtime_being_blocked(backend: Backend) {
    let etcd = backend.another();
    let name = backend.lock_name("blocked");
    // A runtime of the caller's own, two workers strong; a plain thread looks on.
    let caller = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let guard: Arc<Guard> = caller
        .spawn(async move {
            let session = Session::builder(etcd).ttl(Ttl::seconds(2).unwrap()).open().await.unwrap();
            Arc::new(Mutex::new(&session, name).lock().await.unwrap())
        })
        .await
        .unwrap();
    let blocked: Vec<_> =
        (0..2).map(|_| caller.spawn(async { std::thread::sleep(Duration::from_secs(6)) })).collect();
    for blocked in blocked {
        blocked.await.unwrap();
    }
    assert_eq!(guard.ensure_held(Duration::ZERO), Ok(()));
    let checked = guard.clone();
    caller.spawn(async move { checked.verify().await }).await.unwrap().unwrap();
    // And when that runtime is gone, with the guard dropped after it, the lock is freed all the same.
    caller.shutdown_background();
    drop(guard);
    let session = session(&backend, 10).await;
    soon("the next hold", Mutex::new(&session, backend.lock_name("blocked")).lock())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}
for_each_backend!(a_session_outlives_every_worker_of_the_callers_runtime_being_blocked);

/// A05, A06, C01, D06: without a word from the network, loss is told before the server gives the lock away.
async fn a_guard_cut_off_from_the_network_is_lost_before_the_server_frees_the_key(backend: Backend) {
    let Some(endpoints) = backend.endpoints() else { return };
    let proxy = Proxy::start(&endpoints[0]).await;
    let cut_off =
        Session::builder(connect(&[proxy.endpoint()])).ttl(Ttl::seconds(3).unwrap()).open().await.unwrap();
    let name = backend.lock_name("cut");
    let guard = Mutex::new(&cut_off, name.clone()).lock().await.unwrap();
    let (lost, runtime) = (guard.lost(), cut_off.runtime());
    let told = join(&*runtime, "told", {
        let runtime = runtime.clone();
        async move { (lost.wait().await, runtime.now()) }
    });
    // In the middle of its work, which stops.
    let work = join(&*runtime, "work", {
        let runtime = runtime.clone();
        async move { (guard.run_while_held(pending::<()>()).await, runtime.now(), guard) }
    });
    let other = session(&backend, 10).await;
    proxy.cut();
    let next = soon("the next hold", Mutex::new(&other, name).lock()).await.unwrap();
    let freed = runtime.now();
    let (cause, told) = told.await;
    let (stopped, when, guard) = work.await;
    assert_eq!((cause, stopped), (LossCause::Deadline, Err(LossCause::Deadline)));
    assert!(told < freed && when < freed, "told {told:?}, stopped {when:?}, freed {freed:?}");
    assert!(next.token() > guard.token());
    proxy.heal();
    drop(guard);
    assert_eq!(next.ensure_held(Duration::ZERO), Ok(()), "what was held back harms nobody");
    next.verify().await.unwrap();
    next.release().await.unwrap();
}
for_each_backend!(a_guard_cut_off_from_the_network_is_lost_before_the_server_frees_the_key, cluster);

/// A23, A25: a server that never comes back; every call ends.
async fn a_guard_of_a_server_that_is_gone_for_good_is_lost_and_every_call_ends(backend: Backend) {
    let Some(server) = backend.server() else { return };
    backend.leaves_something();
    let session = session(&backend, 3).await;
    let mutex = Mutex::new(&session, backend.lock_name("gone"));
    let guard = mutex.lock().await.unwrap();
    let waiting = mutex.clone();
    let waiter = join(&*session.runtime(), "waiter", async move { waiting.lock().await.map(drop) });
    while mutex.queue().await.unwrap().len() != 2 {
        tokio::task::yield_now().await;
    }
    server.kill();
    assert_eq!(soon("the loss", guard.lost().wait()).await, LossCause::Deadline);
    assert!(soon("the wait", waiter).await.is_err());
    assert!(soon("a lock", mutex.lock()).await.is_err());
    assert!(soon("the release", guard.release()).await.is_err());
    soon("the close", session.close()).await.unwrap_or_default();
}
for_each_backend!(a_guard_of_a_server_that_is_gone_for_good_is_lost_and_every_call_ends, fresh);

/// A restore from backup, the real one: revisions go back, and the lease, granted after the backup, is missing.
async fn a_restore_from_backup_is_told_as_that_and_no_lower_token_is_given(backend: Backend) {
    let Some(server) = backend.server() else { return };
    backend.leaves_something();
    let backup = server.backup();
    let session = session(&backend, 10).await;
    let mutex = Mutex::new(&session, backend.lock_name("restored"));
    for _ in 0..20 {
        mutex.lock().await.unwrap().release().await.unwrap();
    }
    let guard = mutex.lock().await.unwrap();
    server.restore_and_restart(&backup);
    assert_eq!(soon("the loss", guard.lost().wait()).await, LossCause::Restored);
    let error = soon("the lock", mutex.lock()).await.unwrap_err();
    assert_eq!(error.loss(), Some(LossCause::Restored), "{error}");
}
for_each_backend!(a_restore_from_backup_is_told_as_that_and_no_lower_token_is_given, fresh);
