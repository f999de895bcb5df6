//! Everything public crosses threads, and so does every public future.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::time::Duration;

use leasehold::blocking;
use leasehold::etcd::{Etcd, Updates};
use leasehold::mvcc::{RangeRequest, Txn, WatchRequest};
use leasehold::runtime::{SystemRuntime, Task};
use leasehold::{
    DistributedLock, Embedded, Entry, Error, EtcdExt, FencingToken, Guard, LockName, LossCause, Lost, Mutex,
    Prefixed, Session, SessionBuilder, TryLock, Ttl,
};

const fn both<T: Send + Sync + ?Sized>() {}
const fn send<T: Send>() {}

#[test]
fn every_public_type_crosses_threads() {
    both::<Session>();
    both::<SessionBuilder>();
    both::<Mutex>();
    both::<TryLock>();
    both::<Guard>();
    both::<Lost>();
    both::<LossCause>();
    both::<FencingToken>();
    both::<DistributedLock>();
    both::<blocking::Session>();
    both::<blocking::SessionBuilder>();
    both::<blocking::Mutex>();
    both::<blocking::TryLock>();
    both::<blocking::Guard>();
    both::<blocking::Lost>();
    both::<blocking::DistributedLock>();
    both::<Entry>();
    both::<Error>();
    both::<LockName>();
    both::<Ttl>();
    both::<Embedded>();
    both::<leasehold::Remote>();
    both::<Prefixed>();
    both::<SystemRuntime>();
    both::<Task>();
    both::<dyn Etcd>();
    send::<Updates>();
}

/// Never called: that it compiles is the claim.
#[allow(dead_code, unused_must_use)]
fn every_public_future_crosses_threads(
    etcd: &Embedded,
    session: &Session,
    mutex: &Mutex,
    lock: &DistributedLock,
    lost: &Lost,
    guard: Guard,
    entry: &leasehold::Entry,
) {
    fn send<T: Send>(_: T) {}
    send(Session::open(etcd.clone()));
    send(Session::builder(etcd.clone()).open());
    send(session.close());
    send(mutex.lock());
    send(mutex.lock_timeout(Duration::ZERO));
    send(mutex.try_lock());
    send(mutex.holder());
    send(mutex.queue());
    send(leasehold::eviction::gone(etcd, entry));
    send(leasehold::eviction::evict(etcd, entry));
    send(leasehold::eviction::ask(etcd, entry, ""));
    send(leasehold::eviction::asked(&guard));
    send(leasehold::survey::locks(etcd, ""));
    send(leasehold::survey::lock(etcd, mutex.name()));
    send(leasehold::survey::life(etcd, Default::default()));
    send(leasehold::survey::lives(etcd, [Default::default()]));
    send(lock.try_lock());
    send(lock.lock());
    send(lock.unlock());
    send(lost.wait());
    send(guard.verify());
    send(guard.txn(Txn::new()));
    send(guard.run_while_held(async {}));
    send(guard.release());
    send(etcd.range(RangeRequest::default()));
    send(etcd.put("k", "v", Default::default()));
    send(etcd.watch(WatchRequest::default()));
    send(etcd.close());
}
