//! The server: an address, an etcd, and the loop that takes connections.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Either;
use leasehold::Embedded;
use leasehold::etcd::Etcd;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::address::Address;
use crate::connection;
use crate::face::Face;
use crate::listener::{BindError, Listener};
use crate::member::Member;
use leasehold::runtime::race;

/// How long to wait before listening again when the system has no connection to give (no file descriptor is left, say).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What a server tells and how it ends. The default suits tests and one machine.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// The member's name in the member list.
    pub name: String,
    /// The URLs under which clients can reach it, as the member list tells them; empty for the address bound.
    pub advertised: Vec<String>,
    /// How often a watch that asks for progress hears of it while nothing happens; etcd's default is 10 minutes.
    pub progress_interval: Duration,
    /// How long, once told to stop, to wait for calls in flight. Watches and queued lock calls are ended at once.
    pub drain: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            name: "leasehold".into(),
            advertised: Vec::new(),
            progress_interval: Duration::from_secs(600),
            drain: Duration::from_secs(2),
        }
    }
}

/// A server that has its address and takes no connections yet: they wait until [`Server::serve`].
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    etcd: Embedded,
    options: ServerOptions,
    activity: Activity,
}

impl Server {
    /// Listens on an address. It must be called within a tokio runtime.
    ///
    /// The file of a Unix socket that a dead server left behind is replaced; that of a living one never is, however
    /// many try at once: a file `<path>.lock` beside it is locked for as long as the server lives, and stays.
    ///
    /// # Errors
    /// With [`std::io::ErrorKind::AddrInUse`] as the cause's kind if another server has it.
    pub async fn bind(address: impl Into<Address>, etcd: Embedded) -> Result<Self, BindError> {
        let listener = Listener::bind(address.into()).await?;
        let activity = Activity::new(etcd.clone());
        Ok(Self { listener, etcd, options: ServerOptions::default(), activity })
    }

    /// The same server with these options.
    #[must_use]
    pub fn with_options(mut self, options: ServerOptions) -> Self {
        self.options = options;
        self
    }

    /// Where it really listens: with the port that the system chose.
    pub fn address(&self) -> &Address {
        self.listener.address()
    }

    /// A handle that tells how busy it is.
    pub fn activity(&self) -> Activity {
        self.activity.clone()
    }

    /// Serves until `shutdown` ends; then no connection is taken any more, open watches and queued lock calls end with
    /// `Unavailable`, and calls in flight get [`ServerOptions::drain`] to finish. The [`Embedded`] lives on in its
    /// other handles.
    ///
    /// # Cancel safety
    /// Dropping the future cuts all connections.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) {
        let Self { listener, etcd, options, activity } = self;
        let runtime = etcd.runtime();
        let stopping = CancellationToken::new();
        let advertised = match options.advertised {
            given if given.is_empty() => vec![listener.address().url()],
            given => given,
        };
        let member = Member { name: options.name, client_urls: advertised };
        let face = Arc::new(Face::new(etcd, member, options.progress_interval, stopping.clone()));
        let mut connections = JoinSet::new();
        let mut shutdown = pin!(shutdown);
        loop {
            match race(shutdown.as_mut(), listener.accept()).await {
                Either::Left(()) => break,
                Either::Right(Ok(socket)) => {
                    // Connections belong to the caller's runtime, which drives the sockets; the set ends them with us.
                    connections.spawn(connection::serve(
                        socket,
                        face.clone(),
                        stopping.clone(),
                        activity.arrival(),
                    ));
                }
                Either::Right(Err(error)) => {
                    tracing::warn!(%error, "no connection could be taken");
                    runtime.sleep_until(runtime.now() + ACCEPT_PAUSE).await;
                }
            }
            // The set keeps what has ended until somebody asks.
            while connections.try_join_next().is_some() {}
        }
        stopping.cancel();
        // From here on newcomers are refused by the system; the socket's lock is held until the last call is answered.
        let _lock = listener.close();
        let drained = async { while connections.join_next().await.is_some() {} };
        if let Either::Right(()) = race(drained, runtime.sleep_until(runtime.now() + options.drain)).await {
            tracing::warn!("connections that would not end were cut");
        }
    }
}
