//! Addresses of etcd, parsed once.

use std::fmt;
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::error::{Error, Result};

/// The longest path of a Unix socket: the kernel keeps 108 bytes, one of them for the end.
const MAX_SOCKET_PATH: usize = 107;

/// Where one etcd member takes requests of clients.
///
/// It is written as etcdctl takes it: `https://host:port`, `http://host:port`, `host:port` for the one or the other as the
/// client's settings are, `[::1]:2379` for an IPv6 address, or `unix:///path` (also `unix:/path`; `unix://path` and
/// `unix:path` are relative to the working directory) for a socket in the file system. Blanks around it and one `/` after
/// it do no harm.
///
/// ```
/// use leasehold::Endpoint;
///
/// let endpoint: Endpoint = " http://[::1]:2379/".parse()?;
/// assert_eq!(endpoint.to_string(), "http://[::1]:2379");
/// assert!("::1".parse::<Endpoint>().is_err(), "which colon ends the address?");
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Endpoint(Address);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Address {
    /// The host without brackets.
    Tcp {
        scheme: Scheme,
        host: String,
        port: u16,
    },
    Unix(PathBuf),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Scheme {
    /// None is written: the client's settings say whether connections are secure.
    Unsaid,
    Http,
    Https,
}

impl Endpoint {
    /// Reads a list of endpoints that are separated by commas.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) names the entry and says what to write instead.
    pub fn list(text: &str) -> Result<Vec<Self>> {
        text.split(',').map(str::parse).collect()
    }

    /// Host (without brackets) and port, if this is reached by TCP.
    pub fn tcp(&self) -> Option<(&str, u16)> {
        match &self.0 {
            Address::Tcp { host, port, .. } => Some((host, *port)),
            Address::Unix(_) => None,
        }
    }

    /// Whether connections to it are secure, in a client that has (`settings`) or has no settings for secure ones.
    pub fn is_secure(&self, settings: bool) -> bool {
        match &self.0 {
            Address::Tcp { scheme, .. } => match scheme {
                Scheme::Unsaid => settings,
                Scheme::Http => false,
                Scheme::Https => true,
            },
            Address::Unix(_) => false,
        }
    }

    /// Whether both are the same place.
    fn is_same_place(&self, other: &Self) -> bool {
        self.tcp() == other.tcp() && self.unix() == other.unix()
    }

    /// The socket's path, if this is reached by a Unix socket.
    pub fn unix(&self) -> Option<&Path> {
        match &self.0 {
            Address::Tcp { .. } => None,
            Address::Unix(path) => Some(path),
        }
    }
}

impl FromStr for Endpoint {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = |why: String| Error::Invalid { what: format!("endpoint {text:?}"), why };
        let trimmed = text.trim();
        if trimmed.is_empty() {
            return Err(refused("it is empty; write host:port, such as 127.0.0.1:2379".into()));
        }
        if trimmed.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(refused(
                "there is a blank or control character in it; separate endpoints by commas".into(),
            ));
        }
        if let Some(path) = trimmed.strip_prefix("unix:") {
            return socket(path.strip_prefix("//").unwrap_or(path)).map_err(refused);
        }
        let (scheme, rest) = match trimmed.split_once("://") {
            None => (Scheme::Unsaid, trimmed),
            Some(("http", rest)) => (Scheme::Http, rest),
            Some(("https", rest)) => (Scheme::Https, rest),
            Some((scheme, rest)) => {
                return Err(refused(format!(
                    "the scheme {scheme:?} is not known; write https://{rest} or http://{rest}, or unix:///path for a \
                     socket"
                )));
            }
        };
        tcp(scheme, rest.strip_suffix('/').unwrap_or(rest)).map_err(refused)
    }
}

fn socket(path: &str) -> Result<Endpoint, String> {
    if path.is_empty() {
        return Err("the path is missing; write unix:///path/to/socket".into());
    }
    if path.len() > MAX_SOCKET_PATH {
        return Err(format!(
            "the path has {} bytes, and the system takes {MAX_SOCKET_PATH} for a socket; choose a shorter one",
            path.len()
        ));
    }
    Ok(Endpoint(Address::Unix(PathBuf::from(path))))
}

fn tcp(scheme: Scheme, rest: &str) -> Result<Endpoint, String> {
    if let Some(odd) = rest.chars().find(|c| matches!(c, '/' | '?' | '#' | '@')) {
        return Err(format!("{odd:?} has no place in it; write host:port and nothing else"));
    }
    let (host, port) = if let Some(inner) = rest.strip_prefix('[') {
        let Some((host, after)) = inner.split_once(']') else {
            return Err("the closing bracket is missing; write [::1]:2379".into());
        };
        if host.parse::<Ipv6Addr>().is_err() {
            return Err(format!("{host:?} is not an IPv6 address; brackets hold one, as in [::1]:2379"));
        }
        match after.strip_prefix(':') {
            Some(port) => (host, port),
            None => return Err(format!("the port is missing; write [{host}]:2379")),
        }
    } else if rest.parse::<Ipv6Addr>().is_ok() || rest.matches(':').count() > 1 {
        return Err("an IPv6 address needs brackets, and a port after them; write [::1]:2379".into());
    } else {
        match rest.split_once(':') {
            Some(parts) => parts,
            None => return Err(format!("the port is missing; write {rest}:2379")),
        }
    };
    if host.is_empty() {
        return Err(format!("the host is missing; write 127.0.0.1:{port}"));
    }
    if host.chars().any(|c| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':'))) {
        return Err(format!("{host:?} is not a host name; write a name in ASCII, or an address"));
    }
    match port.parse::<u16>() {
        // Rust would take a plus sign before it.
        Ok(number) if number > 0 && !port.starts_with('+') => {
            Ok(Endpoint(Address::Tcp { scheme, host: host.to_ascii_lowercase(), port: number }))
        }
        _ => Err(format!("{port:?} is not a port; write a number from 1 to 65535, such as {host}:2379")),
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Address::Tcp { scheme, host, port } => {
                f.write_str(match scheme {
                    Scheme::Unsaid => "",
                    Scheme::Http => "http://",
                    Scheme::Https => "https://",
                })?;
                if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
            }
            Address::Unix(path) if path.is_absolute() => write!(f, "unix://{}", path.display()),
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({self})")
    }
}

/// What can name the endpoints of a cluster: a text with commas as etcdctl takes it, a list of texts, or endpoints
/// that are parsed already.
///
/// ```
/// use leasehold::etcd::IntoEndpoints;
///
/// assert_eq!("10.0.0.1:2379,10.0.0.2:2379".into_endpoints()?, ["10.0.0.1:2379", "10.0.0.2:2379"][..].into_endpoints()?);
/// # Ok::<(), leasehold::Error>(())
/// ```
pub trait IntoEndpoints {
    /// The endpoints, in the order given.
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) names the entry and says what to write instead.
    fn into_endpoints(self) -> Result<Vec<Endpoint>>;
}

impl IntoEndpoints for &str {
    fn into_endpoints(self) -> Result<Vec<Endpoint>> {
        Endpoint::list(self)
    }
}

impl IntoEndpoints for &String {
    fn into_endpoints(self) -> Result<Vec<Endpoint>> {
        self.as_str().into_endpoints()
    }
}

impl IntoEndpoints for String {
    fn into_endpoints(self) -> Result<Vec<Endpoint>> {
        self.as_str().into_endpoints()
    }
}

impl IntoEndpoints for Endpoint {
    fn into_endpoints(self) -> Result<Vec<Endpoint>> {
        Ok(vec![self])
    }
}

impl IntoEndpoints for Vec<Endpoint> {
    fn into_endpoints(self) -> Result<Vec<Endpoint>> {
        Ok(self)
    }
}

impl<S: AsRef<str>> IntoEndpoints for &[S] {
    fn into_endpoints(self) -> Result<Vec<Endpoint>> {
        let mut all = Vec::with_capacity(self.len());
        for text in self {
            all.extend(Endpoint::list(text.as_ref())?);
        }
        Ok(all)
    }
}

impl<S: AsRef<str>> IntoEndpoints for Vec<S> {
    fn into_endpoints(self) -> Result<Vec<Endpoint>> {
        self.as_slice().into_endpoints()
    }
}

impl<S: AsRef<str>, const N: usize> IntoEndpoints for [S; N] {
    fn into_endpoints(self) -> Result<Vec<Endpoint>> {
        self.as_slice().into_endpoints()
    }
}

/// Each once, as it is written first, in the order given, and at least one.
pub(super) fn distinct(all: Vec<Endpoint>) -> Result<Vec<Endpoint>> {
    let mut kept: Vec<Endpoint> = Vec::with_capacity(all.len());
    for endpoint in all {
        if !kept.iter().any(|known| known.is_same_place(&endpoint)) {
            kept.push(endpoint);
        }
    }
    if kept.is_empty() {
        return Err(Error::Invalid {
            what: "endpoints (an empty list)".into(),
            why: "name at least one, such as 127.0.0.1:2379".into(),
        });
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        match text.parse::<Endpoint>() {
            Ok(endpoint) => endpoint.to_string(),
            Err(error) => panic!("{text:?}: {error}"),
        }
    }

    fn refusal(text: &str) -> String {
        match text.parse::<Endpoint>() {
            Ok(endpoint) => panic!("{text:?} was taken as {endpoint}"),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn every_usual_spelling_is_understood() {
        for (text, wanted) in [
            ("127.0.0.1:2379", "127.0.0.1:2379"),
            (" http://Etcd-1.example:2379/ ", "http://etcd-1.example:2379"),
            ("https://etcd:2379", "https://etcd:2379"),
            ("[::1]:2379", "[::1]:2379"),
            ("https://[fe80::1]:1", "https://[fe80::1]:1"),
            ("unix:///run/etcd.sock", "unix:///run/etcd.sock"),
            ("unix:/run/etcd.sock", "unix:///run/etcd.sock"),
            ("unix://etcd.sock", "unix:etcd.sock"),
            ("unix:etcd.sock", "unix:etcd.sock"),
        ] {
            assert_eq!(shown(text), wanted, "{text}");
            assert_eq!(shown(&shown(text)), wanted, "what is shown for {text} can be read again");
        }
    }

    /// A70, C14: above all that of an IPv6 address without brackets.
    #[test]
    fn every_refusal_says_what_to_write() {
        for (text, hint) in [
            ("", "127.0.0.1:2379"),
            ("etcd", "write etcd:2379"),
            ("http://etcd", "write etcd:2379"),
            ("etcd:", "etcd:2379"),
            ("etcd:0", "from 1 to 65535"),
            ("etcd:99999", "from 1 to 65535"),
            ("etcd:+1", "is not a port"),
            ("etcd:2379/v3", "host:port and nothing else"),
            ("me@etcd:2379", "host:port and nothing else"),
            (":2379", "127.0.0.1:2379"),
            ("::1", "[::1]:2379"),
            ("::1:2379", "[::1]:2379"),
            ("[::1]", "[::1]:2379"),
            ("[::1:2379", "[::1]:2379"),
            ("[etcd]:2379", "not an IPv6 address"),
            ("[fe80::1%lo]:2379", "not an IPv6 address"),
            ("fe80::1%lo", "[::1]:2379"),
            ("a b:1", "commas"),
            ("ftp://etcd:2379", "http://etcd:2379"),
            ("https://etcd", "write etcd:2379"),
            ("unixs:///run/etcd.sock", "unix:///path"),
            ("unix:", "unix:///path/to/socket"),
            ("unix://", "unix:///path/to/socket"),
            ("\u{e9}tcd:2379", "ASCII"),
        ] {
            let message = refusal(text);
            assert!(message.contains(hint), "{text:?}: {message}");
        }
    }

    #[test]
    fn a_socket_path_that_the_kernel_would_cut_is_refused() {
        assert_eq!(shown(&format!("unix:/{}", "s".repeat(106))).len(), 107 + "unix://".len());
        assert!(refusal(&format!("unix:/{}", "s".repeat(107))).contains("shorter"));
    }

    #[test]
    fn lists_keep_their_order_and_lose_their_doubles() {
        let list = |endpoints: Result<Vec<Endpoint>>| -> Vec<String> {
            let all = endpoints.and_then(distinct);
            all.map(|all| all.iter().map(Endpoint::to_string).collect()).unwrap_or_default()
        };
        assert_eq!(list("b:1, a:1,http://b:1".into_endpoints()), ["b:1", "a:1"]);
        assert_eq!(list(["b:1,a:1", "c:1"].into_endpoints()), ["b:1", "a:1", "c:1"]);
        assert_eq!(list(vec!["a:1".to_owned()].into_endpoints()), ["a:1"]);
        assert!(distinct(Vec::new()).is_err());
        assert!("a:1,,b:1".into_endpoints().is_err());
    }
}
