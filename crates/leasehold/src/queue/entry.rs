//! Who stands in a queue: what an entry's value tells of its author.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use leasehold_mvcc::{Key, KeyValue, LeaseId, Revision};
use serde::{Deserialize, Serialize};

/// An entry of a lock's queue: the first is the holder, the others wait.
///
/// ```
/// use leasehold::{Embedded, Mutex, Session};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let session = Session::builder(Embedded::start()?).program("nightly").open().await?;
/// let mutex = Mutex::new(&session, "report".parse()?);
/// let guard = mutex.lock().await?;
/// for entry in mutex.queue().await? {
///     println!("{entry}");                          // nightly (pid 71) on host9, on lease 3f…
///     assert_eq!(entry.who.unwrap().program, "nightly");
/// }
/// guard.release().await?;
/// # Ok::<(), leasehold::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its key.
    pub key: Key,
    /// The revision at which it was created, which is its rank.
    pub create_revision: Revision,
    /// The lease it hangs on. An entry on none ([`LeaseId::NONE`]) stays until somebody deletes it.
    pub lease: LeaseId,
    /// Who made it; `None` for clients that do not tell, such as Go's package and etcdctl.
    pub who: Option<Who>,
}

/// Who made an entry, by its own account.
///
/// ```
/// let value = r#"{"host":"host9","pid":71,"program":"nightly","since":1760000000000}"#;
/// let who: leasehold::Who = serde_json::from_str(value).unwrap();
/// assert_eq!(who.since().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs(), 1_760_000_000);
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Who {
    /// The machine's name.
    pub host: String,
    /// The process id there.
    pub pid: u32,
    /// The program.
    pub program: String,
    /// When the attempt began, in milliseconds since 1970 on that machine's clock: for people to read.
    pub since: u64,
}

impl Who {
    /// When the attempt began, on that machine's clock.
    pub fn since(&self) -> SystemTime {
        UNIX_EPOCH + Duration::from_millis(self.since)
    }
}

impl Entry {
    pub(crate) fn read(kv: &KeyValue) -> Self {
        Self {
            key: kv.key.clone(),
            create_revision: kv.create_revision,
            lease: kv.lease,
            who: serde_json::from_slice(&kv.value).ok(),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.who {
            Some(Who { host, pid, program, .. }) => write!(f, "{program} (pid {pid}) on {host}")?,
            None => f.write_str("a client that does not say who it is")?,
        }
        if self.lease.is_none() {
            write!(f, ", by the key {} on no lease, which stays until it is deleted", self.key)
        } else {
            write!(f, ", on lease {}", self.lease)
        }
    }
}

/// The author of a session's entries.
#[derive(Debug)]
pub(crate) struct Author {
    /// The entry's value, but for the time and the closing brace.
    opening: String,
}

impl Author {
    pub(crate) fn new(program: Option<String>) -> Self {
        let program = program.or_else(|| {
            let path = std::env::current_exe().ok()?;
            Some(path.file_name()?.to_string_lossy().into_owned())
        });
        let who = Who {
            host: host(),
            pid: std::process::id(),
            program: program.unwrap_or_else(|| "?".into()),
            since: 0,
        };
        let mut opening = serde_json::to_string(&who).unwrap_or_default();
        // "since" is the last field: cutting its 0 and the brace leaves room for a time.
        opening.truncate(opening.len().saturating_sub(2));
        Self { opening }
    }

    /// The value of an entry made at `now`.
    pub(crate) fn sign(&self, now: SystemTime) -> Bytes {
        let since = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        Bytes::from([&self.opening, since.to_string().as_str(), "}"].concat())
    }
}

#[cfg(unix)]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "?".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(value: &[u8], lease: i64) -> Entry {
        Entry::read(&KeyValue {
            key: Key::from("job/1f-0"),
            value: Bytes::copy_from_slice(value),
            lease: LeaseId::new(lease),
            ..KeyValue::default()
        })
    }

    #[test]
    fn an_entry_tells_who_made_it() {
        let author = Author::new(Some("tes\"ter".into()));
        let read = entry(&author.sign(UNIX_EPOCH + Duration::from_millis(1234)), 0x1f);
        let who = read.who.clone().unwrap();
        assert_eq!((who.program.as_str(), who.pid, who.since), ("tes\"ter", std::process::id(), 1234));
        assert!(!who.host.is_empty());
        assert!(read.to_string().contains("on lease 1f"), "{read}");
    }

    #[test]
    fn an_entry_of_another_client_is_still_an_entry() {
        assert_eq!(entry(b"", 1).who, None);
        assert_eq!(entry(b"{\"host\":3}", 1).who, None);
        assert!(entry(b"", 0).to_string().contains("stays until it is deleted"));
    }
}
