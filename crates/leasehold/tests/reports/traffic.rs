//! Much to carry beside a lock: what keeps it has connections of its own.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use leasehold::etcd::{Etcd, WatchUpdate};
use leasehold::mvcc::{KeyRange, RangeRequest, Revision, WatchRequest};
use leasehold::{EtcdExt, LeaseId, Mutex, RemoteOptions, TlsOptions};
use leasehold_testbed::{Authority, Options, RealEtcd, Version, block_on, connect};

use crate::{nap, open};

#[test]
fn a42_a_hundred_megabytes_over_the_same_secure_client_cost_no_renewal() {
    let authority = Authority::new("ours");
    let options = Options::default().with_secure(authority.identity(&["127.0.0.1"]), None);
    let Some(server) = RealEtcd::start(Version::V37, options) else { return };
    block_on(async {
        let tls = TlsOptions::new().authority(authority.pem());
        let remote = RemoteOptions::new(server.secure_endpoint().unwrap()).unwrap().tls(tls).open().unwrap();
        let session = open(remote.clone(), 5).await;
        let guard = Mutex::new(&session, "lock".parse().unwrap()).lock().await.unwrap();
        for key in 0..20 {
            remote.put(format!("bulk/{key:02}"), vec![7; 1 << 20], LeaseId::NONE).await.unwrap();
        }
        // Four at a time until it is 300 MB, and until two renewals were due.
        let (runtime, begun) = (session.runtime(), session.runtime().now());
        let mut carried = 0;
        while carried < 300 << 20 || runtime.now().since(begun) < Duration::from_secs(5) {
            let reads = (0..4).map(|_| remote.range(RangeRequest::prefix("bulk/")));
            for answer in join_all(reads).await {
                carried +=
                    answer.map_or(0, |answer| answer.kvs.iter().map(|kv| kv.value.len()).sum::<usize>());
            }
            assert_eq!(guard.ensure_held(Duration::ZERO), Ok(()), "after {carried} bytes");
        }
        guard.release().await.unwrap();
        session.close().await.unwrap();
    });
}

/// A27: watches from very old revisions keep the member busy to which the renewals go.
#[test]
fn a27_watches_of_all_history_on_the_holders_member_cost_no_renewal() {
    let Some(server) = RealEtcd::start(Version::V35, Options::default()) else { return };
    block_on(async {
        let etcd = connect(&server.endpoints());
        let writes = (0..50).map(|writer| {
            let etcd = etcd.clone();
            async move {
                for _ in 0..400 {
                    etcd.put(format!("old/{writer}"), vec![1; 500], LeaseId::NONE).await.unwrap();
                }
            }
        });
        join_all(writes).await;
        let session = open(etcd.clone(), 3).await;
        let guard = Mutex::new(&session, "lock".parse().unwrap()).lock().await.unwrap();
        let follow = || WatchRequest {
            start_revision: Revision::new(1),
            ..WatchRequest::range(KeyRange::prefix("old/"))
        };
        let (runtime, begun) = (session.runtime(), session.runtime().now());
        while runtime.now().since(begun) < Duration::from_secs(6) {
            let histories = (0..8).map(|_| {
                let mut updates = etcd.watch(follow());
                async move {
                    let mut seen = 0;
                    while seen < 5_000 {
                        if let Some(Ok(WatchUpdate::Events { events, .. })) = updates.next().await {
                            seen += events.len();
                        }
                    }
                }
            });
            join_all(histories).await;
            assert_eq!(guard.ensure_held(Duration::ZERO), Ok(()));
        }
        nap(&session, Duration::from_secs(1)).await;
        guard.verify().await.unwrap();
        guard.release().await.unwrap();
        session.close().await.unwrap();
    });
}
