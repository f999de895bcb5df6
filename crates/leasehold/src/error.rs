//! What can go wrong, said once for the whole crate.

pub(crate) mod advice;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_mvcc::{Code, Revision, StoreError};

use crate::hold::LossCause;

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed. Match on [`Error::kind`]; the variants tell people what happened and what to do.
///
/// That a lock is busy is no error: it is a value, such as [`crate::TryLock::Busy`].
///
/// ```
/// use leasehold::{ErrorKind, LockName};
///
/// let error = LockName::new("").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidInput);
/// assert_eq!(error.to_string(), "the lock name \"\" is not usable: it is empty; give it 1 to 512 bytes");
/// ```
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name, duration, address or setting that cannot be used.
    #[error("{what} is not usable: {why}")]
    Invalid {
        /// The setting, and what was given for it.
        what: String,
        /// What is wrong with it, and what would be right.
        why: String,
    },
    /// No server could be asked; the request was certainly not carried out.
    #[error("cannot reach etcd at {endpoints} to {operation}: {cause}{}", advice::on_reach(endpoints))]
    Unavailable {
        /// What was to be done.
        operation: &'static str,
        /// Where it was tried.
        endpoints: String,
        /// What each try met.
        cause: String,
    },
    /// The request was sent and no answer came: it may have been carried out, or may still be.
    #[error(
        "no answer from etcd at {endpoint} to {operation}, which may have happened; look before repeating it: {cause}"
    )]
    OutcomeUnknown {
        /// What was to be done.
        operation: &'static str,
        /// Who was asked.
        endpoint: String,
        /// What came instead of an answer.
        cause: String,
    },
    /// The server answered no.
    #[error("etcd refused to {operation}: {source}{}", advice::on_refusal(source))]
    Refused {
        /// What was to be done.
        operation: &'static str,
        /// Its code and words.
        source: StoreError,
    },
    /// A watch needs a revision that the server has compacted away.
    #[error("the history before revision {compacted} is compacted; read again and watch from there")]
    Compacted {
        /// The oldest revision still there.
        compacted: Revision,
    },
    /// What answered does not behave like etcd.
    #[error("the answer from {endpoint} is not etcd's: {why}; is this the address of an etcd client port?")]
    Protocol {
        /// Who answered.
        endpoint: String,
        /// What is wrong with the answer.
        why: String,
    },
    /// No secure connection could be made, since one side does not trust the other's certificate. Nothing was sent.
    #[error("no secure connection to etcd at {endpoint}: {why}")]
    Untrusted {
        /// Where it was tried.
        endpoint: String,
        /// What is wrong, and with which setting.
        why: String,
    },
    /// The place in the queue, or the hold, is gone.
    #[error("lost: {cause}")]
    Lost {
        /// What took it.
        cause: LossCause,
    },
    /// The call did not end within its bound.
    #[error("{operation} did not end within {after:?}; try again once etcd answers in time")]
    TimedOut {
        /// What was to be done.
        operation: &'static str,
        /// The bound.
        after: Duration,
    },
    /// The session or backend was closed before.
    #[error("{what} is closed; open a new one")]
    Closed {
        /// Session or backend.
        what: &'static str,
    },
    /// This backend cannot do that.
    #[error("cannot {operation}: that needs more than {backend}")]
    Unsupported {
        /// What was asked.
        operation: &'static str,
        /// Of whom, and what would do it.
        backend: &'static str,
    },
    /// The machine refused something: a thread, a file, a socket.
    #[error("cannot {operation}: {cause}; is a limit reached, of threads or open files?")]
    Io {
        /// What was to be done.
        operation: String,
        /// The machine's answer.
        cause: String,
    },
    /// Any of the others, with the lock it happened to.
    #[error("lock {lock:?}: {source}")]
    Lock {
        /// The lock's name.
        lock: String,
        /// What happened.
        source: Arc<Self>,
    },
}

/// The message. A `main` that returns its error prints this form, and so does an `unwrap`: people read it.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The kinds of [`Error`] a caller may want to tell apart.
///
/// ```
/// use leasehold::{Error, ErrorKind};
///
/// fn advice(error: &Error) -> &'static str {
///     match error.kind() {
///         ErrorKind::Unavailable => "try again later",
///         ErrorKind::OutcomeUnknown => "look before you try again",
///         ErrorKind::Lost => "begin again with a new attempt",
///         _ => "read the message",
///     }
/// }
/// # let _ = advice;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call cannot work as written; do not repeat it.
    InvalidInput,
    /// No server could be asked. Repeat later.
    Unavailable,
    /// It may have happened. Look before repeating.
    OutcomeUnknown,
    /// The server said no for a reason of state.
    Refused,
    /// The server does not know or not trust the caller.
    Auth,
    /// History is gone; read again.
    Compacted,
    /// Not an etcd.
    Protocol,
    /// The hold or the place in the queue is gone; start over with a new attempt.
    Lost,
    /// A bound of time was reached.
    TimedOut,
    /// Closed before the call.
    Closed,
    /// Not offered.
    Unsupported,
    /// The machine refused.
    Io,
}

impl Error {
    /// What kind of failure this is.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::Invalid { .. } => ErrorKind::InvalidInput,
            Self::Unavailable { .. } => ErrorKind::Unavailable,
            Self::OutcomeUnknown { .. } => ErrorKind::OutcomeUnknown,
            Self::Untrusted { .. } => ErrorKind::Auth,
            Self::Refused { source, .. } if is_about_the_caller(source) => ErrorKind::Auth,
            Self::Refused { source, .. } => match source.code {
                Code::Unauthenticated | Code::PermissionDenied => ErrorKind::Auth,
                Code::Unimplemented => ErrorKind::Unsupported,
                Code::Unavailable => ErrorKind::Unavailable,
                _ => ErrorKind::Refused,
            },
            Self::Compacted { .. } => ErrorKind::Compacted,
            Self::Protocol { .. } => ErrorKind::Protocol,
            Self::Lost { .. } => ErrorKind::Lost,
            Self::TimedOut { .. } => ErrorKind::TimedOut,
            Self::Closed { .. } => ErrorKind::Closed,
            Self::Unsupported { .. } => ErrorKind::Unsupported,
            Self::Io { .. } => ErrorKind::Io,
            Self::Lock { source, .. } => source.kind(),
        }
    }

    /// Whether the request may have been carried out although it failed here: no answer came, or one that makes no sense,
    /// as from a gateway that passed the request on and spoilt the answer.
    pub fn is_outcome_unknown(&self) -> bool {
        matches!(self.kind(), ErrorKind::OutcomeUnknown | ErrorKind::Protocol)
    }

    /// Whether the same call may succeed later, without anything being changed by the caller.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind(), ErrorKind::OutcomeUnknown | ErrorKind::Unavailable)
    }

    /// Whether a wait whose watch ended so has to end too. Anything else a watch says is a hint: the next look decides.
    pub(crate) fn ends_waits(&self) -> bool {
        matches!(self.kind(), ErrorKind::Auth | ErrorKind::Closed | ErrorKind::Unsupported)
    }

    /// What took the hold or the place in the queue, if that is what happened.
    pub fn loss(&self) -> Option<LossCause> {
        match self {
            Self::Lost { cause } => Some(*cause),
            Self::Lock { source, .. } => source.loss(),
            _ => None,
        }
    }

    /// The server's refusal, if that is what happened.
    pub fn refusal(&self) -> Option<&StoreError> {
        match self {
            Self::Refused { source, .. } => Some(source),
            Self::Lock { source, .. } => source.refusal(),
            _ => None,
        }
    }

    /// The same failure, with the lock it happened to.
    #[must_use]
    pub(crate) fn of_lock(self, lock: impl Into<String>) -> Self {
        match self {
            Self::Lock { .. } => self,
            other => Self::Lock { lock: lock.into(), source: Arc::new(other) },
        }
    }
}

/// Whether a refusal is about who asks, though its code does not say so: etcd has other codes for most of these.
fn is_about_the_caller(refusal: &StoreError) -> bool {
    const WORDS: [&str; 5] = [
        "authentication failed",
        "invalid auth token",
        "revision of auth store is old",
        "user name is empty",
        "user name not found",
    ];
    WORDS.iter().any(|words| refusal.message.contains(words))
}
