//! Loss is told to threads, in time and with its cause; and work is run while held.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use leasehold::LossCause;
use leasehold::blocking::Mutex;
use leasehold_testbed::{Backend, Proxy, connect, for_each_backend};

use super::{on_a_thread, session};

/// Much longer than anything here should take, much shorter than the leases live.
const LONG: Duration = Duration::from_secs(15);

async fn a_thread_whose_lease_is_revoked_is_told_at_once_with_that_cause(backend: Backend) {
    let (name, etcd) = (backend.lock_name("revoked"), backend.etcd());
    let (guard, mutex) = on_a_thread(move || {
        let mutex = Mutex::new(&session(etcd, 60), name);
        (mutex.lock().unwrap(), mutex)
    })
    .await;
    let (lease, lost, other) = (guard.lease(), guard.lost(), guard.lost());
    let sleeping = tokio::spawn(on_a_thread(move || (guard.lost_within(LONG), guard)));
    let waiting = tokio::spawn(on_a_thread(move || other.wait().unwrap()));
    assert_eq!(on_a_thread(move || lost.wait_timeout(Duration::from_millis(10))).await, None);
    backend.etcd().lease_revoke(lease).await.unwrap();
    let (told, guard) = sleeping.await.unwrap();
    assert_eq!((told, waiting.await.unwrap()), (Some(LossCause::LeaseGone), LossCause::LeaseGone));
    on_a_thread(move || {
        assert_eq!(guard.ensure_held(Duration::ZERO), Err(LossCause::LeaseGone));
        assert_eq!(guard.verify().unwrap_err().loss(), Some(LossCause::LeaseGone));
        // The session goes on with another lease.
        let again = mutex.lock().unwrap();
        assert!(again.token() > guard.token() && again.lease() != guard.lease());
        again.release().unwrap();
    })
    .await;
}
for_each_backend!(a_thread_whose_lease_is_revoked_is_told_at_once_with_that_cause, cluster);

async fn work_is_told_of_the_loss_while_it_runs_and_does_not_count(backend: Backend) {
    let (name, etcd) = (backend.lock_name("work"), backend.etcd());
    let (begun, working) = tokio::sync::oneshot::channel();
    let work = tokio::spawn(on_a_thread(move || {
        let guard = Mutex::new(&session(etcd, 60), name).lock().unwrap();
        let (stop, stopped) = mpsc::channel();
        let outcome = guard.run_while_held(
            || {
                begun.send(guard.lease()).unwrap();
                stopped.recv_timeout(LONG).expect("it was not told")
            },
            |cause| stop.send(cause).unwrap(),
        );
        // Told to the work, and to whoever asked for it.
        assert_eq!(outcome.unwrap_err().loss(), Some(LossCause::LeaseGone));
        let nothing = guard.run_while_held::<()>(|| panic!("it was begun without the lock"), |_| ());
        let error = nothing.unwrap_err();
        assert_eq!(error.loss(), Some(LossCause::LeaseGone));
        assert!(error.to_string().contains(guard.name().as_str()), "{error}");
    }));
    backend.etcd().lease_revoke(working.await.unwrap()).await.unwrap();
    work.await.unwrap();
}
for_each_backend!(work_is_told_of_the_loss_while_it_runs_and_does_not_count);

async fn work_within_the_hold_counts_and_is_told_nothing(backend: Backend) {
    let (name, etcd) = (backend.lock_name("done"), backend.etcd());
    on_a_thread(move || {
        let mutex = Mutex::new(&session(etcd, 60), name);
        let (guard, told) = (mutex.lock().unwrap(), AtomicBool::new(false));
        let done = guard.run_while_held(|| 7, |_| told.store(true, Ordering::Relaxed));
        assert_eq!(done.unwrap(), 7);
        // A panic in the work comes through, and leaves the lock to the next one.
        let panic = catch_unwind(AssertUnwindSafe(|| {
            let guard = guard;
            guard.run_while_held::<()>(|| panic!("on purpose"), |_| told.store(true, Ordering::Relaxed))
        }));
        let panic = panic.unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&"on purpose"));
        assert!(!told.into_inner());
        mutex.lock().unwrap().release().unwrap();
    })
    .await;
}
for_each_backend!(work_within_the_hold_counts_and_is_told_nothing);

/// B21: renewal needs nothing of the thread that holds.
async fn a_hold_outlives_three_ttls_of_a_busy_thread(backend: Backend) {
    let (name, etcd) = (backend.lock_name("busy"), backend.etcd());
    on_a_thread(move || {
        let guard = Mutex::new(&session(etcd, 2), name).lock().unwrap();
        thread::sleep(Duration::from_secs(6));
        assert_eq!(guard.ensure_held(Duration::ZERO), Ok(()));
        guard.verify().unwrap();
        guard.release().unwrap();
    })
    .await;
}
for_each_backend!(a_hold_outlives_three_ttls_of_a_busy_thread);

async fn a_thread_cut_off_from_the_network_is_told_before_the_server_frees_the_key(backend: Backend) {
    let Some(endpoints) = backend.endpoints() else { return };
    let proxy = Proxy::start(&endpoints[0]).await;
    let (name, behind, etcd) = (backend.lock_name("cut"), connect(&[proxy.endpoint()]), backend.etcd());
    let (guard, next) = on_a_thread(move || {
        let next = Mutex::new(&session(etcd, 10), name.clone());
        (Mutex::new(&session(behind, 3), name).lock().unwrap(), next)
    })
    .await;
    let runtime = backend.etcd().runtime();
    let clock = runtime.clone();
    let work = tokio::spawn(on_a_thread(move || {
        let mut told = None;
        let outcome = guard.run_while_held(|| guard.lost_within(LONG), |_| told = Some(clock.now()));
        (outcome.unwrap_err().loss(), told.unwrap(), guard)
    }));
    proxy.cut();
    let next = on_a_thread(move || next.lock().unwrap()).await;
    let freed = runtime.now();
    let (cause, told, guard) = work.await.unwrap();
    assert_eq!(cause, Some(LossCause::Deadline));
    assert!(told < freed, "told {told:?}, freed {freed:?}");
    assert!(next.token() > guard.token());
    proxy.heal();
    on_a_thread(move || {
        drop(guard);
        next.verify().unwrap();
        next.release().unwrap();
    })
    .await;
}
for_each_backend!(a_thread_cut_off_from_the_network_is_told_before_the_server_frees_the_key);
