//! What is dropped is given up before the drop returns, or, if etcd does not answer, soon after.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{Command, Stdio};
use std::time::Duration;

use leasehold::blocking::{DistributedLock, Mutex};
use leasehold::{LossCause, Remote, RemoteOptions, Ttl};
use leasehold_testbed::{Backend, Proxy, for_each_backend};

use super::{on_a_thread, session};

/// Where a child finds etcd, and the name of the lock it is to take.
const ORDER: &str = "LEASEHOLD_BLOCKING_CHILD";

async fn a_lock_is_free_when_the_drop_of_its_guard_returns(backend: Backend) {
    let (name, etcd) = (backend.lock_name("dropped"), backend.etcd());
    on_a_thread(move || {
        let mutex = Mutex::new(&session(etcd, 60), name);
        for _ in 0..10 {
            let guard = mutex.lock().unwrap();
            let lost = guard.lost();
            drop(guard);
            assert_eq!(lost.cause(), Some(LossCause::Released));
            assert_eq!(mutex.holder().unwrap(), None);
        }
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _held = mutex.lock().unwrap();
            panic!("on purpose");
        }));
        assert!(panicked.is_err());
        assert_eq!(mutex.holder().unwrap(), None, "a panic gives it up");
    })
    .await;
}
for_each_backend!(a_lock_is_free_when_the_drop_of_its_guard_returns);

/// Nothing that is left to the background is done any more when a program ends.
async fn a_lock_is_free_when_its_program_ends_right_after_the_drop(backend: Backend) {
    let Some(endpoints) = backend.endpoints() else { return };
    let (name, etcd) = (backend.lock_name("ended"), backend.etcd());
    // Its lease stays for its TTL: no session was closed.
    backend.leaves_something();
    on_a_thread(move || {
        let mutex = Mutex::new(&session(etcd, 60), name.clone());
        for _ in 0..3 {
            let child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "dropping::child", "--nocapture"])
                .env(ORDER, format!("{}\n{name}", endpoints.join(",")))
                .stdout(Stdio::null())
                .status();
            assert_eq!(child.unwrap().code(), Some(7), "the child did not come to its end");
            assert_eq!(mutex.holder().unwrap(), None);
        }
    })
    .await;
}
for_each_backend!(a_lock_is_free_when_its_program_ends_right_after_the_drop);

/// The program of the test above; without orders it does nothing.
#[test]
fn child() {
    let Ok(order) = std::env::var(ORDER) else { return };
    let (endpoints, name) = order.split_once('\n').unwrap();
    let session = session(Remote::connect(endpoints).unwrap().into(), 60);
    let guard = Mutex::new(&session, name.parse().unwrap()).lock().unwrap();
    let lock =
        DistributedLock::new(session.etcd().clone(), format!("{name}-key"), "me", Ttl::default()).unwrap();
    assert!(lock.try_lock().unwrap());
    drop(lock);
    drop(guard);
    std::process::exit(7);
}

async fn a_drop_waits_a_moment_only_for_an_etcd_that_does_not_answer(backend: Backend) {
    let Some(endpoints) = backend.endpoints() else { return };
    let proxy = Proxy::start(&endpoints[0]).await;
    let patient = RemoteOptions::new(proxy.endpoint()).unwrap().call_timeout(Duration::from_secs(60));
    let (name, etcd) = (backend.lock_name("cut"), backend.etcd());
    let guard = on_a_thread({
        let name = name.clone();
        move || Mutex::new(&session(patient.open().unwrap().into(), 60), name).lock().unwrap()
    })
    .await;
    proxy.cut();
    let runtime = etcd.runtime();
    let clock = runtime.clone();
    let took = on_a_thread(move || {
        let begun = clock.now();
        drop(guard);
        clock.now().since(begun)
    })
    .await;
    assert!((Duration::from_secs(1)..Duration::from_secs(15)).contains(&took), "it took {took:?}");
    proxy.heal();
    // Long before the lease ends.
    let next =
        on_a_thread(move || Mutex::new(&session(etcd, 10), name).lock_timeout(Duration::from_secs(15)));
    assert!(next.await.unwrap().is_some(), "the removal did not go on in the background");
}
for_each_backend!(a_drop_waits_a_moment_only_for_an_etcd_that_does_not_answer);
