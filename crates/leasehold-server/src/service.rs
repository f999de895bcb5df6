//! etcd's services, one a file.

mod auth;
mod cluster;
mod election;
mod kv;
mod lease;
mod lock;
mod maintenance;
mod watch;

pub(crate) use auth::AuthCalls;
pub(crate) use cluster::ClusterCalls;
pub(crate) use election::ElectionCalls;
pub(crate) use kv::KvCalls;
pub(crate) use lease::LeaseCalls;
pub(crate) use lock::LockCalls;
pub(crate) use maintenance::MaintenanceCalls;
pub(crate) use watch::WatchCalls;
