//! Transactions.
//!
//! Transactions nest, and so do the functions here. What comes off the wire is at most as deep as prost lets through
//! (100 messages), so it cannot exhaust the stack.

use leasehold_mvcc::{Compare, Header, Txn, TxnAnswer, TxnOp, TxnOpAnswer};

use super::entry::header_of;
use super::range::range_answer;
use super::write::{delete_answer, put_answer};
use crate::DecodeError;
use crate::pb::etcdserverpb as pb;
use pb::request_op::Request;
use pb::response_op::Response;

impl From<Txn> for pb::TxnRequest {
    fn from(txn: Txn) -> Self {
        Self {
            compare: txn.compare.into_iter().map(Into::into).collect(),
            success: txn.success.into_iter().map(Into::into).collect(),
            failure: txn.failure.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<pb::TxnRequest> for Txn {
    type Error = DecodeError;

    fn try_from(request: pb::TxnRequest) -> Result<Self, DecodeError> {
        Ok(Self {
            compare: request.compare.into_iter().map(Compare::from).collect(),
            success: request.success.into_iter().map(TxnOp::try_from).collect::<Result<_, _>>()?,
            failure: request.failure.into_iter().map(TxnOp::try_from).collect::<Result<_, _>>()?,
        })
    }
}

impl From<TxnOp> for pb::RequestOp {
    fn from(op: TxnOp) -> Self {
        let request = match op {
            TxnOp::Range(request) => Request::RequestRange(request.into()),
            TxnOp::Put(request) => Request::RequestPut(request.into()),
            TxnOp::Delete(request) => Request::RequestDeleteRange(request.into()),
            TxnOp::Txn(txn) => Request::RequestTxn(txn.into()),
        };
        Self { request: Some(request) }
    }
}

impl TryFrom<pb::RequestOp> for TxnOp {
    type Error = DecodeError;

    fn try_from(op: pb::RequestOp) -> Result<Self, DecodeError> {
        match op.request {
            Some(Request::RequestRange(request)) => Ok(Self::Range(request.try_into()?)),
            Some(Request::RequestPut(request)) => Ok(Self::Put(request.into())),
            Some(Request::RequestDeleteRange(request)) => Ok(Self::Delete(request.into())),
            Some(Request::RequestTxn(request)) => Ok(Self::Txn(request.try_into()?)),
            None => Err(DecodeError::Missing { message: "RequestOp", field: "request" }),
        }
    }
}

impl From<TxnAnswer> for pb::TxnResponse {
    fn from(answer: TxnAnswer) -> Self {
        Self {
            header: Some(answer.header.into()),
            succeeded: answer.succeeded,
            responses: answer.ops.into_iter().map(Into::into).collect(),
        }
    }
}

impl TryFrom<pb::TxnResponse> for TxnAnswer {
    type Error = DecodeError;

    fn try_from(response: pb::TxnResponse) -> Result<Self, DecodeError> {
        let header = header_of("TxnResponse", response.header)?;
        txn_answer(header, response)
    }
}

/// The answer, with a header that was judged elsewhere.
fn txn_answer(header: Header, response: pb::TxnResponse) -> Result<TxnAnswer, DecodeError> {
    let ops = response.responses.into_iter().map(TxnOpAnswer::try_from).collect::<Result<_, _>>()?;
    Ok(TxnAnswer { header, succeeded: response.succeeded, ops })
}

impl From<TxnOpAnswer> for pb::ResponseOp {
    fn from(answer: TxnOpAnswer) -> Self {
        let response = match answer {
            TxnOpAnswer::Range(answer) => Response::ResponseRange(answer.into()),
            TxnOpAnswer::Put(answer) => Response::ResponsePut(answer.into()),
            TxnOpAnswer::Delete(answer) => Response::ResponseDeleteRange(answer.into()),
            TxnOpAnswer::Txn(answer) => Response::ResponseTxn(answer.into()),
        };
        Self { response: Some(response) }
    }
}

impl TryFrom<pb::ResponseOp> for TxnOpAnswer {
    type Error = DecodeError;

    fn try_from(op: pb::ResponseOp) -> Result<Self, DecodeError> {
        let inner = |header: Option<pb::ResponseHeader>| header.map(Header::from).unwrap_or_default();
        match op.response {
            Some(Response::ResponseRange(response)) => {
                Ok(Self::Range(range_answer(inner(response.header), response)))
            }
            Some(Response::ResponsePut(response)) => {
                Ok(Self::Put(put_answer(inner(response.header), response)))
            }
            Some(Response::ResponseDeleteRange(response)) => {
                Ok(Self::Delete(delete_answer(inner(response.header), response)))
            }
            Some(Response::ResponseTxn(response)) => {
                Ok(Self::Txn(txn_answer(inner(response.header), response)?))
            }
            None => Err(DecodeError::Missing { message: "ResponseOp", field: "response" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_mvcc::{Code, PutAnswer, StoreError};
    use prost::Message;

    use super::*;

    #[test]
    fn an_empty_operation_is_refused_in_etcds_words() {
        let request = pb::TxnRequest { failure: vec![pb::RequestOp::default()], ..Default::default() };
        let refusal = Txn::try_from(request).map_err(StoreError::from);
        assert_eq!(refusal, Err(StoreError::new(Code::InvalidArgument, "etcdserver: key not found")));
    }

    #[test]
    fn an_absent_header_within_a_transaction_is_empty() {
        let op = pb::ResponseOp { response: Some(Response::ResponsePut(pb::PutResponse::default())) };
        assert_eq!(TxnOpAnswer::try_from(op), Ok(TxnOpAnswer::Put(PutAnswer::default())));
    }

    #[test]
    fn the_header_of_the_whole_transaction_must_be_there() {
        let missing = DecodeError::Missing { message: "TxnResponse", field: "header" };
        assert_eq!(TxnAnswer::try_from(pb::TxnResponse::default()), Err(missing));
    }

    #[test]
    fn a_bottomless_transaction_is_refused_before_it_gets_here() {
        let deep = (0..200).fold(pb::TxnRequest::default(), |inner, _| pb::TxnRequest {
            success: vec![pb::RequestOp { request: Some(Request::RequestTxn(inner)) }],
            ..Default::default()
        });
        assert!(pb::TxnRequest::decode(deep.encode_to_vec().as_slice()).is_err());
    }
}
