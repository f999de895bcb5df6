//! The smallest lock, in threads.

use std::thread;
use std::time::Duration;

use leasehold::blocking::DistributedLock;
use leasehold::{EtcdExt, LossCause, Ttl};
use leasehold_testbed::{Backend, Witness, for_each_backend};

use super::on_a_thread;

fn lock(backend: &Backend, key: &str, token: &str) -> DistributedLock {
    let ttl = Ttl::seconds(60).unwrap();
    DistributedLock::new(backend.etcd(), backend.name(key), token.to_owned(), ttl).unwrap()
}

async fn of_twenty_threads_never_two_have_the_key_and_each_gets_its_turn(backend: Backend) {
    let witness = Witness::new();
    let seen = witness.clone();
    on_a_thread(move || {
        thread::scope(|scope| {
            for n in 0..20 {
                let (lock, witness) = (lock(&backend, "contended", &format!("contender-{n}")), &seen);
                scope.spawn(move || {
                    lock.lock().unwrap();
                    let inside = witness.enter(n, lock.fencing_token().unwrap());
                    thread::yield_now();
                    drop(inside);
                    assert!(lock.unlock().unwrap());
                });
            }
        });
    })
    .await;
    assert_eq!(witness.turns(), 20);
}
for_each_backend!(of_twenty_threads_never_two_have_the_key_and_each_gets_its_turn, cluster);

async fn a_wait_for_the_key_ends_in_time_and_leaves_nothing(backend: Backend) {
    let (ours, theirs) = (lock(&backend, "timeout", "ours"), lock(&backend, "timeout", "theirs"));
    on_a_thread(move || {
        assert!(ours.try_lock().unwrap());
        assert!(ours.lock_timeout(Duration::from_secs(15)).unwrap(), "it is held already");
        assert!(!theirs.lock_timeout(Duration::from_millis(50)).unwrap());
        assert!(!theirs.held());
        assert!(ours.unlock().unwrap());
        assert!(theirs.lock_timeout(Duration::MAX).unwrap());
        assert!(theirs.unlock().unwrap());
    })
    .await;
}
for_each_backend!(a_wait_for_the_key_ends_in_time_and_leaves_nothing);

async fn the_key_is_free_when_the_drop_of_its_holder_returns(backend: Backend) {
    let (ours, theirs) = (lock(&backend, "dropped", "ours"), lock(&backend, "dropped", "theirs"));
    on_a_thread(move || {
        assert!(ours.try_lock().unwrap());
        drop(ours);
        assert!(theirs.try_lock().unwrap());
    })
    .await;
}
for_each_backend!(the_key_is_free_when_the_drop_of_its_holder_returns);

async fn a_thread_whose_key_loses_its_lease_is_told_at_once(backend: Backend) {
    let ours = lock(&backend, "revoked", "ours");
    let ours = on_a_thread(move || {
        assert!(ours.lost().is_none());
        ours.lock().unwrap();
        ours
    })
    .await;
    let lease = backend.etcd().get(backend.name("revoked")).await.unwrap().unwrap().lease;
    backend.etcd().lease_revoke(lease).await.unwrap();
    on_a_thread(move || {
        assert_eq!(ours.lost().unwrap().wait_timeout(Duration::from_secs(15)), Some(LossCause::LeaseGone));
        assert!(!ours.held());
        assert!(!ours.unlock().unwrap(), "there is nothing of it to remove");
    })
    .await;
}
for_each_backend!(a_thread_whose_key_loses_its_lease_is_told_at_once);
