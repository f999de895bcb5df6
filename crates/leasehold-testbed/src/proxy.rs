//! A TCP proxy before a server, whose link can be cut without a word, or slow.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// Forwards connections to one server. Dropping this ends them all.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    link: Arc<Link>,
    _tasks: JoinSet<()>,
}

#[derive(Debug, Default)]
struct Link {
    cut: AtomicBool,
    healed: Notify,
    /// How much longer each piece takes, in milliseconds.
    delay: AtomicU64,
}

impl Link {
    /// Waits while the link is cut.
    async fn whole(&self) {
        loop {
            let healed = self.healed.notified();
            if !self.cut.load(Ordering::Acquire) {
                return;
            }
            healed.await;
        }
    }

    async fn late(&self) {
        let delay = self.delay.load(Ordering::Acquire);
        if delay > 0 {
            tokio::time::sleep(Duration::from_millis(delay)).await;
        }
    }
}

impl Proxy {
    /// A proxy before the server at `target`, such as `http://127.0.0.1:2379`.
    ///
    /// # Panics
    /// If no port can be had.
    pub async fn start(target: &str) -> Self {
        let target = target.strip_prefix("http://").unwrap_or(target).to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("a bound socket has an address");
        let link = Arc::new(Link::default());
        let mut tasks = JoinSet::new();
        let forwarding = link.clone();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(forward(client, target.clone(), forwarding.clone()));
            }
        });
        Self { address, link, _tasks: tasks }
    }

    /// Where clients connect to.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// From now on nothing gets through, and nobody is told: connections stay, and new ones are accepted.
    pub fn cut(&self) {
        self.link.cut.store(true, Ordering::Release);
    }

    /// From now on each piece takes so much longer, one way.
    pub fn delay(&self, by: Duration) {
        self.link.delay.store(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::Release);
    }

    /// What was held back gets through, late.
    pub fn heal(&self) {
        self.link.cut.store(false, Ordering::Release);
        self.link.healed.notify_waiters();
    }
}

async fn forward(client: TcpStream, target: String, link: Arc<Link>) {
    link.whole().await;
    let Ok(server) = TcpStream::connect(target).await else { return };
    // Small messages must not wait for each other here when they do not at the ends.
    let _ = client.set_nodelay(true).and_then(|()| server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut ways = JoinSet::new();
    ways.spawn(pump(from_client, to_server, link.clone()));
    ways.spawn(pump(from_server, to_client, link));
    // The first way that ends takes the other along.
    ways.join_next().await;
}

async fn pump(mut from: impl AsyncReadExt + Unpin, mut to: impl AsyncWriteExt + Unpin, link: Arc<Link>) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match from.read(&mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(read) => {
                link.late().await;
                link.whole().await;
                if to.write_all(&buffer[..read]).await.is_err() {
                    return;
                }
            }
        }
    }
}
