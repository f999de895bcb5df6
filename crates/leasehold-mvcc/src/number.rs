//! The two numbers of etcd that must never be mixed up.

use std::fmt;

/// A revision: the store's logical time. Each committed write makes the next one, and it never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(i64);

impl Revision {
    /// Revision 0: "none", or in a watch request "from now on".
    pub const ZERO: Self = Self(0);

    /// A revision as it came off the wire.
    pub const fn new(revision: i64) -> Self {
        Self(revision)
    }

    /// The number itself.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// The revision after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The revision before this one.
    #[must_use]
    pub const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// Whether this is revision 0.
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A lease's id. It prints as etcd's lock keys spell it: lower-case hexadecimal without padding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LeaseId(i64);

impl LeaseId {
    /// No lease: a key that stays until it is deleted.
    pub const NONE: Self = Self(0);

    /// A lease id as it came off the wire.
    pub const fn new(id: i64) -> Self {
        Self(id)
    }

    /// The number itself.
    pub const fn get(self) -> i64 {
        self.0
    }

    /// Whether this is [`LeaseId::NONE`].
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

impl fmt::Debug for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LeaseId({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_id_prints_as_lock_keys_spell_it() {
        assert_eq!(LeaseId::new(0x09ee_0000_0000_0001).to_string(), "9ee000000000001");
    }
}
