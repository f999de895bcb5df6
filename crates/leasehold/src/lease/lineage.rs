//! Whether the server that answers now is the one that answered before.

use leasehold_mvcc::Header;

use crate::hold::LossCause;

/// What answers must agree on to come from one cluster with one history.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lineage(Header);

impl Lineage {
    /// The history that begins with this answer.
    pub(super) fn from(granted: Header) -> Self {
        Self(granted)
    }

    /// Takes a linearizable answer to a request sent after the last one came.
    pub(super) fn follow(&mut self, next: Header) -> Result<(), LossCause> {
        let last = std::mem::replace(&mut self.0, next);
        if next.cluster_id != last.cluster_id {
            return Err(LossCause::ClusterChanged);
        }
        if next.revision < last.revision || next.raft_term < last.raft_term {
            return Err(LossCause::Restored);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use leasehold_mvcc::Revision;

    use super::*;

    #[test]
    fn a_history_that_goes_back_is_a_restore() {
        let header = |cluster_id, revision, raft_term| Header {
            cluster_id,
            member_id: 1,
            revision: Revision::new(revision),
            raft_term,
        };
        let follow = |next| Lineage::from(header(7, 100, 3)).follow(next);
        assert_eq!(follow(header(7, 100, 3)), Ok(()));
        assert_eq!(follow(header(7, 101, 4)), Ok(()));
        assert_eq!(follow(header(7, 99, 4)), Err(LossCause::Restored));
        assert_eq!(follow(header(7, 100, 2)), Err(LossCause::Restored));
        assert_eq!(follow(header(8, 200, 4)), Err(LossCause::ClusterChanged));
    }
}
