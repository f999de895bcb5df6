//! Makes one HTTP/2 connection, and hands it out only when the other end has shown that it speaks HTTP/2.
//!
//! Waiting for the greeting costs one round trip a connection. For that, an address behind which nobody answers, or
//! somebody else does, is found out before anything is sent: the request is certainly not carried out, so another
//! endpoint may be asked, also to write. By then a server that wants a certificate has seen ours, too.

mod greeting;
mod second_look;

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http::Uri;
use http::uri::{Authority, PathAndQuery, Scheme};
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tonic::body::Body;

#[cfg(feature = "tls")]
use crate::etcd::remote::tls::{self, Tls};
use crate::etcd::remote::{Endpoint, WireError};
use crate::runtime::{Instant, Runtime, before};
use greeting::{Greeted, Greeting};

/// How a silent connection is asked for a sign of life. It is asked only while something is under way on it.
#[derive(Clone, Copy, Debug)]
pub(in crate::etcd::remote) struct Pings {
    pub(in crate::etcd::remote) interval: Duration,
    pub(in crate::etcd::remote) timeout: Duration,
}

/// How connections are made.
#[derive(Clone)]
pub(in crate::etcd::remote) struct Dialler {
    pub(in crate::etcd::remote) pings: Pings,
    /// The settings of secure connections; none if no endpoint wants one.
    #[cfg(feature = "tls")]
    pub(in crate::etcd::remote) tls: Option<Tls>,
}

impl Dialler {
    /// Dials and waits for the greeting. Runs on the thread that is to drive the connection, which is the current tokio
    /// runtime; the caller bounds its time, to `deadline`.
    pub(super) async fn dial(
        &self,
        endpoint: &Endpoint,
        runtime: &dyn Runtime,
        deadline: Instant,
    ) -> Result<SendRequest<Body>, WireError> {
        let refused = |error: io::Error| failed(endpoint, &error);
        if let Some((host, port)) = endpoint.tcp() {
            let socket = connect(host, port, runtime, deadline).await.map_err(refused)?;
            // Small requests that wait for nobody: each would be held back for the last one's acknowledgement.
            socket.set_nodelay(true).map_err(refused)?;
            return match self.meet(endpoint, host, socket).await? {
                Meeting::Greeted(sender) => Ok(sender),
                Meeting::HungUp(error) => {
                    let reason = self.second_look(endpoint, (host, port), runtime, deadline).await;
                    Err(reason.unwrap_or_else(|| refused(error)))
                }
            };
        }
        #[cfg(unix)]
        if let Some(path) = endpoint.unix() {
            let socket = UnixStream::connect(path).await.map_err(refused)?;
            return match self.greet(socket, endpoint).await? {
                Meeting::Greeted(sender) => Ok(sender),
                Meeting::HungUp(error) => Err(refused(error)),
            };
        }
        Err(WireError::NotDone { cause: format!("{endpoint} cannot be reached from this system") })
    }

    async fn meet(&self, endpoint: &Endpoint, host: &str, socket: TcpStream) -> Result<Meeting, WireError> {
        #[cfg(feature = "tls")]
        if let Some(tls) = self.tls_for(endpoint) {
            return self.greet(tls.secure(endpoint, host, socket).await?, endpoint).await;
        }
        #[cfg(not(feature = "tls"))]
        let _ = host;
        self.greet(socket, endpoint).await
    }

    #[cfg(feature = "tls")]
    fn tls_for(&self, endpoint: &Endpoint) -> Option<&Tls> {
        self.tls.as_ref().filter(|_| endpoint.is_secure(true))
    }

    /// What stands for the endpoint in the URI of a request.
    pub(super) fn origin(&self, endpoint: &Endpoint) -> Uri {
        // A socket has no name that could stand there; servers expect one all the same.
        let authority = match endpoint.tcp() {
            Some((host, port)) if host.contains(':') => Authority::try_from(format!("[{host}]:{port}")),
            Some((host, port)) => Authority::try_from(format!("{host}:{port}")),
            None => Ok(Authority::from_static("localhost")),
        };
        #[cfg(feature = "tls")]
        let secure = self.tls_for(endpoint).is_some();
        #[cfg(not(feature = "tls"))]
        let secure = false;
        let mut parts = http::uri::Parts::default();
        parts.scheme = Some(if secure { Scheme::HTTPS } else { Scheme::HTTP });
        parts.authority = Some(authority.unwrap_or(Authority::from_static("localhost")));
        parts.path_and_query = Some(PathAndQuery::from_static("/"));
        Uri::from_parts(parts).unwrap_or_default()
    }

    async fn greet<S>(&self, socket: S, endpoint: &Endpoint) -> Result<Meeting, WireError>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (socket, greeting) = Greeted::new(socket);
        let handshake = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(self.pings.interval)
            .keep_alive_timeout(self.pings.timeout)
            // An etcd with default settings hangs up on whoever pings with nothing under way.
            .keep_alive_while_idle(false)
            .handshake(TokioIo::new(socket))
            .await;
        let (sender, connection) = match handshake {
            Ok(both) => both,
            Err(error) => return Ok(Meeting::HungUp(io::Error::other(error))),
        };
        let name = endpoint.to_string();
        tokio::runtime::Handle::current().spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(endpoint = name, %error, "a connection broke");
            }
        });
        match greeting.await {
            Ok(Greeting::Http2) => Ok(Meeting::Greeted(sender)),
            Ok(Greeting::Other(what)) => Err(speaks(endpoint, what)),
            #[cfg(feature = "tls")]
            Ok(Greeting::Failed(error)) if tls::cause(&error).is_some() => {
                Err(Tls::failure(endpoint, &error))
            }
            Ok(Greeting::Failed(error)) => Ok(Meeting::HungUp(error)),
            Err(_) => Ok(Meeting::HungUp(greeting::silence())),
        }
    }
}

/// How a first meeting went.
enum Meeting {
    Greeted(SendRequest<Body>),
    HungUp(io::Error),
}

fn failed(endpoint: &Endpoint, error: &io::Error) -> WireError {
    WireError::NotDone { cause: format!("cannot connect to {endpoint}: {error}") }
}

fn speaks(endpoint: &Endpoint, what: &str) -> WireError {
    WireError::NotEtcd { why: format!("{endpoint} speaks {what}"), sent: false }
}

/// Connects to the first address of a host that takes the connection. Each gets a fair part of the time left, so one of
/// a family that leads nowhere does not use up all of it.
async fn connect(host: &str, port: u16, runtime: &dyn Runtime, deadline: Instant) -> io::Result<TcpStream> {
    let addresses: Vec<SocketAddr> = tokio::net::lookup_host((host, port)).await?.collect();
    let mut left = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        let now = runtime.now();
        let part = deadline.since(now) / left.max(1);
        left = left.saturating_sub(1);
        match before(runtime, now + part, TcpStream::connect(address)).await {
            Some(Ok(socket)) => return Ok(socket),
            Some(Err(error)) => last = error,
            None => last = io::Error::new(io::ErrorKind::TimedOut, format!("{address} does not answer")),
        }
    }
    Err(last)
}
