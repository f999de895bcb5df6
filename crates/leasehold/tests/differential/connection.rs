//! A bare connection to a server, for the bare stubs: without the layers of tonic's own, which cost more than the
//! calls do in a build for tests.

use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tonic::body::Body;
use tower_service::Service;

#[derive(Clone)]
pub(crate) struct Connection {
    sender: SendRequest<Body>,
    /// What stands before the path of each request.
    pub(crate) origin: Uri,
}

impl Connection {
    /// A connection that the current runtime drives. It ends with the last clone.
    pub(crate) async fn open(endpoint: &str) -> Self {
        let origin: Uri = endpoint.parse().expect("the endpoint is an address");
        let address = origin.authority().expect("the endpoint names host and port").as_str();
        let socket = TcpStream::connect(address).await.expect("etcd listens");
        socket.set_nodelay(true).expect("the socket takes settings");
        let connected = handshake(TokioExecutor::new(), TokioIo::new(socket)).await;
        let (sender, connection) = connected.expect("etcd speaks HTTP/2");
        tokio::spawn(connection);
        Self { sender, origin }
    }
}

impl Service<Request<Body>> for Connection {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.sender.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.sender.send_request(request))
    }
}
