//! Every message there is: one line, with what it is about, what happened, and what to do.

use super::*;

/// A name for each variant, so that a new one cannot be left out of [`each`].
fn variant(error: &Error) -> &'static str {
    match error {
        Error::Invalid { .. } => "Invalid",
        Error::Unavailable { .. } => "Unavailable",
        Error::OutcomeUnknown { .. } => "OutcomeUnknown",
        Error::Refused { .. } => "Refused",
        Error::Compacted { .. } => "Compacted",
        Error::Protocol { .. } => "Protocol",
        Error::Untrusted { .. } => "Untrusted",
        Error::Lost { .. } => "Lost",
        Error::TimedOut { .. } => "TimedOut",
        Error::Closed { .. } => "Closed",
        Error::Unsupported { .. } => "Unsupported",
        Error::Io { .. } => "Io",
        Error::Lock { .. } => "Lock",
    }
}

fn refused(code: Code, message: &str) -> Error {
    Error::Refused { operation: "grant a lease", source: StoreError::new(code, message) }
}

/// Each variant as it is made, what it must say of its subject, and what it must advise.
fn each() -> Vec<(Error, &'static str, &'static str)> {
    let lock = crate::LockName::new("").unwrap_err();
    let ttl = crate::Ttl::seconds(1).unwrap_err();
    vec![
        (lock, "the lock name \"\"", "give it 1 to 512 bytes"),
        (ttl, "the TTL 1s", "from 2 s to 300 s"),
        (
            Error::Unavailable {
                operation: "grant a lease",
                endpoints: "a:1,b:1".into(),
                cause: "cannot connect to a:1: refused".into(),
            },
            "a:1,b:1",
            "is it running, and is the address right?",
        ),
        (
            Error::Unavailable {
                operation: "watch",
                endpoints: advice::EMBEDDED.into(),
                cause: "more than 9 messages were not read; watch again from the last revision".into(),
            },
            "the embedded etcd",
            "watch again from the last revision",
        ),
        (
            Error::OutcomeUnknown {
                operation: "do a transaction",
                endpoint: "a:1".into(),
                cause: "no answer within 2.5s".into(),
            },
            "a:1",
            "look before repeating it",
        ),
        (
            refused(Code::PermissionDenied, "etcdserver: permission denied"),
            "grant a lease",
            "grant the user a role",
        ),
        (
            refused(Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password"),
            "grant a lease",
            "check the user's name and password",
        ),
        (
            refused(Code::InvalidArgument, "etcdserver: user name is empty"),
            "grant a lease",
            "give the name and password",
        ),
        (refused(Code::Unauthenticated, "etcdserver: invalid auth token"), "grant a lease", "try again"),
        (
            refused(Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"),
            "grant a lease",
            "disarm its alarm",
        ),
        (refused(Code::InvalidArgument, "etcdserver: request is too large"), "grant a lease", "ask for less"),
        (refused(Code::Unavailable, "etcdserver: no leader"), "grant a lease", "try again later"),
        (refused(Code::Unimplemented, "unknown method"), "grant a lease", "use an etcd that offers it"),
        (refused(Code::Internal, "panic"), "grant a lease", "etcd's log may tell more"),
        (Error::Compacted { compacted: Revision::new(7) }, "revision 7", "read again and watch from there"),
        (
            Error::Protocol { endpoint: "a:80".into(), why: "a:80 speaks HTTP/1".into() },
            "a:80",
            "is this the address of an etcd client port?",
        ),
        (
            Error::Untrusted { endpoint: "a:1".into(), why: "its certificate has expired; renew it".into() },
            "a:1",
            "renew it",
        ),
        (
            Error::TimedOut { operation: "granting a lease", after: Duration::from_secs(15) },
            "granting a lease did not end within 15s",
            "try again",
        ),
        (Error::Closed { what: "the session" }, "the session is closed", "open a new one"),
        (
            Error::Unsupported {
                operation: "reach etcd securely",
                backend: "this build; turn on its feature `tls`",
            },
            "reach etcd securely",
            "turn on its feature",
        ),
        (
            Error::Io { operation: "start the thread leasehold-io".into(), cause: "os error 11".into() },
            "the thread leasehold-io",
            "is a limit reached",
        ),
        (Error::Lost { cause: LossCause::LeaseGone }.of_lock("jobs/nightly"), "jobs/nightly", "lock again"),
        (Error::Lost { cause: LossCause::LeaseGone }, "the lease was revoked", "lock again"),
    ]
}

#[test]
fn every_error_is_one_line_that_says_what_happened_to_what_and_what_to_do() {
    let mut seen = std::collections::BTreeSet::new();
    for (error, subject, advice) in each() {
        seen.insert(variant(&error));
        let said = error.to_string();
        assert!(said.contains(subject), "it does not name {subject:?}: {said}");
        assert!(said.contains(advice), "it does not advise {advice:?}: {said}");
        assert!(!said.contains('\n') && said.len() < 300, "{said}");
        assert_eq!(format!("{error:?}"), said, "what a main that fails prints");
        let of_lock = error.of_lock("jobs/nightly").to_string();
        assert_eq!(of_lock.matches("jobs/nightly").count(), 1, "it names the lock once: {of_lock}");
    }
    assert_eq!(seen.len(), 13, "only these are listed: {seen:?}");
}

#[test]
fn every_cause_of_a_loss_says_what_happened_and_what_to_do() {
    use LossCause::{Closed, ClusterChanged, Deadline, KeyDeleted, LeaseGone, MaxHold, Released, Restored};
    for cause in [Deadline, LeaseGone, KeyDeleted, MaxHold, Restored, ClusterChanged, Closed, Released] {
        let advice = match cause {
            Deadline => "lock again once etcd can be reached",
            LeaseGone | Closed | Released => "lock again",
            KeyDeleted => "find out who",
            MaxHold => "raise the limit",
            Restored => "--bump-revision N --mark-compacted",
            ClusterChanged => "check them",
        };
        let said = Error::Lost { cause }.of_lock("jobs/nightly").to_string();
        assert!(said.starts_with("lock \"jobs/nightly\": lost: ") && said.contains(advice), "{said}");
        assert!(!said.contains('\n') && said.len() < 300, "{said}");
    }
}
