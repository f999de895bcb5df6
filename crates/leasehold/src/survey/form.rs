//! What made a key in a queue, by its form alone.

use leasehold_mvcc::{KeyValue, LeaseId};

/// What made a key that stands in a lock's queue.
///
/// ```
/// use leasehold::survey::Form;
///
/// assert_eq!(Form::Lease.to_string(), "etcdctl or Go");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Form {
    /// `NAME/<lease>-<attempt>`: this library.
    Attempt,
    /// `NAME/<lease>`: Go's package, etcdctl, etcd's own lock service, and all that take their layout; elections too.
    Lease,
    /// `NAME` itself: a [`DistributedLock`](crate::DistributedLock), or something else.
    Plain,
    /// None of these: a key of some other kind, or an entry that was put anew by hand. It is waited for all the same.
    Foreign,
}

impl Form {
    /// By the last part of the key: a lease's number in lower hex without padding, which must be that of the key's own
    /// lease. An entry of this library that was put anew without a lease is still known by its number of the attempt.
    pub(super) fn of(kv: &KeyValue) -> Self {
        let key = kv.key.as_bytes();
        let entry = key.rsplit(|&byte| byte == b'/').next().unwrap_or(key);
        let Ok(entry) = std::str::from_utf8(entry) else { return Self::Foreign };
        match entry.split_once('-') {
            None if is_lease(entry, kv.lease) => Self::Lease,
            Some((lease, attempt)) if hex(attempt).is_some() => match hex(lease) {
                Some(_) if kv.lease.is_none() => Self::Attempt,
                Some(_) if is_lease(lease, kv.lease) => Self::Attempt,
                _ => Self::Foreign,
            },
            _ => Self::Foreign,
        }
    }
}

impl std::fmt::Display for Form {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Attempt => "leasehold",
            Self::Lease => "etcdctl or Go",
            Self::Plain => "one key",
            Self::Foreign => "foreign",
        })
    }
}

fn is_lease(text: &str, lease: LeaseId) -> bool {
    !lease.is_none() && lease.to_string() == text
}

/// A number as this library and Go write it: lower hex without padding.
fn hex(text: &str) -> Option<u64> {
    let number = u64::from_str_radix(text, 16).ok()?;
    (format!("{number:x}") == text).then_some(number)
}

/// The name of the lock in whose queue a key would stand.
pub(super) fn name_of(kv: &KeyValue) -> Option<&[u8]> {
    let key = kv.key.as_bytes();
    let slash = key.iter().rposition(|&byte| byte == b'/')?;
    key.get(..slash).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use leasehold_mvcc::Key;

    use super::*;

    fn kv(key: &'static str, lease: i64) -> KeyValue {
        KeyValue { key: Key::from(key), lease: LeaseId::new(lease), ..KeyValue::default() }
    }

    #[test]
    fn an_entry_is_known_by_its_lease() {
        for (key, lease, form) in [
            ("a/1f-0", 0x1f, Form::Attempt),
            ("a/b/1f-3c", 0x1f, Form::Attempt),
            ("a/1f", 0x1f, Form::Lease),
            ("a//1f", 0x1f, Form::Lease),
            // Put anew without a lease.
            ("a/1f-0", 0, Form::Attempt),
            // Numbers that are nobody's lease: pages, users, dates.
            ("a/1f", 0, Form::Foreign),
            ("a/1f", 0x2f, Form::Foreign),
            ("a/1f-0", 0x2f, Form::Foreign),
            ("a/01f", 0x1f, Form::Foreign),
            ("a/1F-0", 0, Form::Foreign),
            ("a/1f-", 0, Form::Foreign),
            ("a/+1f-0", 0, Form::Foreign),
            ("a/settings", 0, Form::Foreign),
            ("a/", 0x1f, Form::Foreign),
        ] {
            assert_eq!(Form::of(&kv(key, lease)), form, "{key} on lease {lease:x}");
        }
    }

    #[test]
    fn a_key_stands_in_the_queue_of_all_that_is_before_its_last_slash() {
        for (key, name) in
            [("a/1f", Some("a")), ("a/b/1f", Some("a/b")), ("a//1f", Some("a/")), ("a", None), ("/a", None)]
        {
            assert_eq!(name_of(&kv(key, 1)), name.map(str::as_bytes), "{key}");
        }
    }
}
