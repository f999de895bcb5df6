//! One test body, every backend.
//!
//! ```
//! use leasehold::EtcdExt;
//! use leasehold_testbed::{Backend, for_each_backend};
//!
//! async fn what_is_put_can_be_got(backend: Backend) {
//!     let (etcd, key) = (backend.etcd(), backend.name("key"));
//!     etcd.put(key.clone(), "value", Default::default()).await.unwrap();
//!     assert_eq!(etcd.get(key.clone()).await.unwrap().unwrap().value, "value");
//!     etcd.delete(key).await.unwrap();
//! }
//! for_each_backend!(what_is_put_can_be_got);
//! # fn main() {}
//! ```
//!
//! makes the tests `what_is_put_can_be_got::embedded`, `::etcd35` and `::etcd37`. A server that is not on this machine
//! leaves its test out, or fails it; see [`requirement`](crate::requirement).
//!
//! Real servers are shared by the tests of a process, so a test uses names of its own, made by [`Backend::name`], and
//! disturbs nobody; one that compacts, kills or freezes asks for a `fresh` server. After the body each test checks that
//! **no key and no lease of its own is left**, within a few seconds of clean-up; a body that means to leave some says
//! so by [`Backend::leaves_something`].

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use leasehold::etcd::Etcd;
use leasehold::{Embedded, LockName, Remote};
use leasehold_mvcc::Revision;

use crate::cluster::Cluster;
use crate::dump::Dump;
use crate::etcd::{Options, RealEtcd, Version};
use crate::gateway::Gateway;
use crate::tracked::Tracked;

/// How long a body may take.
const BODY: Duration = Duration::from_secs(120);
/// How long the clean-up in the background may take afterwards.
const CLEAN_UP: Duration = Duration::from_secs(10);

/// Makes tests of an `async fn NAME(Backend)`, which returns nothing or a `Result` of nothing.
///
/// | call | tests |
/// |---|---|
/// | `for_each_backend!(name)` | `embedded`, `etcd35`, `etcd37`; servers shared |
/// | `for_each_backend!(name, cluster)` | the same, and `cluster37`: three members of etcd 3.7 |
/// | `for_each_backend!(name, fresh)` | as the first, with a server for this test alone |
/// | `for_each_backend!(name, fresh, cluster)` | as the second, with a server and a cluster for this test alone |
#[macro_export]
macro_rules! for_each_backend {
    ($name:ident) => {
        $crate::for_each_backend!(@make $name, false, [embedded Embedded, etcd35 Etcd35, etcd37 Etcd37]);
    };
    ($name:ident, cluster) => {
        $crate::for_each_backend!(
            @make $name, false, [embedded Embedded, etcd35 Etcd35, etcd37 Etcd37, cluster37 Cluster37]
        );
    };
    ($name:ident, fresh) => {
        $crate::for_each_backend!(@make $name, true, [embedded Embedded, etcd35 Etcd35, etcd37 Etcd37]);
    };
    ($name:ident, fresh, cluster) => {
        $crate::for_each_backend!(
            @make $name, true, [embedded Embedded, etcd35 Etcd35, etcd37 Etcd37, cluster37 Cluster37]
        );
    };
    (@make $name:ident, $fresh:literal, [$($test:ident $kind:ident),*]) => {
        mod $name {
            $(
                #[test]
                fn $test() {
                    $crate::backends::run($crate::backends::Kind::$kind, $fresh, stringify!($name), super::$name);
                }
            )*
        }
    };
}

/// Which backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The store in this process.
    Embedded,
    /// One etcd 3.5, by gRPC.
    Etcd35,
    /// One etcd 3.7, by gRPC.
    Etcd37,
    /// Three members of etcd 3.7, by gRPC.
    Cluster37,
}

/// What a body returns.
pub trait Outcome {
    /// Panics if it is a failure.
    fn judge(self);
}

impl Outcome for () {
    fn judge(self) {}
}

impl<E: fmt::Display> Outcome for Result<(), E> {
    fn judge(self) {
        if let Err(error) = self {
            panic!("the test ended with: {error}");
        }
    }
}

/// A backend for one test. A clone is the same one.
#[derive(Clone)]
pub struct Backend {
    kind: Kind,
    prefix: String,
    etcd: Arc<Tracked>,
    home: Home,
    leaves_something: Arc<AtomicBool>,
}

#[derive(Clone)]
enum Home {
    Embedded(Embedded),
    Server(Arc<RealEtcd>),
    Cluster(Arc<Cluster>),
}

impl Backend {
    /// A backend for a test of this name, with a server of its own or one that the process's tests share. `None` if
    /// it is not on this machine: then that has been said, and the test must return.
    #[must_use = "a missing backend means the test must return"]
    pub fn open(kind: Kind, fresh: bool, test: &str) -> Option<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let home = Home::of(kind, fresh)?;
        let etcd = Arc::new(Tracked::new(home.connect()));
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("{test}-{}-{count}", std::process::id());
        Some(Self { kind, prefix, etcd, home, leaves_something: Arc::default() })
    }

    /// Which one it is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The etcd. Every call gives the same connection.
    pub fn etcd(&self) -> Arc<dyn Etcd> {
        self.etcd.clone()
    }

    /// The same etcd through a connection of its own, as another process would have it. (Embedded has only one.)
    pub fn another(&self) -> Arc<dyn Etcd> {
        Arc::new(self.etcd.beside(self.home.connect()))
    }

    /// A name for a lock or key that no other test uses.
    pub fn name(&self, name: &str) -> String {
        format!("{}/{name}", self.prefix)
    }

    /// The same as a lock's name.
    ///
    /// # Panics
    /// If it is no lock name.
    pub fn lock_name(&self, name: &str) -> LockName {
        LockName::new(self.name(name)).expect("the name is usable")
    }

    /// What all names of this test begin with.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The addresses of the servers; none if embedded.
    pub fn endpoints(&self) -> Option<Vec<String>> {
        match &self.home {
            Home::Embedded(_) => None,
            Home::Server(server) => Some(server.endpoints()),
            Home::Cluster(cluster) => Some(cluster.endpoints()),
        }
    }

    /// The server behind it, if it is a single one.
    pub fn server(&self) -> Option<&RealEtcd> {
        match &self.home {
            Home::Server(server) => Some(server),
            _ => None,
        }
    }

    /// The cluster behind it, if it is one.
    pub fn cluster(&self) -> Option<&Cluster> {
        match &self.home {
            Home::Cluster(cluster) => Some(cluster),
            _ => None,
        }
    }

    /// The embedded etcd itself, if it is that.
    pub fn embedded(&self) -> Option<&Embedded> {
        match &self.home {
            Home::Embedded(embedded) => Some(embedded),
            _ => None,
        }
    }

    /// Forgets history below a revision. On a shared server this may disturb others: ask for a `fresh` one.
    ///
    /// # Panics
    /// If it is refused.
    pub fn compact(&self, revision: Revision) {
        match self.gateway() {
            None => self
                .embedded()
                .map_or(Ok(()), |etcd| etcd.compact(revision))
                .expect("the compaction is valid"),
            Some(gateway) => gateway.compact(revision).unwrap_or_else(|why| panic!("cannot compact: {why}")),
        }
    }

    /// The JSON face of a server, if there is one.
    pub fn gateway(&self) -> Option<Gateway> {
        self.endpoints().map(|endpoints| Gateway::new(&endpoints[0]))
    }

    /// What this test has in it: its keys, and its leases that live. Of an embedded etcd, which is the test's alone,
    /// everything.
    pub async fn dump(&self) -> Dump {
        match &self.home {
            Home::Embedded(embedded) => Dump::of_embedded(embedded),
            // Asked past the connection under test, which may be closed.
            home => Dump::take(&*home.connect(), &self.prefix, &self.etcd.leases()).await,
        }
    }

    /// Waits until nothing of this test is left.
    ///
    /// # Panics
    /// If there still is something after `within`, with what it is.
    pub async fn assert_nothing_left(&self, within: Duration) {
        let start = std::time::Instant::now();
        loop {
            let dump = self.dump().await;
            if dump.is_empty() {
                return;
            }
            assert!(start.elapsed() < within, "something is still left behind after {within:?}:\n{dump}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// This test leaves keys or leases behind on purpose: they are not looked for after its body.
    pub fn leaves_something(&self) {
        self.leaves_something.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("kind", &self.kind)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl Home {
    fn of(kind: Kind, fresh: bool) -> Option<Self> {
        // Values in statics are never dropped; the servers in them die with the process all the same (`contained`).
        static SERVERS: [OnceLock<Option<Arc<RealEtcd>>>; 2] = [OnceLock::new(), OnceLock::new()];
        static CLUSTER: OnceLock<Option<Arc<Cluster>>> = OnceLock::new();
        let server = |version| RealEtcd::start(version, Options::default()).map(Arc::new);
        let shared = |n: usize, version: Version| SERVERS[n].get_or_init(|| server(version)).clone();
        let cluster = || Cluster::start(Version::V37, 3).map(Arc::new);
        match (kind, fresh) {
            (Kind::Embedded, _) => {
                Some(Self::Embedded(Embedded::start().expect("the machine gives threads")))
            }
            (Kind::Etcd35, false) => shared(0, Version::V35).map(Self::Server),
            (Kind::Etcd37, false) => shared(1, Version::V37).map(Self::Server),
            (Kind::Etcd35, true) => server(Version::V35).map(Self::Server),
            (Kind::Etcd37, true) => server(Version::V37).map(Self::Server),
            (Kind::Cluster37, false) => CLUSTER.get_or_init(cluster).clone().map(Self::Cluster),
            (Kind::Cluster37, true) => cluster().map(Self::Cluster),
        }
    }

    fn connect(&self) -> Arc<dyn Etcd> {
        match self {
            Self::Embedded(embedded) => Arc::new(embedded.clone()),
            Self::Server(server) => connect(&server.endpoints()),
            Self::Cluster(cluster) => connect(&cluster.endpoints()),
        }
    }
}

/// A client of real servers, with the library's defaults.
///
/// # Panics
/// If the endpoints are none.
pub fn connect(endpoints: &[String]) -> Arc<dyn Etcd> {
    Arc::new(Remote::connect(endpoints).expect("the endpoints are usable"))
}

/// Runs a body on a tokio runtime of its own: what [`for_each_backend!`](crate::for_each_backend) calls.
///
/// # Panics
/// If the body fails, does not end within two minutes, or leaves something behind.
pub fn run<F>(kind: Kind, fresh: bool, test: &str, body: impl FnOnce(Backend) -> F)
where
    F: Future<Output: Outcome>,
{
    let Some(backend) = Backend::open(kind, fresh, test) else { return };
    block_on(async {
        let Ok(outcome) = tokio::time::timeout(BODY, body(backend.clone())).await else {
            panic!("{test} on {kind:?} did not end within {BODY:?}; left:\n{}", backend.dump().await);
        };
        outcome.judge();
        if !backend.leaves_something.load(Ordering::Relaxed) {
            backend.assert_nothing_left(CLEAN_UP).await;
        }
    });
}

/// Runs a future on a tokio runtime of two threads.
///
/// # Panics
/// If the machine refuses threads.
pub fn block_on<F: Future>(future: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("the machine gives threads").block_on(future)
}
