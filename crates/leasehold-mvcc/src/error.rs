//! What the store refuses, in etcd's own words.

use thiserror::Error;

/// The gRPC status codes, of which etcd uses about half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Code {
    /// The caller or a middleman ended the call.
    Cancelled,
    /// No more is known; transports use it for broken connections.
    Unknown,
    /// The request cannot be right, whatever the state.
    InvalidArgument,
    /// No answer within the time allowed.
    DeadlineExceeded,
    /// The named thing is not there.
    NotFound,
    /// The named thing is there already.
    AlreadyExists,
    /// The caller may not do this.
    PermissionDenied,
    /// A limit is reached.
    ResourceExhausted,
    /// The state does not allow it.
    FailedPrecondition,
    /// The operation was aborted.
    Aborted,
    /// A revision that is gone or has not come yet.
    OutOfRange,
    /// The server does not offer this.
    Unimplemented,
    /// The server broke.
    Internal,
    /// The server cannot be reached or cannot serve now.
    Unavailable,
    /// Data was lost.
    DataLoss,
    /// The caller did not say who it is.
    Unauthenticated,
}

/// A refusal, with the code and message that etcd sends for it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{message}")]
pub struct StoreError {
    /// The gRPC code.
    pub code: Code,
    /// etcd's message, to the letter.
    pub message: String,
}

impl StoreError {
    /// A refusal with this code and message.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}
