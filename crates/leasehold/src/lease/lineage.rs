//! Whether the server that answers now is the one that answered before.

use leasehold_mvcc::Header;

use crate::exclusive::Exclusive;
use crate::hold::LossCause;

/// What linearizable answers must agree on to come from one cluster with one history: a later answer has no lower
/// revision and no lower raft term. One that has comes from a cluster that was restored from a backup.
///
/// It outlives the leases of a session, so that a restore between two of them is noticed too. What was once seen is not
/// forgotten when an answer falls behind it: whoever goes on would be given tokens that were given out before.
#[derive(Debug, Default)]
pub(crate) struct Lineage(Exclusive<Option<Header>>);

/// What had been seen when a request was sent: its answer must not fall behind that. (What came in meanwhile, to others,
/// says nothing about it.)
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen(Option<Header>);

impl Lineage {
    /// Taken before a request is sent.
    pub(crate) fn seen(&self) -> Seen {
        Seen(*self.0.lock())
    }

    /// Takes the header of a linearizable answer to a request sent after `seen`.
    ///
    /// # Errors
    /// Why nothing that was held before counts any more.
    pub(crate) fn follow(&self, seen: Seen, answer: Header) -> Result<(), LossCause> {
        if let Some(seen) = seen.0 {
            if answer.cluster_id != seen.cluster_id {
                return Err(LossCause::ClusterChanged);
            }
            if answer.revision < seen.revision || answer.raft_term < seen.raft_term {
                return Err(LossCause::Restored);
            }
        }
        let mut last = self.0.lock();
        match &mut *last {
            Some(last) => {
                last.revision = last.revision.max(answer.revision);
                last.raft_term = last.raft_term.max(answer.raft_term);
            }
            None => *last = Some(answer),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use leasehold_mvcc::Revision;

    use super::*;

    fn header(cluster_id: u64, revision: i64, raft_term: u64) -> Header {
        Header { cluster_id, member_id: 1, revision: Revision::new(revision), raft_term }
    }

    #[test]
    fn a_history_that_goes_back_is_a_restore() {
        let follow = |next| {
            let lineage = Lineage::default();
            lineage.follow(lineage.seen(), header(7, 100, 3)).unwrap();
            lineage.follow(lineage.seen(), next)
        };
        assert_eq!(follow(header(7, 100, 3)), Ok(()));
        assert_eq!(follow(header(7, 101, 4)), Ok(()));
        assert_eq!(follow(header(7, 99, 4)), Err(LossCause::Restored));
        assert_eq!(follow(header(7, 100, 2)), Err(LossCause::Restored));
        assert_eq!(follow(header(8, 200, 4)), Err(LossCause::ClusterChanged));
    }

    #[test]
    fn an_answer_is_not_measured_by_what_others_heard_meanwhile() {
        let lineage = Lineage::default();
        let asked = lineage.seen();
        lineage.follow(lineage.seen(), header(7, 100, 3)).unwrap();
        assert_eq!(lineage.follow(asked, header(7, 50, 3)), Ok(()));
        assert_eq!(
            lineage.follow(lineage.seen(), header(7, 99, 3)),
            Err(LossCause::Restored),
            "it never goes back"
        );
    }

    #[test]
    fn a_restore_stays_one_until_the_revisions_have_caught_up() {
        let lineage = Lineage::default();
        lineage.follow(lineage.seen(), header(7, 100, 3)).unwrap();
        for revision in [10, 11, 99] {
            assert_eq!(lineage.follow(lineage.seen(), header(7, revision, 3)), Err(LossCause::Restored));
        }
        assert_eq!(lineage.follow(lineage.seen(), header(7, 1000, 3)), Ok(()));
    }
}
