//! Many at once: sessions that are opened together, waiters of one client, locks of one session.

use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use futures_util::future::join_all;
use leasehold::{Mutex, Remote, TryLock};
use leasehold_testbed::{
    Backend, Cluster, Options, Proxy, RealEtcd, Version, block_on, for_each_backend, join,
};

use crate::{nap, open, queued, soon, within};

/// Each with connections of its own, as processes have.
#[test]
fn a22_three_hundred_clients_that_start_at_once_all_have_sessions_that_live() {
    let Some(cluster) = Cluster::start(Version::V37, 3) else { return };
    block_on(async {
        let clients = (0..300).map(|number| {
            let remote = Remote::connect(cluster.endpoints()).unwrap();
            async move {
                let session = open(remote, 10).await;
                let guard =
                    Mutex::new(&session, format!("lock{number}").parse().unwrap()).lock().await.unwrap();
                (session, guard)
            }
        });
        let held = within(Duration::from_secs(20), "all sessions", join_all(clients)).await;
        nap(&held[0].0, Duration::from_secs(11)).await;
        for (number, (_, guard)) in held.iter().enumerate() {
            assert_eq!(guard.ensure_held(Duration::ZERO), Ok(()), "client {number}");
        }
        // All at once, too.
        let ends = held.into_iter().map(|(session, guard)| async move {
            guard.release().await.unwrap();
            session.close().await
        });
        within(Duration::from_secs(20), "all closed", join_all(ends)).await;
    });
}

/// B20: a hundred waits in one client, of which every other one is given up: those that stay win in their order.
async fn b20_of_a_hundred_waiters_of_one_client_those_that_stay_win_in_their_order(backend: Backend) {
    let session = open(backend.etcd(), 60).await;
    let mutex = Mutex::new(&session, backend.lock_name("lock"));
    let guard = mutex.lock().await.unwrap();
    let won = Arc::new(StdMutex::new(Vec::new()));
    let mut waits = Vec::new();
    for number in 0..100 {
        let (mutex, won) = (mutex.clone(), won.clone());
        waits.push(join(&*session.runtime(), "waits", async move {
            let guard = mutex.lock().await.unwrap();
            won.lock().unwrap().push(number);
            guard.release().await.unwrap();
        }));
        queued(&Mutex::new(&session, backend.lock_name("lock")), number + 2).await;
    }
    let mut staying = Vec::new();
    for (number, waiting) in waits.into_iter().enumerate() {
        // No order in who goes, and two neighbours now and then.
        if number * 7 % 4 < 2 { staying.push((number, waiting)) } else { drop(waiting) }
    }
    queued(&Mutex::new(&session, backend.lock_name("lock")), staying.len() + 1).await;
    guard.release().await.unwrap();
    let mut expected = Vec::new();
    for (number, waiting) in staying {
        soon("its turn", waiting).await;
        expected.push(number);
    }
    assert_eq!(*won.lock().unwrap(), expected);
    session.close().await.unwrap();
}
for_each_backend!(b20_of_a_hundred_waiters_of_one_client_those_that_stay_win_in_their_order);

/// A15: over a real link that takes its time.
#[test]
fn a15_a_try_over_a_slow_link_says_busy_and_leaves_nothing_and_a_dead_one_is_another_error() {
    let Some(server) = RealEtcd::start(Version::V35, Options::default()) else { return };
    block_on(async {
        let link = Proxy::start(&server.endpoint()).await;
        let (here, there) = (
            open(Remote::connect(server.endpoints()).unwrap(), 30).await,
            open(Remote::connect(link.endpoint()).unwrap(), 4).await,
        );
        let mutex = Mutex::new(&here, "lock".parse().unwrap());
        let guard = mutex.lock().await.unwrap();
        link.delay(Duration::from_millis(100));
        let far = Mutex::new(&there, "lock".parse().unwrap());
        for _ in 0..20 {
            assert!(
                matches!(far.try_lock().await.unwrap(), TryLock::Busy(entry) if entry.key == *guard.key())
            );
            assert_eq!(mutex.queue().await.unwrap().len(), 1);
        }
        link.cut();
        soon("a try over a dead link", far.try_lock()).await.unwrap_err();
        assert_eq!(mutex.queue().await.unwrap().len(), 1);
        guard.release().await.unwrap();
        link.heal();
        here.close().await.unwrap();
    });
}

/// A73, in small: the whole of it is in `adversity`.
async fn a73_a_thousand_locks_of_one_session_are_kept_together(backend: Backend) {
    let session = open(backend.etcd(), 3).await;
    let locks = (0..1000).map(|number| Mutex::new(&session, backend.lock_name(&number.to_string())));
    let locks: Vec<_> = locks.collect();
    let mut guards = Vec::new();
    for some in locks.chunks(100) {
        guards.extend(join_all(some.iter().map(Mutex::lock)).await.into_iter().map(Result::unwrap));
    }
    let begun = session.runtime().now();
    while session.runtime().now().since(begun) < Duration::from_secs(7) {
        nap(&session, Duration::from_millis(100)).await;
        assert!(guards.iter().all(|guard| guard.ensure_held(Duration::ZERO).is_ok()));
    }
    session.close().await.unwrap();
}
for_each_backend!(a73_a_thousand_locks_of_one_session_are_kept_together);
