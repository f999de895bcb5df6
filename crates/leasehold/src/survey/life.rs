//! How long a lease still runs, as far as etcd says so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use futures_util::StreamExt;
use leasehold_mvcc::{LeaseId, LeaseTimeToLiveAnswer};

use super::AT_A_TIME;
use crate::error::Result;
use crate::etcd::Etcd;

/// No lease is past its end by more: whoever says so does not know.
const CENTURY: i64 = 100 * 366 * 24 * 3600;

/// How long a lease still runs.
///
/// It is a hint for people. A holder that lives renews its lease, so its time begins anew again and again; and each change
/// of etcd's leader starts the time of every lease anew.
///
/// ```
/// use leasehold::survey::{self, Life};
/// use leasehold::{Embedded, LeaseId};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let etcd = Embedded::start()?;
/// assert_eq!(survey::life(&etcd, LeaseId::NONE).await?, Life::Endless);
/// assert_eq!(survey::life(&etcd, LeaseId::new(7)).await?, Life::Gone);
/// # Ok::<(), leasehold::Error>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Life {
    /// There is no lease: the key stays until somebody deletes it.
    Endless,
    /// It runs, for so long if it is not renewed; in whole seconds.
    Left {
        /// What is left.
        left: Duration,
        /// The whole, at each renewal.
        granted: Duration,
    },
    /// It is past its end by so much, and etcd has not ended it yet. A second or two are usual; more, and a change of
    /// etcd's leader is under way, or its clock or disk is in trouble.
    Overdue(Duration),
    /// There is no such lease any more, and its keys have gone with it.
    Gone,
    /// etcd does not say: asking is not permitted, or the answer cannot be true.
    Untold,
}

impl Life {
    fn read(answer: &LeaseTimeToLiveAnswer) -> Self {
        let granted = u64::try_from(answer.granted_ttl).map(Duration::from_secs).unwrap_or_default();
        match answer.ttl {
            // A lease that is not there was granted nothing.
            -1 if answer.granted_ttl == 0 => Self::Gone,
            late if answer.granted_ttl > 0 && (-CENTURY..0).contains(&late) => {
                Self::Overdue(Duration::from_secs(late.unsigned_abs()))
            }
            _ if granted.is_zero() => Self::Untold,
            _ => answer.remaining().map_or(Self::Untold, |left| Self::Left { left, granted }),
        }
    }
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Endless => f.write_str("no lease"),
            Self::Left { left, granted } => write!(f, "{}s of {}s", left.as_secs(), granted.as_secs()),
            Self::Overdue(by) => write!(f, "over for {}s", by.as_secs()),
            Self::Gone => f.write_str("gone"),
            Self::Untold => f.write_str("?"),
        }
    }
}

/// How long a lease still runs.
///
/// # Errors
/// What kept etcd from answering. That it refuses to say is no error: [`Life::Untold`].
///
/// # Cancel safety
/// It changes nothing.
pub async fn life(etcd: &dyn Etcd, lease: LeaseId) -> Result<Life> {
    if lease.is_none() {
        return Ok(Life::Endless);
    }
    match etcd.lease_time_to_live(lease, false).await {
        Ok(answer) => Ok(Life::read(&answer)),
        Err(error) if error.refusal().is_some() => Ok(Life::Untold),
        Err(error) => Err(error),
    }
}

/// How long each of these leases still runs; several are asked for at a time.
///
/// # Errors
/// As [`life`].
///
/// # Cancel safety
/// It changes nothing.
pub async fn lives(
    etcd: &dyn Etcd,
    leases: impl IntoIterator<Item = LeaseId>,
) -> Result<BTreeMap<LeaseId, Life>> {
    let each: BTreeSet<LeaseId> = leases.into_iter().collect();
    let asked = each.into_iter().map(|lease| async move { (lease, life(etcd, lease).await) });
    let mut asked = futures_util::stream::iter(asked).buffered(AT_A_TIME);
    let mut lives = BTreeMap::new();
    while let Some((lease, life)) = asked.next().await {
        lives.insert(lease, life?);
    }
    Ok(lives)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A32, A33: a lease that etcd has not ended is told as such; numbers that cannot be true are not told.
    #[test]
    fn a32_a33_what_cannot_be_true_is_not_told() {
        let life = |ttl, granted_ttl| {
            Life::read(&LeaseTimeToLiveAnswer { ttl, granted_ttl, ..LeaseTimeToLiveAnswer::default() })
        };
        let seconds = Duration::from_secs;
        assert_eq!(life(7, 15), Life::Left { left: seconds(7), granted: seconds(15) });
        assert_eq!(life(0, 15), Life::Left { left: seconds(0), granted: seconds(15) });
        assert_eq!(life(-1, 0), Life::Gone);
        assert_eq!(life(-1, 15), Life::Overdue(seconds(1)));
        assert_eq!(life(-259_200, 60), Life::Overdue(seconds(259_200)));
        for (ttl, granted) in [
            (9_223_372_036, 15),
            (i64::MAX, 15),
            (i64::MIN, 15),
            (-9_223_372_036, 15),
            (30, 15),
            (0, 0),
            (5, -1),
        ] {
            assert_eq!(life(ttl, granted), Life::Untold, "{ttl} of {granted}");
        }
    }
}
