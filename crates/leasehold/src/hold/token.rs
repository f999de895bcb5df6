//! The number by which a resource tells a new holder from an old one.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;

use leasehold_mvcc::Revision;

/// A fencing token: each exclusive grant of a lock has one above all earlier ones, whatever language held before.
///
/// Send it along with every write, and let the resource refuse a token lower than the highest it has seen: then a
/// holder that was paused for too long can do no harm, which no lock can promise by itself.
///
/// It is the grant's revision shifted left by 16 bits, plus the number of hand-offs within the process since. In a
/// fleet that mixes languages compare [`FencingToken::revision`]: Go's `Header().Revision` and etcdctl's
/// `ETCD_LOCK_REV` are that number.
///
/// ```
/// use leasehold::FencingToken;
///
/// let token: FencingToken = "65536".parse()?;
/// assert_eq!(token.revision().get(), 1);
/// assert!(token < FencingToken::from_u64(65537));
/// # Ok::<(), std::num::ParseIntError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(u64);

impl FencingToken {
    const HAND_OFF_BITS: u32 = 16;

    pub(crate) fn granted_at(revision: Revision) -> Self {
        Self(revision.get().cast_unsigned() << Self::HAND_OFF_BITS)
    }

    /// A token that was stored or sent as a number.
    pub const fn from_u64(token: u64) -> Self {
        Self(token)
    }

    /// The token as a number.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The revision at which etcd proved the grant.
    pub const fn revision(self) -> Revision {
        Revision::new((self.0 >> Self::HAND_OFF_BITS).cast_signed())
    }
}

impl FromStr for FencingToken {
    type Err = ParseIntError;

    fn from_str(token: &str) -> Result<Self, ParseIntError> {
        token.parse().map(Self)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FencingToken({})", self.0)
    }
}
