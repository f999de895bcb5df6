//! A gRPC face on Leasehold's embedded etcd: what etcdctl, Go's `concurrency` package and Leasehold's own `Remote`
//! speak to when there is no etcd cluster. One server is one etcd of one member.
//!
//! ```
//! use leasehold::Embedded;
//! use leasehold_server::{Address, Server};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
//! let server = Server::bind(Address::loopback(0), Embedded::start()?).await?;
//! println!("ETCDCTL_ENDPOINTS={}", server.address());   // the real port, before the first request is served
//!
//! let shutdown = async { /* a signal, or server.activity().idle_for(..) */ };
//! server.serve(shutdown).await;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```
//!
//! # What is answered
//! | service | calls |
//! |---|---|
//! | KV | all |
//! | Watch | all: many watches a stream, start in the past, filters, previous values, fragments, progress |
//! | Lease | all |
//! | Maintenance | `Status`; `Alarm` reports that there are none |
//! | Cluster | `MemberList` |
//! | Auth | `AuthStatus` and `Authenticate`, which say that it is off |
//! | Lock, Election | all, in the layout of Go's `concurrency` package |
//! | HTTP/1 | `GET /health` and `GET /version`, for probes |
//!
//! # What is `Unimplemented`
//! * Maintenance: raising and clearing alarms, `Defragment`, `Hash`, `HashKV`, `Snapshot`, `MoveLeader`, `Downgrade`.
//! * Cluster: `MemberAdd`, `MemberRemove`, `MemberUpdate`, `MemberPromote`.
//! * Auth: everything that would turn it on or manage users and roles.
//! * etcd's JSON gateway, its metrics and TLS are not there at all.
//!
//! # Where it differs from etcd
//! The answers are etcd's, codes and words included; the tests hold the same conversations with real ones. But:
//!
//! * The sizes of a database in `Status` are 0, since nothing is on disk.
//! * A queued `Lock` or `Campaign` call whose lease dies fails at once, not when its turn comes; one that is given up
//!   takes the lease that the server made for it along; and the header of `Campaign` is that of the answer that
//!   proved the election, where etcd's is that of the entry in the queue, which may be much older.
//! * A watch from a negative revision is refused, as etcd does since 3.7.
//! * Clients before etcd 3.6 reach it by TCP only: they send the path of a Unix socket as the name of the host, and
//!   etcdctl 3.4 in `endpoint status` the `http://` of an endpoint too. The HTTP/2 library here refuses such names;
//!   write `127.0.0.1:2379`.
//! * What a watcher has not read waits in memory without a bound, as long as its connection lives.

#![allow(clippy::disallowed_types, reason = "the server is the one crate that is made of tonic's types")]

mod activity;
mod address;
mod answer;
mod connection;
mod face;
mod line;
mod listener;
mod member;
mod server;
mod service;
mod stopping;

pub use activity::Activity;
pub use address::Address;
pub use listener::BindError;
pub use member::{CLUSTER_VERSION, ETCD_VERSION};
pub use server::{Server, ServerOptions};
