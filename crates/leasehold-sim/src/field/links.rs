//! The links between nodes, as a user-space proxy: they can hold bytes back, deliver them late, and break.
//!
//! A flow is one direction between two nodes. What is held back is delivered when the flow opens again, also
//! if its sender has given up and gone: that is late delivery.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join;
use leasehold::runtime::race;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long TCP takes to send again what got lost.
const RETRANSMISSION: Duration = Duration::from_millis(200);

/// How a flow is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Weather {
    /// Nothing gets through, and nobody is told.
    pub held: bool,
    /// How long each byte takes.
    pub delay: Duration,
    /// How many of a hundred pieces get lost, so that they and all behind them come later.
    pub loss: u64,
}

/// One direction between two nodes.
#[derive(Debug, Default)]
pub struct Flow {
    weather: Mutex<Weather>,
    changed: Notify,
    pieces: AtomicU64,
}

impl Flow {
    /// Sets how it is from now on.
    pub fn set(&self, weather: Weather) {
        *self.weather.lock().unwrap_or_else(PoisonError::into_inner) = weather;
        self.changed.notify_waiters();
    }

    fn weather(&self) -> Weather {
        *self.weather.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn open(&self) {
        loop {
            let changed = self.changed.notified();
            if !self.weather().held {
                return;
            }
            changed.await;
        }
    }

    /// How long the next piece takes.
    fn takes(&self) -> Duration {
        let weather = self.weather();
        let piece = self.pieces.fetch_add(1, Ordering::Relaxed);
        let lost = crate::Random::new(piece).next() % 100 < weather.loss;
        weather.delay + if lost { RETRANSMISSION } else { Duration::ZERO }
    }
}

/// All flows between so many nodes, and the proxies that obey them.
#[derive(Debug)]
pub struct Links {
    nodes: usize,
    flows: Vec<Arc<Flow>>,
    breaks: Vec<Arc<Notify>>,
    peers: Arc<Peers>,
    runtime: Handle,
    tasks: Mutex<JoinSet<()>>,
}

/// The members' ids, by which a connection between members says from whom it comes.
#[derive(Debug, Default)]
struct Peers(Mutex<Vec<String>>);

/// Where a proxy stands.
#[derive(Debug)]
pub struct Gate {
    /// From whom it leads; `None`: from any member, by what its connections say.
    pub from: Option<usize>,
    /// To whom.
    pub to: usize,
    /// Where that node listens.
    pub target: SocketAddr,
}

impl Links {
    /// Links without a proxy yet.
    pub fn new(nodes: usize, runtime: Handle) -> Self {
        Self {
            nodes,
            flows: (0..nodes * nodes).map(|_| Arc::default()).collect(),
            breaks: (0..nodes).map(|_| Arc::default()).collect(),
            peers: Arc::default(),
            runtime,
            tasks: Mutex::default(),
        }
    }

    /// The flow from one node to another.
    pub fn flow(&self, from: usize, to: usize) -> &Arc<Flow> {
        &self.flows[from * self.nodes + to]
    }

    /// Breaks all connections that this node has made to others; it may make new ones at once.
    pub fn break_connections(&self, of: usize) {
        self.breaks[of].notify_waiters();
    }

    /// From now on connections between members are told apart by these ids, in lower hex.
    pub fn know_peers(&self, ids: Vec<String>) {
        *self.peers.0.lock().unwrap_or_else(PoisonError::into_inner) = ids;
    }

    /// Puts a proxy at an address, where port 0 means any; says which it got.
    ///
    /// # Errors
    /// If the address cannot be had.
    pub fn open(self: &Arc<Self>, at: SocketAddr, gate: Gate) -> std::io::Result<SocketAddr> {
        let listener = self.runtime.block_on(TcpListener::bind(at))?;
        let address = listener.local_addr()?;
        let links = Arc::downgrade(self);
        let gate = Arc::new(gate);
        let accept = async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let Some(links) = links.upgrade() else { return };
                connections.spawn(connect(links, gate.clone(), client));
                while connections.try_join_next().is_some() {}
            }
        };
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner).spawn_on(accept, &self.runtime);
        Ok(address)
    }
}

async fn connect(links: Arc<Links>, gate: Arc<Gate>, mut client: TcpStream) {
    let mut first = Vec::new();
    let from = match gate.from {
        Some(from) => from,
        None => match sniff(&links.peers, &mut client, &mut first).await {
            Some(from) => from,
            // Of unknown origin: a member that asks for the version before it joins. It goes where the
            // target's own words go.
            None => gate.to,
        },
    };
    let (up, down) = (links.flow(from, gate.to).clone(), links.flow(gate.to, from).clone());
    let breaks = links.breaks[from].clone();
    drop(links);
    let carry = async {
        up.open().await;
        let Ok(mut server) = TcpStream::connect(gate.target).await else { return };
        // Small messages must not wait for each other here when they do not at the ends.
        let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
        if server.write_all(&first).await.is_err() {
            return;
        }
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        join(pump(from_client, to_server, up), pump(from_server, to_client, down)).await;
    };
    race(breaks.notified(), carry).await;
}

/// Reads the head of the first request on a connection between members, which names its sender.
async fn sniff(peers: &Peers, client: &mut TcpStream, first: &mut Vec<u8>) -> Option<usize> {
    let mut buffer = [0; 4096];
    while !first.windows(4).any(|window| window == b"\r\n\r\n") && first.len() < 16_384 {
        let read = client.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
        first.extend_from_slice(&buffer[..read]);
    }
    let head = String::from_utf8_lossy(first).to_lowercase();
    let id = head.lines().find_map(|line| line.strip_prefix("x-server-from:"))?.trim();
    let ids = peers.0.lock().unwrap_or_else(PoisonError::into_inner);
    ids.iter().position(|known| known == id)
}

/// Moves bytes one way until they end, each piece after its time and while the flow is open.
async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, flow: Arc<Flow>) {
    let (pieces, mut due) = mpsc::channel::<(Instant, Vec<u8>)>(64);
    let read = async {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            let piece = (Instant::now() + flow.takes(), buffer[..read].to_vec());
            if pieces.send(piece).await.is_err() {
                break;
            }
        }
        drop(pieces);
    };
    let write = async {
        while let Some((at, piece)) = due.recv().await {
            tokio::time::sleep_until(at).await;
            flow.open().await;
            if to.write_all(&piece).await.is_err() {
                break;
            }
        }
        due.close();
        // That the bytes have ended is told no sooner than a byte would be.
        flow.open().await;
        let _ = to.shutdown().await;
    };
    join(read, write).await;
}
