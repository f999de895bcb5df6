//! What a request meets first: the way to its service, and the two pages for probes.

use std::convert::Infallible;
use std::future::{Future, ready};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_core::future::BoxFuture;
use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::Service;
use leasehold::Embedded;
use leasehold_proto::pb::etcdserverpb::{
    auth_server::AuthServer, cluster_server::ClusterServer, kv_server::KvServer, lease_server::LeaseServer,
    maintenance_server::MaintenanceServer, watch_server::WatchServer,
};
use leasehold_proto::pb::v3electionpb::election_server::ElectionServer;
use leasehold_proto::pb::v3lockpb::lock_server::LockServer;
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::codegen::Service as GrpcService;
use tonic::{Code, Status};

use crate::line::Line;
use crate::member::{CLUSTER_VERSION, ETCD_VERSION, Member};
use crate::service::{
    AuthCalls, ClusterCalls, ElectionCalls, KvCalls, LeaseCalls, LockCalls, MaintenanceCalls, WatchCalls,
};

/// The largest message taken: etcd's limit of a request, and room for what surrounds it.
const MAX_MESSAGE_BYTES: usize = (3 << 19) + (512 << 10);

type Answer = Response<Body>;

/// All services, ready to be asked.
pub(crate) struct Face {
    kv: KvServer<KvCalls>,
    lease: LeaseServer<LeaseCalls>,
    watch: WatchServer<WatchCalls>,
    maintenance: MaintenanceServer<MaintenanceCalls>,
    cluster: ClusterServer<ClusterCalls>,
    auth: AuthServer<AuthCalls>,
    lock: LockServer<LockCalls>,
    election: ElectionServer<ElectionCalls>,
}

impl Face {
    pub(crate) fn new(
        etcd: Embedded,
        member: Member,
        progress: Duration,
        stopping: CancellationToken,
    ) -> Self {
        let limit = MAX_MESSAGE_BYTES;
        let line = Line::new(etcd.clone(), stopping.clone());
        let lease = LeaseCalls::new(etcd.clone(), stopping.clone());
        let watch = WatchCalls::new(etcd.clone(), progress, stopping);
        let election = ElectionCalls::new(line.clone());
        Self {
            kv: KvServer::new(KvCalls::new(etcd.clone())).max_decoding_message_size(limit),
            lease: LeaseServer::new(lease).max_decoding_message_size(limit),
            watch: WatchServer::new(watch).max_decoding_message_size(limit),
            maintenance: MaintenanceServer::new(MaintenanceCalls::new(etcd.clone()))
                .max_decoding_message_size(limit),
            cluster: ClusterServer::new(ClusterCalls::new(etcd.clone(), member))
                .max_decoding_message_size(limit),
            auth: AuthServer::new(AuthCalls::new(etcd.clone())).max_decoding_message_size(limit),
            lock: LockServer::new(LockCalls::new(etcd, line)).max_decoding_message_size(limit),
            election: ElectionServer::new(election).max_decoding_message_size(limit),
        }
    }

    fn answer(&self, request: Request<Incoming>) -> BoxFuture<'static, Result<Answer, Infallible>> {
        if request.version() < Version::HTTP_2 {
            return Box::pin(ready(Ok(probe(&request))));
        }
        let service = request.uri().path().split('/').nth(1).unwrap_or_default();
        match service {
            "etcdserverpb.KV" => call(&self.kv, request),
            "etcdserverpb.Watch" => call(&self.watch, request),
            "etcdserverpb.Lease" => call(&self.lease, request),
            "v3lockpb.Lock" => call(&self.lock, request),
            "v3electionpb.Election" => call(&self.election, request),
            "etcdserverpb.Maintenance" => call(&self.maintenance, request),
            "etcdserverpb.Cluster" => call(&self.cluster, request),
            "etcdserverpb.Auth" => call(&self.auth, request),
            "health" | "version" => Box::pin(ready(Ok(probe(&request)))),
            unknown => {
                Box::pin(ready(Ok(Status::unimplemented(format!("unknown service {unknown}")).into_http())))
            }
        }
    }
}

/// A handle on the services for one connection.
pub(crate) struct Shared(pub(crate) Arc<Face>);

impl Service<Request<Incoming>> for Shared {
    type Response = Answer;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Answer, Infallible>>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        self.0.answer(request)
    }
}

fn call<S>(service: &S, request: Request<Incoming>) -> BoxFuture<'static, Result<Answer, Infallible>>
where
    S: GrpcService<Request<Incoming>, Response = Answer, Error = Infallible> + Clone,
    S::Future: Future<Output = Result<Answer, Infallible>> + Send + 'static,
{
    let answer = service.clone().call(request);
    Box::pin(async move { answer.await.map(in_etcds_words) })
}

/// A message over the limit is refused before any code here sees it, with another code than etcd's.
fn in_etcds_words(answer: Answer) -> Answer {
    // Only a call that failed at once has its status here and not behind the messages.
    let Some(status) = Status::from_header_map(answer.headers()) else { return answer };
    match size_over_limit(&status) {
        Some(size) => {
            let words = format!("grpc: received message larger than max ({size} vs. {MAX_MESSAGE_BYTES})");
            Status::resource_exhausted(words).into_http()
        }
        None => answer,
    }
}

fn size_over_limit(status: &Status) -> Option<&str> {
    let found = status.message().strip_prefix("Error, decoded message length too large: found ")?;
    (status.code() == Code::OutOfRange).then(|| found.split(' ').next())?
}

/// What a probe gets that speaks plain HTTP.
fn probe(request: &Request<Incoming>) -> Answer {
    let page = match request.uri().path() {
        "/health" => r#"{"health":"true","reason":""}"#.to_owned(),
        "/version" => format!(r#"{{"etcdserver":"{ETCD_VERSION}","etcdcluster":"{CLUSTER_VERSION}"}}"#),
        _ => {
            return plain(
                StatusCode::NOT_FOUND,
                "text/plain; charset=utf-8",
                "404 page not found\n".to_owned(),
            );
        }
    };
    if request.method() != Method::GET {
        return plain(
            StatusCode::METHOD_NOT_ALLOWED,
            "text/plain; charset=utf-8",
            "Method Not Allowed\n".to_owned(),
        );
    }
    plain(StatusCode::OK, "application/json", page)
}

fn plain(status: StatusCode, content_type: &'static str, page: String) -> Answer {
    let mut answer = Response::new(Body::new(Full::new(Bytes::from(page))));
    *answer.status_mut() = status;
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    answer
}
