//! A world in a seed: the real library on virtual time, before a simulated etcd cluster, under faults. Unpublished.

pub mod check;
pub mod executor;
pub mod history;

pub use executor::{Seeded, SeededHandle};
