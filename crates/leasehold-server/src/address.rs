//! Where a server listens.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// Where a server listens. It prints as an endpoint that etcdctl and `Remote::connect` take.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// A TCP address. Port 0 lets the system choose one.
    Tcp(SocketAddr),
    /// A socket in the file system, for this user alone.
    Unix(PathBuf),
}

impl Address {
    /// A port of this machine that no other machine can reach.
    pub fn loopback(port: u16) -> Self {
        Self::Tcp((Ipv4Addr::LOCALHOST, port).into())
    }

    /// The URL under which clients are told to come, as member lists have it.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Tcp(address) => format!("http://{address}"),
            Self::Unix(_) => self.to_string(),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address)
    }
}

impl From<PathBuf> for Address {
    fn from(path: PathBuf) -> Self {
        Self::Unix(path)
    }
}

impl From<&Path> for Address {
    fn from(path: &Path) -> Self {
        Self::Unix(path.into())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            // An absolute path makes three slashes of it, as URLs have it.
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_prints_as_an_endpoint() {
        assert_eq!(Address::loopback(2379).to_string(), "127.0.0.1:2379");
        assert_eq!(Address::from("[::1]:2379".parse::<SocketAddr>().unwrap()).to_string(), "[::1]:2379");
        assert_eq!(Address::from(Path::new("/run/etcd")).to_string(), "unix:///run/etcd");
    }
}
