//! Which etcd, and how it is set up.

use std::path::PathBuf;
use std::time::Duration;

use crate::authority::Identity;
use crate::requirement::Part;

/// The versions of etcd at hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// etcd 3.5.23.
    V35,
    /// etcd 3.7.2.
    V37,
}

impl Version {
    /// Both.
    pub const ALL: [Self; 2] = [Self::V35, Self::V37];

    /// The part to require.
    pub const fn part(self) -> Part {
        match self {
            Self::V35 => Part::Etcd35,
            Self::V37 => Part::Etcd37,
        }
    }

    /// Where its program is.
    ///
    /// # Errors
    /// Why it is not on this machine.
    #[cfg(all(target_os = "linux", target_arch = "x86_64"))]
    pub fn binary(self) -> Result<PathBuf, String> {
        let found = match self {
            Self::V35 => etcd35::etcd_bin_path(),
            Self::V37 => etcd37::etcd_bin_path(),
        };
        let Ok(path) = found;
        path.exists().then(|| path.to_owned()).ok_or_else(|| format!("{} is gone", path.display()))
    }

    #[cfg(not(all(target_os = "linux", target_arch = "x86_64")))]
    /// Where its program is.
    ///
    /// # Errors
    /// Why it is not on this machine.
    pub fn binary(self) -> Result<PathBuf, String> {
        Err("its program comes for Linux on x86-64 only".into())
    }
}

/// How a server is set up. The default is etcd's own, except that nothing is flushed to disk: tests are many, and a
/// killed process loses nothing by that, only a machine would.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Serve clients on a Unix socket too.
    pub unix_socket: bool,
    /// Flush to disk as in earnest.
    pub fsync: bool,
    /// Between heartbeats of the leader; etcd's default is 100 ms.
    pub heartbeat: Option<Duration>,
    /// Without heartbeats until an election; etcd's default is 1 s. Leases live one and a half times this at least.
    pub election: Option<Duration>,
    /// The most the store may hold.
    pub quota_bytes: Option<u64>,
    /// Serve clients securely too, at an address of its own.
    pub secure: Option<Secure>,
    /// More arguments for etcd, as they are.
    pub args: Vec<String>,
}

/// What a server shows, and whom it lets in, on secure connections.
#[derive(Clone, Debug)]
pub struct Secure {
    /// What it shows.
    pub identity: Identity,
    /// The authority whose certificates it wants of its clients; none if it wants none.
    pub clients: Option<String>,
}

impl Options {
    /// Elections within 200 ms, for tests that wait for new leaders.
    #[must_use]
    pub fn quick_elections(mut self) -> Self {
        self.heartbeat = Some(Duration::from_millis(20));
        self.election = Some(Duration::from_millis(200));
        self
    }

    /// A Unix socket, too.
    #[must_use]
    pub fn with_unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Secure connections, too.
    #[must_use]
    pub fn with_secure(mut self, identity: Identity, clients: Option<&str>) -> Self {
        self.secure = Some(Secure { identity, clients: clients.map(str::to_owned) });
        self
    }

    /// Tokens that live for so long, in whole seconds; etcd's default is 300 s.
    #[must_use]
    pub fn with_token_ttl(mut self, ttl: Duration) -> Self {
        self.args.push("--auth-token=simple".into());
        self.args.push(format!("--auth-token-ttl={}", ttl.as_secs()));
        self
    }
}
