//! The same lock as Go's: the lock service inside etcd is Go's own mutex, and etcdctl is another.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

use leasehold::{LockName, Mutex, Session, Ttl};
use leasehold_testbed::{Backend, Etcdctl, LockService, Witness, for_each_backend, join};
use tokio::task::spawn_blocking;

async fn queued(mutex: &Mutex, count: usize) {
    while mutex.queue().await.unwrap().len() != count {
        tokio::task::yield_now().await;
    }
}

fn service(backend: &Backend) -> Option<LockService> {
    backend.endpoints().map(|endpoints| LockService::new(&endpoints[0]))
}

/// One turn through the lock service, seen by the witness with the plain revision.
fn turn_by_service(service: &LockService, name: &LockName, who: &str, witness: &Witness) {
    let lease = service.grant(60).unwrap();
    let hold = service.lock(name.as_str(), lease).unwrap();
    drop(witness.enter(who, hold.revision.get().cast_unsigned()));
    service.unlock(&hold).unwrap();
    service.revoke(lease).unwrap();
}

async fn turn_of_ours(mutex: &Mutex, who: &str, witness: &Witness) {
    let guard = mutex.lock().await.unwrap();
    drop(witness.enter(who, guard.grant_revision().get().cast_unsigned()));
    guard.release().await.unwrap();
}

async fn both_kinds_of_client_wait_in_one_queue_and_keep_its_order(backend: Backend) {
    let Some(service) = service(&backend) else { return };
    let (witness, name) = (Witness::new(), backend.lock_name("mixed"));
    let session = Session::builder(backend.etcd()).ttl(Ttl::seconds(30).unwrap()).open().await.unwrap();
    let mutex = Mutex::new(&session, name.clone());
    let first = mutex.lock().await.unwrap();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for n in 0..4 {
        let (waiting, seen) = (mutex.clone(), witness.clone());
        ours.push(join(&*session.runtime(), "ours", async move {
            turn_of_ours(&waiting, &format!("ours {n}"), &seen).await;
        }));
        queued(&mutex, 2 * n + 2).await;
        let (service, name, seen) = (service.clone(), name.clone(), witness.clone());
        theirs.push(spawn_blocking(move || turn_by_service(&service, &name, &format!("theirs {n}"), &seen)));
        queued(&mutex, 2 * n + 3).await;
    }
    drop(witness.enter("first", first.grant_revision().get().cast_unsigned()));
    first.release().await.unwrap();
    for waiter in ours {
        waiter.await;
    }
    for waiter in theirs {
        waiter.await.unwrap();
    }
    let order: Vec<String> = witness.history().into_iter().map(|(who, _)| who).collect();
    let expected =
        ["first", "ours 0", "theirs 0", "ours 1", "theirs 1", "ours 2", "theirs 2", "ours 3", "theirs 3"];
    assert_eq!(order, expected);
}
for_each_backend!(both_kinds_of_client_wait_in_one_queue_and_keep_its_order, cluster);

async fn both_kinds_of_client_exclude_each_other_and_their_revisions_rise(backend: Backend) {
    let Some(service) = service(&backend) else { return };
    let (witness, name) = (Witness::new(), backend.lock_name("crowd"));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for n in 0..4 {
        let session =
            Session::builder(backend.another()).ttl(Ttl::seconds(30).unwrap()).open().await.unwrap();
        let (mutex, seen) = (Mutex::new(&session, name.clone()), witness.clone());
        ours.push(join(&*session.runtime(), "ours", async move {
            for _ in 0..10 {
                turn_of_ours(&mutex, &format!("ours {n}"), &seen).await;
            }
        }));
        let (service, name, seen) = (service.clone(), name.clone(), witness.clone());
        theirs.push(spawn_blocking(move || {
            for _ in 0..10 {
                turn_by_service(&service, &name, &format!("theirs {n}"), &seen);
            }
        }));
    }
    for contender in ours {
        contender.await;
    }
    for contender in theirs {
        contender.await.unwrap();
    }
    assert_eq!(witness.turns(), 80);
}
for_each_backend!(both_kinds_of_client_exclude_each_other_and_their_revisions_rise, cluster);

async fn a_lock_held_by_etcdctl_is_busy_and_is_named(backend: Backend) {
    let Some(etcdctl) = backend.endpoints().and_then(|endpoints| Etcdctl::find(&endpoints)) else { return };
    let name = backend.lock_name("etcdctl");
    // Its lease is left to expire by itself, as etcdctl does.
    backend.leaves_something();
    let mut holder = etcdctl.start(&["lock", name.as_str()]);
    let key = holder.lines().next().unwrap().unwrap();
    let session = Session::open(backend.etcd()).await.unwrap();
    let mutex = Mutex::new(&session, name);
    let entry = mutex.holder().await.unwrap().expect("etcdctl holds it");
    assert_eq!(entry.key.to_string(), key);
    assert!(mutex.try_lock().await.unwrap().acquired().is_none());
    let waiting = mutex.clone();
    let waiter = join(&*session.runtime(), "waiter", async move { waiting.lock().await });
    queued(&mutex, 2).await;
    holder.terminate();
    waiter.await.unwrap().release().await.unwrap();
}
for_each_backend!(a_lock_held_by_etcdctl_is_busy_and_is_named);
