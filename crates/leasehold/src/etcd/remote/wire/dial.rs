//! Makes one HTTP/2 connection, and hands it out only when the other end has shown that it speaks HTTP/2.
//!
//! Waiting for the greeting costs one round trip a connection. For that, an address behind which nobody answers, or
//! somebody else does, is found out before anything is sent: the request is certainly not carried out, so another
//! endpoint may be asked, also to write.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tonic::body::Body;

use crate::etcd::remote::{Endpoint, WireError};
use crate::runtime::{Instant, Runtime, before};

/// How a silent connection is asked for a sign of life. It is asked only while something is under way on it.
#[derive(Clone, Copy, Debug)]
pub(in crate::etcd::remote) struct Pings {
    pub(in crate::etcd::remote) interval: Duration,
    pub(in crate::etcd::remote) timeout: Duration,
}

/// Dials and waits for the greeting. Runs on the thread that is to drive the connection, which is the current tokio
/// runtime; the caller bounds its time, to `deadline`.
pub(super) async fn dial(
    endpoint: &Endpoint,
    pings: Pings,
    runtime: &dyn Runtime,
    deadline: Instant,
) -> Result<SendRequest<Body>, WireError> {
    let failed =
        |error: io::Error| WireError::NotDone { cause: format!("cannot connect to {endpoint}: {error}") };
    if let Some((host, port)) = endpoint.tcp() {
        let socket = connect(host, port, runtime, deadline).await.map_err(failed)?;
        // Small requests that wait for nobody: each would be held back for the last one's acknowledgement.
        socket.set_nodelay(true).map_err(failed)?;
        return greet(socket, endpoint, pings).await;
    }
    #[cfg(unix)]
    if let Some(path) = endpoint.unix() {
        return greet(UnixStream::connect(path).await.map_err(failed)?, endpoint, pings).await;
    }
    Err(WireError::NotDone { cause: format!("{endpoint} cannot be reached from this system") })
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

async fn greet<S>(socket: S, endpoint: &Endpoint, pings: Pings) -> Result<SendRequest<Body>, WireError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (heard, greeting) = oneshot::channel();
    let socket =
        Greeted { socket, listener: Some(Listener { first: Vec::with_capacity(FRAME_HEAD), heard }) };
    let failed = |error: &dyn std::fmt::Display| WireError::NotDone {
        cause: format!("cannot connect to {endpoint}: {error}"),
    };
    let (sender, connection) = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(pings.interval)
        .keep_alive_timeout(pings.timeout)
        // An etcd with default settings hangs up on whoever pings with nothing under way.
        .keep_alive_while_idle(false)
        .handshake(TokioIo::new(socket))
        .await
        .map_err(|error| failed(&error))?;
    let name = endpoint.to_string();
    tokio::runtime::Handle::current().spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(endpoint = name, %error, "a connection broke");
        }
    });
    match greeting.await {
        Ok(Greeting::Http2) => Ok(sender),
        Ok(Greeting::Other(what)) => {
            Err(WireError::NotEtcd { why: format!("{endpoint} speaks {what}"), sent: false })
        }
        Ok(Greeting::Failed(error)) => Err(failed(&error)),
        Err(_) => Err(failed(&"it hung up before it said a word")),
    }
}

/// Length, type, flags and stream of an HTTP/2 frame; the first one has type 4, settings.
const FRAME_HEAD: usize = 9;

enum Greeting {
    Http2,
    Other(&'static str),
    Failed(io::Error),
}

struct Listener {
    first: Vec<u8>,
    heard: oneshot::Sender<Greeting>,
}

impl Listener {
    /// What the first bytes are, once there are enough.
    fn judge(&self) -> Option<Greeting> {
        match *self.first.as_slice() {
            [b'H', b'T', b'T', b'P', ..] => Some(Greeting::Other("HTTP/1")),
            // A TLS record: alert or handshake, version 3.x.
            [0x15 | 0x16, 3, ..] => Some(Greeting::Other("TLS")),
            [_, _, _, 4, _, 0, 0, 0, 0, ..] => Some(Greeting::Http2),
            _ if self.first.len() >= FRAME_HEAD => Some(Greeting::Other("no HTTP/2")),
            _ => None,
        }
    }
}

/// A socket that tells what the first bytes from the other end are.
struct Greeted<S> {
    socket: S,
    listener: Option<Listener>,
}

impl<S> Greeted<S> {
    fn tell(&mut self, greeting: Greeting) {
        if let Some(listener) = self.listener.take() {
            // A dial that was given up listens no more.
            let _ = listener.heard.send(greeting);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Greeted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = ready!(Pin::new(&mut self.socket).poll_read(context, buf));
        if let Some(listener) = &mut self.listener {
            let new = buf.filled().get(before..).unwrap_or_default();
            let greeting = match &read {
                Err(error) => Some(Greeting::Failed(io::Error::new(error.kind(), error.to_string()))),
                Ok(()) if new.is_empty() && buf.remaining() > 0 => {
                    let error = "it hung up before it said a word";
                    Some(Greeting::Failed(io::Error::new(io::ErrorKind::UnexpectedEof, error)))
                }
                Ok(()) => {
                    let wanted = FRAME_HEAD.saturating_sub(listener.first.len()).min(new.len());
                    listener.first.extend_from_slice(new.get(..wanted).unwrap_or_default());
                    listener.judge()
                }
            };
            if let Some(greeting) = greeting {
                self.tell(greeting);
            }
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Greeted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(context)
    }
}
