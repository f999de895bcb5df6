//! Waiting for the first of several things, without chance: what is named first wins a tie.

use std::future::Future;
use std::pin::pin;

use futures_util::future::{Either, select};
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// The first of two futures to end.
pub(crate) async fn race<A, B>(
    first: impl Future<Output = A>,
    second: impl Future<Output = B>,
) -> Either<A, B> {
    match select(pin!(first), pin!(second)).await {
        Either::Left((a, _)) => Either::Left(a),
        Either::Right((b, _)) => Either::Right(b),
    }
}

/// What `future` gives, or etcd's refusal if the server stops before.
pub(crate) async fn unless_stopped<T>(
    stopping: &CancellationToken,
    future: impl Future<Output = Result<T, Status>>,
) -> Result<T, Status> {
    match race(stopping.cancelled(), future).await {
        Either::Left(()) => Err(stopped()),
        Either::Right(outcome) => outcome,
    }
}

/// What etcd says of a server that is about to leave; clients take it as a reason to try the next.
pub(crate) fn stopped() -> Status {
    Status::unavailable("etcdserver: server stopped")
}
