//! One connection: HTTP/2 for gRPC, HTTP/1 for probes.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::Either;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio_util::sync::CancellationToken;

use crate::activity::Arrival;
use crate::face::{self, Face};
use crate::listener::Socket;
use leasehold::runtime::race;

/// How often a silent client is asked whether it is still there, and how long it may take to say so. A client whose
/// machine is gone sends no reset; its watches and queued lock calls end by this.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(20);
/// Clients may give up many calls at once, and it is no attack when the holder of one connection's locks does.
const RESETS: usize = 10_000;

/// Serves a connection to its end. Once the server stops, calls in flight are finished and no new ones taken.
pub(crate) async fn serve(
    socket: Box<dyn Socket>,
    face: Arc<Face>,
    stopping: CancellationToken,
    arrival: Arrival,
) {
    let mut http = auto::Builder::new(TokioExecutor::new());
    http.http1().timer(TokioTimer::new());
    http.http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PING)
        .keep_alive_timeout(PONG)
        // Each queued lock call and each watch is a stream: a limit would have the unlock wait behind those it frees.
        .max_concurrent_streams(None)
        .max_pending_accept_reset_streams(RESETS)
        .max_local_error_reset_streams(RESETS);
    let mut connection = pin!(http.serve_connection(TokioIo::new(socket), face::Shared(face)));
    let outcome = match race(connection.as_mut(), stopping.cancelled()).await {
        Either::Left(outcome) => outcome,
        Either::Right(()) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection broke");
    }
    drop(arrival);
}
