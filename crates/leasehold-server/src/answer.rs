//! From a request message to the store and back, errors included.

use leasehold::Embedded;
use leasehold_mvcc::StoreError;
use leasehold_proto::{Call, code_number};
use tonic::{Code, Request, Response, Status};

/// What a call that is one command to the store answers.
pub(crate) fn answer<R: Call>(etcd: &Embedded, request: Request<R>) -> Result<Response<R::Response>, Status> {
    message(etcd, request.into_inner()).map(Response::new).map_err(status)
}

/// The same without the wrappings of a unary call.
pub(crate) fn message<R: Call>(etcd: &Embedded, request: R) -> Result<R::Response, StoreError> {
    let answer = etcd.apply(request.into_command()?)?;
    Ok(R::response(answer)?)
}

/// A refusal as the wire has it.
pub(crate) fn status(error: StoreError) -> Status {
    Status::new(Code::from_i32(code_number(error.code)), error.message)
}

/// A refusal within etcd's lock and election services, which are clients themselves: the words get through, the code
/// does not.
pub(crate) fn status_without_code(error: StoreError) -> Status {
    Status::unknown(error.message)
}
