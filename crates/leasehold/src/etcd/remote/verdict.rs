//! What a gRPC status says about the fate of a request. `docs/failures.md` is the table, and tested row by row.
//!
//! "Not carried out" is claimed only where that is certain, because a write is sent again on the strength of it. All
//! else of doubtful meaning is "unknown".

use leasehold_mvcc::{Code, StoreError};

use super::WireError;

/// What etcd says when it turns a request away before anything is done with it, though another member, or the same one
/// a little later, would take it.
const TURNED_AWAY: &[&str] = &[
    // Said by the interceptor that guards requests which ask for a leader.
    "etcdserver: no leader",
    "etcdserver: not leader",
    // A learner, or a member whose store lags far behind its log, says these before it proposes anything.
    "etcdserver: rpc not supported for learner",
    "etcdserver: not capable",
    "etcdserver: too many requests",
    // Raft's own word for a proposal that entered no log.
    "raft proposal dropped",
];

/// What etcd says of a token that it does not, or no longer, accept, or that is missing. It says so before anything is
/// done, or as it applies the request, and then nothing of it is done either.
pub(super) const STALE: &[&str] =
    &["invalid auth token", "revision of auth store is old", "user name is empty"];

/// What gRPC itself says when the request could not even be read.
const UNREAD: &[&str] =
    &["grpc: received message larger than max", "Error, encoded message length too large"];

/// What gRPC says when it is the *answer* that could not be carried.
const ANSWER_LOST: &[&str] =
    &["grpc: trying to send message larger than max", "Error, decoded message length too large"];

/// Whether it was the size of the answer that was in the way: asked again, it is as large.
pub(super) fn is_answer_too_large(cause: &str) -> bool {
    ANSWER_LOST.iter().any(|known| cause.starts_with(known))
}

/// Judges a status that came instead of an answer.
pub(super) fn judge(status: StoreError) -> WireError {
    let StoreError { code, message } = &status;
    if TURNED_AWAY.iter().any(|known| message.starts_with(known)) {
        return WireError::NotDone { cause: status.message };
    }
    if STALE.iter().any(|known| message.contains(known)) {
        return WireError::Unauthorized(status);
    }
    if UNREAD.iter().any(|known| message.starts_with(known)) {
        return WireError::Refused(status);
    }
    if message.starts_with("grpc-status header missing") {
        // No gRPC server at all. A gateway's 5xx may hide an etcd that did its work, so those fall through.
        if matches!(
            code,
            Code::Unimplemented | Code::Internal | Code::PermissionDenied | Code::Unauthenticated
        ) {
            return WireError::NotEtcd { why: status.message, sent: true };
        }
    } else if *code == Code::Unimplemented && message.contains("unknown service") {
        return WireError::NotEtcd { why: status.message, sent: true };
    }
    let certain = match code {
        // Found wrong before, or while, it was applied; then nothing of it is.
        Code::InvalidArgument
        | Code::NotFound
        | Code::AlreadyExists
        | Code::PermissionDenied
        | Code::FailedPrecondition
        | Code::Unimplemented => true,
        Code::Unauthenticated => return WireError::Unauthorized(status),
        Code::OutOfRange => !is_answer_too_large(message),
        // "database space exceeded" and a corrupt store are found when the request is applied; other limits and
        // losses can be a middleman's.
        Code::ResourceExhausted | Code::DataLoss => message.starts_with("etcdserver: "),
        // Time-outs, a member that stops, a leader that changes, a broken connection: the proposal may be on its way.
        _ => false,
    };
    if certain {
        WireError::Refused(status)
    } else {
        WireError::OutcomeUnknown { cause: format!("{} ({code:?})", status.message) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fate(code: Code, message: &str) -> &'static str {
        match judge(StoreError::new(code, message)) {
            WireError::NotDone { .. } => "not done",
            WireError::OutcomeUnknown { .. } => "unknown",
            WireError::Refused(_) => "refused",
            WireError::Unauthorized(_) => "unauthorized",
            WireError::Untrusted { .. } => "untrusted",
            WireError::NotEtcd { .. } => "not etcd",
        }
    }

    #[test]
    fn a_proposal_that_may_be_under_way_is_never_called_not_done() {
        for message in [
            "etcdserver: request timed out",
            "etcdserver: request timed out, possibly due to previous leader failure",
            "etcdserver: request timed out, possibly due to connection lost",
            "etcdserver: request timed out, waiting for the applied index took too long",
            "etcdserver: leader changed",
            "etcdserver: server stopped",
            "transport is closing",
        ] {
            assert_eq!(fate(Code::Unavailable, message), "unknown", "{message}");
        }
        assert_eq!(fate(Code::Unknown, "h2 protocol error: error reading a body from connection"), "unknown");
        assert_eq!(fate(Code::Cancelled, "Timeout expired"), "unknown");
        assert_eq!(fate(Code::DeadlineExceeded, "context deadline exceeded"), "unknown");
        assert_eq!(fate(Code::Aborted, "etcdserver: anything"), "unknown");
    }

    #[test]
    fn what_etcd_turns_away_at_the_door_may_be_sent_again() {
        assert_eq!(fate(Code::Unavailable, "etcdserver: no leader"), "not done");
        assert_eq!(fate(Code::FailedPrecondition, "etcdserver: not leader"), "not done");
        assert_eq!(fate(Code::ResourceExhausted, "etcdserver: too many requests"), "not done");
        assert_eq!(fate(Code::Unavailable, "etcdserver: rpc not supported for learner"), "not done");
        assert_eq!(fate(Code::Unknown, "raft proposal dropped"), "not done");
    }

    #[test]
    fn a_no_stays_a_no() {
        assert_eq!(fate(Code::NotFound, "etcdserver: requested lease not found"), "refused");
        assert_eq!(
            fate(Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted"),
            "refused"
        );
        assert_eq!(fate(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"), "refused");
        assert_eq!(
            fate(Code::ResourceExhausted, "grpc: received message larger than max (3 vs. 2)"),
            "refused"
        );
        assert_eq!(fate(Code::Unimplemented, "unknown method Frob for service etcdserverpb.KV"), "refused");
    }

    #[test]
    fn an_answer_too_large_to_carry_leaves_the_outcome_unknown() {
        assert_eq!(
            fate(Code::ResourceExhausted, "grpc: trying to send message larger than max (9 vs. 8)"),
            "unknown"
        );
        assert_eq!(
            fate(Code::OutOfRange, "Error, decoded message length too large: found 9 bytes"),
            "unknown"
        );
    }

    #[test]
    fn a_web_server_is_told_from_a_gateway_in_trouble() {
        let missing = "grpc-status header missing, mapped from HTTP status code 404";
        assert_eq!(fate(Code::Unimplemented, missing), "not etcd");
        assert_eq!(
            fate(Code::Unavailable, "grpc-status header missing, mapped from HTTP status code 502"),
            "unknown"
        );
        assert_eq!(fate(Code::Unimplemented, "unknown service etcdserverpb.KV"), "not etcd");
    }
}
