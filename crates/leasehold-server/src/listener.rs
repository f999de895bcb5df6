//! The listening end of a server, and the lock that keeps a socket's path to one server.

use std::fmt;
use std::io;

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use crate::address::Address;

#[cfg(unix)]
mod unix;

/// The address cannot be had.
#[derive(Debug, Error)]
#[error("cannot listen on {address}: {cause}")]
pub struct BindError {
    /// Which address.
    pub address: Address,
    /// Why not.
    #[source]
    pub cause: io::Error,
}

/// An accepted connection.
pub(crate) trait Socket: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Socket for T {}

pub(crate) struct Listener {
    address: Address,
    kind: Kind,
}

enum Kind {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(unix::Bound),
}

impl Listener {
    pub(crate) async fn bind(address: Address) -> Result<Self, BindError> {
        let bound = match &address {
            Address::Tcp(wanted) => tcp(*wanted).await,
            Address::Unix(path) => unix_socket(path).await.map(|kind| (address.clone(), kind)),
        };
        match bound {
            Ok((address, kind)) => Ok(Self { address, kind }),
            Err(cause) => Err(BindError { address, cause }),
        }
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The next connection.
    ///
    /// # Cancel safety
    /// A dropped future loses no connection.
    pub(crate) async fn accept(&self) -> io::Result<Box<dyn Socket>> {
        match &self.kind {
            Kind::Tcp(listener) => {
                let (socket, _) = listener.accept().await?;
                // Answers are small, and each is waited for. Where it fails the client has gone already.
                let _ = socket.set_nodelay(true);
                Ok(Box::new(socket))
            }
            #[cfg(unix)]
            Kind::Unix(bound) => Ok(Box::new(bound.accept().await?)),
        }
    }

    /// Stops listening. What is given back keeps the address from other servers until it is dropped.
    pub(crate) fn close(self) -> Closed {
        match self.kind {
            Kind::Tcp(_) => Closed {
                #[cfg(unix)]
                _lock: None,
            },
            #[cfg(unix)]
            Kind::Unix(bound) => Closed { _lock: Some(bound.close()) },
        }
    }
}

/// An address on which nobody listens any more, and nobody may yet.
#[derive(Debug)]
pub(crate) struct Closed {
    #[cfg(unix)]
    _lock: Option<std::fs::File>,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("address", &self.address).finish_non_exhaustive()
    }
}

async fn tcp(wanted: std::net::SocketAddr) -> io::Result<(Address, Kind)> {
    let listener = TcpListener::bind(wanted).await?;
    Ok((listener.local_addr()?.into(), Kind::Tcp(listener)))
}

#[cfg(unix)]
async fn unix_socket(path: &std::path::Path) -> io::Result<Kind> {
    unix::Bound::bind(path).await.map(Kind::Unix)
}

#[cfg(not(unix))]
async fn unix_socket(_path: &std::path::Path) -> io::Result<Kind> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "this system has no Unix sockets; listen on 127.0.0.1:0"))
}
