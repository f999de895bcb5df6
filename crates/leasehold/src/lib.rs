//! Distributed locks held by etcd leases.
//!
//! **Lock.** A [`Session`] keeps a lease alive; a [`Mutex`] waits in line on it and gives a [`Guard`].
//!
//! ```
//! use leasehold::{Embedded, Mutex, Session};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! // An etcd in this process. For more than one machine: `Remote::connect("etcd1:2379,etcd2:2379,etcd3:2379")?`
//! let session = Session::open(Embedded::start()?).await?;
//! let mutex = Mutex::new(&session, "nightly-report".parse()?);
//! let guard = mutex.lock().await?;                 // first come, first served; nothing is polled
//!
//! // LOSS. A lease can end under you: etcd away for too long, a machine that slept, somebody's hand.
//! // The guard knows in time, and why. Work is dropped at its next step,
//! let work = async { /* read, think, write */ };
//! if let Err(cause) = guard.run_while_held(work).await {
//!     eprintln!("stopped: {cause}");
//! }
//! // and what cannot be dropped asks the clock before each step that must not happen too late.
//! let margin = std::time::Duration::from_secs(1);  // what the step takes, with room to spare
//! guard.ensure_held(margin).expect("granted a moment ago");
//!
//! // FENCING. Between that check and the arrival of a write time may pass, and no lock can prevent it. So send
//! // the token along, and let the resource refuse one that is lower than the highest it has seen.
//! let token = guard.token().as_u64();              // rises with each grant
//! # let _ = token;
//!
//! // SHUTDOWN. Release says when the lock is free. A guard that is dropped, by a panic, too, is released in the
//! // background. Closing the session gives its lease back; a program that is killed leaves it for a TTL, 15 s.
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
//! | what went wrong | [`Error`], [`ErrorKind`] |
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
