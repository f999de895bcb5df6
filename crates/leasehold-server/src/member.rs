//! Who this etcd says it is.

/// The version that clients are told. They choose by it what they may ask for, so it names the etcd whose services
/// and habits these are.
pub const ETCD_VERSION: &str = "3.5.23";

/// The version of the cluster: in etcd the lowest that all members agree on.
pub const CLUSTER_VERSION: &str = "3.5.0";

/// The one member.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) client_urls: Vec<String>,
}
