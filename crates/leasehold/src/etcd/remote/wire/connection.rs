//! Connections that are made when needed, shared while they live, and made anew when they broke.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::FutureExt;
use futures_util::future::Shared;
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tonic::body::Body;

use super::dial::Dialler;
use crate::etcd::remote::{Endpoint, Lane, WireError};
use crate::exclusive::Exclusive;
use crate::runtime::{Runtime, before};

/// A connection that stands or is being made: many may wait for it, and it gets made whether or not they do.
type Making = Shared<BoxFuture<'static, Result<Connection, WireError>>>;

pub(super) struct Connections {
    /// For lane calls, and for lane leases.
    threads: (Handle, Handle),
    runtime: Arc<dyn Runtime>,
    connect_timeout: Duration,
    dialler: Dialler,
    /// None once closed.
    made: Exclusive<Option<BTreeMap<(Endpoint, Lane), Making>>>,
}

impl Connections {
    pub(super) fn new(
        threads: (Handle, Handle),
        runtime: Arc<dyn Runtime>,
        connect_timeout: Duration,
        dialler: Dialler,
    ) -> Self {
        Self { threads, runtime, connect_timeout, dialler, made: Exclusive::new(Some(BTreeMap::new())) }
    }

    /// The connection to an endpoint, waiting at most `patience` for it.
    pub(super) async fn get(
        &self,
        endpoint: &Endpoint,
        lane: Lane,
        patience: Duration,
    ) -> Result<Connection, WireError> {
        let making = self.making(endpoint, lane)?;
        // The usual case: it stands, and there is nothing to wait for.
        if let Some(Ok(connection)) = making.peek() {
            return Ok(connection.clone());
        }
        let patience = patience.min(self.connect_timeout);
        match before(&*self.runtime, self.runtime.now() + patience, making).await {
            Some(made) => made,
            None => {
                Err(WireError::NotDone { cause: format!("no connection to {endpoint} within {patience:?}") })
            }
        }
    }

    fn making(&self, endpoint: &Endpoint, lane: Lane) -> Result<Making, WireError> {
        let mut made = self.made.lock();
        let Some(made) = &mut *made else {
            return Err(WireError::NotDone { cause: "the client is closed".into() });
        };
        let key = (endpoint.clone(), lane);
        if let Some(making) = made.get(&key) {
            match making.peek() {
                Some(Ok(connection)) if connection.is_broken() => {}
                Some(Err(_)) => {}
                _ => return Ok(making.clone()),
            }
        }
        let making = self.make(endpoint, lane);
        made.insert(key, making.clone());
        Ok(making)
    }

    fn make(&self, endpoint: &Endpoint, lane: Lane) -> Making {
        let thread = match lane {
            Lane::Calls => &self.threads.0,
            Lane::Leases => &self.threads.1,
        };
        let (tell, made) = oneshot::channel();
        let (runtime, endpoint) = (self.runtime.clone(), endpoint.clone());
        let (timeout, dialler) = (self.connect_timeout, self.dialler.clone());
        thread.spawn(async move {
            let deadline = runtime.now() + timeout;
            let dialled = before(&*runtime, deadline, dialler.dial(&endpoint, &*runtime, deadline)).await;
            let made = match dialled {
                Some(dialled) => {
                    dialled.map(|sender| Connection { sender, origin: dialler.origin(&endpoint) })
                }
                None => Err(WireError::NotDone {
                    cause: format!("no connection to {endpoint} within {timeout:?}"),
                }),
            };
            let _ = tell.send(made);
        });
        let made = async move {
            made.await.unwrap_or_else(|_| {
                Err(WireError::NotDone { cause: "the thread that dials has ended".into() })
            })
        };
        made.boxed().shared()
    }

    pub(super) fn distrust(&self, endpoint: &Endpoint, lane: Lane) {
        let key = (endpoint.clone(), lane);
        let gone = self.made.lock().as_mut().and_then(|made| made.remove(&key));
        drop(gone);
    }

    pub(super) fn close(&self) {
        let all = self.made.lock().take();
        drop(all);
    }
}

/// A handle on a connection that stood when it was given out. It ends when the last handle and the last request do.
#[derive(Clone)]
pub(super) struct Connection {
    sender: SendRequest<Body>,
    origin: Uri,
}

impl Connection {
    pub(super) fn origin(&self) -> Uri {
        self.origin.clone()
    }

    fn is_broken(&self) -> bool {
        self.sender.is_closed()
    }
}

impl tower_service::Service<Request<Body>> for Connection {
    type Response = Response<Incoming>;
    type Error = SendFailed;
    type Future = BoxFuture<'static, Result<Response<Incoming>, SendFailed>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), SendFailed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let sent = self.sender.try_send_request(request);
        Box::pin(async move {
            sent.await.map_err(|mut error| {
                // Only a request that was not begun to be written comes back.
                let unsent = error.take_message().is_some();
                SendFailed::new(unsent, error.into_error())
            })
        })
    }
}

/// No response came to a request.
#[derive(Debug)]
pub(super) struct SendFailed {
    unsent: bool,
    cause: String,
}

impl SendFailed {
    fn new(unsent: bool, error: hyper::Error) -> Self {
        let mut cause = error.to_string();
        let mut refused = false;
        let mut source = std::error::Error::source(&error);
        while let Some(inner) = source {
            cause = format!("{cause}: {inner}");
            // By this word the other end says that it has not looked at the request (RFC 9113, section 8.7).
            refused |= inner
                .downcast_ref::<h2::Error>()
                .is_some_and(|error| error.is_remote() && error.reason() == Some(h2::Reason::REFUSED_STREAM));
            source = inner.source();
        }
        Self { unsent: unsent || refused, cause }
    }

    /// What is known of the request.
    pub(super) fn fate(&self) -> WireError {
        let cause = format!("the connection broke: {}", self.cause);
        if self.unsent { WireError::NotDone { cause } } else { WireError::OutcomeUnknown { cause } }
    }
}

impl fmt::Display for SendFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl std::error::Error for SendFailed {}
