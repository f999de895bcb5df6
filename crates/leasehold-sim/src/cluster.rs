//! A model of an etcd cluster: members that share one log and keep a store each, as slow, wrong and late as real ones
//! may be, and the wire by which clients reach them.
//!
//! What it takes over from real etcd: writes and linearizable reads need a leader and a quorum; every member answers
//! from its own store, once that has caught up with the log; leases are timed by the leader alone, ended late and never
//! early by its clock, by an entry in the log; a new leader gives each lease its whole TTL and an election timeout
//! more; a leader of yesterday that has not heard of the new one still answers renewals. The stores, and the watches on
//! them, are [`leasehold_mvcc`] and the embedded etcd's own.

mod disturb;
mod elect;
mod lease;
mod link;
mod member;
mod process;
mod stream;
mod timeless;
mod truth;
mod users;
mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use leasehold::runtime::{Instant, Runtime};
use leasehold::{Endpoint, Remote, RemoteOptions};
use leasehold_mvcc::{Command, LeaseId};
use tokio::sync::Notify;

pub use link::LinkFaults;
pub use truth::Truth;
pub use wire::ClientWire;

use crate::executor::{ClockError, Node, Seeded, SeededHandle};
use link::Link;
use member::Member;
use users::Users;

/// etcd's default election timeout.
pub const ELECTION_TIMEOUT: Duration = Duration::from_millis(1000);

/// How often a leader looks for leases that are due.
pub const EXPIRY_ROUND: Duration = Duration::from_millis(500);

/// How long a member works at a request before it gives up: 5 s and two election timeouts.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(7);

/// A cluster. A clone is another handle on the same one.
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<Inner>,
}

struct Inner {
    world: SeededHandle,
    state: Mutex<State>,
    /// Told whenever the members' or the network's state changes.
    changed: Notify,
    /// Told whenever members have applied more of the log, which is by far the most frequent change.
    applied: Notify,
}

struct State {
    log: Vec<Command>,
    truth: Truth,
    members: Vec<Member>,
    /// Whom the majority follows.
    leader: Option<usize>,
    term: u64,
    electing: bool,
    /// The leases that the log has granted and not ended, with their TTL in seconds.
    granted: BTreeMap<LeaseId, i64>,
    links: BTreeMap<(u64, usize), Link>,
    next_client: u64,
    /// Leases that are due are left alone until then.
    expiry_stalled: Instant,
    /// A woken leader of yesterday asks to end leases that it takes for due, and is heard: see
    /// [`Cluster::let_stale_revokes_pass`].
    stale_revokes: bool,
    users: Users,
    cluster_id: u64,
    /// Counts what the faults brought about, for the summary.
    seen: BTreeMap<&'static str, u64>,
}

impl Cluster {
    /// So many members, each on a clock with such an error; the first leads.
    pub fn new(world: &Seeded, members: usize, clock: impl Fn(usize) -> ClockError) -> Self {
        let handle = world.notes();
        let member = |at: usize| Member::new(&handle, world.node(format!("etcd{at}"), clock(at)), at);
        let state = State {
            log: Vec::new(),
            truth: Truth::default(),
            members: (0..members).map(member).collect(),
            leader: None,
            term: 1,
            electing: false,
            granted: BTreeMap::new(),
            links: BTreeMap::new(),
            next_client: 0,
            expiry_stalled: Instant::ZERO,
            stale_revokes: false,
            users: Users::default(),
            cluster_id: member::CLUSTER,
            seen: BTreeMap::new(),
        };
        let inner =
            Inner { world: handle, state: Mutex::new(state), changed: Notify::new(), applied: Notify::new() };
        let cluster = Self { inner: Arc::new(inner) };
        cluster.lead(0);
        cluster.start_expiry();
        cluster
    }

    /// The endpoints of its members.
    pub fn endpoints(&self) -> Vec<Endpoint> {
        let parse = |at: usize| format!("etcd{at}:2379").parse().expect("a host and a port");
        (0..self.size()).map(parse).collect()
    }

    /// How many members there are.
    pub fn size(&self) -> usize {
        self.lock().members.len()
    }

    /// A client on a machine: the real one, over a wire of this cluster.
    pub fn client(&self, node: &Node) -> (Remote, ClientWire) {
        self.client_of(node, self.endpoints())
    }

    /// The same, told of these members alone.
    pub fn client_of(&self, node: &Node, endpoints: Vec<Endpoint>) -> (Remote, ClientWire) {
        let wire = ClientWire::new(self.clone(), node);
        let options = RemoteOptions::new(endpoints).expect("endpoints").runtime(node.runtime());
        let options = match self.credentials() {
            Some(credentials) => options.credentials(credentials),
            None => options,
        };
        let remote = options.wire(Arc::new(wire.clone())).open().expect("default options");
        (remote, wire)
    }

    /// What has really been committed.
    pub fn with_truth<T>(&self, look: impl FnOnce(&Truth) -> T) -> T {
        look(&self.lock().truth)
    }

    /// The leases that live.
    pub fn leases(&self) -> Vec<LeaseId> {
        self.lock().granted.keys().copied().collect()
    }

    /// How many watches are open, on all members.
    pub fn watches(&self) -> usize {
        self.lock().members.iter().map(|member| member.store.watch_count()).sum()
    }

    /// How often what a fault may bring about came about.
    pub fn seen(&self) -> BTreeMap<&'static str, u64> {
        self.lock().seen.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn world(&self) -> &SeededHandle {
        &self.inner.world
    }

    fn now(&self) -> Instant {
        self.inner.world.now()
    }

    fn changed(&self) {
        self.inner.changed.notify_waiters();
        self.applied();
    }

    fn applied(&self) {
        self.inner.applied.notify_waiters();
    }

    async fn sleep(&self, duration: Duration) {
        self.inner.world.sleep_until(self.now() + duration).await;
    }

    /// A duration drawn at random.
    fn up_to(&self, longest: Duration) -> Duration {
        let longest = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX).max(1);
        Duration::from_nanos(self.inner.world.random_u64() % longest)
    }

    /// Whether something of such a chance happens, in thousandths.
    fn chance(&self, permille: u32) -> bool {
        permille > 0 && self.inner.world.random_u64() % 1000 < u64::from(permille)
    }

    /// Waits until `look`, which depends on the members' and the network's state, gives something.
    async fn until<T>(&self, look: impl FnMut(&mut State) -> Option<T>) -> T {
        self.until_told(&self.inner.changed, look).await
    }

    /// Waits until a member has applied so much of the log.
    async fn until_applied(&self, at: usize, index: usize) {
        self.until_told(&self.inner.applied, |state| (state.members[at].applied >= index).then_some(()))
            .await;
    }

    async fn until_told<T>(&self, told: &Notify, mut look: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            let mut changed = std::pin::pin!(told.notified());
            changed.as_mut().enable();
            if let Some(found) = look(&mut self.lock()) {
                return found;
            }
            changed.await;
        }
    }

    fn saw(&self, what: &'static str) {
        self.lock().saw(what);
    }
}

impl State {
    fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    /// Whether this member can hear and be heard by others.
    fn is_well(&self, at: usize) -> bool {
        let member = &self.members[at];
        !member.dead && member.frozen == 0 && member.isolated == 0
    }

    /// Whether this member has heard of the last election.
    fn is_aware(&self, at: usize) -> bool {
        self.members[at].term == self.term
    }

    /// The leader, if it leads a quorum that is well.
    fn working_leader(&self) -> Option<usize> {
        let leader = self.leader.filter(|leader| self.is_well(*leader))?;
        let well = (0..self.members.len()).filter(|at| self.is_well(*at)).count();
        (well * 2 > self.members.len()).then_some(leader)
    }

    /// Appends to the log, and has all that are in step apply it. Gives its place.
    fn commit(&mut self, now: Instant, command: Command) -> usize {
        self.truth.apply(now, &command);
        let at = self.log.len();
        self.log.push(command);
        for member in 0..self.members.len() {
            self.catch_up(member);
        }
        at
    }

    /// Has a member apply all it can know of.
    fn catch_up(&mut self, at: usize) {
        if self.is_well(at) && self.is_aware(at) && !self.members[at].lagging {
            self.apply_until(at, self.log.len());
        }
    }

    fn apply_until(&mut self, at: usize, end: usize) {
        while self.members[at].applied < end {
            let index = self.members[at].applied;
            let command = self.log[index].clone();
            let is_leader = self.leader == Some(at);
            self.members[at].apply(command, is_leader, &mut self.granted);
        }
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Cluster")
            .field("leader", &state.leader)
            .field("term", &state.term)
            .field("log", &state.log.len())
            .finish_non_exhaustive()
    }
}
