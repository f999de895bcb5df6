//! The protocol as `docs/protocol.md` tells it: a client written from that page alone, in another language, queues
//! behind and ahead of the library's.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use leasehold::LockName;
use leasehold::blocking::{Guard, Mutex, Session, TryLock};
use leasehold_testbed::{Backend, Part, for_each_backend};
use tokio::task::spawn_blocking;

/// The client, on a lock.
struct Client {
    child: Child,
    /// Its end is the order to let go.
    order: Option<ChildStdin>,
    told: Lines<BufReader<ChildStdout>>,
}

impl Client {
    fn start(endpoint: &str, name: &LockName, mode: &str) -> Self {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/protocol/client.py");
        let mut child = Command::new("python3")
            .args([script, endpoint, name.as_str(), mode])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let told = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { order: child.stdin.take(), child, told }
    }

    fn next(&mut self) -> String {
        self.told.next().expect("the client ended").unwrap()
    }

    /// Waits until it holds, and gives the revision of its proof.
    fn held(&mut self) -> i64 {
        let told = self.next();
        told.strip_prefix("held ").expect(&told).split(' ').next().unwrap().parse().unwrap()
    }

    fn release(mut self) {
        drop(self.order.take());
        assert_eq!(self.next(), "released");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn queued(mutex: &Mutex, count: usize) {
    while mutex.queue().unwrap().len() != count {
        thread::yield_now();
    }
}

/// The lock, and the endpoint of a real etcd; `None` if that or Python is not here.
fn scene(backend: &Backend) -> Option<(LockName, String)> {
    let endpoint = backend.endpoints()?.swap_remove(0);
    Part::Python.require()?;
    Some((backend.lock_name("shared"), endpoint))
}

/// Ours, theirs, ours, theirs, in this order of arrival and no other.
fn take_turns(session: &Session, name: &LockName, endpoint: &str, mode: &str) {
    let mutex = Mutex::new(session, name.clone());
    let ours = mutex.lock().unwrap();
    let mut theirs = Client::start(endpoint, name, mode);
    queued(&mutex, 2);
    let waiting = thread::spawn({
        let mutex = mutex.clone();
        move || mutex.lock().unwrap()
    });
    queued(&mutex, 3);
    let mut last = Client::start(endpoint, name, mode);
    queued(&mutex, 4);
    let programs: Vec<_> =
        mutex.queue().unwrap().into_iter().map(|entry| entry.who.map(|who| who.program)).collect();
    let theirs_says = (mode == "lock").then(|| "client.py".to_owned());
    assert_eq!(programs[1], theirs_says);
    assert_eq!(programs[3], theirs_says);

    let revision = |guard: &Guard| guard.grant_revision().get();
    let mut revisions = vec![revision(&ours)];
    ours.release().unwrap();
    revisions.push(theirs.held());
    assert!(!waiting.is_finished(), "two hold it");
    theirs.release();
    let next = waiting.join().unwrap();
    revisions.push(revision(&next));
    next.verify().unwrap();
    next.release().unwrap();
    revisions.push(last.held());
    last.release();
    assert!(revisions.is_sorted_by(|a, b| a < b), "{revisions:?}");
}

async fn a_client_written_from_the_page_stands_in_the_same_queue(backend: Backend) {
    let Some((name, endpoint)) = scene(&backend) else { return };
    let etcd = backend.etcd();
    let turns = move || take_turns(&Session::open(etcd).unwrap(), &name, &endpoint, "lock");
    spawn_blocking(turns).await.unwrap();
}
for_each_backend!(a_client_written_from_the_page_stands_in_the_same_queue, cluster);

async fn keys_and_values_as_gos_package_makes_them_do_as_well(backend: Backend) {
    let Some((name, endpoint)) = scene(&backend) else { return };
    let etcd = backend.etcd();
    let turns = move || take_turns(&Session::open(etcd).unwrap(), &name, &endpoint, "recipe");
    spawn_blocking(turns).await.unwrap();
}
for_each_backend!(keys_and_values_as_gos_package_makes_them_do_as_well);

async fn a_try_of_either_finds_the_other_and_leaves_nothing(backend: Backend) {
    let Some((name, endpoint)) = scene(&backend) else { return };
    let etcd = backend.etcd();
    let tries = move || {
        let mutex = Mutex::new(&Session::open(etcd).unwrap(), name.clone());
        let ours = mutex.lock().unwrap();
        let mut theirs = Client::start(&endpoint, &name, "try");
        assert_eq!(theirs.next(), format!("busy {}", ours.key()));
        theirs.release();
        assert_eq!(mutex.queue().unwrap().len(), 1);
        ours.release().unwrap();

        let mut theirs = Client::start(&endpoint, &name, "try");
        theirs.held();
        let TryLock::Busy(holder) = mutex.try_lock().unwrap() else { panic!("two hold it") };
        assert_eq!(holder.who.unwrap().program, "client.py");
        theirs.release();
        assert!(mutex.try_lock().unwrap().acquired().is_some());
    };
    spawn_blocking(tries).await.unwrap();
}
for_each_backend!(a_try_of_either_finds_the_other_and_leaves_nothing);

/// The page's clock: a client that is stopped for longer than its lease gives no lock away that it does not have.
async fn a_client_that_slept_through_its_lease_says_so_and_releases_nothing(backend: Backend) {
    let Some((name, endpoint)) = scene(&backend) else { return };
    let etcd = backend.etcd();
    let sleeps = move || {
        let mutex = Mutex::new(&Session::open(etcd.clone()).unwrap(), name.clone());
        let mut theirs = Client::start(&endpoint, &name, "lock");
        theirs.held();
        let pid = theirs.child.id().to_string();
        let signal =
            |which: &str| assert!(Command::new("kill").args([which, &pid]).status().unwrap().success());
        signal("-STOP");
        // Its TTL is 10 s.
        let ours = mutex.lock_timeout(Duration::from_secs(18)).unwrap().expect("its lease ends");
        signal("-CONT");
        drop(theirs.order.take());
        assert!(theirs.told.next().is_none(), "it says that it released");
        assert!(!theirs.child.wait().unwrap().success());
        ours.verify().unwrap();
        ours.release().unwrap();
    };
    spawn_blocking(sleeps).await.unwrap();
}
for_each_backend!(a_client_that_slept_through_its_lease_says_so_and_releases_nothing);
