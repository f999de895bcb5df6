//! Every refusal of the store, with etcd's code and message.

use crate::{Code, StoreError};

pub(super) fn empty_key() -> StoreError {
    StoreError::new(Code::InvalidArgument, "etcdserver: key is not provided")
}

pub(super) fn key_not_found() -> StoreError {
    StoreError::new(Code::InvalidArgument, "etcdserver: key not found")
}

pub(super) fn value_provided() -> StoreError {
    StoreError::new(Code::InvalidArgument, "etcdserver: value is provided")
}

pub(super) fn lease_provided() -> StoreError {
    StoreError::new(Code::InvalidArgument, "etcdserver: lease is provided")
}

pub(super) fn too_many_ops() -> StoreError {
    StoreError::new(Code::InvalidArgument, "etcdserver: too many operations in txn request")
}

pub(super) fn duplicate_key() -> StoreError {
    StoreError::new(Code::InvalidArgument, "etcdserver: duplicate key given in txn request")
}

pub(super) fn request_too_large() -> StoreError {
    StoreError::new(Code::InvalidArgument, "etcdserver: request is too large")
}

pub(super) fn compacted() -> StoreError {
    StoreError::new(Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted")
}

pub(super) fn future_revision() -> StoreError {
    StoreError::new(Code::OutOfRange, "etcdserver: mvcc: required revision is a future revision")
}

pub(super) fn lease_not_found() -> StoreError {
    StoreError::new(Code::NotFound, "etcdserver: requested lease not found")
}

pub(super) fn lease_exists() -> StoreError {
    StoreError::new(Code::FailedPrecondition, "etcdserver: lease already exists")
}

pub(super) fn lease_ttl_too_large() -> StoreError {
    StoreError::new(Code::OutOfRange, "etcdserver: too large lease TTL")
}
