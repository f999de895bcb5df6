//! Every backend does what every backend must do.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::sync::Arc;

use leasehold::Prefixed;
use leasehold::etcd::conformance::{self, Subject};
use leasehold_testbed::{Backend, for_each_backend};

async fn a_backend_conforms(backend: Backend) {
    let store = backend.clone();
    let subject = Subject::new(backend.another(), backend.prefix(), move |revision| store.compact(revision));
    conformance::all(&subject).await;
}
for_each_backend!(a_backend_conforms, fresh, cluster);

async fn a_namespace_conforms(backend: Backend) {
    let store = backend.clone();
    let namespace =
        Prefixed::new(backend.another(), format!("{}/namespace\u{e9}/", backend.prefix())).unwrap();
    let subject = Subject::new(Arc::new(namespace), "inside", move |revision| store.compact(revision));
    conformance::all(&subject).await;
}
for_each_backend!(a_namespace_conforms, fresh);
