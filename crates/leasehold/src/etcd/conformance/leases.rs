//! Leases and the keys that hang on them.

use std::time::Duration;

use futures_util::StreamExt;
use leasehold_mvcc::{Code, KeyRange, LeaseGrantRequest, LeaseId, WatchRequest};

use super::Subject;
use crate::etcd::{EtcdExt, WatchUpdate};

pub(super) async fn grant(subject: &Subject, ttl: i64) -> LeaseId {
    let granted = subject.etcd().lease_grant(LeaseGrantRequest { ttl, id: LeaseId::NONE }).await.unwrap();
    assert!(!granted.id.is_none());
    assert!(granted.ttl >= ttl, "asked for {ttl}, granted {}", granted.ttl);
    granted.id
}

/// A lease's keys go when it is revoked, and only those.
pub async fn a_revoked_lease_takes_its_keys_along(subject: &Subject) {
    let (etcd, lease) = (subject.etcd(), grant(subject, 60).await);
    let (on, off) = (subject.key("on"), subject.key("off"));
    etcd.put(on.clone(), "x", lease).await.unwrap();
    etcd.put(off.clone(), "x", LeaseId::NONE).await.unwrap();
    assert_eq!(etcd.get(on.clone()).await.unwrap().unwrap().lease, lease);
    let asked = etcd.lease_time_to_live(lease, true).await.unwrap();
    assert_eq!((asked.granted_ttl, asked.keys), (60, vec![on.clone()]));
    etcd.lease_revoke(lease).await.unwrap();
    assert_eq!(etcd.get(on).await.unwrap(), None);
    assert!(etcd.delete(off).await.unwrap());
}

/// A lease that is not renewed ends by itself, and not before its time.
pub async fn an_expired_lease_takes_its_keys_along(subject: &Subject) {
    let (etcd, key, runtime) = (subject.etcd(), subject.key("expiring"), subject.etcd().runtime());
    let mut updates = etcd.watch(WatchRequest::range(KeyRange::key(key.clone())).deletes_only());
    let confirmed = subject.soon("a watch", updates.next()).await;
    assert!(matches!(confirmed, Some(Ok(WatchUpdate::Confirmed(_)))), "{confirmed:?}");
    let sent = runtime.now();
    let lease = grant(subject, 2).await;
    etcd.put(key.clone(), "x", lease).await.unwrap();
    loop {
        match subject.soon("the end of a lease", updates.next()).await {
            Some(Ok(WatchUpdate::Events { .. })) => break,
            Some(Ok(_)) => {}
            other => panic!("a watch told {other:?}"),
        }
    }
    assert!(runtime.now().since(sent) >= Duration::from_secs(2), "it ended too early");
    assert_eq!(etcd.get(key).await.unwrap(), None);
}

/// A lease that is renewed lives on.
pub async fn a_renewed_lease_outlives_its_ttl(subject: &Subject) {
    let (etcd, key, runtime) = (subject.etcd(), subject.key("renewed"), subject.etcd().runtime());
    let lease = grant(subject, 2).await;
    etcd.put(key.clone(), "x", lease).await.unwrap();
    let until = runtime.now() + Duration::from_secs(5);
    while runtime.now() < until {
        let renewed = etcd.lease_keep_alive(lease).await.unwrap();
        assert_eq!((renewed.id, renewed.ttl), (lease, 2));
        runtime.sleep_until(runtime.now() + Duration::from_millis(500)).await;
    }
    assert!(etcd.get(key).await.unwrap().is_some(), "a renewed lease has ended");
    etcd.lease_revoke(lease).await.unwrap();
}

/// What is asked of a lease that is gone is answered as etcd does.
pub async fn a_lease_that_is_gone_is_said_to_be_gone(subject: &Subject) {
    let (etcd, lease) = (subject.etcd(), grant(subject, 60).await);
    let twice = etcd.lease_grant(LeaseGrantRequest { ttl: 60, id: lease }).await.unwrap_err();
    assert_eq!(twice.refusal().map(|no| no.code), Some(Code::FailedPrecondition), "{twice}");
    etcd.lease_revoke(lease).await.unwrap();
    assert!(etcd.lease_keep_alive(lease).await.unwrap().ttl <= 0);
    let asked = etcd.lease_time_to_live(lease, true).await.unwrap();
    assert_eq!((asked.ttl, asked.granted_ttl, asked.keys.len()), (-1, 0, 0));
    let again = etcd.lease_revoke(lease).await.unwrap_err();
    assert_eq!(again.refusal().map(|no| no.code), Some(Code::NotFound), "{again}");
    let put = etcd.put(subject.key("late"), "x", lease).await.unwrap_err();
    assert_eq!(put.refusal().map(|no| no.code), Some(Code::NotFound), "{put}");
    assert_eq!(etcd.get(subject.key("late")).await.unwrap(), None);
}

/// A write that names no lease takes the key off the one it was on.
pub async fn a_put_without_a_lease_detaches_the_key(subject: &Subject) {
    let (etcd, key, lease) = (subject.etcd(), subject.key("detached"), grant(subject, 60).await);
    etcd.put(key.clone(), "x", lease).await.unwrap();
    etcd.put(key.clone(), "y", LeaseId::NONE).await.unwrap();
    etcd.lease_revoke(lease).await.unwrap();
    assert_eq!(etcd.get(key.clone()).await.unwrap().unwrap().lease, LeaseId::NONE);
    etcd.delete(key).await.unwrap();
}
