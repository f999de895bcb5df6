//! Whole calls: which message asks for which command, and which message answers it.

use leasehold_mvcc::{Answer, Command, LeaseId};

use crate::pb::etcdserverpb as pb;
use crate::{DecodeError, WrongAnswer};

/// A request message, paired with the response message that answers it.
///
/// A server goes [`into_command`](Self::into_command) and [`response`](Self::response), a client
/// [`answer`](Self::answer).
pub trait Call: Sized {
    /// The message that answers it.
    type Response;

    /// What it asks for.
    fn into_command(self) -> Result<Command, DecodeError>;

    /// The answer as a message.
    fn response(answer: Answer) -> Result<Self::Response, WrongAnswer>;

    /// The answer that a message holds.
    fn answer(response: Self::Response) -> Result<Answer, DecodeError>;
}

macro_rules! call {
    ($kind:ident: $request:ident -> $response:ident, $into_command:expr) => {
        impl Call for pb::$request {
            type Response = pb::$response;

            fn into_command(self) -> Result<Command, DecodeError> {
                let into_command: fn(Self) -> Result<Command, DecodeError> = $into_command;
                into_command(self)
            }

            fn response(answer: Answer) -> Result<Self::Response, WrongAnswer> {
                match answer {
                    Answer::$kind(answer) => Ok(answer.into()),
                    _ => Err(WrongAnswer { wanted: stringify!($response) }),
                }
            }

            fn answer(response: Self::Response) -> Result<Answer, DecodeError> {
                Ok(Answer::$kind(response.try_into()?))
            }
        }
    };
}

call!(Range: RangeRequest -> RangeResponse, |request| Ok(Command::Range(request.try_into()?)));
call!(Put: PutRequest -> PutResponse, |request| Ok(Command::Put(request.into())));
call!(Delete: DeleteRangeRequest -> DeleteRangeResponse, |request| Ok(Command::Delete(request.into())));
call!(Txn: TxnRequest -> TxnResponse, |request| Ok(Command::Txn(request.try_into()?)));
call!(Compact: CompactionRequest -> CompactionResponse, |request| Ok(Command::Compact(request.into())));
call!(LeaseGrant: LeaseGrantRequest -> LeaseGrantResponse, |request| Ok(Command::LeaseGrant(request.into())));
call!(LeaseKeepAlive: LeaseKeepAliveRequest -> LeaseKeepAliveResponse, |request| {
    Ok(Command::LeaseKeepAlive(LeaseId::new(request.id)))
});
call!(LeaseRevoke: LeaseRevokeRequest -> LeaseRevokeResponse, |request| {
    Ok(Command::LeaseRevoke(LeaseId::new(request.id)))
});
call!(LeaseTimeToLive: LeaseTimeToLiveRequest -> LeaseTimeToLiveResponse, |request| {
    Ok(Command::LeaseTimeToLive(LeaseId::new(request.id), request.keys))
});
call!(Leases: LeaseLeasesRequest -> LeaseLeasesResponse, |pb::LeaseLeasesRequest {}| Ok(Command::Leases));

/// A command as the message that asks for it.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// `KV/Range`.
    Range(pb::RangeRequest),
    /// `KV/Put`.
    Put(pb::PutRequest),
    /// `KV/DeleteRange`.
    DeleteRange(pb::DeleteRangeRequest),
    /// `KV/Txn`.
    Txn(pb::TxnRequest),
    /// `KV/Compact`.
    Compact(pb::CompactionRequest),
    /// `Lease/LeaseGrant`.
    LeaseGrant(pb::LeaseGrantRequest),
    /// `Lease/LeaseKeepAlive`: one message of its stream.
    LeaseKeepAlive(pb::LeaseKeepAliveRequest),
    /// `Lease/LeaseRevoke`.
    LeaseRevoke(pb::LeaseRevokeRequest),
    /// `Lease/LeaseTimeToLive`.
    LeaseTimeToLive(pb::LeaseTimeToLiveRequest),
    /// `Lease/LeaseLeases`.
    LeaseLeases(pb::LeaseLeasesRequest),
}

impl Request {
    /// The message that asks for `command`; none for [`Command::Expire`], which no client can ask for.
    pub fn from_command(command: Command) -> Option<Self> {
        Some(match command {
            Command::Range(request) => Self::Range(request.into()),
            Command::Put(request) => Self::Put(request.into()),
            Command::Delete(request) => Self::DeleteRange(request.into()),
            Command::Txn(txn) => Self::Txn(txn.into()),
            Command::Compact(request) => Self::Compact(request.into()),
            Command::LeaseGrant(request) => Self::LeaseGrant(request.into()),
            Command::LeaseKeepAlive(id) => Self::LeaseKeepAlive(pb::LeaseKeepAliveRequest { id: id.get() }),
            Command::LeaseRevoke(id) => Self::LeaseRevoke(pb::LeaseRevokeRequest { id: id.get() }),
            Command::LeaseTimeToLive(id, keys) => {
                Self::LeaseTimeToLive(pb::LeaseTimeToLiveRequest { id: id.get(), keys })
            }
            Command::Leases => Self::LeaseLeases(pb::LeaseLeasesRequest {}),
            Command::Expire => return None,
        })
    }

    /// What the message asks for.
    pub fn into_command(self) -> Result<Command, DecodeError> {
        match self {
            Self::Range(request) => request.into_command(),
            Self::Put(request) => request.into_command(),
            Self::DeleteRange(request) => request.into_command(),
            Self::Txn(request) => request.into_command(),
            Self::Compact(request) => request.into_command(),
            Self::LeaseGrant(request) => request.into_command(),
            Self::LeaseKeepAlive(request) => request.into_command(),
            Self::LeaseRevoke(request) => request.into_command(),
            Self::LeaseTimeToLive(request) => request.into_command(),
            Self::LeaseLeases(request) => request.into_command(),
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_mvcc::{Code, PutAnswer, StoreError};

    use super::*;

    #[test]
    fn expiry_cannot_be_asked_for() {
        assert_eq!(Request::from_command(Command::Expire), None);
    }

    #[test]
    fn an_answer_to_another_request_is_the_backends_fault() {
        let wrong = pb::RangeRequest::response(Answer::Put(PutAnswer::default())).map_err(StoreError::from);
        assert_eq!(wrong, Err(StoreError::new(Code::Internal, "the answer is no RangeResponse")));
    }
}
