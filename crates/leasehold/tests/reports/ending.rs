//! The end of a hold, of a session and of a client, from whatever side it comes.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use leasehold::etcd::Etcd;
use leasehold::mvcc::{KeyRange, RangeRequest, Txn, WatchRequest};
use leasehold::{
    DistributedLock, Embedded, Error, ErrorKind, EtcdExt, LeaseId, LossCause, Mutex, Session, Ttl,
};
use leasehold_testbed::{Backend, block_on, for_each_backend, join};

use crate::{nap, open, queued, soon, within};

/// C18: whoever hears of the loss may do with the guard what he likes, from any thread, while others do the same.
#[test]
fn c18_a_release_inside_the_news_of_the_loss_never_locks_up() {
    block_on(async {
        let etcd = Embedded::start().unwrap();
        let all = async {
            for round in 0..1500 {
                let session = open(etcd.clone(), 60).await;
                let guard = Mutex::new(&session, "lock".parse().unwrap()).lock().await.unwrap();
                let (lost, lease) = (guard.lost(), guard.lease());
                let shared = Arc::new(StdMutex::new(Some(guard)));
                let hears = {
                    let (shared, session, lost) = (shared.clone(), session.clone(), lost.clone());
                    tokio::spawn(async move {
                        let cause = lost.wait().await;
                        let guard = shared.lock().unwrap().take();
                        match guard {
                            Some(guard) if round % 2 == 0 => guard.release().await.unwrap_or_default(),
                            guard => drop(guard),
                        }
                        let _ = session.close().await;
                        cause
                    })
                };
                // The loss comes from one side or the other, and the guard's end may be the first of all.
                match round % 12 {
                    // The watch that tells of it comes 50 ms after the hold.
                    0 => drop(etcd.lease_revoke(lease).await),
                    1..6 => session.close().await.unwrap_or_default(),
                    _ => {
                        let guard = shared.lock().unwrap().take();
                        let thread = std::thread::spawn(move || drop(guard));
                        lost.wait().await;
                        thread.join().unwrap();
                    }
                }
                hears.await.unwrap();
            }
        };
        within(Duration::from_secs(20), "all rounds", all).await;
    });
}

/// C28: what the clock says may lag behind an administrator; what etcd says does not.
async fn c28_a_verification_knows_of_a_revoked_lease_and_of_a_deleted_key_at_once(backend: Backend) {
    for delete in [false, true] {
        let session = open(backend.etcd(), 60).await;
        let guard = Mutex::new(&session, backend.lock_name("lock")).lock().await.unwrap();
        guard.verify().await.unwrap();
        if delete {
            backend.etcd().delete(guard.key().clone()).await.unwrap();
        } else {
            backend.etcd().lease_revoke(guard.lease()).await.unwrap();
        }
        let error = guard.verify().await.unwrap_err();
        let expected = if delete { LossCause::KeyDeleted } else { LossCause::LeaseGone };
        assert_eq!(error.loss(), Some(expected), "{error}");
        assert_eq!(guard.ensure_held(Duration::ZERO), Err(expected));
        session.close().await.unwrap_or_default();
    }
}
for_each_backend!(c28_a_verification_knows_of_a_revoked_lease_and_of_a_deleted_key_at_once);

/// D29: nothing that was closed keeps anybody waiting.
async fn d29_every_call_on_what_is_closed_ends_at_once_and_says_so(backend: Backend) {
    let etcd = backend.another();
    let (session, other) = (open(etcd.clone(), 60).await, open(etcd.clone(), 60).await);
    let mutex = |session: &Session, name: &str| Mutex::new(session, backend.lock_name(name));
    let lock = |key: &str| {
        DistributedLock::new(etcd.clone(), backend.name(key), "token", Ttl::seconds(60).unwrap()).unwrap()
    };
    let (guard, theirs) =
        (mutex(&session, "a").lock().await.unwrap(), mutex(&other, "b").lock().await.unwrap());
    let (held, free) = (lock("held"), lock("free"));
    assert!(held.try_lock().await.unwrap());
    session.close().await.unwrap();
    let is = |error: Error, kind: ErrorKind| assert_eq!(error.kind(), kind, "{error}");
    let closed = async {
        for error in [
            mutex(&session, "c").lock().await.unwrap_err(),
            mutex(&session, "c").try_lock().await.unwrap_err(),
            mutex(&session, "c").lock_timeout(Duration::from_secs(60)).await.unwrap_err(),
        ] {
            is(error, ErrorKind::Closed);
        }
        is(guard.verify().await.unwrap_err(), ErrorKind::Lost);
        is(guard.txn(Txn::new()).await.unwrap_err(), ErrorKind::Lost);
        assert_eq!(guard.run_while_held(std::future::ready(())).await, Err(LossCause::Closed));
        guard.release().await.unwrap();
        session.close().await.unwrap();
        assert_eq!((session.lease_id(), session.orphan()), (None, None));
    };
    within(Duration::from_secs(5), "calls on a closed session", closed).await;

    etcd.close().await;
    let closed = async {
        is(etcd.range(RangeRequest::key("k")).await.unwrap_err(), ErrorKind::Closed);
        is(etcd.txn(Txn::new()).await.unwrap_err(), ErrorKind::Closed);
        is(etcd.put("k", "v", LeaseId::NONE).await.unwrap_err(), ErrorKind::Closed);
        is(etcd.lease_keep_alive(LeaseId::new(1)).await.unwrap_err(), ErrorKind::Closed);
        is(etcd.lease_revoke(LeaseId::new(1)).await.unwrap_err(), ErrorKind::Closed);
        is(etcd.lease_time_to_live(LeaseId::new(1), true).await.unwrap_err(), ErrorKind::Closed);
        let mut updates = etcd.watch(WatchRequest::range(KeyRange::key("k")));
        is(updates.next().await.unwrap().unwrap_err(), ErrorKind::Closed);
        is(Session::open(etcd.clone()).await.unwrap_err(), ErrorKind::Closed);
        for error in [
            mutex(&other, "c").lock().await.unwrap_err(),
            mutex(&other, "c").try_lock().await.unwrap_err(),
            mutex(&other, "c").holder().await.unwrap_err(),
            mutex(&other, "c").queue().await.unwrap_err(),
        ] {
            assert!(matches!(error.kind(), ErrorKind::Closed | ErrorKind::Lost), "{error}");
        }
        assert!(theirs.verify().await.is_err() && theirs.release().await.is_err());
        assert!(free.try_lock().await.is_err() && free.lock().await.is_err());
        drop((held, free));
        let _ = other.close().await;
    };
    within(Duration::from_secs(5), "calls on a closed client", closed).await;
    backend.leaves_something();
}
for_each_backend!(d29_every_call_on_what_is_closed_ends_at_once_and_says_so);

/// B19: panics of many tasks, holding, waiting and between, are theirs alone.
async fn b19_tasks_that_panic_under_a_lock_take_no_other_lock_along(backend: Backend) {
    let session = open(backend.etcd(), 3).await;
    let mutex = |name: &str| Mutex::new(&session, backend.lock_name(name));
    let kept = mutex("kept").lock().await.unwrap();
    for round in 0..20 {
        let (mutex, other) = (mutex("lock"), mutex("kept"));
        let work = async move {
            let guard = mutex.lock().await.unwrap();
            match round % 3 {
                0 => panic!("while holding"),
                1 => drop(guard.run_while_held(async { panic!("in what the guard runs") }).await),
                _ => {
                    futures_util::future::join(other.lock(), async { panic!("beside a wait") })
                        .map(drop)
                        .await
                }
            }
        };
        assert!(AssertUnwindSafe(work).catch_unwind().await.is_err());
    }
    let next = soon("the lock", mutex("lock").lock()).await.unwrap();
    nap(&session, Duration::from_secs(3)).await;
    assert_eq!(kept.ensure_held(Duration::ZERO), Ok(()), "renewals go on");
    next.release().await.unwrap();
    kept.release().await.unwrap();
    session.close().await.unwrap();
}
for_each_backend!(b19_tasks_that_panic_under_a_lock_take_no_other_lock_along);

/// A49: no key of a lock is ever without its lease, so none outlives an unclean end.
async fn a49_every_key_of_a_lock_hangs_on_the_lease_of_its_owner_and_goes_with_it(backend: Backend) {
    let etcd = backend.etcd();
    let (session, waiting) = (open(etcd.clone(), 2).await, open(etcd.clone(), 2).await);
    let mutex = Mutex::new(&session, backend.lock_name("lock"));
    let guard = mutex.lock().await.unwrap();
    let lock =
        DistributedLock::new(etcd.clone(), backend.name("key"), "us", Ttl::seconds(2).unwrap()).unwrap();
    assert!(lock.try_lock().await.unwrap());
    let waiter = Mutex::new(&waiting, backend.lock_name("lock"));
    let waiter = join(&*waiting.runtime(), "waits", async move { waiter.lock().await.map(drop) });
    queued(&mutex, 2).await;
    guard.verify().await.unwrap();
    guard.txn(Txn::new().then(RangeRequest::key("k"))).await.unwrap();
    nap(&session, Duration::from_millis(1500)).await;
    let all = etcd.range(RangeRequest::prefix(backend.prefix().to_owned())).await.unwrap().kvs;
    assert_eq!(all.len(), 3);
    for kv in &all {
        assert_ne!(kv.lease, LeaseId::NONE, "{}", kv.key);
        assert_eq!(kv.version, 1, "{} is written once, with its lease", kv.key);
    }
    // As a process that is killed leaves it.
    session.orphan();
    std::mem::forget(guard);
    soon("the next one", waiter).await.unwrap();
    lock.unlock().await.unwrap();
    waiting.close().await.unwrap();
}
for_each_backend!(a49_every_key_of_a_lock_hangs_on_the_lease_of_its_owner_and_goes_with_it);
