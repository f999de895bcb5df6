//! The fair lock.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::time::Duration;

use leasehold::mvcc::{PutRequest, Txn};
use leasehold::{ErrorKind, EtcdExt, Guard, Key, LockName, Mutex, Session, TryLock, Ttl};
use leasehold_testbed::{Backend, Holder, Order, Witness, for_each_backend, join};

leasehold_testbed::holder_entry!();

async fn session(backend: &Backend) -> Session {
    Session::builder(backend.etcd()).ttl(Ttl::seconds(10).unwrap()).open().await.unwrap()
}

/// Waits until so many stand in the lock's queue.
async fn queued(mutex: &Mutex, count: usize) {
    while mutex.queue().await.unwrap().len() != count {
        tokio::task::yield_now().await;
    }
}

async fn attempts_after_each_other_use_one_key_and_attempts_at_once_do_not(backend: Backend) {
    let session = session(&backend).await;
    let [mutex, other] = ["one", "other"].map(|name| Mutex::new(&session, backend.lock_name(name)));
    let first = mutex.lock().await.unwrap();
    let second = other.lock().await.unwrap();
    let (key, token) = (first.key().clone(), first.token());
    assert_ne!(
        key.as_bytes().rsplit(|b| *b == b'-').next(),
        second.key().as_bytes().rsplit(|b| *b == b'-').next()
    );

    // Its removal was answered, so nothing of it can come any more: etcd is spared a key that it would remember.
    first.release().await.unwrap();
    let again = mutex.lock().await.unwrap();
    assert_eq!(*again.key(), key);
    assert!(again.token() > token);

    // A guard that is dropped is removed in the background; until that is done, its number is taken.
    drop(again);
    let third = mutex.lock().await.unwrap();
    third.verify().await.unwrap();
    third.release().await.unwrap();
    second.release().await.unwrap();
    session.close().await.unwrap();
}
for_each_backend!(attempts_after_each_other_use_one_key_and_attempts_at_once_do_not);

/// A19: also tasks that share a session.
async fn of_twenty_contenders_never_two_are_inside_and_each_gets_its_turn(backend: Backend) {
    let (witness, runtime, name) = (Witness::new(), backend.etcd().runtime(), backend.lock_name("contended"));
    let shared = session(&backend).await;
    let mut contenders = Vec::new();
    for n in 0..20 {
        // Half of them are tasks of one session, which exclude each other all the same.
        let session = if n % 2 == 0 { shared.clone() } else { session(&backend).await };
        let (mutex, witness) = (Mutex::new(&session, name.clone()), witness.clone());
        contenders.push(join(&*runtime, "a contender", async move {
            for turn in 0..3 {
                let guard = mutex.lock().await.unwrap();
                let inside = witness.enter(format!("{n}.{turn}"), guard.token());
                tokio::task::yield_now().await;
                drop(inside);
                guard.release().await.unwrap();
            }
        }));
    }
    for contender in contenders {
        contender.await;
    }
    assert_eq!(witness.turns(), 60);
}
for_each_backend!(of_twenty_contenders_never_two_are_inside_and_each_gets_its_turn, cluster);

async fn waiters_win_in_the_order_of_their_arrival(backend: Backend) {
    let (witness, runtime, name) = (Witness::new(), backend.etcd().runtime(), backend.lock_name("fair"));
    let sessions = [session(&backend).await, session(&backend).await];
    let mutex = Mutex::new(&sessions[0], name.clone());
    let first = mutex.lock().await.unwrap();
    let mut waiters = Vec::new();
    for n in 0..10 {
        let (waiter, witness) = (Mutex::new(&sessions[n % 2], name.clone()), witness.clone());
        waiters.push(join(&*runtime, "a waiter", async move {
            let guard = waiter.lock().await.unwrap();
            drop(witness.enter(n, guard.token()));
            guard.release().await.unwrap();
        }));
        queued(&mutex, n + 2).await;
    }
    first.release().await.unwrap();
    for waiter in waiters {
        waiter.await;
    }
    let order: Vec<String> = witness.history().into_iter().map(|(who, _)| who).collect();
    assert_eq!(order, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
}
for_each_backend!(waiters_win_in_the_order_of_their_arrival, cluster);

/// B02, D24: by the shortest example there is.
async fn a_lock_is_still_held_after_three_ttls(backend: Backend) {
    let session = Session::builder(backend.etcd()).ttl(Ttl::seconds(2).unwrap()).open().await.unwrap();
    let mutex = Mutex::new(&session, backend.lock_name("long"));
    let guard = mutex.lock().await.unwrap();
    let runtime = session.runtime();
    runtime.sleep_until(runtime.now() + Duration::from_secs(6)).await;
    guard.verify().await.unwrap();
    assert_eq!(guard.ensure_held(Duration::ZERO), Ok(()));
    assert!(guard.valid_until() > runtime.now());
    guard.release().await.unwrap();
}
for_each_backend!(a_lock_is_still_held_after_three_ttls, cluster);

/// A49: nothing of it outlives its lease.
async fn a_killed_holders_lock_goes_to_the_waiter_within_its_ttl_and_the_expiry_round(backend: Backend) {
    let Some(endpoints) = backend.endpoints() else { return };
    let name = backend.lock_name("killed");
    let holder = Holder::start(&Order::mutex(&endpoints, name.as_str()).ttl(2));
    let token = holder.wait_held();
    let session = session(&backend).await;
    let mutex = Mutex::new(&session, name);
    let runtime = session.runtime();
    let killed = runtime.now();
    holder.kill();
    let guard = mutex.lock().await.unwrap();
    let took = runtime.now().since(killed);
    assert!(took < Duration::from_secs(5), "it took {took:?}");
    assert!(guard.token() > token);
    guard.release().await.unwrap();
}
for_each_backend!(a_killed_holders_lock_goes_to_the_waiter_within_its_ttl_and_the_expiry_round, cluster);

async fn a_try_tells_who_holds_and_leaves_nothing(backend: Backend) {
    let holding = Session::builder(backend.etcd()).program("the holder").open().await.unwrap();
    let trying = session(&backend).await;
    let name = backend.lock_name("busy");
    let guard = Mutex::new(&holding, name.clone()).lock().await.unwrap();
    let mutex = Mutex::new(&trying, name);
    let before = backend.dump().await;
    for _ in 0..20 {
        match mutex.try_lock().await.unwrap() {
            TryLock::Busy(entry) => {
                assert_eq!((&entry.key, entry.lease), (guard.key(), guard.lease()));
                assert_eq!(entry.who.unwrap().program, "the holder");
            }
            TryLock::Acquired(_) => panic!("two hold it"),
        }
    }
    assert!(before.diff(&backend.dump().await).is_empty());
    guard.release().await.unwrap();
    assert!(mutex.try_lock().await.unwrap().acquired().is_some());
}
for_each_backend!(a_try_tells_who_holds_and_leaves_nothing);

async fn a_wait_that_ran_out_of_time_leaves_no_entry(backend: Backend) {
    let session = session(&backend).await;
    let mutex = Mutex::new(&session, backend.lock_name("timeout"));
    let guard = mutex.lock().await.unwrap();
    for _ in 0..3 {
        assert!(mutex.lock_timeout(Duration::from_millis(50)).await.unwrap().is_none());
        assert_eq!(mutex.queue().await.unwrap().len(), 1);
    }
    guard.release().await.unwrap();
    let guard = mutex.lock_timeout(Duration::from_secs(10)).await.unwrap().expect("it is free");
    assert_eq!(mutex.holder().await.unwrap().unwrap().key, *guard.key());
    guard.release().await.unwrap();
    assert_eq!(mutex.holder().await.unwrap(), None);
}
for_each_backend!(a_wait_that_ran_out_of_time_leaves_no_entry);

async fn a_dropped_wait_leaves_the_queue_to_the_others(backend: Backend) {
    let session = session(&backend).await;
    let mutex = Mutex::new(&session, backend.lock_name("dropped"));
    let guard = mutex.lock().await.unwrap();
    let (first, second) = (mutex.clone(), mutex.clone());
    let first = join(&*session.runtime(), "first", async move { first.lock().await.map(drop) });
    queued(&mutex, 2).await;
    let second = join(&*session.runtime(), "second", async move { second.lock().await });
    queued(&mutex, 3).await;
    drop(first);
    queued(&mutex, 2).await;
    guard.release().await.unwrap();
    second.await.unwrap().release().await.unwrap();
}
for_each_backend!(a_dropped_wait_leaves_the_queue_to_the_others);

async fn a_dropped_guard_frees_the_lock(backend: Backend) {
    let session = session(&backend).await;
    let mutex = Mutex::new(&session, backend.lock_name("dropped-guard"));
    let guard = mutex.lock().await.unwrap();
    let lost = guard.lost();
    drop(guard);
    assert_eq!(lost.cause(), Some(leasehold::LossCause::Released));
    drop(mutex.lock().await.unwrap());
    // Outside any runtime, and in a panic.
    let guard = mutex.lock().await.unwrap();
    let outcome = std::thread::spawn(move || {
        let _held = guard;
        panic!("on purpose");
    });
    assert!(outcome.join().is_err());
    mutex.lock().await.unwrap().release().await.unwrap();
}
for_each_backend!(a_dropped_guard_frees_the_lock);

/// A17, and etcd-io/website#710.
async fn nested_names_are_locks_of_their_own_in_every_order_of_creation(backend: Backend) {
    let (etcd, session) = (backend.etcd(), session(&backend).await);
    let mutex = |name: &str| Mutex::new(&session, backend.lock_name(name));
    #[derive(Clone, Copy, Debug)]
    enum Made {
        Nested,
        Foreign,
        Holder,
        Waiter,
    }
    use Made::{Foreign, Holder, Nested, Waiter};
    let orders = [
        [Nested, Foreign, Holder, Waiter],
        [Nested, Holder, Foreign, Waiter],
        [Foreign, Holder, Nested, Waiter],
        [Holder, Nested, Foreign, Waiter],
        [Holder, Nested, Waiter, Foreign],
        [Holder, Waiter, Nested, Foreign],
    ];
    for (n, order) in orders.into_iter().enumerate() {
        let (a, ab) = (mutex(&format!("{n}")), mutex(&format!("{n}/b")));
        // Enough of them to fill several pages of a look; all made at one revision.
        let foreign: Vec<Key> = (0..40).map(|i| Key::from(backend.name(&format!("{n}/x/{i}")))).collect();
        let (mut nested, mut holder, mut waiter) = (None::<Guard>, None::<Guard>, None);
        for step in order {
            match step {
                Nested => nested = Some(ab.lock().await.unwrap()),
                Foreign => {
                    let put = |txn: Txn, key: &Key| txn.then(PutRequest::new(key.clone(), "not a lock"));
                    etcd.txn(foreign.iter().fold(Txn::new(), put)).await.unwrap();
                }
                Holder => holder = a.lock_timeout(Duration::from_secs(10)).await.unwrap(),
                Waiter => {
                    let waiting = a.clone();
                    waiter = Some(join(&*session.runtime(), "waiter", async move { waiting.lock().await }));
                    queued(&a, 2).await;
                }
            }
        }
        let holder = holder.unwrap_or_else(|| panic!("{order:?}: nobody holds"));
        assert_eq!(a.holder().await.unwrap().unwrap().key, *holder.key(), "{order:?}");
        assert!(
            matches!(a.try_lock().await.unwrap(), TryLock::Busy(entry) if entry.key == *holder.key()),
            "{order:?}"
        );
        let queue = a.queue().await.unwrap();
        let token = holder.token();
        holder.release().await.unwrap();
        let second = waiter.unwrap().await.unwrap();
        assert_eq!(queue[1].key, *second.key(), "{order:?}");
        assert!(second.token() > token, "{order:?}");
        second.release().await.unwrap();
        // With only foreign keys below the name, a try wins.
        assert!(a.try_lock().await.unwrap().acquired().is_some(), "{order:?}");
        nested.unwrap().release().await.unwrap();
        for key in foreign {
            etcd.delete(key).await.unwrap();
        }
    }
}
for_each_backend!(nested_names_are_locks_of_their_own_in_every_order_of_creation);

/// A17: a plain key of the lock's own spelling, or beside it, is not in its queue; one below it is, and is named.
async fn a_key_without_a_lease_in_the_queue_is_waited_for_and_named(backend: Backend) {
    let (etcd, session, name) = (backend.etcd(), session(&backend).await, backend.name("plain"));
    for beside in [name.clone(), format!("{name}0"), format!("{name}x/y")] {
        etcd.put(beside, "beside", Default::default()).await.unwrap();
    }
    let mutex = Mutex::new(&session, LockName::new(name.clone()).unwrap());
    mutex.lock().await.unwrap().release().await.unwrap();
    etcd.put(format!("{name}/left"), "", Default::default()).await.unwrap();
    match mutex.try_lock().await.unwrap() {
        TryLock::Busy(entry) => assert!(entry.to_string().contains("on no lease"), "{entry}"),
        TryLock::Acquired(_) => panic!("an entry was overlooked"),
    }
    let waiting = mutex.clone();
    let waiter = join(&*session.runtime(), "waiter", async move { waiting.lock().await });
    queued(&mutex, 2).await;
    etcd.delete(format!("{name}/left")).await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
    for beside in [name.clone(), format!("{name}0"), format!("{name}x/y")] {
        etcd.delete(beside).await.unwrap();
    }
}
for_each_backend!(a_key_without_a_lease_in_the_queue_is_waited_for_and_named);

async fn a_guarded_transaction_is_done_only_while_the_lock_is_held(backend: Backend) {
    let (etcd, session) = (backend.etcd(), session(&backend).await);
    let mutex = Mutex::new(&session, backend.lock_name("guarded"));
    let target = backend.name("target");
    let write = |value: &'static str| Txn::new().then(PutRequest::new(target.clone(), value));
    let guard = mutex.lock().await.unwrap();
    assert!(guard.txn(write("held")).await.unwrap().succeeded);
    etcd.delete(guard.key().clone()).await.unwrap();
    let error = guard.txn(write("too late")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert_eq!(guard.lost().cause(), Some(leasehold::LossCause::KeyDeleted));
    assert_eq!(etcd.get(target.clone()).await.unwrap().unwrap().value, "held");
    etcd.delete(target).await.unwrap();
}
for_each_backend!(a_guarded_transaction_is_done_only_while_the_lock_is_held);

/// A07: the key's name is never used again, and its removal names its creation.
async fn a_release_after_the_loss_removes_nothing_of_the_next_holder(backend: Backend) {
    let (etcd, session) = (backend.etcd(), session(&backend).await);
    let mutex = Mutex::new(&session, backend.lock_name("late"));
    let old = mutex.lock().await.unwrap();
    etcd.delete(old.key().clone()).await.unwrap();
    let new = mutex.lock().await.unwrap();
    assert!(new.token() > old.token());
    old.release().await.unwrap();
    new.verify().await.unwrap();
    new.release().await.unwrap();
}
for_each_backend!(a_release_after_the_loss_removes_nothing_of_the_next_holder);

/// A proxy between may send an entry twice. The claim then finds its own key there.
async fn an_entry_that_is_there_before_its_claim_is_taken_for_the_claims_own(backend: Backend) {
    let (etcd, session) = (backend.etcd(), session(&backend).await);
    let mutex = Mutex::new(&session, backend.lock_name("doubled"));
    let first = mutex.lock().await.unwrap();
    let (key, token) = (first.key().clone(), first.token());
    first.release().await.unwrap();
    etcd.txn(Txn::new().then(PutRequest::new(key.clone(), "a copy").on(session.lease_id().unwrap())))
        .await
        .unwrap();

    let again = mutex.lock().await.unwrap();
    assert_eq!(*again.key(), key);
    assert!(again.token() > token);
    again.verify().await.unwrap();
    again.release().await.unwrap();
    assert!(etcd.get(key).await.unwrap().is_none());
}
for_each_backend!(an_entry_that_is_there_before_its_claim_is_taken_for_the_claims_own);
