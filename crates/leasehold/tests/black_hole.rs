//! A server that takes everything and answers nothing: each call of the library ends within the bound that its docs state.
//!
//! In virtual time before a simulated cluster, for every call; and on a real socket, for a few.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::collections::BTreeSet;
use std::future::pending;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use futures_util::{FutureExt, StreamExt};
use leasehold::etcd::{Etcd, WatchUpdate};
use leasehold::mvcc::{KeyRange, LeaseGrantRequest, PutRequest, RangeRequest, Txn, WatchRequest};
use leasehold::runtime::{Runtime, before};
use leasehold::{
    DistributedLock, EtcdExt, Guard, LeaseId, LossCause, Mutex, Prefixed, Remote, RemoteOptions, Revision,
    Session, Ttl,
};
use leasehold_sim::cluster::Cluster;
use leasehold_sim::{ClockError, Node, Seeded};
use leasehold_testbed::{block_on, join};

/// What the docs state, with default options.
const CALL: Duration = Duration::from_secs(5);
/// A grant is asked for twice at most, the first for half of a call's bound.
const GRANT: Duration = Duration::from_millis(7500);
const CLOSE: Duration = Duration::from_secs(2);
const LEAVE: Duration = Duration::from_secs(5);
/// Two TTLs, a call, and a grant.
const PATIENCE: Duration = Duration::from_millis(32_500);
const AT_ONCE: Duration = Duration::ZERO;
/// Every lease's.
const TTL: Duration = Duration::from_secs(10);

/// What there was before the silence.
struct Stage {
    node: Node,
    remote: Remote,
    /// It has neither connected nor, where there are users, logged in.
    fresh: Remote,
    session: Session,
    /// Its last lease is over, and there was no answer about the next.
    expired: Session,
    free: Mutex,
    /// Held by somebody else.
    busy: Mutex,
    /// Free, on the session without a lease.
    leaseless: Mutex,
    guard: Guard,
    held: DistributedLock,
    /// Held by somebody else.
    taken: DistributedLock,
    /// Not held by anybody.
    open: DistributedLock,
}

type Call = fn(Stage) -> LocalBoxFuture<'static, Outcome>;

/// What a call may come to when nobody answers.
#[derive(Debug, PartialEq)]
enum Outcome {
    Failed,
    Done,
}
use Outcome::{Done, Failed};

fn failed<T, E>(result: Result<T, E>) -> Outcome {
    if result.is_err() { Failed } else { Done }
}

/// A name, the bound, what it comes to, and the call.
macro_rules! calls {
    ($($name:literal, $bound:expr, $outcome:ident, |$stage:ident| $call:expr;)*) => {
        &[$(($name, $bound, $outcome, |$stage: Stage| async move { $call }.boxed_local())),*]
    };
}

#[rustfmt::skip]
const CALLS: &[(&str, Duration, Outcome, Call)] = calls! {
    "Etcd::range", CALL, Failed, |s| failed(s.remote.range(RangeRequest::key("k")).await);
    "Etcd::txn", CALL, Failed, |s| failed(s.remote.txn(Txn::new().then(PutRequest::new("k", "v"))).await);
    "Etcd::txn, reading", CALL, Failed, |s| failed(s.remote.txn(Txn::new().then(RangeRequest::key("k"))).await);
    "Etcd::lease_grant", CALL, Failed,
        |s| failed(s.remote.lease_grant(LeaseGrantRequest { ttl: 5, id: LeaseId::new(5) }).await);
    "Etcd::lease_keep_alive", CALL, Failed, |s| failed(s.remote.lease_keep_alive(s.guard.lease()).await);
    "Etcd::lease_revoke", CALL, Failed, |s| failed(s.remote.lease_revoke(s.guard.lease()).await);
    "Etcd::lease_time_to_live", CALL, Failed,
        |s| failed(s.remote.lease_time_to_live(s.guard.lease(), true).await);
    "Etcd::close", AT_ONCE, Done, |s| { s.remote.close().await; Done };
    "Etcd::dedicated", CALL, Failed, |s| failed(s.remote.dedicated().range(RangeRequest::key("k")).await);
    "Etcd::runtime", AT_ONCE, Done, |s| { s.remote.runtime().now(); Done };
    "Etcd::watch, dropped", AT_ONCE, Done, |s| { drop(s.remote.watch(follow())); Done };
    "Remote::compact", CALL, Failed, |s| failed(s.remote.compact(Revision::new(1)).await);
    "EtcdExt::put", CALL, Failed, |s| failed(s.remote.put("k", "v", LeaseId::NONE).await);
    "EtcdExt::get", CALL, Failed, |s| failed(s.remote.get("k").await);
    "EtcdExt::delete", CALL, Failed, |s| failed(s.remote.delete("k").await);
    "EtcdExt::put_if_not_exists", CALL, Failed,
        |s| failed(s.remote.put_if_not_exists("k", "v", LeaseId::NONE).await);
    "EtcdExt::delete_if_value", CALL, Failed, |s| failed(s.remote.delete_if_value("k", "v").await);
    "Prefixed", CALL, Failed, |s| failed(Prefixed::new(Arc::new(s.remote), "p/").unwrap().get("k").await);

    "Etcd::range, by a fresh client", CALL, Failed, |s| failed(s.fresh.range(RangeRequest::key("k")).await);
    "Etcd::txn, by a fresh client", CALL, Failed,
        |s| failed(s.fresh.txn(Txn::new().then(PutRequest::new("k", "v"))).await);
    "Etcd::lease_keep_alive, by a fresh client", CALL, Failed,
        |s| failed(s.fresh.lease_keep_alive(s.guard.lease()).await);
    "Session::open, by a fresh client", GRANT, Failed, |s| failed(Session::open(s.fresh).await);
    "DistributedLock::try_lock, by a fresh client", GRANT, Failed,
        |s| failed(distributed(&s.fresh, "fresh", "ours").try_lock().await);
    "Session::open", GRANT, Failed, |s| failed(Session::open(s.remote).await);
    "SessionBuilder::open", GRANT, Failed, |s| failed(Session::builder(s.remote).open().await);
    "Session::close", CLOSE, Failed, |s| failed(s.session.close().await);
    "Session::close, without a lease", CLOSE, Done, |s| failed(s.expired.close().await);
    "Session::orphan", AT_ONCE, Done, |s| { s.session.orphan(); Done };
    "Session, dropped", AT_ONCE, Done, |s| { drop((s.session, s.expired)); Done };

    "Mutex::lock", TTL, Failed, |s| failed(s.free.lock().await);
    "Mutex::lock, behind a holder", TTL, Failed, |s| failed(s.busy.lock().await);
    "Mutex::lock, without a lease", GRANT, Failed, |s| failed(s.leaseless.lock().await);
    "Mutex::try_lock", TTL, Failed, |s| failed(s.free.try_lock().await);
    "Mutex::try_lock, of what is held", TTL, Failed, |s| failed(s.busy.try_lock().await);
    "Mutex::try_lock, without a lease", GRANT, Failed, |s| failed(s.leaseless.try_lock().await);
    "Mutex::lock_timeout, A14", Duration::from_secs(4), Done,
        |s| failed(s.free.lock_timeout(Duration::from_secs(3)).await);
    "Mutex::lock_timeout, behind a holder, A14", Duration::from_secs(4), Done,
        |s| failed(s.busy.lock_timeout(Duration::from_secs(3)).await);
    "Mutex::lock_timeout, without a lease, A14", Duration::from_secs(4), Done,
        |s| failed(s.leaseless.lock_timeout(Duration::from_secs(3)).await);
    "Mutex::lock_timeout, of a time beyond the lease's", TTL, Failed,
        |s| failed(s.free.lock_timeout(TTL * 100).await);
    "Mutex::holder", CALL, Failed, |s| failed(s.busy.holder().await);
    "Mutex::queue", CALL, Failed, |s| failed(s.busy.queue().await);

    "Guard::ensure_held", AT_ONCE, Done, |s| failed(s.guard.ensure_held(Duration::ZERO));
    "Guard::verify", CALL, Failed, |s| failed(s.guard.verify().await);
    "Guard::txn", CALL, Failed, |s| failed(s.guard.txn(Txn::new().then(PutRequest::new("k", "v"))).await);
    "Guard::run_while_held", TTL, Failed, |s| failed(s.guard.run_while_held(pending::<()>()).await);
    "Lost::wait", TTL, Done, |s| { assert_eq!(s.guard.lost().wait().await, LossCause::Deadline); Done };
    "Guard::release", LEAVE, Failed, |s| failed(s.guard.release().await);
    "Guard, dropped", AT_ONCE, Done, |s| { drop(s.guard); Done };

    "DistributedLock::try_lock", GRANT, Failed, |s| failed(s.open.try_lock().await);
    "DistributedLock::try_lock, of what is held by others", GRANT, Failed, |s| failed(s.taken.try_lock().await);
    "DistributedLock::try_lock, of what is held", AT_ONCE, Done, |s| failed(s.held.try_lock().await);
    "DistributedLock::lock", PATIENCE, Failed, |s| failed(s.open.lock().await);
    "DistributedLock::lock, behind a holder", PATIENCE, Failed, |s| failed(s.taken.lock().await);
    "DistributedLock::unlock", LEAVE, Failed, |s| failed(s.held.unlock().await);
    "DistributedLock::held", AT_ONCE, Done, |s| { assert!(s.held.held()); Done };
    "DistributedLock, dropped", AT_ONCE, Done, |s| { drop((s.held, s.open, s.taken)); Done };
};

fn follow() -> WatchRequest {
    WatchRequest::range(KeyRange::key("k"))
}

async fn session(remote: &Remote) -> Session {
    Session::builder(remote.clone()).ttl(Ttl::seconds(TTL.as_secs()).unwrap()).open().await.unwrap()
}

fn distributed(remote: &Remote, key: &'static str, token: &'static str) -> DistributedLock {
    DistributedLock::new(remote.clone(), key, token, Ttl::seconds(TTL.as_secs()).unwrap()).unwrap()
}

/// Plays it from the first seconds of a silence, with connections that stand, and much later.
fn in_silence(seed: u64, later: bool, users: bool, play: impl AsyncFnOnce(&Seeded, &Cluster, Stage)) {
    let seeded = Seeded::new(seed).limit(Duration::from_secs(3600));
    let cluster = Cluster::new(&seeded, 3, |_| ClockError::NONE);
    if users {
        cluster.turn_users_on();
    }
    seeded.block_on(async {
        let world = seeded.notes();
        let (node, other) = (seeded.node("ours", ClockError::NONE), seeded.node("theirs", ClockError::NONE));
        let [(remote, _), (fresh, _), (others, _)] =
            [cluster.client(&node), cluster.client(&node), cluster.client(&other)];
        let (session, expired) = (self::session(&remote).await, self::session(&remote).await);
        let theirs = self::session(&others).await;
        let mutex = |session: &Session, name: &str| Mutex::new(session, name.parse().unwrap());
        let _held = mutex(&theirs, "busy").lock().await.unwrap();
        let _taken = distributed(&others, "taken", "theirs");
        assert!(_taken.try_lock().await.unwrap());
        expired.etcd().lease_revoke(expired.lease_id().unwrap()).await.unwrap();
        world.sleep_until(world.true_now() + TTL).await;
        assert_eq!(expired.lease_id(), None);
        let stage = Stage {
            guard: mutex(&session, "guarded").lock().await.unwrap(),
            held: distributed(&remote, "held", "ours"),
            taken: distributed(&remote, "taken", "ours"),
            open: distributed(&remote, "open", "ours"),
            free: mutex(&session, "free"),
            busy: mutex(&session, "busy"),
            leaseless: mutex(&expired, "free"),
            node,
            remote,
            fresh,
            session,
            expired,
        };
        assert!(stage.held.try_lock().await.unwrap());
        (0..3).for_each(|member| cluster.freeze(member));
        if later {
            // Long enough for every connection to be given up, and not for a lease to end.
            world.sleep_until(world.true_now() + Duration::from_secs(3)).await;
        }
        play(&seeded, &cluster, stage).await;
    });
}

#[test]
fn a14_a25_b13_c18_every_call_ends_within_its_stated_bound() {
    for (name, bound, expected, call) in CALLS {
        for (seed, later, users) in [(1, false, false), (2, true, true), (3, false, true), (4, true, false)] {
            in_silence(seed, later, users, async |seeded, _, stage| {
                let (world, begun) = (seeded.notes(), seeded.notes().true_now());
                let ended = before(&world, begun + Duration::from_secs(300), call(stage)).await;
                let took = world.true_now().since(begun);
                let ended = ended.unwrap_or_else(|| panic!("{name} does not end"));
                assert_eq!(ended, *expected, "{name}, after {took:?}");
                assert!(took <= *bound, "{name}: {took:?} instead of {bound:?} (seed {seed})");
            });
        }
    }
}

/// A wait that began while all was well.
#[test]
fn a14_a39_waits_that_the_silence_finds_waiting_end_with_their_lease_or_their_time() {
    for seed in 0..4 {
        let seeded = Seeded::new(seed).limit(Duration::from_secs(3600));
        let cluster = Cluster::new(&seeded, 3, |_| ClockError::NONE);
        seeded.block_on(async {
            let node = seeded.node("ours", ClockError::NONE);
            let (remote, _) = cluster.client(&node);
            let (holding, waiting) = (session(&remote).await, session(&remote).await);
            let mutex = |session: &Session| Mutex::new(session, "busy".parse().unwrap());
            let _guard = mutex(&holding).lock().await.unwrap();
            let (forever, bounded) = (mutex(&waiting), mutex(&waiting));
            let runtime = node.runtime();
            let forever = join(&*runtime, "waits", async move { forever.lock().await });
            let bounded =
                join(&*runtime, "waits", async move { bounded.lock_timeout(Duration::from_secs(3)).await });
            runtime.sleep_until(runtime.now() + Duration::from_secs(1)).await;
            (0..3).for_each(|member| cluster.freeze(member));
            let begun = runtime.now();
            assert!(bounded.await.unwrap().is_none());
            assert!(runtime.now().since(begun) <= Duration::from_secs(3));
            assert_eq!(forever.await.unwrap_err().loss(), Some(LossCause::Deadline));
            assert!(runtime.now().since(begun) <= TTL);
        });
    }
}

/// The one call without a bound: a watch goes on trying, and goes on where it stood.
#[test]
fn b03_a_watch_outlives_the_silence() {
    in_silence(1, true, false, async |seeded, cluster, stage| {
        let world = seeded.notes();
        let mut updates = stage.remote.watch(follow());
        let silent = before(&world, world.true_now() + Duration::from_secs(60), updates.next()).await;
        assert!(silent.is_none(), "{silent:?}");
        (0..3).for_each(|member| cluster.thaw(member));
        let first = before(&world, world.true_now() + Duration::from_secs(10), updates.next()).await;
        assert!(matches!(first, Some(Some(Ok(WatchUpdate::Confirmed(_))))), "{first:?}");
        drop(stage.node);
    });
}

/// Whoever adds a call to the public API adds its bound here.
#[test]
fn no_call_of_the_public_api_is_missing() {
    let mut missing = BTreeSet::new();
    for (owner, source, start) in [
        ("Etcd", include_str!("../src/etcd.rs"), "    fn "),
        ("Session", include_str!("../src/session.rs"), "    pub async fn "),
        ("Mutex", include_str!("../src/mutex.rs"), "    pub async fn "),
        ("Guard", include_str!("../src/hold.rs"), "    pub async fn "),
        ("Lost", include_str!("../src/hold/lost.rs"), "    pub async fn "),
        ("DistributedLock", include_str!("../src/distributed_lock.rs"), "    pub async fn "),
        ("Remote", include_str!("../src/etcd/remote.rs"), "    pub fn compact"),
    ] {
        let calls = source.lines().filter_map(|line| line.strip_prefix(start));
        for call in calls.map(|line| line.split(['(', '<']).next().unwrap_or_default()) {
            let call = format!("::{}", if call.is_empty() { "compact" } else { call });
            let known = |(name, ..): &(&str, Duration, Outcome, Call)| {
                name.split(',').next().is_some_and(|name| name.ends_with(&call))
            };
            // A conversion, inside a macro.
            if !CALLS.iter().any(known) && call != "::from" {
                missing.insert(format!("{owner}{call}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}

/// B15: a socket that takes connections and says nothing, and an address that leads nowhere.
#[test]
fn b15_a72_a_real_black_hole_is_given_up_in_time_and_named() {
    let hole = TcpListener::bind("127.0.0.1:0").unwrap();
    let (silent, nowhere) = (hole.local_addr().unwrap().to_string(), "192.0.2.1:2379".to_owned());
    let limit = Duration::from_millis(600);
    for endpoint in [silent, nowhere] {
        let options = RemoteOptions::new(&endpoint).unwrap().call_timeout(limit);
        let remote = options.connect_timeout(limit / 2).open().unwrap();
        block_on(async {
            let runtime = remote.runtime();
            let begun = runtime.now();
            for error in [
                remote.get("k").await.unwrap_err(),
                remote.put("k", "v", LeaseId::NONE).await.unwrap_err(),
                remote.lease_keep_alive(LeaseId::new(1)).await.unwrap_err(),
                Session::open(remote.clone()).await.unwrap_err(),
                distributed(&remote, "k", "ours").try_lock().await.unwrap_err(),
            ] {
                assert!(error.is_transient(), "{error}");
                assert!(error.to_string().contains(&endpoint), "{error}");
            }
            // Five calls; a machine that is slow has its share of what is left.
            let took = runtime.now().since(begun);
            assert!(took < limit * 5 + Duration::from_secs(5), "{took:?}");
        });
    }
}
