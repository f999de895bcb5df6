//! The queue, its order, tries and time-outs.

use std::thread;
use std::time::Duration;

use leasehold::blocking::{Mutex, TryLock};
use leasehold::{ErrorKind, LossCause};
use leasehold_testbed::{Backend, Witness, for_each_backend};

use super::{on_a_thread, queued, session};

async fn of_twenty_threads_never_two_are_inside_and_each_gets_its_turn(backend: Backend) {
    let (witness, name, etcd) = (Witness::new(), backend.lock_name("contended"), backend.etcd());
    let seen = witness.clone();
    on_a_thread(move || {
        let shared = session(etcd.clone(), 10);
        thread::scope(|scope| {
            for n in 0..20 {
                // Half of them share a session, and exclude each other all the same.
                let session = if n % 2 == 0 { shared.clone() } else { session(etcd.clone(), 10) };
                let (mutex, witness) = (Mutex::new(&session, name.clone()), &seen);
                scope.spawn(move || {
                    for turn in 0..3 {
                        let guard = mutex.lock().unwrap();
                        let inside = witness.enter(format!("{n}.{turn}"), guard.token());
                        thread::yield_now();
                        drop(inside);
                        guard.release().unwrap();
                    }
                });
            }
        });
    })
    .await;
    assert_eq!(witness.turns(), 60);
}
for_each_backend!(of_twenty_threads_never_two_are_inside_and_each_gets_its_turn, cluster);

async fn threads_win_in_the_order_of_their_arrival(backend: Backend) {
    let (witness, name, etcd) = (Witness::new(), backend.lock_name("fair"), backend.etcd());
    let seen = witness.clone();
    on_a_thread(move || {
        let mutex = Mutex::new(&session(etcd, 10), name);
        let first = mutex.lock().unwrap();
        thread::scope(|scope| {
            for n in 0..6 {
                let (mutex, witness) = (&mutex, &seen);
                scope.spawn(move || {
                    let guard = mutex.lock().unwrap();
                    drop(witness.enter(n, guard.token()));
                    guard.release().unwrap();
                });
                queued(mutex, n + 2);
            }
            first.release().unwrap();
        });
    })
    .await;
    let order: Vec<String> = witness.history().into_iter().map(|(who, _)| who).collect();
    assert_eq!(order, ["0", "1", "2", "3", "4", "5"]);
}
for_each_backend!(threads_win_in_the_order_of_their_arrival);

async fn a_try_tells_who_holds_and_leaves_nothing(backend: Backend) {
    let (name, holding, trying) = (backend.lock_name("busy"), backend.etcd(), backend.etcd());
    let (guard, mutex) = on_a_thread(move || {
        let holding = leasehold::blocking::Session::builder(holding).program("the holder").open().unwrap();
        (Mutex::new(&holding, name.clone()).lock().unwrap(), Mutex::new(&session(trying, 10), name))
    })
    .await;
    let before = backend.dump().await;
    let (guard, mutex) = on_a_thread(move || {
        for _ in 0..20 {
            match mutex.try_lock().unwrap() {
                TryLock::Busy(entry) => {
                    assert_eq!((&entry.key, entry.lease), (guard.key(), guard.lease()));
                    assert_eq!(entry.who.unwrap().program, "the holder");
                }
                TryLock::Acquired(_) => panic!("two hold it"),
            }
        }
        (guard, mutex)
    })
    .await;
    assert!(before.diff(&backend.dump().await).is_empty());
    on_a_thread(move || {
        guard.release().unwrap();
        assert!(mutex.try_lock().unwrap().acquired().is_some());
    })
    .await;
}
for_each_backend!(a_try_tells_who_holds_and_leaves_nothing);

async fn a_wait_that_ran_out_of_time_leaves_no_entry(backend: Backend) {
    let (name, etcd) = (backend.lock_name("timeout"), backend.etcd());
    on_a_thread(move || {
        let mutex = Mutex::new(&session(etcd, 10), name);
        let guard = mutex.lock().unwrap();
        for _ in 0..3 {
            assert!(mutex.lock_timeout(Duration::from_millis(50)).unwrap().is_none());
            assert_eq!(mutex.queue().unwrap().len(), 1);
        }
        guard.release().unwrap();
        let guard = mutex.lock_timeout(Duration::MAX).unwrap().expect("it is free");
        assert_eq!(mutex.holder().unwrap().unwrap().key, *guard.key());
        guard.release().unwrap();
        assert_eq!(mutex.holder().unwrap(), None);
    })
    .await;
}
for_each_backend!(a_wait_that_ran_out_of_time_leaves_no_entry);

/// What a dropped future is to a task, the closing of the session by another thread is to a waiting thread.
async fn closing_the_session_ends_the_waits_of_its_threads_and_refuses_new_ones(backend: Backend) {
    let (name, etcd) = (backend.lock_name("closed"), backend.etcd());
    on_a_thread(move || {
        let session = session(etcd, 60);
        let mutex = Mutex::new(&session, name);
        let guard = mutex.lock().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| mutex.lock());
            queued(&mutex, 2);
            session.close().unwrap();
            assert_eq!(waiting.join().unwrap().unwrap_err().loss(), Some(LossCause::Closed));
        });
        assert_eq!(guard.ensure_held(Duration::ZERO), Err(LossCause::Closed));
        assert_eq!(mutex.lock().unwrap_err().kind(), ErrorKind::Closed);
    })
    .await;
}
for_each_backend!(closing_the_session_ends_the_waits_of_its_threads_and_refuses_new_ones);

async fn a_lock_is_one_for_threads_and_tasks(backend: Backend) {
    let (name, etcd) = (backend.lock_name("both"), backend.etcd());
    let of_tasks = leasehold::Session::open(etcd).await.unwrap();
    let guard = leasehold::Mutex::new(&of_tasks, name.clone()).lock().await.unwrap();
    let of_threads = leasehold::blocking::Session::from(of_tasks.clone());
    assert_eq!(of_threads.lease_id(), of_tasks.lease_id());
    let (mutex, token) = (Mutex::new(&of_threads, name), guard.token());
    let waiting = mutex.clone();
    let waiter = tokio::spawn(on_a_thread(move || waiting.lock().unwrap()));
    on_a_thread(move || queued(&mutex, 2)).await;
    guard.release().await.unwrap();
    let next = waiter.await.unwrap();
    assert!(next.token() > token);
    on_a_thread(move || next.release().unwrap()).await;
}
for_each_backend!(a_lock_is_one_for_threads_and_tasks);
