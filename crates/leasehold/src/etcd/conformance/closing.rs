//! The end of a backend's handle.

use futures_util::StreamExt;
use leasehold_mvcc::{KeyRange, LeaseGrantRequest, LeaseId, RangeRequest, Txn, WatchRequest};

use super::Subject;
use crate::error::ErrorKind;
use crate::etcd::WatchUpdate;

/// After [`Etcd::close`](crate::etcd::Etcd::close) every call says so at once, and watches end with it.
pub async fn after_the_close_every_call_says_closed(subject: &Subject) {
    let (etcd, key) = (subject.etcd(), subject.key("closed"));
    let mut updates = etcd.watch(WatchRequest::range(KeyRange::key(key.clone())));
    let confirmed = subject.soon("a confirmation", updates.next()).await;
    assert!(matches!(confirmed, Some(Ok(WatchUpdate::Confirmed(_)))), "{confirmed:?}");
    subject.soon("the close", etcd.close()).await;

    let id = LeaseId::new(1);
    let kinds = [
        etcd.range(RangeRequest::key(key.clone())).await.map(drop),
        etcd.txn(Txn::new()).await.map(drop),
        etcd.lease_grant(LeaseGrantRequest { ttl: 60, id }).await.map(drop),
        etcd.lease_keep_alive(id).await.map(drop),
        etcd.lease_revoke(id).await.map(drop),
        etcd.lease_time_to_live(id, false).await.map(drop),
        etcd.dedicated().range(RangeRequest::key(key.clone())).await.map(drop),
    ]
    .map(|result| result.map_err(|error| error.kind()));
    assert_eq!(kinds, [Err(ErrorKind::Closed); 7]);
    for mut updates in [updates, etcd.watch(WatchRequest::range(KeyRange::key(key)))] {
        let told = subject.soon("the end of a watch", updates.next()).await;
        assert!(matches!(&told, Some(Err(error)) if error.kind() == ErrorKind::Closed), "{told:?}");
    }
}
