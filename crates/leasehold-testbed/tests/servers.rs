//! The real servers do what the tests of the other crates rely on.

#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test, of real servers, which live on real time"
)]

use std::net::TcpStream;
use std::time::{Duration, Instant};

use leasehold::mvcc::Revision;
use leasehold_testbed::{Cluster, Options, Part, RealEtcd, Version};
use serde_json::json;

fn revision(server: &RealEtcd) -> Revision {
    server.gateway().status().unwrap().revision
}

fn put(server: &RealEtcd) {
    // "a" = "b", in the JSON face's base 64.
    server.gateway().post("/v3/kv/put", &json!({"key": "YQ==", "value": "Yg=="})).unwrap();
}

#[test]
fn a_server_of_each_version_says_which_it_is_and_keeps_its_data_over_a_power_cut() {
    for (version, number) in [(Version::V35, "3.5.23"), (Version::V37, "3.7.2")] {
        let Some(server) = RealEtcd::start(version, Options::default()) else { continue };
        assert_eq!(server.gateway().status().unwrap().version, number);
        put(&server);
        let pid = server.pid().unwrap();
        server.kill();
        assert_eq!(server.pid(), None);
        assert!(!server.gateway().is_healthy());
        server.restart();
        assert_ne!(server.pid().unwrap(), pid);
        assert_eq!(revision(&server), Revision::new(2));
    }
}

#[test]
fn a_wiped_server_begins_anew_and_a_restored_one_goes_back() {
    let Some(server) = RealEtcd::start(Version::V37, Options::default()) else { return };
    put(&server);
    let backup = server.backup();
    put(&server);
    assert_eq!(revision(&server), Revision::new(3));
    server.restore_and_restart(&backup);
    assert_eq!(revision(&server), Revision::new(2));
    server.wipe_and_restart();
    assert_eq!(revision(&server), Revision::new(1));
}

#[test]
fn a_frozen_server_takes_connections_and_answers_only_once_thawed() {
    let Some(server) = RealEtcd::start(Version::V35, Options::default()) else { return };
    server.freeze();
    let address = server.endpoint().replace("http://", "");
    let connected = TcpStream::connect(&address).unwrap();
    assert!(server.gateway().status().is_err());
    server.thaw();
    server.wait_healthy();
    drop(connected);
}

#[test]
fn a_server_listens_on_a_unix_socket_if_asked() {
    for version in Version::ALL {
        let Some(server) = RealEtcd::start(version, Options::default().with_unix_socket()) else { continue };
        std::os::unix::net::UnixStream::connect(server.unix_socket().unwrap()).unwrap();
        server.restart();
        std::os::unix::net::UnixStream::connect(server.unix_socket().unwrap()).unwrap();
    }
}

#[test]
fn a_server_with_authentication_serves_only_who_logs_in() {
    let Some(server) = RealEtcd::start(Version::V35, Options::default()) else { return };
    let root = server.gateway().enable_auth("secret").unwrap();
    let read = json!({"key": "YQ=="});
    assert!(server.gateway().post("/v3/kv/range", &read).is_err());
    assert!(root.post("/v3/kv/range", &read).is_ok());
    assert!(server.gateway().login("root", "wrong").is_err());
    server.restart();
}

#[test]
fn many_servers_start_at_once_without_taking_each_others_ports() {
    std::thread::scope(|scope| {
        let start = || RealEtcd::start(Version::V37, Options::default());
        let starting: Vec<_> = (0..6).map(|_| scope.spawn(start)).collect();
        let servers: Vec<_> = starting.into_iter().filter_map(|server| server.join().unwrap()).collect();
        for server in &servers {
            put(server);
            assert_eq!(revision(server), Revision::new(2), "nobody else writes to it");
        }
    });
}

#[test]
fn a_clusters_lead_moves_when_asked_and_when_its_leader_dies_or_stands_still() {
    for version in Version::ALL {
        let Some(cluster) = Cluster::start_with(version, 3, &Options::default().quick_elections()) else {
            continue;
        };
        assert_eq!(cluster.endpoints().len(), 3);
        let to = cluster.follower();
        cluster.move_leader(to);
        assert_eq!(cluster.leader(), to);

        cluster.member(to).kill();
        let next = cluster.leader();
        assert_ne!(next, to);
        cluster.member(to).restart();

        cluster.member(next).freeze();
        let start = Instant::now();
        assert_ne!(cluster.leader_besides(&[next]), next);
        assert!(start.elapsed() < Duration::from_secs(30));
        cluster.member(next).thaw();
        cluster.wait_healthy();
        cluster.restart();
        cluster.leader();
    }
}

#[test]
fn etcdctl_talks_to_a_server() {
    let Some(server) = RealEtcd::start(Version::V37, Options::default()) else { return };
    for part in [Part::Etcdctl, Part::Etcdctl34] {
        let Some(etcdctl) = leasehold_testbed::Etcdctl::find_part(part, &server.endpoints()) else {
            continue;
        };
        assert_eq!(etcdctl.run(&["put", "k", "v"]), "OK\n");
        assert_eq!(etcdctl.run(&["get", "k", "--print-value-only"]), "v\n");
        assert!(!etcdctl.output(&["no-such-command"]).status.success());
        let mut lock = etcdctl.start(&["lock", "name"]);
        let held = lock.lines().next().unwrap().unwrap();
        assert!(held.starts_with("name/"), "{held}");
        let pid = lock.pid();
        lock.kill();
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    }
}
