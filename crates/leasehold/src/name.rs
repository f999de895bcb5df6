//! What a caller may ask for, parsed once: lock names and times to live.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use leasehold_mvcc::{Key, KeyRange, LeaseId};

use crate::error::{Error, Result};

/// The name of a lock: 1 to 512 bytes of UTF-8 without control characters.
///
/// A lock `NAME` queues under the keys `NAME/…`, as etcd's Go package does, and a name keeps its slashes as they are.
/// A key below `NAME/` that has a further slash belongs to another lock and does not count here, so `a` and `a/b` are
/// two locks. In Go's package `a` waits for whoever holds `a/b`: do not nest names in a mixed fleet.
///
/// ```
/// use leasehold::LockName;
///
/// let name: LockName = "jobs/nightly".parse()?;
/// assert_eq!(name.as_str(), "jobs/nightly");
/// assert!("".parse::<LockName>().is_err());
/// assert!("tab\tbed".parse::<LockName>().is_err());
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName(String);

impl LockName {
    /// The longest name, in bytes.
    pub const MAX_BYTES: usize = 512;

    /// A name, checked.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is empty, too long or holds a control character.
    pub fn new(name: impl Into<String>) -> Result<Self> {
        let name = name.into();
        let refuse =
            |shown: &str, why: String| Err(Error::Invalid { what: format!("the lock name {shown:?}"), why });
        if name.is_empty() {
            return refuse("", "it is empty; give it 1 to 512 bytes".into());
        }
        if name.len() > Self::MAX_BYTES {
            let shown: String = name.chars().take(32).chain(['…']).collect();
            return refuse(
                &shown,
                format!("it has {} bytes; at most {} are allowed", name.len(), Self::MAX_BYTES),
            );
        }
        if let Some(control) = name.chars().find(|c| c.is_control()) {
            return refuse(&name, format!("it holds the control character {control:?}; use printable text"));
        }
        Ok(Self(name))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The keys of this lock's queue, and those of any lock nested below it.
    pub fn queue(&self) -> KeyRange {
        KeyRange::prefix([&self.0, "/"].concat())
    }

    /// Whether a key stands in this lock's own queue: below `NAME/` with no further slash.
    pub fn owns(&self, key: &Key) -> bool {
        key.strip_prefix(self.0.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"/"))
            .is_some_and(|entry| !entry.contains(&b'/'))
    }

    /// The key of one attempt: no other attempt, of any session, has the same at the same time.
    pub(crate) fn attempt(&self, lease: LeaseId, attempt: u64) -> Key {
        Key::from(format!("{}/{lease}-{attempt:x}", self.0))
    }
}

impl FromStr for LockName {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

impl TryFrom<&str> for LockName {
    type Error = Error;

    fn try_from(name: &str) -> Result<Self> {
        Self::new(name)
    }
}

impl TryFrom<String> for LockName {
    type Error = Error;

    fn try_from(name: String) -> Result<Self> {
        Self::new(name)
    }
}

impl fmt::Display for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for LockName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// A lease's time to live: 2 s to 300 s in whole seconds, 15 s by default.
///
/// It is the longest time a dead holder keeps the others out (but for leader changes of the server, each of which
/// starts it anew), and the longest outage of the server that a live holder survives, less a margin. Ten seconds or
/// more ride out an election of the server.
///
/// ```
/// use std::time::Duration;
/// use leasehold::Ttl;
///
/// assert_eq!(Ttl::default().as_secs(), 15);
/// assert_eq!(Ttl::new(Duration::from_millis(2500))?.as_secs(), 3);
/// assert!(Ttl::seconds(1).is_err());
/// # Ok::<(), leasehold::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(u16);

impl Ttl {
    /// The shortest, in seconds: etcd's own floor with its default election timeout.
    pub const MIN_SECONDS: u64 = 2;
    /// The longest, in seconds.
    pub const MAX_SECONDS: u64 = 300;

    /// A time to live, checked. Parts of a second are rounded up, for etcd counts whole ones.
    ///
    /// # Errors
    /// [`Error::Invalid`] below 2 s or above 300 s.
    pub fn new(ttl: Duration) -> Result<Self> {
        let seconds = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
        match u16::try_from(seconds) {
            Ok(whole) if ttl >= Duration::from_secs(Self::MIN_SECONDS) && seconds <= Self::MAX_SECONDS => {
                Ok(Self(whole))
            }
            _ => Err(Error::Invalid {
                what: format!("the TTL {ttl:?}"),
                why: format!("it must be from {} s to {} s", Self::MIN_SECONDS, Self::MAX_SECONDS),
            }),
        }
    }

    /// A time to live of so many seconds, checked.
    ///
    /// # Errors
    /// [`Error::Invalid`] below 2 s or above 300 s.
    pub fn seconds(seconds: u64) -> Result<Self> {
        Self::new(Duration::from_secs(seconds))
    }

    /// It in whole seconds.
    pub fn as_secs(self) -> i64 {
        self.0.into()
    }
}

impl Default for Ttl {
    fn default() -> Self {
        Self(15)
    }
}

impl TryFrom<Duration> for Ttl {
    type Error = Error;

    fn try_from(ttl: Duration) -> Result<Self> {
        Self::new(ttl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nested_name_is_another_lock() {
        let name = LockName::new("a").unwrap();
        for (key, own) in [
            ("a/1f-0", true),
            ("a/x", true),
            ("a/b/1f-0", false),
            ("ab/1f-0", false),
            ("a", false),
            ("a//1f", false),
        ] {
            assert_eq!(name.owns(&Key::from(key)), own, "{key}");
        }
        assert!(
            LockName::new("a/").unwrap().owns(&Key::from("a//1f")),
            "a trailing slash is part of the name"
        );
    }

    #[test]
    fn a_name_is_refused_with_the_reason() {
        for (name, why) in [("", "empty"), ("a\nb", "control character"), ("\u{85}", "control character")] {
            let error = LockName::new(name).unwrap_err().to_string();
            assert!(error.contains(why) && error.contains("lock name"), "{error}");
        }
        let long = LockName::new("x".repeat(513)).unwrap_err().to_string();
        assert!(long.contains("513 bytes") && long.len() < 200, "{long}");
        assert!(LockName::new("x".repeat(512)).is_ok());
    }

    #[test]
    fn a_ttl_outside_its_bounds_is_refused_and_a_part_of_a_second_rounded_up() {
        for bad in [Duration::ZERO, Duration::from_millis(1999), Duration::from_secs(301), Duration::MAX] {
            assert!(Ttl::new(bad).unwrap_err().to_string().contains("from 2 s to 300 s"));
        }
        assert!(Ttl::new(Duration::from_millis(300_001)).is_err());
        assert_eq!(Ttl::new(Duration::from_millis(2001)).unwrap().as_secs(), 3);
        assert_eq!(Ttl::default().as_secs(), 15);
    }
}
