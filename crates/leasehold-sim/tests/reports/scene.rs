//! A small world for one story: a cluster of three and a few clients.

use std::future::Future;
use std::time::Duration;

use leasehold::runtime::{Instant, Runtime, before};
use leasehold::{Error, FencingToken, Guard, LockName, Mutex, Remote, Session, Ttl};
use leasehold_sim::cluster::Cluster;
use leasehold_sim::{ClockError, Node, Seeded, SeededHandle};
use leasehold_testbed::{Joined, join};

/// Every session's time to live.
pub(crate) const TTL: Duration = Duration::from_secs(5);

/// After a dead holder's lease: the server's round, an election and a few tries.
pub(crate) const SLACK: Duration = Duration::from_secs(5);

pub(crate) struct Scene {
    pub(crate) seeded: Seeded,
    pub(crate) world: SeededHandle,
    pub(crate) cluster: Cluster,
}

/// Plays a story for several seeds.
pub(crate) fn play(seeds: u64, story: impl AsyncFn(&Scene)) {
    for seed in 0..seeds {
        let seeded = Seeded::new(seed).limit(Duration::from_secs(2 * 3600));
        let cluster = Cluster::new(&seeded, 3, |_| ClockError::NONE);
        let scene = Scene { world: seeded.notes(), cluster, seeded };
        scene.seeded.block_on(story(&scene));
    }
}

impl Scene {
    pub(crate) fn now(&self) -> Instant {
        self.world.true_now()
    }

    pub(crate) async fn pass(&self, time: Duration) {
        self.world.sleep_until(self.now() + time).await;
    }

    pub(crate) async fn seconds(&self, seconds: u64) {
        self.pass(Duration::from_secs(seconds)).await;
    }

    /// What `future` gives, and how long that took; a panic if it takes longer than `within`.
    #[track_caller]
    pub(crate) fn within<T>(
        &self,
        within: Duration,
        future: impl Future<Output = T>,
    ) -> impl Future<Output = (T, Duration)> {
        let (world, begun) = (self.world.clone(), self.now());
        let place = std::panic::Location::caller();
        async move {
            let Some(value) = before(&world, begun + within, future).await else {
                panic!("{place}: not within {within:?}")
            };
            (value, world.true_now().since(begun))
        }
    }

    pub(crate) async fn client(&self, name: &str) -> Client {
        self.client_by(name, ClockError::NONE).await
    }

    pub(crate) async fn client_by(&self, name: &str, clock: ClockError) -> Client {
        let node = self.seeded.node(name, clock);
        let (remote, wire) = self.cluster.client(&node);
        let session = open(&remote).await.unwrap();
        Client { node, number: wire.client(), remote, session }
    }

    /// One that knows a single member.
    pub(crate) async fn client_of(&self, name: &str, member: usize) -> Client {
        let node = self.seeded.node(name, ClockError::NONE);
        let endpoints = vec![self.cluster.endpoints().swap_remove(member)];
        let (remote, wire) = self.cluster.client_of(&node, endpoints);
        let session = open(&remote).await.unwrap();
        Client { node, number: wire.client(), remote, session }
    }

    /// A client that comes as often as it takes.
    pub(crate) async fn client_free(&self, name: &str) -> Client {
        let node = self.seeded.node(name, ClockError::NONE);
        let (remote, wire) = self.cluster.client(&node);
        loop {
            if let Ok(session) = open(&remote).await {
                return Client { node, number: wire.client(), remote, session };
            }
        }
    }

    /// How many keys stand in a lock's queue.
    pub(crate) fn queued(&self, lock: &str) -> usize {
        let below = format!("{lock}/");
        let keys = self.cluster.with_truth(leasehold_sim::cluster::Truth::keys);
        keys.iter().filter(|key| key.as_bytes().starts_with(below.as_bytes())).count()
    }

    /// All members stop answering for so long.
    pub(crate) async fn outage(&self, time: Duration) {
        (0..3).for_each(|at| self.cluster.freeze(at));
        self.pass(time).await;
        (0..3).for_each(|at| self.cluster.thaw(at));
    }
}

pub(crate) async fn open(remote: &Remote) -> Result<Session, Error> {
    Session::builder(remote.clone()).ttl(Ttl::seconds(TTL.as_secs())?).open().await
}

pub(crate) struct Client {
    pub(crate) node: Node,
    pub(crate) number: u64,
    pub(crate) remote: Remote,
    pub(crate) session: Session,
}

fn name(lock: &str) -> LockName {
    lock.parse().unwrap()
}

impl Client {
    pub(crate) fn mutex(&self, lock: &str) -> Mutex {
        Mutex::new(&self.session, name(lock))
    }

    pub(crate) async fn lock(&self, lock: &str) -> Guard {
        self.mutex(lock).lock().await.unwrap()
    }

    /// Waits in a task of its own.
    pub(crate) fn waits(&self, lock: &str) -> Joined<Result<Guard, Error>> {
        let mutex = self.mutex(lock);
        join(&*self.node.runtime(), "waits", async move { mutex.lock().await })
    }

    pub(crate) fn cut_off(&self, scene: &Scene) {
        scene.cluster.cut(Some(self.number), None, true, true);
    }

    pub(crate) fn reconnect(&self, scene: &Scene) {
        scene.cluster.mend(Some(self.number), None, true, true);
    }

    pub(crate) fn revoke(&self, scene: &Scene) {
        scene.cluster.revoke(self.session.lease_id().unwrap());
    }
}

/// Whether the guard's own clock says that it holds.
pub(crate) fn holds(guard: &Guard) -> bool {
    guard.ensure_held(Duration::ZERO).is_ok()
}

/// A resource that remembers the highest token it saw and refuses lower ones.
#[derive(Default)]
pub(crate) struct Resource(u64);

impl Resource {
    pub(crate) fn write(&mut self, token: FencingToken) -> bool {
        let accepted = token.as_u64() >= self.0;
        self.0 = self.0.max(token.as_u64());
        accepted
    }
}
