//! Taking a lock from whoever has it: exactly this one, and nobody else.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::sync::Arc;
use std::time::Duration;

use leasehold::etcd::Etcd;
use leasehold::eviction::{self, Asked, Evicted};
use leasehold::runtime::before;
use leasehold::{Embedded, Entry, EtcdExt, LossCause, Mutex, Session, Ttl, survey};
use leasehold_testbed::{Backend, Lossy, Rates, block_on, for_each_backend, join};

async fn session(backend: &Backend) -> Session {
    Session::builder(backend.etcd()).ttl(Ttl::seconds(30).unwrap()).open().await.unwrap()
}

async fn holder(etcd: &dyn Etcd, mutex: &Mutex) -> Entry {
    survey::lock(etcd, mutex.name()).await.unwrap().queue[0].entry.clone()
}

async fn whoever_is_evicted_learns_it_and_the_next_one_goes_with_a_higher_token(backend: Backend) {
    let (first, second) = (session(&backend).await, session(&backend).await);
    let [mutex, waiting] = [&first, &second].map(|session| Mutex::new(session, backend.lock_name("stuck")));
    let other = Mutex::new(&first, backend.lock_name("other")).lock().await.unwrap();
    let guard = mutex.lock().await.unwrap();
    let waiter = join(&*second.runtime(), "waiter", async move { waiting.lock().await.unwrap() });
    let entry = holder(&*backend.etcd(), &mutex).await;
    assert_eq!(eviction::evict(&*backend.etcd(), &entry).await.unwrap(), Evicted::Removed);
    assert_eq!(guard.lost().wait().await, LossCause::KeyDeleted);
    let next = waiter.await;
    assert!(next.token() > guard.token());
    // What else hangs on the same lease is left alone; and so is the next holder, however often it is said.
    other.verify().await.unwrap();
    assert_eq!(eviction::evict(&*backend.etcd(), &entry).await.unwrap(), Evicted::WasGone);
    next.verify().await.unwrap();
    other.release().await.unwrap();
    next.release().await.unwrap();
    drop(guard);
    first.close().await.unwrap();
    second.close().await.unwrap();
}
for_each_backend!(whoever_is_evicted_learns_it_and_the_next_one_goes_with_a_higher_token, cluster);

async fn an_entry_of_the_same_key_that_was_made_later_is_spared(backend: Backend) {
    let session = session(&backend).await;
    let mutex = Mutex::new(&session, backend.lock_name("again"));
    let first = mutex.lock().await.unwrap();
    let entry = holder(&*backend.etcd(), &mutex).await;
    first.release().await.unwrap();
    let second = mutex.lock().await.unwrap();
    assert_eq!(*second.key(), entry.key, "an answered removal lets the key be used again");
    eviction::gone(&*backend.etcd(), &entry).await.unwrap();
    assert_eq!(eviction::evict(&*backend.etcd(), &entry).await.unwrap(), Evicted::WasGone);
    second.verify().await.unwrap();
    second.release().await.unwrap();
    session.close().await.unwrap();
}
for_each_backend!(an_entry_of_the_same_key_that_was_made_later_is_spared);

async fn a_wait_for_an_entrys_end_ends_with_it(backend: Backend) {
    let session = session(&backend).await;
    let mutex = Mutex::new(&session, backend.lock_name("ending"));
    let guard = mutex.lock().await.unwrap();
    let entry = holder(&*backend.etcd(), &mutex).await;
    let runtime = session.runtime();
    let etcd = backend.etcd();
    let soon = runtime.now() + Duration::from_millis(100);
    assert!(before(&*runtime, soon, eviction::gone(&*etcd, &entry)).await.is_none(), "it is held");
    let waiter = join(&*runtime, "waiter", async move { eviction::gone(&*etcd, &entry).await.unwrap() });
    guard.release().await.unwrap();
    let started = runtime.now();
    waiter.await;
    assert!(
        runtime.now().since(started) < Duration::from_secs(4),
        "it is told, and not found out by looking"
    );
    session.close().await.unwrap();
}
for_each_backend!(a_wait_for_an_entrys_end_ends_with_it, cluster);

/// Requests and answers are lost on the way: it is asked again, and still nobody else's entry goes.
#[test]
fn on_a_bad_network_exactly_this_entry_goes() {
    block_on(async {
        let etcd = Embedded::start().unwrap();
        let session = Session::open(etcd.clone()).await.unwrap();
        for _ in 0..50 {
            let mutex = Mutex::new(&session, "stuck".parse().unwrap());
            let guard = mutex.lock().await.unwrap();
            let entry = holder(&etcd, &mutex).await;
            let lossy = Lossy::new(Arc::new(etcd.clone()));
            let max_late = Duration::from_millis(20);
            let rates =
                Rates { lost_requests: 200, lost_replies: 200, late_requests: 200, max_late, ..Rates::NONE };
            lossy.faults().set(rates);
            match eviction::evict(&lossy, &entry).await {
                Ok(Evicted::Removed | Evicted::WasGone) => {
                    assert_eq!(etcd.get(entry.key.clone()).await.unwrap(), None)
                }
                Err(error) => assert!(error.is_transient(), "{error}"),
            }
            lossy.faults().calm();
            eviction::evict(&lossy, &entry).await.unwrap();
            // A late copy of the removal may still come: it is for this entry alone.
            let next = mutex.lock().await.unwrap();
            tokio::time::sleep(max_late).await;
            next.verify().await.unwrap();
            next.release().await.unwrap();
            assert_eq!(guard.lost().wait().await, LossCause::KeyDeleted);
        }
    });
}

async fn a_holder_that_is_asked_to_go_hears_who_asks_and_keeps_its_rank_until_it_does(backend: Backend) {
    let (first, second) = (session(&backend).await, session(&backend).await);
    let [mutex, waiting] = [&first, &second].map(|session| Mutex::new(session, backend.lock_name("asked")));
    let guard = mutex.lock().await.unwrap();
    let entry = holder(&*backend.etcd(), &mutex).await;
    let waiter = join(&*second.runtime(), "waiter", async move { waiting.lock().await.unwrap() });
    while mutex.queue().await.unwrap().len() != 2 {
        tokio::task::yield_now().await;
    }
    // It listens already, or will: it hears it either way, and again if it asks again.
    let etcd = backend.etcd();
    let (listening, asking) = (eviction::asked(&guard), eviction::ask(&*etcd, &entry, "ann"));
    let (heard, asked) = futures_util::future::join(listening, asking).await;
    assert_eq!((heard.as_str(), asked.unwrap()), ("ann", Asked::Told));
    assert_eq!(eviction::asked(&guard).await, "ann");
    // Nothing else has changed.
    guard.verify().await.unwrap();
    assert_eq!(holder(&*backend.etcd(), &mutex).await, entry);
    guard.release().await.unwrap();
    let next = waiter.await;
    // Nobody else is asked instead.
    assert_eq!(eviction::ask(&*backend.etcd(), &entry, "ann").await.unwrap(), Asked::WasGone);
    assert!(
        before(&*first.runtime(), first.runtime().now() + Duration::from_millis(50), eviction::asked(&next))
            .await
            .is_none()
    );
    next.release().await.unwrap();
    first.close().await.unwrap();
    second.close().await.unwrap();
}
for_each_backend!(a_holder_that_is_asked_to_go_hears_who_asks_and_keeps_its_rank_until_it_does, cluster);

async fn a_client_that_would_not_read_it_is_not_asked(backend: Backend) {
    let (etcd, session) = (backend.etcd(), session(&backend).await);
    let mutex = Mutex::new(&session, backend.lock_name("deaf"));
    let lease = session.lease_id().unwrap();
    let key = format!("{}/{lease}", mutex.name());
    etcd.put(key.clone(), "", lease).await.unwrap();
    let entry = holder(&*etcd, &mutex).await;
    assert_eq!(eviction::ask(&*etcd, &entry, "ann").await.unwrap(), Asked::Deaf);
    assert_eq!(etcd.get(key).await.unwrap().unwrap().version, 1);
    session.close().await.unwrap();
}
for_each_backend!(a_client_that_would_not_read_it_is_not_asked);
