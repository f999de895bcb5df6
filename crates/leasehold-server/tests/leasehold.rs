//! Leasehold's own client, by way of this server.

#![cfg(unix)]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a client of the wire, on real time; a failure is a panic"
)]

mod support;

use std::sync::Arc;

use leasehold::etcd::Etcd;
use leasehold::etcd::conformance::{self, Subject};
use leasehold::{Embedded, Mutex, Remote, Session};
use leasehold_proto::pb::v3lockpb::{LockRequest, UnlockRequest, lock_client::LockClient};
use leasehold_server::Server;
use support::{Running, grant, in_time, keys};

async fn conforms(server: Running) {
    let remote: Arc<dyn Etcd> = Arc::new(Remote::connect(server.address.to_string()).unwrap());
    let store = server.etcd.clone();
    let subject = Subject::new(remote, "mine", move |revision| store.compact(revision).unwrap());
    conformance::all(&subject).await;
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_etcd_by_tcp_does_what_every_backend_must() {
    conforms(Running::start().await).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_etcd_by_a_unix_socket_does_what_every_backend_must() {
    let path = std::env::temp_dir().join(format!("leasehold-server-{}-conforms", std::process::id()));
    let etcd = Embedded::start().unwrap();
    let server = Server::bind(path.clone(), etcd.clone()).await.unwrap();
    conforms(Running::serve(server, etcd)).await;
    std::fs::remove_file(path.with_extension("lock")).unwrap();
}

#[tokio::test]
async fn the_lock_service_and_a_mutex_exclude_each_other() {
    let server = Running::start().await;
    let channel = server.channel().await;
    let remote: Arc<dyn Etcd> = Arc::new(Remote::connect(server.address.to_string()).unwrap());
    let session = Session::open(remote).await.unwrap();
    let mutex = Mutex::new(&session, "job".parse().unwrap());
    let guard = mutex.lock().await.unwrap();

    grant(&channel, 7, 100).await;
    let mut service = LockClient::new(channel.clone());
    let queued =
        tokio::spawn(async move { service.lock(LockRequest { name: "job".into(), lease: 7 }).await });
    in_time("the queue", async { while keys(&channel, "job/").await.len() < 2 {} }).await;
    assert!(!queued.is_finished());
    guard.release().await.unwrap();
    let key = in_time("the turn", queued).await.unwrap().unwrap().into_inner().key;
    assert_eq!(key, "job/7");

    let waiting = tokio::spawn(async move { mutex.lock().await.map(|guard| (guard, mutex)) });
    in_time("the queue", async { while keys(&channel, "job/").await.len() < 2 {} }).await;
    assert!(!waiting.is_finished());
    LockClient::new(channel.clone()).unlock(UnlockRequest { key }).await.unwrap();
    let (guard, _mutex) = in_time("the turn", waiting).await.unwrap().unwrap();
    guard.release().await.unwrap();
    session.close().await.unwrap();
    assert_eq!(keys(&channel, "job/").await, Vec::<String>::new());
    server.stop().await;
}
