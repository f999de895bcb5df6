//! The client's end of the network.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, pending};
use futures_util::stream;
use leasehold::Endpoint;
use leasehold::etcd::{Credentials, KeepAliveLine, Lane, Token, WatchLine, Wire, WireError};
use leasehold::runtime::{Runtime, before};
use leasehold_mvcc::{Answer, Command};
use tokio::sync::{mpsc, oneshot};

use super::process::{not_done, unknown};
use super::{Cluster, State};
use crate::executor::Node;

/// How long a connection may take to stand.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// How one client reaches the members. A clone is another handle on the same connections.
#[derive(Clone)]
pub struct ClientWire {
    pub(super) cluster: Cluster,
    pub(super) client: u64,
    runtime: Arc<dyn Runtime>,
}

impl ClientWire {
    pub(super) fn new(cluster: Cluster, node: &Node) -> Self {
        let client = {
            let mut state = cluster.lock();
            state.next_client += 1;
            state.next_client
        };
        Self { cluster, client, runtime: node.runtime() }
    }

    /// The client's number, by which faults find it.
    pub fn client(&self) -> u64 {
        self.client
    }

    /// Makes sure that a connection stands.
    async fn connect(&self, at: usize, lane: Lane, patience: Duration) -> Result<(), WireError> {
        let limit = self.runtime.now() + patience.min(CONNECT_TIMEOUT);
        let standing = before(&*self.runtime, limit, self.cluster.connect(self.client, at, lane));
        standing.await.unwrap_or_else(|| Err(not_done("no connection in time")))
    }
}

fn lane_of(lane: Lane) -> usize {
    usize::from(lane == Lane::Leases)
}

/// The member that an endpoint names.
fn member_of(endpoint: &Endpoint) -> usize {
    let host = endpoint.tcp().map_or("", |(host, _)| host);
    host.trim_start_matches("etcd").parse().unwrap_or(0)
}

impl State {
    /// A number that changes when the connections of a client to a member break.
    pub(super) fn generation(&self, client: u64, at: usize) -> u64 {
        let link = self.links.get(&(client, at)).map_or(0, |link| link.generation);
        (self.members[at].generation << 32) + link
    }

    pub(super) fn is_cut_to(&self, client: u64, at: usize) -> bool {
        self.links.get(&(client, at)).is_some_and(|link| link.cut_to > 0)
    }

    pub(super) fn is_cut_from(&self, client: u64, at: usize) -> bool {
        self.links.get(&(client, at)).is_some_and(|link| link.cut_from > 0)
    }
}

impl Cluster {
    /// Connects, if that is needed: it takes as long as the network is cut or the member frozen.
    pub(super) async fn connect(&self, client: u64, at: usize, lane: Lane) -> Result<(), WireError> {
        let slot = lane_of(lane);
        {
            let mut state = self.lock();
            let generation = state.generation(client, at);
            if state.links.entry((client, at)).or_default().connected[slot] == Some(generation) {
                return Ok(());
            }
        }
        self.sleep(self.latency(client, at)).await;
        let look = |state: &mut State| {
            if state.members[at].dead {
                return Some(Err(not_done("connection refused")));
            }
            if state.members[at].frozen > 0 || state.is_cut_to(client, at) || state.is_cut_from(client, at) {
                return None;
            }
            let generation = state.generation(client, at);
            state.links.entry((client, at)).or_default().connected[slot] = Some(generation);
            Some(Ok(()))
        };
        self.until(look).await
    }

    /// What one message takes.
    pub(super) fn latency(&self, client: u64, at: usize) -> Duration {
        let more = self.lock().links.get(&(client, at)).map_or(Duration::ZERO, |link| link.faults.delay);
        Duration::from_micros(100) + self.up_to(Duration::from_micros(400) + more)
    }

    /// Waits until a message gets from the client to the member; `None` if the connection broke before.
    pub(super) async fn gets_there(&self, client: u64, at: usize, born: u64) -> Option<()> {
        let look = |state: &mut State| {
            if state.generation(client, at) != born || state.members[at].dead {
                return Some(None);
            }
            (!state.is_cut_to(client, at)).then_some(Some(()))
        };
        self.until(look).await
    }

    /// The same for the way back.
    pub(super) async fn gets_back(&self, client: u64, at: usize, born: u64) -> Option<()> {
        let look = |state: &mut State| {
            if state.generation(client, at) != born {
                return Some(None);
            }
            (!state.is_cut_from(client, at)).then_some(Some(()))
        };
        self.until(look).await
    }

    fn break_link(&self, client: u64, at: usize) {
        self.lock().links.entry((client, at)).or_default().generation += 1;
        self.changed();
    }

    /// Carries a request to a member and its answer back.
    async fn carry(
        self,
        client: u64,
        at: usize,
        token: Option<Token>,
        command: Command,
        tell: oneshot::Sender<Result<Answer, WireError>>,
    ) {
        let (born, faults) = {
            let state = self.lock();
            let faults = state.links.get(&(client, at)).map(|link| link.faults).unwrap_or_default();
            (state.generation(client, at), faults)
        };
        self.sleep(self.latency(client, at)).await;
        if self.chance(faults.lose_request) {
            self.saw("request lost");
            self.break_link(client, at);
            let _ = tell.send(Err(unknown("connection reset by peer")));
            return;
        }
        if self.chance(faults.late) {
            self.saw("request came late");
            let _ = tell.send(Err(unknown("connection reset by peer")));
            self.sleep(self.up_to(faults.max_late)).await;
            let _ = self.process(at, token.as_ref(), command).await;
            return;
        }
        if self.gets_there(client, at, born).await.is_none() {
            let _ = tell.send(Err(unknown("connection reset by peer")));
            return;
        }
        let answer = self.process(at, token.as_ref(), command).await;
        if self.chance(faults.lose_reply) {
            self.saw("answer lost");
            self.break_link(client, at);
            let _ = tell.send(Err(unknown("connection reset by peer")));
            return;
        }
        if self.gets_back(client, at, born).await.is_none() {
            let _ = tell.send(Err(unknown("connection reset by peer")));
            return;
        }
        self.sleep(self.latency(client, at)).await;
        let _ = tell.send(answer);
    }
}

impl Wire for ClientWire {
    fn call(
        &self,
        endpoint: &Endpoint,
        lane: Lane,
        token: Option<Token>,
        command: Command,
        patience: Duration,
    ) -> BoxFuture<'static, Result<Answer, WireError>> {
        let (wire, at) = (self.clone(), member_of(endpoint));
        Box::pin(async move {
            wire.connect(at, lane, patience / 2).await?;
            let (tell, told) = oneshot::channel();
            let carry = wire.cluster.clone().carry(wire.client, at, token, command, tell);
            wire.cluster.world().spawn("network: request", Box::pin(carry)).detach();
            match told.await {
                Ok(answer) => answer,
                // Nobody will ever say.
                Err(_) => pending().await,
            }
        })
    }

    fn authenticate(
        &self,
        endpoint: &Endpoint,
        lane: Lane,
        credentials: Credentials,
        patience: Duration,
    ) -> BoxFuture<'static, Result<Token, WireError>> {
        let (wire, at) = (self.clone(), member_of(endpoint));
        Box::pin(async move {
            wire.connect(at, lane, patience / 2).await?;
            let Self { cluster, client, .. } = wire;
            let born = cluster.lock().generation(client, at);
            cluster.sleep(cluster.latency(client, at)).await;
            let lost = || unknown("connection reset by peer");
            cluster.gets_there(client, at, born).await.ok_or_else(lost)?;
            // It goes through the log, so only a member that has a leader gives one.
            let well = |state: &mut State| (state.is_well(at) && state.members[at].frozen == 0).then_some(());
            cluster.until(well).await;
            let token = cluster.login(&credentials)?;
            cluster.gets_back(client, at, born).await.ok_or_else(lost)?;
            cluster.sleep(cluster.latency(client, at)).await;
            Ok(token)
        })
    }

    fn open_watch(&self, endpoint: &Endpoint, lane: Lane, token: Option<Token>) -> WatchLine {
        let ((orders, received), (tell, mut told)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let (cluster, client, at) = (self.cluster.clone(), self.client, member_of(endpoint));
        let line = cluster.clone().watch_line(client, at, (lane, token), received, tell);
        cluster.world().spawn("network: watch", Box::pin(line)).detach();
        WatchLine { orders, answers: Box::pin(stream::poll_fn(move |context| told.poll_recv(context))) }
    }

    fn open_keep_alive(&self, endpoint: &Endpoint, lane: Lane, token: Option<Token>) -> KeepAliveLine {
        let ((ids, received), (tell, mut told)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let (cluster, client, at) = (self.cluster.clone(), self.client, member_of(endpoint));
        let line = cluster.clone().keep_alive_line(client, at, (lane, token), received, tell);
        cluster.world().spawn("network: renewals", Box::pin(line)).detach();
        KeepAliveLine { ids, answers: Box::pin(stream::poll_fn(move |context| told.poll_recv(context))) }
    }

    fn distrust(&self, endpoint: &Endpoint, lane: Lane) {
        let mut state = self.cluster.lock();
        state.links.entry((self.client, member_of(endpoint))).or_default().connected[lane_of(lane)] = None;
    }

    fn close(&self) {}
}

impl fmt::Debug for ClientWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientWire").field("client", &self.client).finish_non_exhaustive()
    }
}
