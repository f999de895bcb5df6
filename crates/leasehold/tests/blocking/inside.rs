//! Blocking calls made inside an async runtime: they block, and that is all.

use leasehold::blocking::{DistributedLock, Mutex};
use leasehold::etcd::Etcd;
use leasehold::{ErrorKind, LockName, Ttl};
use leasehold_testbed::{Backend, for_each_backend, join};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::{queued, session};

/// Each kind of call once, the wait behind a holder included.
fn everything(etcd: &Arc<dyn Etcd>, name: &LockName) {
    let session = session(etcd.clone(), 10);
    let mutex = Mutex::new(&session, name.clone());
    let guard = mutex.lock().unwrap();
    thread::scope(|scope| {
        // The next one waits where this is called; this one is released by a thread of its own.
        scope.spawn(|| {
            queued(&mutex, 2);
            guard.verify().unwrap();
            guard.release().unwrap();
        });
        let next = mutex.lock().unwrap();
        assert_eq!(next.lost_within(Duration::from_millis(10)), None);
        assert_eq!(next.run_while_held(|| 7, |_| ()).unwrap(), 7);
        assert!(mutex.lock_timeout(Duration::from_millis(10)).unwrap().is_none());
        assert!(mutex.try_lock().unwrap().acquired().is_none());
    });
    assert_eq!(mutex.holder().unwrap(), None);
    let lock = DistributedLock::new(etcd.clone(), format!("{name}-key"), "me", Ttl::default()).unwrap();
    assert!(lock.lock_timeout(Duration::from_secs(15)).unwrap());
    drop(lock);
    session.close().unwrap();
}

async fn blocking_calls_work_in_spawn_blocking(backend: Backend) {
    let (etcd, name) = (backend.etcd(), backend.lock_name("spawn-blocking"));
    tokio::task::spawn_blocking(move || everything(&etcd, &name)).await.unwrap();
}
for_each_backend!(blocking_calls_work_in_spawn_blocking);

async fn blocking_calls_work_in_a_tokio_task_whose_thread_they_block(backend: Backend) {
    let (etcd, name) = (backend.etcd(), backend.lock_name("worker"));
    let task = {
        let (etcd, name) = (etcd.clone(), name.clone());
        async move { everything(&etcd, &name) }
    };
    tokio::spawn(task).await.unwrap();
    // Nor does the only thread of a runtime matter to the library.
    let alone = thread::spawn(move || {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio.block_on(async { tokio::spawn(async move { everything(&etcd, &name) }).await }).unwrap();
    });
    tokio::task::spawn_blocking(|| alone.join().unwrap()).await.unwrap();
}
for_each_backend!(blocking_calls_work_in_a_tokio_task_whose_thread_they_block);

/// The library's threads also run what is given to the backend's runtime. There a wait would be for oneself.
async fn a_blocking_call_on_a_thread_of_the_librarys_own_is_refused_and_a_drop_is_left_to_it(
    backend: Backend,
) {
    let (etcd, name) = (backend.etcd(), backend.lock_name("own"));
    let session = leasehold::Session::open(etcd.clone()).await.unwrap();
    let mutex = Mutex::new(&session.clone().into(), name.clone());
    let guard = tokio::task::spawn_blocking({
        let mutex = mutex.clone();
        move || mutex.lock().unwrap()
    });
    let guard = guard.await.unwrap();
    let task = async move {
        for refused in [mutex.lock().map(drop), guard.verify(), mutex.holder().map(drop)] {
            let error = refused.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
        assert_eq!(guard.ensure_held(Duration::ZERO), Ok(()), "what asks the clock alone is no wait");
        assert_eq!(guard.lost_within(Duration::MAX), None);
        drop(guard);
    };
    join(&*etcd.runtime(), "on a thread of the library's", task).await;
    leasehold::Mutex::new(&session, name).lock().await.unwrap().release().await.unwrap();
}
for_each_backend!(a_blocking_call_on_a_thread_of_the_librarys_own_is_refused_and_a_drop_is_left_to_it);
