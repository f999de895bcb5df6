//! The exercise's checks of its lock: a key, a token, a TTL.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::sync::Arc;
use std::time::Duration;

use leasehold::{DistributedLock, EtcdExt, LossCause, Ttl};
use leasehold_testbed::{Backend, Holder, Order, Witness, for_each_backend, join};

leasehold_testbed::holder_entry!();

const SHORT: u64 = 2;

fn lock(backend: &Backend, key: &str, token: &str) -> DistributedLock {
    let ttl = Ttl::seconds(SHORT).unwrap();
    DistributedLock::new(backend.etcd(), backend.name(key), token.to_owned(), ttl).unwrap()
}

async fn of_twenty_contenders_never_two_are_inside_and_each_gets_its_turn(backend: Backend) {
    let (witness, runtime) = (Witness::new(), backend.etcd().runtime());
    let contenders: Vec<_> = (0..20)
        .map(|n| {
            let (lock, witness) = (lock(&backend, "contended", &format!("contender-{n}")), witness.clone());
            join(&*runtime, "a contender", async move {
                lock.lock().await.unwrap();
                let inside = witness.enter(n, lock.fencing_token().unwrap());
                tokio::task::yield_now().await;
                drop(inside);
                assert!(lock.unlock().await.unwrap());
            })
        })
        .collect();
    for contender in contenders {
        contender.await;
    }
    assert_eq!(witness.turns(), 20);
}
for_each_backend!(of_twenty_contenders_never_two_are_inside_and_each_gets_its_turn, cluster);

async fn a_lock_is_still_held_after_three_ttls(backend: Backend) {
    let (ours, theirs) = (lock(&backend, "long", "ours"), lock(&backend, "long", "theirs"));
    assert!(ours.try_lock().await.unwrap());
    let runtime = backend.etcd().runtime();
    runtime.sleep_until(runtime.now() + Duration::from_secs(3 * SHORT)).await;
    assert!(ours.held());
    assert!(!theirs.try_lock().await.unwrap());
    assert!(ours.try_lock().await.unwrap(), "trying again while it is held succeeds");
    assert!(ours.unlock().await.unwrap());
    assert!(!ours.held());
}
for_each_backend!(a_lock_is_still_held_after_three_ttls, cluster);

async fn a_killed_holders_lock_is_free_within_its_ttl_and_the_expiry_round(backend: Backend) {
    let Some(endpoints) = backend.endpoints() else {
        // In process there is nobody to kill: the lease is left to itself, as a crash would leave it.
        let session = leasehold::Session::builder(backend.etcd())
            .ttl(Ttl::seconds(SHORT).unwrap())
            .open()
            .await
            .unwrap();
        backend.etcd().put(backend.name("killed"), "holder", session.lease_id().unwrap()).await.unwrap();
        session.orphan();
        return take_over(&backend).await;
    };
    let holder = Holder::start(&Order::distributed(&endpoints, backend.name("killed")).ttl(SHORT));
    holder.wait_held();
    holder.kill();
    take_over(&backend).await;
}
for_each_backend!(a_killed_holders_lock_is_free_within_its_ttl_and_the_expiry_round, cluster);

async fn take_over(backend: &Backend) {
    let next = lock(backend, "killed", "next");
    assert!(!next.try_lock().await.unwrap(), "the holder's lease has not ended yet");
    let runtime = backend.etcd().runtime();
    let killed = runtime.now();
    next.lock().await.unwrap();
    // TTL, the server's rounds of expiry (half a second each), and patience with a busy machine.
    let bound = Duration::from_secs(SHORT) + Duration::from_secs(3);
    assert!(runtime.now().since(killed) < bound, "it took {:?}", runtime.now().since(killed));
    assert!(next.unlock().await.unwrap());
}

async fn an_old_holder_cannot_remove_the_new_holders_lock(backend: Backend) {
    let (etcd, key) = (backend.etcd(), backend.name("old"));
    let (old, new) = (lock(&backend, "old", "old"), lock(&backend, "old", "new"));
    assert!(old.try_lock().await.unwrap());
    let lease = etcd.get(key.clone()).await.unwrap().unwrap().lease;
    etcd.lease_revoke(lease).await.unwrap();
    new.lock().await.unwrap();
    assert_eq!(old.lost().unwrap().wait().await, LossCause::LeaseGone);
    assert!(!old.held());
    assert!(!old.unlock().await.unwrap(), "there is nothing of the old holder's to remove");
    assert_eq!(etcd.get(key).await.unwrap().unwrap().value, "new");
    assert!(new.held());
    assert!(new.unlock().await.unwrap());
}
for_each_backend!(an_old_holder_cannot_remove_the_new_holders_lock, cluster);

/// The same token is no claim either: own is token *and* lease.
async fn a_holder_of_the_same_token_is_still_another(backend: Backend) {
    let (first, second) = (lock(&backend, "twin", "same"), lock(&backend, "twin", "same"));
    assert!(first.try_lock().await.unwrap());
    assert!(!second.try_lock().await.unwrap());
    assert!(!second.unlock().await.unwrap());
    assert!(first.held());
    assert!(first.unlock().await.unwrap());
}
for_each_backend!(a_holder_of_the_same_token_is_still_another);

async fn a_value_written_over_the_token_is_not_removed(backend: Backend) {
    let (etcd, key, ours) =
        (backend.etcd(), backend.name("overwritten"), lock(&backend, "overwritten", "ours"));
    assert!(ours.try_lock().await.unwrap());
    etcd.put(key.clone(), "somebody else's", Default::default()).await.unwrap();
    assert!(!ours.unlock().await.unwrap());
    assert_eq!(etcd.get(key.clone()).await.unwrap().unwrap().value, "somebody else's");
    etcd.delete(key).await.unwrap();
}
for_each_backend!(a_value_written_over_the_token_is_not_removed);

async fn a_thousand_failed_tries_leave_no_lease_behind(backend: Backend) {
    let (ours, theirs) = (lock(&backend, "tries", "ours"), Arc::new(lock(&backend, "tries", "theirs")));
    assert!(ours.try_lock().await.unwrap());
    let before = backend.dump().await;
    for _ in 0..1000 {
        assert!(!theirs.try_lock().await.unwrap());
    }
    let after = backend.dump().await;
    assert!(before.diff(&after).is_empty(), "{}", before.diff(&after));
    assert!(ours.unlock().await.unwrap());
}
for_each_backend!(a_thousand_failed_tries_leave_no_lease_behind);

async fn a_dropped_lock_frees_its_key(backend: Backend) {
    let ours = lock(&backend, "dropped", "ours");
    assert!(ours.try_lock().await.unwrap());
    drop(ours);
    lock(&backend, "dropped", "theirs").lock().await.unwrap();
}
for_each_backend!(a_dropped_lock_frees_its_key);

#[test]
fn an_empty_key_or_token_is_refused() {
    let etcd = leasehold::Embedded::start().unwrap();
    for (key, token, what) in [("", "token", "key"), ("key", "", "token")] {
        let error = DistributedLock::new(etcd.clone(), key, token, Ttl::default()).unwrap_err().to_string();
        assert!(error.contains(what) && error.contains("empty"), "{error}");
    }
}
