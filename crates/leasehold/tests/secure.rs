//! Secure connections to real etcd: who is trusted, who is not and how that is told, and certificates that change.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::time::Duration;

use leasehold::{Error, ErrorKind, EtcdExt, Mutex, Remote, RemoteOptions, Session, TlsOptions};
use leasehold_testbed::{Authority, Identity, Options, RealEtcd, Scratch, Version, block_on};

const HERE: &str = "127.0.0.1";

fn server(version: Version, identity: Identity, clients: Option<&str>) -> Option<RealEtcd> {
    RealEtcd::start(version, Options::default().with_secure(identity, clients))
}

fn connect(etcd: &RealEtcd, tls: TlsOptions) -> Remote {
    RemoteOptions::new(etcd.secure_endpoint().unwrap()).unwrap().tls(tls).open().unwrap()
}

async fn refusal(etcd: &Remote) -> Error {
    let error = etcd.get("k").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
    assert!(!error.to_string().contains('\n'), "{error}");
    error
}

async fn lock_once(etcd: Remote) {
    let session = Session::open(etcd).await.unwrap();
    let guard = Mutex::new(&session, "secure".parse().unwrap()).lock().await.unwrap();
    guard.verify().await.unwrap();
    guard.release().await.unwrap();
    session.close().await.unwrap();
}

fn a_lock_works_over_secure_connections_with_and_without_a_certificate_of_ones_own(version: Version) {
    let authority = Authority::new("ours");
    let Some(open) = server(version, authority.identity(&[HERE]), None) else { return };
    let Some(closed) = server(version, authority.identity(&[HERE]), Some(authority.pem())) else { return };
    let trusting = TlsOptions::new().authority(authority.pem());
    block_on(async {
        lock_once(connect(&open, trusting.clone())).await;
        // Without a scheme the settings say how.
        let bare = open.secure_endpoint().unwrap().replace("https://", "");
        lock_once(RemoteOptions::new(bare).unwrap().tls(trusting.clone()).open().unwrap()).await;

        let ours = authority.identity(&["client"]);
        lock_once(connect(&closed, trusting.clone().identity(&ours.certificate, &ours.key))).await;
        let without = refusal(&connect(&closed, trusting.clone())).await.to_string();
        assert!(without.contains("want a certificate"), "{without}");
        let theirs = Authority::new("theirs").identity(&["client"]);
        let foreign = connect(&closed, trusting.identity(&theirs.certificate, &theirs.key));
        let foreign = refusal(&foreign).await.to_string();
        assert!(foreign.contains("refused ours"), "{foreign}");
    });
}

#[test]
fn a_lock_works_over_secure_connections_to_etcd35() {
    a_lock_works_over_secure_connections_with_and_without_a_certificate_of_ones_own(Version::V35);
}

#[test]
fn a_lock_works_over_secure_connections_to_etcd37() {
    a_lock_works_over_secure_connections_with_and_without_a_certificate_of_ones_own(Version::V37);
}

/// B17: each is refused at once, and told with what is wrong with it.
#[test]
fn b17_a_certificate_that_will_not_do_is_told_with_what_is_wrong_with_it() {
    let authority = Authority::new("ours");
    let Some(etcd) = server(Version::V37, authority.identity(&[HERE]), None) else { return };
    let trusting = || TlsOptions::new().authority(authority.pem());
    block_on(async {
        let unknown = connect(&etcd, TlsOptions::new().authority(Authority::new("theirs").pem()));
        let unknown = refusal(&unknown).await.to_string();
        assert!(unknown.contains("no authority that is trusted"), "{unknown}");

        etcd.show(&authority.expired_identity(&[HERE]));
        let expired = refusal(&connect(&etcd, trusting())).await.to_string();
        assert!(expired.contains("expired"), "{expired}");

        etcd.show(&authority.common_name_identity(HERE));
        let nameless = refusal(&connect(&etcd, trusting())).await.to_string();
        assert!(nameless.contains("another name") && nameless.contains("common name"), "{nameless}");

        etcd.show(&authority.identity(&["*.etcd.example"]));
        let elsewhere = refusal(&connect(&etcd, trusting())).await.to_string();
        assert!(elsewhere.contains("another name"), "{elsewhere}");
        lock_once(connect(&etcd, trusting().server_name("one.etcd.example"))).await;
    });
}

#[test]
fn either_side_that_expects_no_secure_connection_is_named() {
    let authority = Authority::new("ours");
    let Some(etcd) = server(Version::V37, authority.identity(&[HERE]), None) else { return };
    block_on(async {
        let secure = etcd.secure_endpoint().unwrap();
        let plain = Remote::connect(secure.replace("https", "http")).unwrap();
        let error = plain.get("k").await.unwrap_err().to_string();
        assert!(error.contains("speaks TLS"), "{error}");

        let tls = TlsOptions::new().authority(authority.pem());
        let open = etcd.endpoint().replace("http", "https");
        let error =
            RemoteOptions::new(open).unwrap().tls(tls.clone()).open().unwrap().get("k").await.unwrap_err();
        assert!(error.to_string().contains("does it speak TLS?"), "{error}");

        let refused = RemoteOptions::new(etcd.endpoint()).unwrap().tls(tls).open().unwrap_err();
        assert!(refused.to_string().contains("https://"), "{refused}");
    });
}

/// Go's TLS says nothing to whoever does not begin with TLS.
#[test]
fn a_server_that_hangs_up_without_a_word_is_asked_whether_it_speaks_tls() {
    let listener = TcpListener::bind((HERE, 0)).unwrap();
    let at = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mute, _) = listener.accept().unwrap();
        drop(mute);
        let (mut second, _) = listener.accept().unwrap();
        let mut hello = [0; 9];
        second.read_exact(&mut hello).unwrap();
        assert_eq!(hello[..2], [0x16, 3]);
        // Fatal alert, unexpected message.
        second.write_all(&[0x15, 3, 1, 0, 2, 2, 10]).unwrap();
        // Until whoever asked has gone.
        let _ = second.read_to_end(&mut Vec::new());
    });
    block_on(async {
        let plain = Remote::connect(at).unwrap();
        let error = plain.get("k").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Protocol, "{error}");
        assert!(error.to_string().contains("speaks TLS"), "{error}");
    });
    server.join().unwrap();
}

#[test]
fn certificates_are_read_again_when_they_change() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let Some(etcd) = server(Version::V37, old.identity(&[HERE]), None) else { return };
    let scratch = Scratch::new("certificates");
    let file = |name: &str| -> PathBuf { scratch.path().join(name) };
    let write = |authority: &Authority| {
        let ours = authority.identity(&["client"]);
        fs::write(file("ca.pem"), authority.pem()).unwrap();
        fs::write(file("client.pem"), &ours.certificate).unwrap();
        fs::write(file("client-key.pem"), &ours.key).unwrap();
    };
    write(&old);
    let tls = TlsOptions::new()
        .authority_file(file("ca.pem"))
        .identity_files(file("client.pem"), file("client-key.pem"));
    block_on(async {
        let remote = connect(&etcd, tls);
        remote.get("k").await.unwrap();
        // Everything is renewed at once; connections that stand go on until they break.
        etcd.show(&new.identity(&[HERE]));
        write(&new);
        remote.get("k").await.unwrap();
        tokio::task::block_in_place(|| etcd.restart());
        remote.get("k").await.unwrap();
        // In the midst of a change there is half a file: the last good ones go on.
        fs::write(file("ca.pem"), "-----BEGIN CERT").unwrap();
        fs::remove_file(file("client-key.pem")).unwrap();
        tokio::task::block_in_place(|| etcd.restart());
        let late = async {
            while remote.get("k").await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(15), late).await.unwrap();
    });
}

/// A70: an address of IPv6 is dialled, and its certificate is checked for the address.
#[test]
fn a70_an_ipv6_endpoint_is_reached_securely() {
    let authority = Authority::new("ours");
    let Some(etcd) = server(Version::V37, authority.identity(&["::1"]), None) else { return };
    let target = etcd.secure_endpoint().unwrap().replace("https://", "");
    block_on(async {
        let Ok(listener) = tokio::net::TcpListener::bind("[::1]:0").await else {
            // A machine may have no IPv6 at all; there is nothing to dial then.
            eprintln!("no IPv6 on this machine");
            return;
        };
        let endpoint = format!("https://{}", listener.local_addr().unwrap());
        let forward = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let target = target.clone();
                tokio::spawn(async move {
                    let mut server = tokio::net::TcpStream::connect(target).await.unwrap();
                    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
                });
            }
        });
        let tls = TlsOptions::new().authority(authority.pem());
        lock_once(RemoteOptions::new(endpoint).unwrap().tls(tls).open().unwrap()).await;
        forward.abort();
    });
}
