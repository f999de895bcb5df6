//! Keys and ranges of keys, compared byte by byte.

use std::fmt;

use bytes::Bytes;

/// A key: any bytes. It prints as text where it is text, and escaped where it is not.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Key(Bytes);

impl Key {
    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes, shared.
    pub fn to_bytes(&self) -> Bytes {
        self.0.clone()
    }

    /// Whether there is nothing in it; etcd refuses such a key wherever one is named.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The rest of this key behind `prefix`, if it starts with it.
    pub fn strip_prefix(&self, prefix: &[u8]) -> Option<&[u8]> {
        self.0.strip_prefix(prefix)
    }

    /// This key with `prefix` before it.
    #[must_use]
    pub fn prefixed(&self, prefix: &[u8]) -> Self {
        [prefix, &self.0].concat().into()
    }

    /// The smallest key greater than every key that starts with this one; [`KeyRange::OPEN_END`] if there is none.
    #[must_use]
    pub fn prefix_end(&self) -> Self {
        let mut end = self.0.to_vec();
        while let Some(last) = end.pop() {
            if last < 0xff {
                end.push(last + 1);
                return end.into();
            }
        }
        Self::from(KeyRange::OPEN_END)
    }
}

impl From<Bytes> for Key {
    fn from(bytes: Bytes) -> Self {
        Self(bytes)
    }
}

impl From<Vec<u8>> for Key {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes.into())
    }
}

impl From<String> for Key {
    fn from(text: String) -> Self {
        Self(text.into())
    }
}

impl From<&'static str> for Key {
    fn from(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }
}

impl From<&'static [u8]> for Key {
    fn from(bytes: &'static [u8]) -> Self {
        Self(Bytes::from_static(bytes))
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::str::from_utf8(&self.0) {
            Ok(text) if !text.chars().any(char::is_control) => f.write_str(text),
            _ => write!(f, "{}", self.0.escape_ascii()),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{self}\"")
    }
}

/// A range of keys, in etcd's encoding: a start, and an end that is not part of it.
///
/// Two ends are special. An empty one means the start key alone; [`KeyRange::OPEN_END`] (one zero byte) means every
/// key from the start on.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct KeyRange {
    /// The first key of the range.
    pub start: Key,
    /// The first key behind the range, or one of the two special ends.
    pub end: Key,
}

impl KeyRange {
    /// The end that stands for "no end".
    pub const OPEN_END: &'static [u8] = b"\0";

    /// One key.
    pub fn key(key: impl Into<Key>) -> Self {
        Self { start: key.into(), end: Key::default() }
    }

    /// All keys from `start` to just before `end`.
    pub fn between(start: impl Into<Key>, end: impl Into<Key>) -> Self {
        Self { start: start.into(), end: end.into() }
    }

    /// All keys that start with `prefix`. With an empty prefix: all keys.
    pub fn prefix(prefix: impl Into<Key>) -> Self {
        let prefix = prefix.into();
        if prefix.is_empty() { Self::all() } else { Self { end: prefix.prefix_end(), start: prefix } }
    }

    /// All keys from `start` on.
    pub fn from(start: impl Into<Key>) -> Self {
        Self { start: start.into(), end: Key::from(Self::OPEN_END) }
    }

    /// Every key there is.
    pub fn all() -> Self {
        Self::from(Self::OPEN_END)
    }

    /// Whether this names one key only.
    pub fn is_single(&self) -> bool {
        self.end.is_empty()
    }

    /// Whether the range goes on to the last key there is.
    pub fn is_open(&self) -> bool {
        self.end.as_bytes() == Self::OPEN_END
    }

    /// Whether `key` lies in the range.
    pub fn contains(&self, key: &Key) -> bool {
        if self.is_single() {
            return *key == self.start;
        }
        *key >= self.start && (self.is_open() || *key < self.end)
    }

    /// The same range of the keys that have `prefix` before them.
    #[must_use]
    pub fn prefixed(&self, prefix: &Key) -> Self {
        let end = if self.is_single() {
            Key::default()
        } else if self.is_open() {
            prefix.prefix_end()
        } else {
            self.end.prefixed(prefix.as_bytes())
        };
        // "All keys" is written with a start of one zero byte, which is also a key of its own: etcd reads it the
        // same way, since no shorter key than the prefix itself can lie in between.
        Self { start: self.start.prefixed(prefix.as_bytes()), end }
    }
}

impl fmt::Debug for KeyRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_single() {
            write!(f, "{:?}", self.start)
        } else if self.is_open() {
            write!(f, "[{:?}, ..)", self.start)
        } else {
            write!(f, "[{:?}, {:?})", self.start, self.end)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_of_high_bytes_ends_where_the_last_byte_below_them_does() {
        assert_eq!(KeyRange::prefix("a/").end, Key::from("a0"));
        assert_eq!(KeyRange::prefix(vec![b'a', 0xff, 0xff]).end, Key::from("b"));
        assert!(KeyRange::prefix(vec![0xff, 0xff]).is_open());
    }

    #[test]
    fn a_range_ends_before_its_end() {
        let range = KeyRange::between("b", "d");
        for (key, inside) in [("a", false), ("b", true), ("c\u{10ffff}", true), ("d", false)] {
            assert_eq!(range.contains(&Key::from(key)), inside, "{key}");
        }
    }

    #[test]
    fn a_namespace_keeps_an_open_range_inside_itself() {
        let range = KeyRange::from("k").prefixed(&Key::from("ns/"));
        assert_eq!(range, KeyRange::between("ns/k", "ns0"));
    }

    #[test]
    fn a_key_that_is_not_text_prints_escaped() {
        assert_eq!(Key::from(vec![b'a', 0, 0xfe]).to_string(), r"a\x00\xfe");
    }
}
