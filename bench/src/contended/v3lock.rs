//! A contender that asks etcd's own lock service.

#![allow(clippy::disallowed_types, reason = "the peer is etcd's bare service, over a plain tonic channel")]

use bytes::Bytes;
use leasehold_proto::pb::etcdserverpb::lease_client::LeaseClient;
use leasehold_proto::pb::etcdserverpb::{LeaseGrantRequest, LeaseRevokeRequest};
use leasehold_proto::pb::v3lockpb::lock_client::LockClient;
use leasehold_proto::pb::v3lockpb::{LockRequest, UnlockRequest};
use leasehold_testbed::RealEtcd;
use tonic::transport::{Channel, Endpoint};

use super::Contender;

pub(super) struct V3Lock {
    name: Bytes,
    lease: i64,
    locks: LockClient<Channel>,
    leases: LeaseClient<Channel>,
}

impl V3Lock {
    pub(super) async fn connect(server: &RealEtcd, lock: &str) -> Self {
        let channel =
            Endpoint::from_shared(server.endpoint()).unwrap().tcp_nodelay(true).connect().await.unwrap();
        let mut leases = LeaseClient::new(channel.clone());
        // Long enough to need no renewal, which would only cost the peer.
        let granted = leases.lease_grant(LeaseGrantRequest { ttl: 3600, id: 0 }).await.unwrap().into_inner();
        Self {
            name: Bytes::copy_from_slice(lock.as_bytes()),
            lease: granted.id,
            locks: LockClient::new(channel),
            leases,
        }
    }

    pub(super) async fn close(mut self) {
        self.leases.lease_revoke(LeaseRevokeRequest { id: self.lease }).await.unwrap();
    }
}

impl Contender for V3Lock {
    /// The key that was made for it.
    type Held = Bytes;

    async fn lock(&mut self) -> Bytes {
        let request = LockRequest { name: self.name.clone(), lease: self.lease };
        self.locks.lock(request).await.unwrap().into_inner().key
    }

    async fn unlock(&mut self, held: Bytes) {
        self.locks.unlock(UnlockRequest { key: held }).await.unwrap();
    }
}
