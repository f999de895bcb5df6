//! A world in a seed: the real library on virtual time, before a simulated etcd cluster, under faults. Unpublished.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a simulation that cannot go on says so by a panic with its seed"
)]

pub mod check;
pub mod cluster;
pub mod executor;
pub mod explore;
pub mod fault;
pub mod field;
pub mod history;
mod kind;
pub mod model;
pub mod mutant;
pub mod run;
pub mod shrink;
pub mod timeline;

pub use executor::{ClockError, Node, Random, Seeded, SeededHandle};
