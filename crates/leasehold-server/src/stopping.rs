//! Ending what is under way when the server stops.

use std::future::Future;

use futures_util::future::Either;
use leasehold::runtime::race;
use tokio_util::sync::CancellationToken;
use tonic::Status;

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
