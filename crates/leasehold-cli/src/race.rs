//! Two futures, and the first of them to end.

use std::future::Future;
use std::pin::pin;

use futures_util::future::{Either, select};
use leasehold::runtime::{Instant, Runtime};

/// The first of two futures to end; if both are ready, the first one named.
pub(crate) async fn race<A, B>(
    first: impl Future<Output = A>,
    second: impl Future<Output = B>,
) -> Either<A, B> {
    match select(pin!(first), pin!(second)).await {
        Either::Left((first, _)) => Either::Left(first),
        Either::Right((second, _)) => Either::Right(second),
    }
}

/// What `future` gives, or `None` if `at` comes first. The clock counts the time the machine is suspended.
pub(crate) async fn before<T>(
    runtime: &dyn Runtime,
    at: Instant,
    future: impl Future<Output = T>,
) -> Option<T> {
    match race(future, runtime.sleep_until(at)).await {
        Either::Left(value) => Some(value),
        Either::Right(()) => None,
    }
}
