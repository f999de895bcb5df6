//! The real binary, as a user runs it: on the etcd that starts by itself, and on `leasehold serve`.

#![cfg(target_os = "linux")]
#![allow(
    clippy::disallowed_methods,
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "tests of processes, in real time"
)]

mod access;
mod breaking;
mod crowd;
mod edges;
mod field;
mod guardian;
mod holding;
mod local;
mod looking;
mod loss;
mod peers;
mod refusals;
mod running;
mod serving;
mod stage;
mod terminal;
mod waiting;
