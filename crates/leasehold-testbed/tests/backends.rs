//! The macro makes what it says, and its checks catch what they are there for.

use std::time::Duration;

use leasehold::mvcc::LeaseGrantRequest;
use leasehold::{EtcdExt, LeaseId, Mutex, Revision, Session};
use leasehold_testbed::backends::Kind;
use leasehold_testbed::{Backend, Witness, block_on, for_each_backend, join};

async fn two_connections_see_one_etcd(backend: Backend) -> leasehold::Result<()> {
    let (etcd, another) = (backend.etcd(), backend.another());
    assert_eq!(backend.endpoints().is_none(), backend.kind() == Kind::Embedded);
    etcd.put(backend.name("k"), "v", LeaseId::NONE).await?;
    assert!(another.get(backend.name("k")).await?.is_some());
    assert_eq!(backend.dump().await.keys.len(), 1);
    assert!(another.delete(backend.name("k")).await?);
    Ok(())
}
for_each_backend!(two_connections_see_one_etcd, cluster);

async fn a_fresh_server_can_be_compacted(backend: Backend) -> leasehold::Result<()> {
    let etcd = backend.etcd();
    for _ in 0..3 {
        etcd.put(backend.name("k"), "v", LeaseId::NONE).await?;
    }
    backend.compact(Revision::new(3));
    let mut past = leasehold::mvcc::RangeRequest::key(backend.name("k"));
    past.revision = Revision::new(2);
    assert!(etcd.range(past).await.is_err());
    backend.leaves_something();
    Ok(())
}
for_each_backend!(a_fresh_server_can_be_compacted, fresh);

async fn a_mutex_lets_one_in_at_a_time(backend: Backend) -> leasehold::Result<()> {
    let (witness, runtime) = (Witness::new(), backend.etcd().runtime());
    let tasks: Vec<_> = (0..3)
        .map(|n| {
            let (backend, witness) = (backend.clone(), witness.clone());
            join(&*runtime, "contender", async move {
                let session = Session::open(backend.another()).await?;
                let mutex = Mutex::new(&session, backend.lock_name("mutex"));
                for _ in 0..5 {
                    let guard = mutex.lock().await?;
                    drop(witness.enter(n, guard.token()));
                    guard.release().await?;
                }
                session.close().await
            })
        })
        .collect();
    for task in tasks {
        task.await?;
    }
    assert_eq!(witness.turns(), 15);
    Ok(())
}
for_each_backend!(a_mutex_lets_one_in_at_a_time, cluster);

#[test]
fn what_a_test_leaves_behind_is_found_on_every_backend() {
    for kind in [Kind::Embedded, Kind::Etcd35, Kind::Etcd37] {
        let Some(backend) = Backend::open(kind, false, "left") else { continue };
        block_on(async {
            let etcd = backend.etcd();
            backend.assert_nothing_left(Duration::ZERO).await;
            let lease = etcd.lease_grant(LeaseGrantRequest { ttl: 60, id: LeaseId::NONE }).await.unwrap().id;
            etcd.put(backend.name("k"), "v", lease).await.unwrap();
            let dump = backend.dump().await;
            assert_eq!(dump.keys.len(), 1);
            assert_eq!(dump.leases[&lease].1, [backend.name("k").into()]);
            etcd.lease_revoke(lease).await.unwrap();
            backend.assert_nothing_left(Duration::ZERO).await;
        });
    }
}

#[test]
#[should_panic(expected = "something is still left behind after 0ns:\n+ key ")]
fn a_key_left_behind_fails_a_test() {
    let backend = Backend::open(Kind::Embedded, false, "left").unwrap();
    block_on(async {
        backend.etcd().put(backend.name("k"), "v", LeaseId::NONE).await.unwrap();
        backend.assert_nothing_left(Duration::ZERO).await;
    });
}
