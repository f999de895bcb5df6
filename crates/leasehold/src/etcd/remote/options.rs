//! How a remote etcd is spoken to.

use std::sync::Arc;
use std::time::Duration;

use super::endpoint::distinct;
#[cfg(feature = "tls")]
use super::tls::{Tls, TlsOptions};
use super::wire::{Dialler, Pings, TokioWire};
use super::{Credentials, Endpoint, IntoEndpoints, Remote, Wire};
use crate::error::{Error, Result};
use crate::runtime::{Runtime, SystemRuntime};

/// What a [`Remote`] is made of; every setting but the endpoints has a default.
///
/// ```
/// use std::time::Duration;
/// use leasehold::RemoteOptions;
///
/// let options = RemoteOptions::new("10.0.0.1:2379,10.0.0.2:2379,10.0.0.3:2379")?.call_timeout(Duration::from_secs(3));
/// let etcd = options.open()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until they are opened"]
pub struct RemoteOptions {
    pub(super) endpoints: Vec<Endpoint>,
    pub(super) call_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) watch_silence: Duration,
    pub(super) credentials: Option<Credentials>,
    #[cfg(feature = "tls")]
    tls: Option<TlsOptions>,
    pings: Pings,
    runtime: Option<Arc<dyn Runtime>>,
    wire: Option<Arc<dyn Wire>>,
}

/// Room for the slowest link, and an end to what is a mistake: no lock can wait this long for one answer.
const LONGEST: Duration = Duration::from_secs(600);
const SHORTEST: Duration = Duration::from_millis(10);

impl RemoteOptions {
    /// The defaults, for these endpoints of one cluster.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the endpoint that cannot be read, and says what to write.
    pub fn new(endpoints: impl IntoEndpoints) -> Result<Self> {
        Ok(Self {
            endpoints: distinct(endpoints.into_endpoints()?)?,
            call_timeout: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(2),
            watch_silence: Duration::from_secs(3),
            credentials: None,
            #[cfg(feature = "tls")]
            tls: None,
            pings: Pings { interval: Duration::from_millis(5_500), timeout: Duration::from_secs(2) },
            runtime: None,
            wire: None,
        })
    }

    /// How long a call may take in all, further tries at other members included. Default 5 s. Waiting for a lock is
    /// many calls, and is not bounded by this.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// How long one connection may take to stand: TCP, and etcd's greeting. Default 2 s, and never more than half of
    /// what the call has left for its try.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// After how long without a word a connection with something under way is asked for a sign of life. Default 5.5 s:
    /// an etcd with default settings hangs up on whoever asks more often than every 5 s (`--grpc-keepalive-min-time`).
    pub fn ping_interval(mut self, interval: Duration) -> Self {
        self.pings.interval = interval;
        self
    }

    /// How long that sign of life may take before the connection counts as broken. Default 2 s.
    pub fn ping_timeout(mut self, timeout: Duration) -> Self {
        self.pings.timeout = timeout;
        self
    }

    /// After how long without a word a watch stream is put to the test. Default 3 s. A stream that does not pass the test
    /// within two thirds of that is opened anew at the next endpoint.
    pub fn watch_silence(mut self, silence: Duration) -> Self {
        self.watch_silence = silence;
        self
    }

    /// The user to log in as. A token that has aged is replaced by a new one as requests are refused for it, so a wait may
    /// outlive any number of them. An etcd without users is used without.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// Secure connections, with these settings, to every endpoint that is written with `https://` or without a scheme.
    /// An `https://` endpoint is reached securely in any case: without settings, by the authorities that the system
    /// trusts.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: TlsOptions) -> Self {
        self.tls = Some(tls);
        self
    }

    /// The clock, tasks and chance to use instead of the machine's.
    pub fn runtime(mut self, runtime: Arc<dyn Runtime>) -> Self {
        self.runtime = Some(runtime);
        self
    }

    /// The way to the endpoints to use instead of gRPC over sockets; for simulations.
    pub fn wire(mut self, wire: Arc<dyn Wire>) -> Self {
        self.wire = Some(wire);
        self
    }

    /// Makes the client. It connects when it is first used, so this succeeds with no etcd in sight.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a duration that cannot work, a certificate or key that cannot be read, or an `http://`
    /// endpoint beside settings for secure ones; [`Error::Unsupported`] for an `https://` endpoint if the feature `tls` is
    /// off; [`Error::Io`] if the machine refuses the library's threads.
    pub fn open(self) -> Result<Remote> {
        for (setting, given) in [
            ("call_timeout", self.call_timeout),
            ("connect_timeout", self.connect_timeout),
            ("ping_interval", self.pings.interval),
            ("ping_timeout", self.pings.timeout),
            ("watch_silence", self.watch_silence),
        ] {
            if !(SHORTEST..=LONGEST).contains(&given) {
                return Err(Error::Invalid {
                    what: format!("{setting} of {given:?}"),
                    why: format!("it must be from {SHORTEST:?} to {LONGEST:?}"),
                });
            }
        }
        let runtime = match &self.runtime {
            Some(runtime) => runtime.clone(),
            None => SystemRuntime::shared()?,
        };
        let wire = match &self.wire {
            Some(wire) => wire.clone(),
            None => {
                let dialler = self.dialler()?;
                let threads = SystemRuntime::shared()?;
                let handles = (threads.io_handle(), threads.lease_handle());
                Arc::new(TokioWire::new(handles, threads, self.connect_timeout, dialler))
            }
        };
        Ok(Remote::assemble(self, runtime, wire))
    }

    #[cfg(feature = "tls")]
    fn dialler(&self) -> Result<Dialler> {
        let tls = match &self.tls {
            Some(settings) => {
                if let Some(open) = self.endpoints.iter().find(|endpoint| !endpoint.is_secure(true)) {
                    return Err(Error::Invalid {
                        what: format!("endpoint {open} beside settings for secure connections (TLS)"),
                        why: "it would be reached without them; write https://host:port, or leave them out"
                            .into(),
                    });
                }
                Some(Tls::new(settings.clone())?)
            }
            None if self.endpoints.iter().any(|endpoint| endpoint.is_secure(false)) => {
                Some(Tls::new(TlsOptions::default())?)
            }
            None => None,
        };
        Ok(Dialler { pings: self.pings, tls })
    }

    #[cfg(not(feature = "tls"))]
    fn dialler(&self) -> Result<Dialler> {
        if self.endpoints.iter().any(|endpoint| endpoint.is_secure(false)) {
            return Err(Error::Unsupported {
                operation: "reach etcd securely (an https:// endpoint)",
                backend: "this build of leasehold; turn on its feature `tls`",
            });
        }
        Ok(Dialler { pings: self.pings })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_setting_that_cannot_work_is_named() {
        let options = RemoteOptions::new("127.0.0.1:1").unwrap();
        let refused = options.clone().call_timeout(Duration::ZERO).open().unwrap_err().to_string();
        assert!(refused.contains("call_timeout of 0ns") && refused.contains("10ms"), "{refused}");
        let refused = options.ping_interval(Duration::MAX).open().unwrap_err().to_string();
        assert!(refused.contains("ping_interval"), "{refused}");
    }
}
