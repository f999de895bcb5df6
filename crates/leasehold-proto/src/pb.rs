//! etcd's messages and services, as generated from this crate's `.proto` files.
//!
//! The modules are named after etcd's packages. Keys and values are [`Bytes`](bytes::Bytes), so they are shared
//! and not copied. Each service has a module of its own for its client (`kv_client`, ...; feature `client`) and its
//! server (`kv_server`, ...; feature `server`); a server answers `Unimplemented` to whatever it leaves out.

/// Permissions.
pub mod authpb {
    include!("generated/authpb.rs");
}

/// etcd's six services: KV, watch, lease, cluster, maintenance, auth.
pub mod etcdserverpb {
    include!("generated/etcdserverpb.rs");
}

/// Keys and events.
pub mod mvccpb {
    include!("generated/mvccpb.rs");
}

/// etcd's own election service.
pub mod v3electionpb {
    include!("generated/v3electionpb.rs");
}

/// etcd's own lock service.
pub mod v3lockpb {
    include!("generated/v3lockpb.rs");
}
