//! What can be wrong with a message.

use leasehold_mvcc::{Code, StoreError};
use thiserror::Error;

/// A message that does not say what it must. It names the message and the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// A field that must be there is not.
    #[error("{message}.{field} is missing")]
    Missing {
        /// The message, by its name on the wire.
        message: &'static str,
        /// The field, by its name on the wire.
        field: &'static str,
    },
    /// A number that stands for nothing known here: a newer etcd, or no etcd at all.
    #[error("{message}.{field} has the unknown number {number}")]
    UnknownNumber {
        /// The message, by its name on the wire.
        message: &'static str,
        /// The field, by its name on the wire.
        field: &'static str,
        /// The number.
        number: i32,
    },
}

/// What a server answers to such a request: etcd's own words where etcd looks for the fault, else ours.
impl From<DecodeError> for StoreError {
    fn from(error: DecodeError) -> Self {
        let message = match error {
            DecodeError::UnknownNumber { message: "RangeRequest", .. } => {
                "etcdserver: invalid sort option".into()
            }
            // Not the happiest of words, but etcd's.
            DecodeError::Missing { message: "RequestOp", .. } => "etcdserver: key not found".into(),
            other => other.to_string(),
        };
        Self::new(Code::InvalidArgument, message)
    }
}

/// The answer is not one to the request it was given for. A fault of the backend, never of the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the answer is no {wanted}")]
pub struct WrongAnswer {
    /// The response message that was to be made of it.
    pub wanted: &'static str,
}

impl From<WrongAnswer> for StoreError {
    fn from(error: WrongAnswer) -> Self {
        Self::new(Code::Internal, error.to_string())
    }
}
