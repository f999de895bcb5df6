//! Looking at locks: whoever made them, whatever lies beside them, however many there are.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

#[path = "survey/meddler.rs"]
mod meddler;

use std::time::Duration;

use leasehold::mvcc::{DeleteRequest, KeyRange, LeaseGrantRequest, LeaseId, PutRequest, Txn};
use leasehold::survey::{self, Form, Life, Summary};
use leasehold::{DistributedLock, Embedded, EtcdExt, Guard, LockName, Mutex, Session, Ttl};
use leasehold_testbed::{Backend, LockService, for_each_backend, join};
use meddler::Meddler;
use tokio::task::spawn_blocking;

async fn session(backend: &Backend, program: &str) -> Session {
    let builder = Session::builder(backend.etcd()).ttl(Ttl::seconds(30).unwrap());
    builder.program(program).open().await.unwrap()
}

async fn queued(mutex: &Mutex, count: usize) {
    while mutex.queue().await.unwrap().len() != count {
        tokio::task::yield_now().await;
    }
}

async fn grant(backend: &Backend) -> LeaseId {
    let request = LeaseGrantRequest { ttl: 60, id: LeaseId::NONE };
    backend.etcd().lease_grant(request).await.unwrap().id
}

/// What of the backend's own names is listed: name, form of the holder, waiting, foreign, detached.
async fn listed(backend: &Backend) -> Vec<(String, Form, [usize; 3])> {
    let all = survey::locks(&*backend.etcd(), backend.prefix()).await.unwrap();
    let told = |lock: &Summary| {
        let name = lock.name.to_string();
        let name = name.strip_prefix(&backend.name("")).unwrap_or(&name).to_owned();
        (name, lock.holder.form, [lock.waiting, lock.foreign, lock.detached])
    };
    all.locks.iter().map(told).collect()
}

async fn a_lock_is_shown_with_its_holder_and_who_waits_whatever_client_they_are(backend: Backend) {
    let (first, second) = (session(&backend, "nightly").await, session(&backend, "morning").await);
    let name = backend.lock_name("shown");
    let (mutex, waiting) = (Mutex::new(&first, name.clone()), Mutex::new(&second, name.clone()));
    let guard = mutex.lock().await.unwrap();
    let waiter = join(&*second.runtime(), "waiter", async move { waiting.lock().await.unwrap() });
    queued(&mutex, 2).await;
    let service = backend.endpoints().map(|endpoints| LockService::new(&endpoints[0]));
    let go = service.map(|service| {
        let name = name.clone();
        spawn_blocking(move || {
            let lease = service.grant(60).unwrap();
            let hold = service.lock(name.as_str(), lease).unwrap();
            service.unlock(&hold).unwrap();
            service.revoke(lease).unwrap();
        })
    });
    let count = 2 + usize::from(go.is_some());
    queued(&mutex, count).await;

    let view = survey::lock(&*backend.etcd(), &name).await.unwrap();
    assert_eq!((view.queue.len(), view.nested, &view.plain), (count, 0, &None));
    let programs: Vec<_> =
        view.queue.iter().map(|one| one.entry.who.as_ref().map(|who| who.program.as_str())).collect();
    assert_eq!(programs[..2], [Some("nightly"), Some("morning")]);
    assert_eq!(view.queue[0].entry.key, *guard.key());
    assert_eq!(view.queue[0].entry.lease, first.lease_id().unwrap());
    assert!(view.queue.is_sorted_by_key(|one| one.entry.create_revision));
    let mut forms = vec![Form::Attempt, Form::Attempt];
    forms.extend(go.is_some().then_some(Form::Lease));
    assert_eq!(view.queue.iter().map(|one| one.form).collect::<Vec<_>>(), forms);
    if let Some(theirs) = view.queue.get(2) {
        assert!(theirs.entry.who.is_none() && theirs.value.is_empty(), "Go says nothing of itself");
    }
    assert_eq!(listed(&backend).await, [("shown".to_owned(), Form::Attempt, [count - 1, 0, 0])]);

    let lives = survey::lives(&*backend.etcd(), view.queue.iter().map(|one| one.entry.lease)).await.unwrap();
    assert_eq!(lives.len(), count);
    for (lease, life) in lives {
        let Life::Left { left, granted } = life else { panic!("{lease}: {life:?}") };
        assert!(left <= granted && granted >= Duration::from_secs(30), "{lease}: {life:?}");
    }
    guard.release().await.unwrap();
    waiter.await.release().await.unwrap();
    if let Some(go) = go {
        go.await.unwrap();
    }
    queued(&mutex, 0).await;
    assert!(survey::lock(&*backend.etcd(), &name).await.unwrap().queue.is_empty());
    assert_eq!(listed(&backend).await, []);
    first.close().await.unwrap();
    second.close().await.unwrap();
}
for_each_backend!(a_lock_is_shown_with_its_holder_and_who_waits_whatever_client_they_are, fresh, cluster);

/// A17: locks whose names begin with each other's, and keys of other kinds with such names, are told apart.
async fn a17_a_lock_whose_name_begins_anothers_is_shown_apart(backend: Backend) {
    let session = session(&backend, "test").await;
    let names = ["a", "a/", "a/b", "ab"];
    let mut guards: Vec<Guard> = Vec::new();
    for name in names {
        guards.push(Mutex::new(&session, backend.lock_name(name)).lock().await.unwrap());
    }
    for plain in ["a/settings", "a", "c/1f", "c/settings"] {
        backend.etcd().put(backend.name(plain), "x", LeaseId::NONE).await.unwrap();
    }
    for (name, guard) in names.iter().zip(&guards) {
        let view = survey::lock(&*backend.etcd(), &backend.lock_name(name)).await.unwrap();
        assert_eq!(view.queue[0].entry.key, *guard.key(), "{name}");
        let (foreign, nested) = if *name == "a" { (1, 2) } else { (0, 0) };
        assert_eq!((view.queue.len() - 1, view.nested), (foreign, nested), "{name}");
        assert_eq!(view.plain.is_some(), *name == "a", "{name}");
    }
    let wanted = [
        ("a", [1, 1, 1]),
        // Its keys begin with "a//".
        ("a/", [0, 0, 0]),
        ("a/b", [0, 0, 0]),
        ("ab", [0, 0, 0]),
    ];
    let wanted = wanted.map(|(name, counts)| (name.to_owned(), Form::Attempt, counts));
    assert_eq!(listed(&backend).await, wanted, "and none of what is no lock");
    let below = survey::locks(&*backend.etcd(), &backend.name("a/")).await.unwrap();
    let below: Vec<_> = below.locks.iter().map(|lock| lock.name.to_string()).collect();
    assert_eq!(below, [backend.name("a/"), backend.name("a/b")], "but not a itself");
    for guard in guards {
        guard.release().await.unwrap();
    }
    for plain in ["a/settings", "a", "c/1f", "c/settings"] {
        backend.etcd().delete(backend.name(plain)).await.unwrap();
    }
    session.close().await.unwrap();
}
for_each_backend!(a17_a_lock_whose_name_begins_anothers_is_shown_apart, fresh);

/// A49: an entry that was put anew by hand, without its lease, is still known, and told to hang on none.
async fn a49_an_entry_without_its_lease_is_pointed_out(backend: Backend) {
    let session = session(&backend, "test").await;
    let name = backend.lock_name("detached");
    let guard = Mutex::new(&session, name.clone()).lock().await.unwrap();
    let key = guard.key().clone();
    let value = backend.etcd().get(key.clone()).await.unwrap().unwrap().value;
    backend.etcd().put(key.clone(), value, LeaseId::NONE).await.unwrap();
    let view = survey::lock(&*backend.etcd(), &name).await.unwrap();
    assert_eq!((view.queue[0].form, view.queue[0].entry.lease), (Form::Attempt, LeaseId::NONE));
    assert_eq!(survey::life(&*backend.etcd(), view.queue[0].entry.lease).await.unwrap(), Life::Endless);
    assert_eq!(listed(&backend).await, [("detached".to_owned(), Form::Attempt, [0, 0, 1])]);
    drop(guard);
    backend.etcd().delete(key).await.unwrap();
    session.close().await.unwrap();
}
for_each_backend!(a49_an_entry_without_its_lease_is_pointed_out, fresh);

async fn a_lock_of_one_key_is_known_by_being_alone_on_its_lease(backend: Backend) {
    let etcd = backend.etcd();
    let ttl = Ttl::seconds(30).unwrap();
    let lock = DistributedLock::new(etcd.clone(), backend.name("single"), "worker-1", ttl).unwrap();
    assert!(lock.try_lock().await.unwrap());
    // What looks like it at first sight: a registration that is refreshed, one of several keys, and one without a value.
    let (refreshed, shared, empty) = (grant(&backend).await, grant(&backend).await, grant(&backend).await);
    etcd.put(backend.name("refreshed"), "x", refreshed).await.unwrap();
    etcd.put(backend.name("refreshed"), "x", refreshed).await.unwrap();
    etcd.put(backend.name("two"), "x", shared).await.unwrap();
    etcd.put(backend.name("three"), "x", shared).await.unwrap();
    etcd.put(backend.name("empty"), "", empty).await.unwrap();
    etcd.put(backend.name("settings"), "x", LeaseId::NONE).await.unwrap();
    assert_eq!(listed(&backend).await, [("single".to_owned(), Form::Plain, [0, 0, 0])]);
    let view = survey::lock(&*etcd, &backend.lock_name("single")).await.unwrap();
    assert_eq!(view.plain.unwrap().value, "worker-1");
    assert!(view.queue.is_empty());
    assert!(lock.unlock().await.unwrap());
    assert_eq!(listed(&backend).await, []);
    for lease in [refreshed, shared, empty] {
        etcd.lease_revoke(lease).await.unwrap();
    }
    etcd.delete(backend.name("settings")).await.unwrap();
}
for_each_backend!(a_lock_of_one_key_is_known_by_being_alone_on_its_lease, fresh);

/// Other clients take any bytes for a name; what is shown of it does no harm to a terminal.
async fn a_name_of_any_bytes_is_listed(backend: Backend) {
    let lease = grant(&backend).await;
    let key = [backend.name("odd\u{1b}").as_bytes(), b"\xff/", lease.to_string().as_bytes()].concat();
    backend.etcd().put(key, "", lease).await.unwrap();
    let all = survey::locks(&*backend.etcd(), backend.prefix()).await.unwrap();
    let [lock] = &all.locks[..] else { panic!("{all:?}") };
    assert!(lock.name.to_string().ends_with(r"odd\x1b\xff"), "{}", lock.name);
    backend.etcd().lease_revoke(lease).await.unwrap();
}
for_each_backend!(a_name_of_any_bytes_is_listed, fresh);

/// Many keys that are held on one lease, each in a queue of its own if `apart`.
async fn crowd(backend: &Backend, count: usize, apart: bool) -> LeaseId {
    const AT_ONCE: usize = 100;
    let lease = grant(backend).await;
    for start in (0..count).step_by(AT_ONCE) {
        let txn = (start..start + AT_ONCE).fold(Txn::new(), |txn, n| {
            let key = if apart { format!("{n:06}/{lease}-0") } else { format!("one/{lease}-{n:x}") };
            txn.then(PutRequest::new(backend.name(&key), "").on(lease))
        });
        backend.etcd().txn(txn).await.unwrap();
    }
    lease
}

async fn a_hundred_thousand_locks_are_listed(backend: Backend) {
    let lease = crowd(&backend, 100_000, true).await;
    let all = survey::locks(&*backend.etcd(), backend.prefix()).await.unwrap();
    assert_eq!(all.locks.len(), 100_000);
    assert!(all.locks.is_sorted_by(|one, next| one.name < next.name));
    backend.etcd().lease_revoke(lease).await.unwrap();
}
for_each_backend!(a_hundred_thousand_locks_are_listed, fresh);

async fn a_queue_of_ten_thousand_is_shown(backend: Backend) {
    let lease = crowd(&backend, 10_000, false).await;
    let view = survey::lock(&*backend.etcd(), &backend.lock_name("one")).await.unwrap();
    assert_eq!(view.queue.len(), 10_000);
    let one = survey::locks(&*backend.etcd(), backend.prefix()).await.unwrap();
    assert_eq!((one.locks.len(), one.locks[0].waiting), (1, 9_999));
    backend.etcd().lease_revoke(lease).await.unwrap();
}
for_each_backend!(a_queue_of_ten_thousand_is_shown, fresh);

/// Values that are small at first and then so large that no client takes as many of them in one answer.
async fn large_values_among_the_keys_are_no_hindrance(backend: Backend) {
    let etcd = backend.etcd();
    for start in (0..600).step_by(100) {
        let txn = (start..start + 100).fold(Txn::new(), |txn, n| {
            txn.then(PutRequest::new(backend.name(&format!("a/small/{n:03}")), "x"))
        });
        etcd.txn(txn).await.unwrap();
    }
    for n in 0..50 {
        etcd.put(backend.name(&format!("a/vast/{n:02}")), vec![b'x'; 1_500_000], LeaseId::NONE)
            .await
            .unwrap();
    }
    let session = session(&backend, "test").await;
    let guard = Mutex::new(&session, backend.lock_name("a/z")).lock().await.unwrap();
    assert_eq!(listed(&backend).await, [("a/z".to_owned(), Form::Attempt, [0, 0, 0])]);
    assert_eq!(survey::lock(&*etcd, &backend.lock_name("a")).await.unwrap().nested, 651);
    guard.release().await.unwrap();
    session.close().await.unwrap();
    etcd.txn(Txn::new().then(DeleteRequest::range(KeyRange::prefix(backend.name("a/"))))).await.unwrap();
}
for_each_backend!(large_values_among_the_keys_are_no_hindrance, fresh);

/// A key that moves from the last page to the first and back, once for each page read, is seen exactly once.
#[test]
fn what_is_seen_was_there_at_one_revision() {
    leasehold_testbed::block_on(async {
        let etcd = Embedded::start().unwrap();
        for n in 0..2500 {
            etcd.put(format!("a/{n:06}"), "", LeaseId::NONE).await.unwrap();
        }
        let lease = etcd.put_lease().await;
        let (low, high) = (format!("a/!/{lease}"), format!("a/~/{lease}"));
        etcd.put(low.clone(), "", lease).await.unwrap();
        let (store, mut at) = (etcd.clone(), (low, high));
        let meddled = Meddler::new(etcd.clone(), move || {
            at = (at.1.clone(), at.0.clone());
            let (to, from) = (at.0.clone(), at.1.clone());
            let store = store.clone();
            Box::pin(async move {
                let moved = Txn::new().then(PutRequest::new(to, "").on(lease)).then(DeleteRequest::key(from));
                store.txn_now(moved).await;
            })
        });
        for _ in 0..5 {
            assert_eq!(survey::locks(&meddled, "a").await.unwrap().locks.len(), 1);
            let view = survey::lock(&meddled, &"a".parse::<LockName>().unwrap()).await.unwrap();
            assert_eq!((view.queue.len(), view.nested), (2500, 1));
        }
    });
}

/// Reading begins again when history is compacted under it, and gives up when that never ends.
#[test]
fn history_that_is_compacted_under_it_is_read_again() {
    leasehold_testbed::block_on(async {
        let etcd = Embedded::start().unwrap();
        for n in 0..2500 {
            etcd.put(format!("a/{n:06}/1f"), "", LeaseId::NONE).await.unwrap();
        }
        let view = async |times: usize| {
            let (store, mut left) = (etcd.clone(), times);
            let meddled = Meddler::new(etcd.clone(), move || {
                let store = store.clone();
                let again = left > 0;
                left = left.saturating_sub(1);
                Box::pin(async move {
                    if again {
                        store.put("b", "", LeaseId::NONE).await.unwrap();
                        let _ = store.compact(store.revision());
                    }
                })
            });
            survey::lock(&meddled, &"a".parse::<LockName>().unwrap()).await
        };
        assert_eq!(view(3).await.unwrap().nested, 2500);
        let error = view(usize::MAX).await.unwrap_err().to_string();
        assert!(error.contains("compacted") && error.contains("\"a\""), "{error}");
    });
}

/// What the two tests above do to the store.
trait ByHand {
    async fn put_lease(&self) -> LeaseId;
    async fn txn_now(&self, txn: Txn);
}

impl ByHand for Embedded {
    async fn put_lease(&self) -> LeaseId {
        use leasehold::etcd::Etcd as _;
        self.lease_grant(LeaseGrantRequest { ttl: 60, id: LeaseId::NONE }).await.unwrap().id
    }

    async fn txn_now(&self, txn: Txn) {
        use leasehold::etcd::Etcd as _;
        self.txn(txn).await.unwrap();
    }
}
