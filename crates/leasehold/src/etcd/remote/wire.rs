//! gRPC over sockets: the only place of this crate that names tonic.

#![allow(clippy::disallowed_types, reason = "this is the place where tonic is at home")]

mod connection;
mod dial;

use std::error::Error as _;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use futures_core::future::BoxFuture;
use futures_core::stream::BoxStream;
use futures_util::FutureExt;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use leasehold_mvcc::{Answer, Code, Command, KeepAliveAnswer, LeaseId, StoreError, WatchResponse};
use leasehold_proto::pb::etcdserverpb as pb;
use leasehold_proto::{Call, DecodeError, Request, WatchCommand, WatchCreate, code_from_number};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tonic::metadata::{Ascii, MetadataValue};

use super::auth::{Credentials, Token};
use super::transport::{KeepAliveLine, Lane, WatchLine, WatchOrder, Wire, WireError};
use super::{Endpoint, verdict};
use crate::runtime::Runtime;
use connection::{Connection, Connections, SendFailed};
pub(super) use dial::{Dialler, Pings};

/// The largest answer taken. etcd's own bound for requests is 1.5 MiB, but a range may add up to far more.
const LARGEST_ANSWER: usize = 64 << 20;

type AuthClient = pb::auth_client::AuthClient<Connection>;
type KvClient = pb::kv_client::KvClient<Connection>;
type LeaseClient = pb::lease_client::LeaseClient<Connection>;
type WatchClient = pb::watch_client::WatchClient<Connection>;

/// One connection for each endpoint and lane, made when it is first needed and again when it broke. What lane
/// [`Lane::Leases`] does, it does on a thread of its own.
pub(super) struct TokioWire {
    connections: Arc<Connections>,
}

impl TokioWire {
    /// `threads` drive the connections of the two lanes: calls, leases.
    pub(super) fn new(
        threads: (Handle, Handle),
        runtime: Arc<dyn Runtime>,
        connect_timeout: Duration,
        dialler: Dialler,
    ) -> Self {
        Self { connections: Arc::new(Connections::new(threads, runtime, connect_timeout, dialler)) }
    }
}

impl Wire for TokioWire {
    fn call(
        &self,
        endpoint: &Endpoint,
        lane: Lane,
        token: Option<Token>,
        command: Command,
        patience: Duration,
    ) -> BoxFuture<'static, Result<Answer, WireError>> {
        let (connections, endpoint) = (self.connections.clone(), endpoint.clone());
        Box::pin(async move {
            let connection = connections.get(&endpoint, lane, patience / 2).await?;
            send(connection, command, Escort { token: mark(token)?, patience }).await
        })
    }

    fn authenticate(
        &self,
        endpoint: &Endpoint,
        lane: Lane,
        credentials: Credentials,
        patience: Duration,
    ) -> BoxFuture<'static, Result<Token, WireError>> {
        let (connections, endpoint) = (self.connections.clone(), endpoint.clone());
        Box::pin(async move {
            let connection = connections.get(&endpoint, lane, patience / 2).await?;
            let origin = connection.origin();
            let (name, password) = (credentials.user().to_owned(), credentials.password().to_owned());
            let request = Escort { token: None, patience }.with(pb::AuthenticateRequest { name, password });
            let answer = AuthClient::with_origin(connection, origin).authenticate(request).await;
            Ok(Token::new(answer.map_err(fate)?.into_inner().token))
        })
    }

    fn open_watch(&self, endpoint: &Endpoint, lane: Lane, token: Option<Token>) -> WatchLine {
        let (orders, received) = mpsc::unbounded_channel();
        let (connections, endpoint) = (self.connections.clone(), endpoint.clone());
        let open = async move {
            let connection = connections.get(&endpoint, lane, Duration::MAX).await?;
            let origin = connection.origin();
            let mut client =
                WatchClient::with_origin(connection, origin).max_decoding_message_size(LARGEST_ANSWER);
            let said = Said { received, message: |order| pb::WatchRequest::from(command(order)) };
            let answers = client.watch(with_leader(said, mark(token)?)).await.map_err(fate)?.into_inner();
            Ok(answers
                .map(|answer| WatchResponse::try_from(answer.map_err(fate)?).map_err(malformed))
                .boxed())
        };
        WatchLine { orders, answers: when_open(open.boxed()) }
    }

    fn open_keep_alive(&self, endpoint: &Endpoint, lane: Lane, token: Option<Token>) -> KeepAliveLine {
        let (ids, received) = mpsc::unbounded_channel();
        let (connections, endpoint) = (self.connections.clone(), endpoint.clone());
        let open = async move {
            let connection = connections.get(&endpoint, lane, Duration::MAX).await?;
            let origin = connection.origin();
            let mut client =
                LeaseClient::with_origin(connection, origin).max_decoding_message_size(LARGEST_ANSWER);
            let said = Said { received, message: |id: LeaseId| pb::LeaseKeepAliveRequest { id: id.get() } };
            let answers =
                client.lease_keep_alive(with_leader(said, mark(token)?)).await.map_err(fate)?.into_inner();
            Ok(answers
                .map(|answer| KeepAliveAnswer::try_from(answer.map_err(fate)?).map_err(malformed))
                .boxed())
        };
        KeepAliveLine { ids, answers: when_open(open.boxed()) }
    }

    fn distrust(&self, endpoint: &Endpoint, lane: Lane) {
        self.connections.distrust(endpoint, lane);
    }

    fn close(&self) {
        self.connections.close();
    }
}

async fn send(connection: Connection, command: Command, escort: Escort) -> Result<Answer, WireError> {
    let origin = connection.origin();
    let kv = |connection| {
        KvClient::with_origin(connection, origin.clone()).max_decoding_message_size(LARGEST_ANSWER)
    };
    let lease = |connection| {
        LeaseClient::with_origin(connection, origin.clone()).max_decoding_message_size(LARGEST_ANSWER)
    };
    match Request::from_command(command) {
        Some(Request::Range(message)) => answer(kv(connection).range(escort.with(message)).await),
        Some(Request::Put(message)) => answer(kv(connection).put(escort.with(message)).await),
        Some(Request::DeleteRange(message)) => {
            answer(kv(connection).delete_range(escort.with(message)).await)
        }
        Some(Request::Txn(message)) => answer(kv(connection).txn(escort.with(message)).await),
        Some(Request::Compact(message)) => answer(kv(connection).compact(escort.with(message)).await),
        Some(Request::LeaseGrant(message)) => {
            answer(lease(connection).lease_grant(escort.with(message)).await)
        }
        Some(Request::LeaseRevoke(message)) => {
            answer(lease(connection).lease_revoke(escort.with(message)).await)
        }
        Some(Request::LeaseTimeToLive(message)) => {
            answer(lease(connection).lease_time_to_live(escort.with(message)).await)
        }
        Some(Request::LeaseLeases(message)) => {
            answer(lease(connection).lease_leases(escort.with(message)).await)
        }
        Some(Request::LeaseKeepAlive(_)) | None => {
            let message = "no single call of etcd's asks for that";
            Err(WireError::Refused(StoreError::new(Code::Unimplemented, message)))
        }
    }
}

/// A response message that answers a call of its own.
trait Answering {
    fn into_answer(self) -> Result<Answer, DecodeError>;
}

macro_rules! answering {
    ($($request:ident -> $response:ident),* $(,)?) => {$(
        impl Answering for pb::$response {
            fn into_answer(self) -> Result<Answer, DecodeError> {
                <pb::$request as Call>::answer(self)
            }
        }
    )*};
}

answering! {
    RangeRequest -> RangeResponse,
    PutRequest -> PutResponse,
    DeleteRangeRequest -> DeleteRangeResponse,
    TxnRequest -> TxnResponse,
    CompactionRequest -> CompactionResponse,
    LeaseGrantRequest -> LeaseGrantResponse,
    LeaseRevokeRequest -> LeaseRevokeResponse,
    LeaseTimeToLiveRequest -> LeaseTimeToLiveResponse,
    LeaseLeasesRequest -> LeaseLeasesResponse,
}

fn answer<R: Answering>(response: Result<tonic::Response<R>, tonic::Status>) -> Result<Answer, WireError> {
    response.map_err(fate)?.into_inner().into_answer().map_err(malformed)
}

/// What goes with a request: who asks, and how long the answer is of use.
struct Escort {
    token: Option<Mark>,
    patience: Duration,
}

impl Escort {
    fn with<T>(self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        request.set_timeout(self.patience);
        bear(&mut request, self.token);
        request
    }
}

/// A token as it goes over the wire.
type Mark = MetadataValue<Ascii>;

fn mark(token: Option<Token>) -> Result<Option<Mark>, WireError> {
    let Some(token) = token else { return Ok(None) };
    match Mark::try_from(token.as_str()) {
        Ok(mut mark) => {
            // Kept out of the compression that would let it be guessed, and out of logs.
            mark.set_sensitive(true);
            Ok(Some(mark))
        }
        Err(_) => {
            let why = "it gave a token that cannot be sent".into();
            Err(WireError::NotEtcd { why, sent: false })
        }
    }
}

fn bear<T>(request: &mut tonic::Request<T>, mark: Option<Mark>) {
    if let Some(mark) = mark {
        request.metadata_mut().insert("token", mark);
    }
}

/// A stream that the member ends as soon as it has lost its leader.
fn with_leader<T>(messages: T, token: Option<Mark>) -> tonic::Request<T> {
    let mut request = tonic::Request::new(messages);
    request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
    bear(&mut request, token);
    request
}

type Answers<T> = BoxStream<'static, Result<T, WireError>>;

/// The answers of a stream that opens when it is first polled.
fn when_open<T: Send + 'static>(open: BoxFuture<'static, Result<Answers<T>, WireError>>) -> Answers<T> {
    Box::pin(stream::once(open).try_flatten())
}

/// What a caller says on a stream, as messages.
struct Said<T, M> {
    received: UnboundedReceiver<T>,
    message: fn(T) -> M,
}

impl<T, M> Stream for Said<T, M> {
    type Item = M;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<M>> {
        let message = self.message;
        self.received.poll_recv(context).map(|word| word.map(message))
    }
}

fn command(order: WatchOrder) -> WatchCommand {
    match order {
        WatchOrder::Create(request) => {
            WatchCommand::Create(WatchCreate { request, id: None, fragment: true })
        }
        WatchOrder::Cancel(id) => WatchCommand::Cancel(id),
    }
}

/// What a failed call says of the request's fate.
fn fate(status: tonic::Status) -> WireError {
    if let Some(failed) = status.source().and_then(|source| source.downcast_ref::<SendFailed>()) {
        return failed.fate();
    }
    verdict::judge(StoreError::new(code_from_number(status.code().into()), status.message()))
}

fn malformed(error: DecodeError) -> WireError {
    WireError::NotEtcd { why: error.to_string(), sent: true }
}

impl fmt::Debug for TokioWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokioWire").finish_non_exhaustive()
    }
}
