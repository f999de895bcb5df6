//! Real etcd with users: locks by the least role that is enough, over tokens that age, and clear words for who may not.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use leasehold::etcd::Etcd;
use leasehold::{Credentials, ErrorKind, Mutex, Remote, RemoteOptions, Session, TryLock, Ttl};
use leasehold_testbed::{Cluster, Dump, Gateway, Options, RealEtcd, Version, block_on, join};
use serde_json::json;

/// How long a token lives where nothing else is said: shorter than anything here takes.
const TOKEN: Duration = Duration::from_secs(2);

/// Runs a test on both versions.
macro_rules! on_each_version {
    ($($test:ident),* $(,)?) => {$(
        mod $test {
            #[test]
            fn etcd35() {
                super::$test(super::Version::V35);
            }

            #[test]
            fn etcd37() {
                super::$test(super::Version::V37);
            }
        }
    )*};
}

on_each_version! {
    a64_b10_a_lock_is_held_waited_for_and_released_over_many_tokens_by_the_least_role,
    a66_whoever_may_not_is_told_so_in_time_and_leaves_nothing,
    a_changed_user_goes_on_with_a_new_token,
    users_turned_on_under_a_client_are_no_reason_to_stop,
}

fn options() -> Options {
    Options::default().with_token_ttl(TOKEN)
}

/// Turns users on, with `worker` who has the least role that locks below `jobs/` need, and `reader` who may only look.
fn with_users(gateway: &Gateway) -> Gateway {
    for (user, kind) in [("worker", "READWRITE"), ("reader", "READ")] {
        gateway.post("/v3/auth/role/add", &json!({"name": user})).unwrap();
        let (from, to) = (STANDARD.encode("jobs/"), STANDARD.encode("jobs0"));
        let permission = json!({"permType": kind, "key": from, "range_end": to});
        gateway.post("/v3/auth/role/grant", &json!({"name": user, "perm": permission})).unwrap();
        gateway.post("/v3/auth/user/add", &json!({"name": user, "password": user})).unwrap();
        gateway.post("/v3/auth/user/grant", &json!({"user": user, "role": user})).unwrap();
    }
    gateway.enable_auth("secret").unwrap()
}

fn client(endpoints: &[String], user: &str, password: &str) -> Arc<dyn Etcd> {
    Arc::new(remote(endpoints, user, password))
}

fn remote(endpoints: &[String], user: &str, password: &str) -> Remote {
    let credentials = Credentials::new(user, password).unwrap();
    RemoteOptions::new(endpoints).unwrap().credentials(credentials).open().unwrap()
}

async fn session(etcd: Arc<dyn Etcd>, ttl: u64) -> Session {
    Session::builder(etcd).ttl(Ttl::seconds(ttl).unwrap()).open().await.unwrap()
}

async fn pass(session: &Session, time: Duration) {
    let runtime = session.runtime();
    runtime.sleep_until(runtime.now() + time).await;
}

fn a64_b10_a_lock_is_held_waited_for_and_released_over_many_tokens_by_the_least_role(version: Version) {
    let Some(etcd) = RealEtcd::start(version, options()) else { return };
    with_users(&etcd.gateway());
    block_on(async {
        let worker = client(&etcd.endpoints(), "worker", "worker");
        let (first, second) = (session(worker.clone(), 3).await, session(worker.clone(), 3).await);
        let leases = [first.lease_id().unwrap(), second.lease_id().unwrap()];
        let name = "jobs/nightly".parse().unwrap();
        let (mutex, waiting) =
            (Mutex::new(&first, "jobs/nightly".parse().unwrap()), Mutex::new(&second, name));
        let guard = mutex.lock().await.unwrap();
        let waiter = join(&*second.runtime(), "waiter", async move { waiting.lock().await });
        // Nobody but the renewals has anything to say meanwhile, and those need no token.
        pass(&first, TOKEN * 3).await;
        guard.verify().await.unwrap();
        guard.release().await.unwrap();
        let next = waiter.await.unwrap();
        // Nor has the new holder, until it lets go.
        pass(&second, TOKEN * 2).await;
        next.ensure_held(Duration::ZERO).unwrap();
        next.release().await.unwrap();
        pass(&second, TOKEN * 2).await;
        first.close().await.unwrap();
        second.close().await.unwrap();
        Dump::assert_nothing_left(&*worker, "jobs/", &leases, Duration::ZERO).await;
    });
}

fn a66_whoever_may_not_is_told_so_in_time_and_leaves_nothing(version: Version) {
    let Some(etcd) = RealEtcd::start(version, options()) else { return };
    let root = with_users(&etcd.gateway());
    block_on(async {
        let before = root.leases().unwrap();
        let wrong = client(&etcd.endpoints(), "worker", "wrong");
        let error = Session::open(wrong).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
        assert!(error.to_string().contains("log in") && error.to_string().contains("password"), "{error}");

        let nobody: Arc<dyn Etcd> = Arc::new(Remote::connect(etcd.endpoints()).unwrap());
        let session = Session::open(nobody).await;
        // Leases ask for no name; keys do.
        let error = match &session {
            Ok(session) => Mutex::new(session, "jobs/a".parse().unwrap()).lock().await.unwrap_err(),
            Err(error) => error.clone(),
        };
        assert_eq!(error.kind(), ErrorKind::Auth, "{error}");

        let reader = self::session(client(&etcd.endpoints(), "reader", "reader"), 5).await;
        let mutex = Mutex::new(&reader, "jobs/a".parse().unwrap());
        for error in [
            mutex.lock().await.unwrap_err(),
            mutex.try_lock().await.unwrap_err(),
            mutex.lock_timeout(Duration::from_secs(5)).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
            assert!(error.to_string().contains("jobs/a"), "{error}");
        }
        assert!(mutex.holder().await.unwrap().is_none(), "to look is permitted");

        let worker = self::session(client(&etcd.endpoints(), "worker", "worker"), 5).await;
        let error = Mutex::new(&worker, "elsewhere".parse().unwrap()).lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
        // One lock that may not be had does not keep the session from others.
        let own = Mutex::new(&worker, "jobs/a".parse().unwrap());
        assert!(matches!(own.try_lock().await.unwrap(), TryLock::Acquired(_)));
        for session in session.iter().chain([&reader, &worker]) {
            session.close().await.unwrap();
        }
        assert_eq!(root.leases().unwrap(), before);
    });
}

fn a_changed_user_goes_on_with_a_new_token(version: Version) {
    let Some(etcd) = RealEtcd::start(version, Options::default()) else { return };
    let root = with_users(&etcd.gateway());
    block_on(async {
        let worker = session(client(&etcd.endpoints(), "worker", "worker"), 5).await;
        let mutex = Mutex::new(&worker, "jobs/nightly".parse().unwrap());
        let guard = mutex.lock().await.unwrap();
        // Any change makes every token given before it too old.
        root.post("/v3/auth/role/add", &json!({"name": "another"})).unwrap();
        guard.verify().await.unwrap();
        root.post("/v3/auth/user/add", &json!({"name": "another", "password": "x"})).unwrap();
        guard.release().await.unwrap();
        mutex.lock().await.unwrap().release().await.unwrap();
        worker.close().await.unwrap();
        assert_eq!(root.login("root", "secret").unwrap().leases().unwrap(), []);
    });
}

fn users_turned_on_under_a_client_are_no_reason_to_stop(version: Version) {
    let Some(etcd) = RealEtcd::start(version, options()) else { return };
    block_on(async {
        let worker = session(client(&etcd.endpoints(), "worker", "worker"), 3).await;
        let (mutex, other) = (
            Mutex::new(&worker, "jobs/nightly".parse().unwrap()),
            Mutex::new(&worker, "jobs/other".parse().unwrap()),
        );
        let guard = mutex.lock().await.unwrap();
        with_users(&etcd.gateway());
        other.lock().await.unwrap().release().await.unwrap();
        pass(&worker, TOKEN * 2).await;
        guard.verify().await.unwrap();
        guard.release().await.unwrap();
        worker.close().await.unwrap();
    });
}

/// B10: a restarted member has forgotten every token, and the others let theirs age unseen.
#[test]
fn b10_members_that_are_restarted_one_after_the_other_cost_nobody_the_lock() {
    let options = options().quick_elections();
    let Some(cluster) = Cluster::start_with(Version::V37, 3, &options) else { return };
    with_users(&cluster.member(0).gateway());
    block_on(async {
        let worker = client(&cluster.endpoints(), "worker", "worker");
        let (first, second) = (session(worker.clone(), 10).await, session(worker.clone(), 10).await);
        let name = "jobs/nightly".parse().unwrap();
        let (mutex, waiting) =
            (Mutex::new(&first, "jobs/nightly".parse().unwrap()), Mutex::new(&second, name));
        let guard = mutex.lock().await.unwrap();
        let waiter = join(&*second.runtime(), "waiter", async move { waiting.lock().await });
        for member in cluster.members() {
            tokio::task::block_in_place(|| member.restart());
            guard.verify().await.unwrap();
        }
        guard.release().await.unwrap();
        let next = waiter.await.unwrap();
        next.verify().await.unwrap();
        next.release().await.unwrap();
        first.close().await.unwrap();
        second.close().await.unwrap();
    });
}
