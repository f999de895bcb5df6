//! The bare wire, as the client above it sees it: one request to one endpoint at a time, and no second tries.
//!
//! Everything above this trait is decided without a socket: which endpoint, how long, whether to ask again, how a
//! watch goes on. So a simulation that implements [`Wire`] runs the very client that production runs.

use std::fmt;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use leasehold_mvcc::{
    Answer, Command, KeepAliveAnswer, LeaseId, StoreError, WatchId, WatchRequest, WatchResponse,
};
use tokio::sync::mpsc::UnboundedSender;

use super::Endpoint;
use super::auth::{Credentials, Token};

/// Which connection a request takes. The two share nothing, so renewals never wait behind bulk traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Ordinary calls and watches.
    Calls,
    /// What keeps or gives up holds.
    Leases,
}

/// Why the wire has no answer, told by what is known of the request's fate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Certainly not carried out: it never left, or was turned away at the door. Another try, elsewhere or later,
    /// is safe and may work.
    #[error("{cause}")]
    NotDone {
        /// What happened.
        cause: String,
    },
    /// It was sent, and no answer came: it may have been carried out, or may still be.
    #[error("{cause}")]
    OutcomeUnknown {
        /// What happened.
        cause: String,
    },
    /// etcd said no, and did nothing. Asking again would bring the same answer.
    #[error("{0}")]
    Refused(StoreError),
    /// etcd did nothing, since the token that came with the request, or that none came, was not to its liking. With a
    /// new token the answer may be another.
    #[error("{0}")]
    Unauthorized(StoreError),
    /// No secure connection stands, since one end does not trust the other's certificate. Nothing was sent.
    #[error("{why}")]
    Untrusted {
        /// What is wrong, and with which setting.
        why: String,
    },
    /// Whoever answered is no etcd.
    #[error("{why}")]
    NotEtcd {
        /// What gave it away.
        why: String,
        /// Whether the request had been sent by then.
        sent: bool,
    },
}

/// What is said on a watch stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchOrder {
    /// Make a watch. The server numbers it, and answers creates in the order in which they were sent.
    Create(WatchRequest),
    /// End the watch with this number.
    Cancel(WatchId),
}

/// An open watch stream. Dropping it ends the stream and every watch on it.
pub struct WatchLine {
    /// Takes orders at any time, also before the stream stands; never blocks.
    pub orders: UnboundedSender<WatchOrder>,
    /// What the server says. It dials, if need be, as it is polled; after an error it is over.
    pub answers: BoxStream<'static, Result<WatchResponse, WireError>>,
}

/// An open renewal stream. Dropping it ends the stream.
pub struct KeepAliveLine {
    /// Takes the leases to renew at any time, also before the stream stands; never blocks.
    pub ids: UnboundedSender<LeaseId>,
    /// One answer for each, in order. It dials, if need be, as it is polled; after an error it is over.
    pub answers: BoxStream<'static, Result<KeepAliveAnswer, WireError>>,
}

/// A way to etcd: it carries single requests and streams to the endpoint named, and never tries twice.
///
/// # Cancel safety
/// Dropping a future or a line gives up waiting; the server may act all the same.
pub trait Wire: fmt::Debug + Send + Sync + 'static {
    /// Sends one command and waits for its answer. The caller drops the future once `patience` is over, and must then
    /// count the request as sent; so a wire that has to connect first gives that up well before, with
    /// [`WireError::NotDone`].
    fn call(
        &self,
        endpoint: &Endpoint,
        lane: Lane,
        token: Option<Token>,
        command: Command,
        patience: Duration,
    ) -> BoxFuture<'static, Result<Answer, WireError>>;

    /// Asks for a token. It changes nothing that matters: any number of tokens may be given for one name.
    fn authenticate(
        &self,
        endpoint: &Endpoint,
        lane: Lane,
        credentials: Credentials,
        patience: Duration,
    ) -> BoxFuture<'static, Result<Token, WireError>>;

    /// Opens a watch stream that ends when the member loses its leader.
    fn open_watch(&self, endpoint: &Endpoint, lane: Lane, token: Option<Token>) -> WatchLine;

    /// Opens a renewal stream that ends when the member loses its leader.
    fn open_keep_alive(&self, endpoint: &Endpoint, lane: Lane, token: Option<Token>) -> KeepAliveLine;

    /// A request was not answered in time although the connection looks whole: the next one should take a new
    /// connection. What is under way on the old one goes on.
    fn distrust(&self, endpoint: &Endpoint, lane: Lane);

    /// Lets go of all connections; what is under way may end by itself. Later requests get [`WireError::NotDone`].
    fn close(&self);
}

impl fmt::Debug for WatchLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchLine").finish_non_exhaustive()
    }
}

impl fmt::Debug for KeepAliveLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepAliveLine").finish_non_exhaustive()
    }
}
