//! Addresses, probes, and how a server begins and ends.

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

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::Embedded;
use leasehold_proto::pb::etcdserverpb as pb;
use leasehold_server::{Address, ETCD_VERSION, Server, ServerOptions};
use pb::cluster_client::ClusterClient;
use pb::maintenance_client::MaintenanceClient;
use support::{Running, TOO_LONG, Watching, connect, grant, in_time, put, revoke, watch};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixListener};
use tonic::{Code, Request};

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("leasehold-server-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn socket(&self) -> PathBuf {
        self.0.join("etcd.sock")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn the_port_that_the_system_chose_is_known_before_serving() {
    let server = Server::bind(Address::loopback(0), Embedded::start().unwrap()).await.unwrap();
    let Address::Tcp(address) = server.address().clone() else { panic!("{:?}", server.address()) };
    assert_ne!(address.port(), 0);
    let taken = Server::bind(address, Embedded::start().unwrap()).await.unwrap_err();
    assert_eq!(taken.cause.kind(), ErrorKind::AddrInUse);
    assert!(taken.to_string().starts_with(&format!("cannot listen on {address}: ")), "{taken}");
}

#[tokio::test]
async fn a_unix_socket_serves_and_goes_with_its_server() {
    let folder = Folder::new("serves");
    let etcd = Embedded::start().unwrap();
    let server = Running::serve(Server::bind(folder.socket(), etcd.clone()).await.unwrap(), etcd);
    assert_eq!(server.address.to_string(), format!("unix://{}", folder.socket().display()));
    assert_eq!(fs::metadata(folder.socket()).unwrap().permissions().mode() & 0o777, 0o600);
    let channel = server.channel().await;
    assert_eq!(put(&channel, "k", "v").await, 2);
    server.stop().await;
    assert!(!folder.socket().exists());
}

#[tokio::test]
async fn a_living_servers_socket_is_never_taken_and_a_dead_ones_is() {
    let folder = Folder::new("taken");
    let etcd = Embedded::start().unwrap();
    // What a killed process leaves: the file, and nobody behind it.
    drop(UnixListener::bind(folder.socket()).unwrap());
    assert!(folder.socket().exists());
    let first = Server::bind(folder.socket(), etcd.clone()).await.unwrap();
    for _ in 0..3 {
        let second = Server::bind(folder.socket(), etcd.clone()).await.unwrap_err();
        assert_eq!(second.cause.kind(), ErrorKind::AddrInUse);
    }
    let server = Running::serve(first, etcd.clone());
    put(&server.channel().await, "k", "v").await;
    server.stop().await;
    let next = Server::bind(folder.socket(), etcd).await.unwrap();
    drop(next);
    assert!(!folder.socket().exists());
}

#[test]
fn of_many_that_want_one_socket_at_once_one_gets_it() {
    let folder = Folder::new("many");
    let etcd = Embedded::start().unwrap();
    for _ in 0..200 {
        // As if the server before had been killed.
        drop(std::os::unix::net::UnixListener::bind(folder.socket()).unwrap());
        let (start, end) = (Barrier::new(4), Barrier::new(4));
        let bound = AtomicUsize::new(0);
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
                    start.wait();
                    let server = runtime.block_on(Server::bind(folder.socket(), etcd.clone()));
                    bound.fetch_add(usize::from(server.is_ok()), Ordering::SeqCst);
                    end.wait();
                });
            }
        });
        assert_eq!(bound.into_inner(), 1);
    }
}

#[tokio::test]
async fn what_is_no_socket_is_left_alone() {
    let folder = Folder::new("file");
    fs::write(folder.socket(), "precious").unwrap();
    let refused = Server::bind(folder.socket(), Embedded::start().unwrap()).await.unwrap_err();
    assert_eq!(refused.cause.kind(), ErrorKind::AlreadyExists);
    assert_eq!(fs::read_to_string(folder.socket()).unwrap(), "precious");
}

/// Sends a line of HTTP/1 and gives the answer.
async fn get(server: &Running, line: &str) -> String {
    let Address::Tcp(address) = server.address else { panic!("a server on TCP") };
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!("{line} HTTP/1.1\r\nHost: etcd\r\nConnection: close\r\n\r\n");
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    in_time("a page", socket.read_to_string(&mut answer)).await.unwrap();
    answer
}

#[tokio::test]
async fn probes_by_plain_http_are_answered_in_etcds_words() {
    let server = Running::start().await;
    let health = get(&server, "GET /health").await;
    assert!(
        health.starts_with("HTTP/1.1 200 OK\r\n") && health.ends_with(r#"{"health":"true","reason":""}"#),
        "{health}"
    );
    let version = get(&server, "GET /version").await;
    assert!(version.ends_with(r#"{"etcdserver":"3.5.23","etcdcluster":"3.5.0"}"#), "{version}");
    assert!(version.contains("content-type: application/json\r\n"), "{version}");
    assert!(get(&server, "GET /nothing").await.starts_with("HTTP/1.1 404 "));
    assert!(get(&server, "DELETE /health").await.starts_with("HTTP/1.1 405 "));
    server.stop().await;
}

#[tokio::test]
async fn the_member_is_one_with_ids_and_a_version_that_clients_know() {
    let options =
        ServerOptions { advertised: vec!["http://lock.example:2379".into()], ..ServerOptions::default() };
    let server = Running::start_with(Embedded::start().unwrap(), options).await;
    let channel = server.channel().await;
    let status =
        MaintenanceClient::new(channel.clone()).status(pb::StatusRequest {}).await.unwrap().into_inner();
    let header = status.header.unwrap();
    assert_eq!(status.version, ETCD_VERSION);
    assert_eq!(status.leader, header.member_id);
    assert!(status.raft_term > 0 && status.raft_index > 0 && header.cluster_id > 0 && header.member_id > 0);
    let list =
        ClusterClient::new(channel).member_list(pb::MemberListRequest { linearizable: true }).await.unwrap();
    let [member] = &list.into_inner().members[..] else { panic!("one member") };
    assert_eq!(member.id, header.member_id);
    assert_eq!(member.client_ur_ls, ["http://lock.example:2379"]);
    server.stop().await;
}

#[tokio::test]
async fn what_is_not_built_says_so() {
    let server = Running::start().await;
    let channel = server.channel().await;
    let mut maintenance = MaintenanceClient::new(channel.clone());
    let refused = maintenance.defragment(pb::DefragmentRequest {}).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    let refused = maintenance.hash_kv(pb::HashKvRequest { revision: 0 }).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
    let mut auth = pb::auth_client::AuthClient::new(channel.clone());
    assert_eq!(auth.auth_enable(pb::AuthEnableRequest {}).await.unwrap_err().code(), Code::Unimplemented);
    let login = auth.authenticate(pb::AuthenticateRequest::default()).await.unwrap_err();
    assert_eq!(login.message(), "etcdserver: authentication is not enabled");
    server.stop().await;
}

#[tokio::test]
async fn clients_that_demand_a_leader_have_one() {
    let server = Running::start().await;
    let channel = server.channel().await;
    let mut request = Request::new(pb::RangeRequest { key: "k".into(), ..Default::default() });
    request.metadata_mut().insert("hasleader", "true".parse().unwrap());
    assert_eq!(support::kv(&channel).range(request).await.unwrap().into_inner().count, 0);
    server.stop().await;
}

#[tokio::test]
async fn a_range_can_be_streamed() {
    let server = Running::start().await;
    let channel = server.channel().await;
    put(&channel, "k", "v").await;
    let request = pb::RangeRequest { key: "k".into(), ..Default::default() };
    let mut pieces = support::kv(&channel).range_stream(request).await.unwrap().into_inner();
    let piece = pieces.message().await.unwrap().unwrap().range_response.unwrap();
    assert_eq!((piece.count, piece.kvs.len(), piece.header.unwrap().revision), (1, 1, 2));
    assert_eq!(pieces.message().await.unwrap(), None);
    server.stop().await;
}

#[tokio::test]
async fn idle_connections_and_streams_do_not_hold_up_the_end() {
    let options = ServerOptions { drain: TOO_LONG * 10, ..ServerOptions::default() };
    let server = Running::start_with(Embedded::start().unwrap(), options).await;
    let channel = server.channel().await;
    put(&channel, "k", "v").await;
    let _watching = Watching::open(&channel, watch("k")).await;
    let (_say, said) = support::spoken::<pb::LeaseKeepAliveRequest>();
    let _renewals = support::lease(&channel).lease_keep_alive(said).await.unwrap();
    server.stop().await;
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_cut_in_the_end() {
    let options = ServerOptions { drain: Duration::from_millis(50), ..ServerOptions::default() };
    let server = Running::start_with(Embedded::start().unwrap(), options).await;
    let Address::Tcp(address) = server.address else { panic!("a server on TCP") };
    let mut silent = TcpStream::connect(address).await.unwrap();
    support::until("the connection", || server.activity.connections() == 1).await;
    server.stop().await;
    let end = in_time("the end of the connection", silent.read(&mut [0; 16])).await;
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}

#[tokio::test]
async fn a_server_that_is_dropped_while_it_serves_leaves_no_watch() {
    let etcd = Embedded::start().unwrap();
    let server = Server::bind(Address::loopback(0), etcd.clone()).await.unwrap();
    let address = server.address().to_string();
    let served = tokio::spawn(server.serve(std::future::pending()));
    let channel = connect(&address).await;
    let mut watching = Watching::open(&channel, watch("k")).await;
    assert!(watching.hear().await.created);
    served.abort();
    support::until("the end of the watch", || etcd.watch_count() == 0).await;
    assert!(watching.outcome().await.is_err());
}

#[tokio::test]
async fn a_server_leaves_when_nobody_needs_it() {
    let etcd = Embedded::start().unwrap();
    let server = Server::bind(Address::loopback(0), etcd.clone()).await.unwrap();
    let (address, activity) = (server.address().to_string(), server.activity());
    let idle = activity.clone().idle_for(Duration::from_millis(100));
    let served = tokio::spawn(server.serve(idle));
    let channel = connect(&address).await;
    grant(&channel, 1, 100).await;
    assert!(!activity.is_idle(), "somebody is connected");
    drop(channel);
    support::until("the end of the connection", || activity.connections() == 0).await;
    assert!(!activity.is_idle(), "a lease lives");
    let channel = connect(&address).await;
    revoke(&channel, 1).await;
    assert!(!served.is_finished());
    drop(channel);
    in_time("the end of the server", served).await.unwrap();
    assert!(TcpStream::connect(&address).await.is_err());
}
