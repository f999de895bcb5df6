//! Secure connections: whom the client trusts, and what it shows of itself.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{
    self, CertificateError, ClientConfig, InvalidMessage, OtherError, RootCertStore, crypto,
};

use super::{Endpoint, WireError};
use crate::error::{Error, Result};
use crate::exclusive::Exclusive;

/// What secure connections are made with.
///
/// Files hold PEM, and are read again for each new connection, so that certificates can be renewed under a running
/// client. If they cannot be read then, the last good ones are used.
///
/// A server's certificate must be for the name or address that the endpoint is written with, as a subject alternative
/// name: a common name alone does not count. Keys are PKCS#8, PKCS#1 or SEC1, and not encrypted.
///
/// ```no_run
/// use leasehold::{RemoteOptions, TlsOptions};
///
/// let tls = TlsOptions::new()
///     .authority_file("/etc/etcd/ca.pem")
///     .identity_files("/etc/etcd/client.pem", "/etc/etcd/client-key.pem");
/// let etcd = RemoteOptions::new("https://etcd1:2379,https://etcd2:2379")?.tls(tls).open()?;
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "settings do nothing until they are given to `RemoteOptions::tls`"]
pub struct TlsOptions {
    authorities: Option<Pem>,
    identity: Option<(Pem, Pem)>,
    server_name: Option<String>,
}

#[derive(Clone)]
enum Pem {
    File(PathBuf),
    Text(Text),
}

impl TlsOptions {
    /// Trusts the authorities that the system trusts, and shows no certificate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the authorities in this file, and no others; etcdctl's `--cacert`.
    pub fn authority_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.authorities = Some(Pem::File(path.into()));
        self
    }

    /// Trusts the authorities in this PEM text, and no others.
    pub fn authority(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.authorities = Some(Pem::Text(pem.as_ref().into()));
        self
    }

    /// Shows the certificate in the first file, followed there by those between it and the authority, and proves it by
    /// the key in the second; etcdctl's `--cert` and `--key`.
    pub fn identity_files(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.identity = Some((Pem::File(certificate.into()), Pem::File(key.into())));
        self
    }

    /// The same from PEM texts.
    pub fn identity(mut self, certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        self.identity = Some((Pem::Text(certificate.as_ref().into()), Pem::Text(key.as_ref().into())));
        self
    }

    /// Expects certificates for this name, whatever the endpoints are written with.
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// What it comes to with the files as they are now.
    fn load(&self) -> Result<Loaded> {
        let authorities = self.authorities.as_ref().map(|pem| pem.read("certificates")).transpose()?;
        let identity = match &self.identity {
            Some((certificate, key)) => {
                Some((certificate.read("a certificate")?, key.read("a private key")?))
            }
            None => None,
        };
        Ok(Loaded { authorities, identity })
    }

    fn invalid(&self, what: impl fmt::Display, why: impl fmt::Display) -> Error {
        Error::Invalid { what: what.to_string(), why: why.to_string() }
    }

    fn configure(&self, loaded: &Loaded) -> Result<ClientConfig> {
        let provider = Arc::new(crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| self.invalid("TLS", error))?
            .with_root_certificates(self.roots(loaded)?);
        let mut config = match (&self.identity, &loaded.identity) {
            (Some((certificate_at, key_at)), Some((certificate, key))) => {
                let chain = certificates(certificate_at, certificate)?;
                let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| {
                    let why = "it holds no private key in PEM (PKCS#8, PKCS#1 or SEC1); encrypted ones are not read";
                    self.invalid(key_at, why)
                })?;
                builder.with_client_auth_cert(chain, key).map_err(|error| {
                    self.invalid(
                        format!("{certificate_at} with {key_at}"),
                        format!("they do not fit: {error}"),
                    )
                })?
            }
            _ => builder.with_no_client_auth(),
        };
        // Servers written in Go hang up on whoever does not say so.
        config.alpn_protocols = vec![b"h2".to_vec()];
        Ok(config)
    }

    fn roots(&self, loaded: &Loaded) -> Result<RootCertStore> {
        let mut roots = RootCertStore::empty();
        match (&self.authorities, &loaded.authorities) {
            (Some(at), Some(pem)) => {
                for authority in certificates(at, pem)? {
                    roots.add(authority).map_err(|error| self.invalid(at, error))?;
                }
            }
            _ => {
                // One that cannot be read is no reason not to trust the others.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
                if roots.is_empty() {
                    let why = "there are none; name the file of the authority that signed etcd's certificate";
                    return Err(self.invalid("the system's list of trusted authorities", why));
                }
            }
        }
        Ok(roots)
    }
}

fn certificates(at: &Pem, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    let invalid = |why: String| Error::Invalid { what: at.to_string(), why };
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let all = all.map_err(|error| invalid(format!("it is no PEM: {error}")))?;
    if all.is_empty() {
        return Err(invalid("it holds no certificate in PEM".into()));
    }
    Ok(all)
}

impl Pem {
    fn read(&self, wanted: &str) -> Result<Text> {
        match self {
            Self::Text(text) => Ok(text.clone()),
            Self::File(path) => {
                let read = std::fs::read(path).map_err(|error| Error::Invalid {
                    what: self.to_string(),
                    why: format!("it cannot be read for {wanted}: {error}"),
                });
                read.map(Into::into)
            }
        }
    }
}

impl fmt::Display for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Text(_) => f.write_str("the PEM text given"),
        }
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // It may be a private key.
        fmt::Display::fmt(self, f)
    }
}

/// What the files held.
#[derive(Clone, PartialEq, Eq)]
struct Loaded {
    authorities: Option<Text>,
    identity: Option<(Text, Text)>,
}

type Text = Arc<[u8]>;

/// Makes sockets secure. A clone shares what was read last.
#[derive(Clone)]
pub(super) struct Tls {
    options: TlsOptions,
    last: Arc<Exclusive<(Loaded, Arc<ClientConfig>)>>,
}

impl Tls {
    /// # Errors
    /// [`Error::Invalid`] names the file that cannot be used, and says why.
    pub(super) fn new(options: TlsOptions) -> Result<Self> {
        if let Some(name) = &options.server_name
            && ServerName::try_from(name.as_str()).is_err()
        {
            let why = "write a host name or an address, without a port";
            return Err(options.invalid(format!("the server name {name:?}"), why));
        }
        let loaded = options.load()?;
        let config = Arc::new(options.configure(&loaded)?);
        Ok(Self { options, last: Arc::new(Exclusive::new((loaded, config))) })
    }

    /// The settings with the files as they are now, or as they were when they were last of use.
    fn config(&self) -> Arc<ClientConfig> {
        let loaded = self.options.load();
        let mut last = self.last.lock();
        let fresh = loaded.and_then(|loaded| {
            // The same one as long as nothing has changed: it remembers sessions, which makes a new handshake short.
            if loaded == last.0 {
                return Ok(last.1.clone());
            }
            let config = Arc::new(self.options.configure(&loaded)?);
            *last = (loaded, config.clone());
            Ok(config)
        });
        fresh.unwrap_or_else(|error| {
            tracing::warn!(%error, "certificates cannot be read again; the last ones are used");
            last.1.clone()
        })
    }

    /// Makes a socket to an endpoint secure.
    pub(super) async fn secure(
        &self,
        endpoint: &Endpoint,
        host: &str,
        socket: TcpStream,
    ) -> Result<TlsStream<TcpStream>, WireError> {
        let host = self.options.server_name.as_deref().unwrap_or(host).to_owned();
        let name = ServerName::try_from(host).map_err(|_| WireError::Untrusted {
            why: format!("{endpoint}: no certificate can be for such a name; set the server name to expect"),
        })?;
        let connector = TlsConnector::from(self.config());
        connector.connect(name, socket).await.map_err(|error| match error.kind() {
            // What a server without TLS does with what it takes for nonsense; but it may just have died.
            io::ErrorKind::UnexpectedEof
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe => WireError::NotDone {
                cause: format!("{endpoint} hung up as a secure connection was begun; does it speak TLS?"),
            },
            _ => Self::failure(endpoint, &error),
        })
    }

    /// What a failure in the first moments of a secure connection means.
    pub(super) fn failure(endpoint: &Endpoint, error: &io::Error) -> WireError {
        let Some(cause) = cause(error) else {
            return WireError::NotDone { cause: format!("cannot connect to {endpoint}: {error}") };
        };
        let why = match cause {
            rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
                let why =
                    format!("{endpoint} does not speak TLS; write http:// for it, or have it serve https");
                return WireError::NotEtcd { why, sent: false };
            }
            rustls::Error::InvalidCertificate(flaw) => of_certificate(flaw),
            rustls::Error::AlertReceived(alert) => {
                format!("it refused ours ({alert:?}); does it want a certificate that its authority signed?")
            }
            other => other.to_string(),
        };
        WireError::Untrusted { why: format!("{endpoint}: {why}") }
    }
}

fn of_certificate(flaw: &CertificateError) -> String {
    match flaw {
        CertificateError::UnknownIssuer => {
            "its certificate is signed by no authority that is trusted; is it the right authority's file?".into()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "its certificate has expired; renew it, and look at both clocks".into()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "its certificate is not valid yet; look at both clocks".into()
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "its certificate is for another name; write the endpoint with a name it is for (a common name alone does \
             not count), or set the server name to expect"
                .into()
        }
        CertificateError::Other(OtherError(other)) => format!("its certificate cannot be used: {other}"),
        other => format!("its certificate cannot be used: {other}"),
    }
}

/// What of an error is TLS's own.
pub(super) fn cause(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("options", &self.options).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(options: TlsOptions) -> String {
        Tls::new(options).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let missing = refusal(TlsOptions::new().authority_file("/nowhere/ca.pem"));
        assert!(missing.contains("/nowhere/ca.pem") && missing.contains("cannot be read"), "{missing}");
        let wrong = refusal(TlsOptions::new().authority("not a certificate"));
        assert!(wrong.contains("no certificate"), "{wrong}");
        let name = refusal(TlsOptions::new().server_name("a b"));
        assert!(name.contains("\"a b\""), "{name}");
    }

    #[test]
    fn no_key_is_printed() {
        let printed = format!("{:?}", TlsOptions::new().identity("CERT", "SECRET"));
        assert!(!printed.contains("SECRET"), "{printed}");
    }
}
