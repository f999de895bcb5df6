//! What users of etcd and of other locks have reported, each played against the library in the simulated world. A test's
//! name begins with the number of each report that it stands for.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test")]

mod clocks;
mod holding;
mod members;
mod outages;
mod releasing;
mod scene;
mod waiting;
