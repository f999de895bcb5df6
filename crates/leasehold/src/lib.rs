//! Distributed locks held by etcd leases.
//!
//! ```
//! use std::time::Duration;
//! use leasehold::{Embedded, Mutex, Session};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! // The embedded etcd works at once; `Remote::connect("10.0.0.1:2379,10.0.0.2:2379")?` is all that differs later.
//! let session = Session::open(Embedded::start()?).await?;
//! let mutex = Mutex::new(&session, "nightly-report".parse()?);
//!
//! let guard = mutex.lock().await?;                 // first come, first served; no polling
//! let token = guard.token();                       // rises with each grant: let the resource refuse lower ones
//! guard.ensure_held(Duration::from_secs(1)).expect("just granted");
//! let done = guard.run_while_held(async {          // dropped the moment the hold can no longer be trusted
//!     format!("written under {token}")
//! }).await;
//! assert!(done.is_ok());
//! guard.release().await?;
//! session.close().await?;
//! # Ok::<(), leasehold::Error>(())
//! # }).unwrap();
//! ```
//!
//! # What is promised
//! * **Never two**: no two [`Guard`]s of one lock are valid at one instant, as long as clocks run at about the same
//!   *rate*. What they show does not matter.
//! * **Tokens only rise**: each grant has a [`FencingToken`] above all earlier ones. A resource that refuses lower
//!   tokens stays right even if a process is paused beyond reason.
//! * **Loss is told first**: a guard turns [`Lost`], with its cause, before the server may give the lock away. It needs
//!   no network for that and no free thread of yours.
//! * **Nothing is left behind** by an attempt that fails, times out or is dropped at any await point.
//!
//! Whoever deletes the lock's key or revokes its lease gives the lock away at once: then loss follows the deed, and only the
//! token protects. That is mostly somebody's hand. But etcd does it too: a leader that was frozen for longer than the TTL
//! may, when it wakes, still revoke leases that were renewed at its successor (etcd#12528, #15247; seen on 3.7.2: two
//! guards valid for some milliseconds).
//!
//! # Where to look
//! | for | see |
//! |---|---|
//! | a fair lock | [`Mutex`] |
//! | the smallest lock: one key, one token | [`DistributedLock`] |
//! | leases, shutdown | [`Session`] |
//! | programs without an async runtime | [`blocking`] |
//! | what one holds | [`Guard`], [`Lost`], [`LossCause`], [`FencingToken`] |
//! | who holds what, and who waits | [`survey`] |
//! | taking a lock from whoever has it | [`eviction`] |
//! | backends | [`etcd`]: [`Embedded`], `Remote`, [`Prefixed`] |
//! | time, tasks and chance, for simulation | [`runtime`] |
//!
//! # Features
//! | feature | default | brings |
//! |---|---|---|
//! | `remote` | yes | the gRPC client |
//! | `tls` | no | secure connections for it |
//! | `conformance` | no | the suite that any [`Etcd`](etcd::Etcd) can be run through |

pub mod blocking;
mod distributed_lock;
mod error;
pub mod etcd;
pub mod eviction;
mod exclusive;
mod hold;
mod lease;
mod mutex;
mod name;
mod queue;
pub mod runtime;
mod session;
pub mod survey;
mod turn;

pub use distributed_lock::DistributedLock;
pub use error::{Error, ErrorKind, Result};
#[cfg(feature = "tls")]
pub use etcd::TlsOptions;
#[cfg(feature = "remote")]
pub use etcd::{Credentials, Endpoint, Remote, RemoteOptions};
pub use etcd::{Embedded, EtcdExt, Prefixed};
pub use hold::{FencingToken, Guard, LossCause, Lost};
pub use leasehold_mvcc as mvcc;
pub use mutex::{Mutex, TryLock};
pub use mvcc::{Key, LeaseId, Revision};
pub use name::{LockName, Ttl};
pub use queue::{Entry, Who};
pub use session::{Session, SessionBuilder};

/// The program in the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
