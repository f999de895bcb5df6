//! Support for the tests of all Leasehold crates: the real thing, faults, and checkers. Unpublished.
//!
//! | for | see |
//! |---|---|
//! | one test body on every backend | [`for_each_backend!`], [`Backend`] |
//! | a real etcd, a real cluster | [`RealEtcd`], [`Cluster`], asked directly by [`Gateway`] |
//! | certificates | [`Authority`] |
//! | etcdctl | [`Etcdctl`] |
//! | Go's own mutex, by the lock service inside etcd | [`LockService`] |
//! | a network link that can be cut or slow | [`Proxy`] |
//! | a process that holds a lock and can be killed | [`Holder`] |
//! | a future dropped at each of its await points | [`mod@cut`] |
//! | a bad network in front of any backend | [`Lossy`] |
//! | never two inside, tokens only rise | [`Witness`], [`WitnessFile`] |
//! | nothing left behind | [`Dump`], [`Tracked`] |
//! | which real parts a run had | [`requirement`] |
//!
//! # Variables
//! | variable | effect |
//! |---|---|
//! | `LEASEHOLD_REQUIRE` | real parts that must be there, such as `etcd35,etcd37,etcdctl`, or `all` |
//! | `LEASEHOLD_REPORT` | a file to which each process appends what it used and missed |
//! | `LEASEHOLD_ETCDCTL35`, `LEASEHOLD_ETCDCTL34` | an etcdctl to use |
//! | `LEASEHOLD_KEEP` | keep the folders of servers |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "test support: a failure is a panic with its story, and real servers live on real time"
)]

pub mod authority;
pub mod backends;
pub mod cluster;
pub mod contained;
pub mod cut;
pub mod dump;
pub mod etcd;
pub mod etcdctl;
pub mod gateway;
pub mod holder;
pub mod join;
pub mod lock_service;
pub mod lossy;
pub mod ports;
pub mod proxy;
pub mod requirement;
pub mod tracked;
pub mod witness;

pub use authority::{Authority, Identity};
pub use backends::{Backend, block_on, connect};
pub use cluster::Cluster;
pub use contained::{Contained, Program, Scratch};
pub use cut::cut;
pub use dump::{Dump, embedded_leases};
pub use etcd::{Options, RealEtcd, Secure, Version};
pub use etcdctl::Etcdctl;
pub use gateway::Gateway;
pub use holder::{Holder, Order};
pub use join::{Joined, join};
pub use lock_service::LockService;
pub use lossy::{Faults, Injected, Lossy, Rates};
pub use proxy::Proxy;
pub use requirement::Part;
pub use tracked::Tracked;
pub use witness::{Inside, Turn, Witness, WitnessFile};
