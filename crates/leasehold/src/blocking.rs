//! The locks for programs without an async runtime: the same ones, and each call blocks its thread until it is answered.
//!
//! ```
//! use std::time::Duration;
//! use leasehold::Embedded;
//! use leasehold::blocking::{Mutex, Session};
//!
//! # fn main() -> leasehold::Result<()> {
//! // Or, on a cluster: `leasehold::Remote::connect("etcd1:2379,etcd2:2379,etcd3:2379")?`
//! let session = Session::open(Embedded::start()?)?;
//! let mutex = Mutex::new(&session, "nightly-report".parse()?);
//!
//! let guard = mutex.lock()?;
//! println!("holding with token {}", guard.token());
//! // Before each step that must not happen after a loss:
//! guard.ensure_held(Duration::from_secs(1)).expect("just granted");
//! // Between steps, a pause that ends when the hold does:
//! assert_eq!(guard.lost_within(Duration::from_millis(10)), None);
//!
//! guard.release()?;
//! session.close()
//! # }
//! ```
//!
//! What is promised is what the [crate] promises: these types only wait for those of the crate's root, by whose
//! docs they are told. Leases are renewed, and losses told, by the library's own threads, however long yours is busy.
//! Where an async call is given up by dropping its future, here a `_timeout` or [`Lost::wait_timeout`] ends by itself.
//!
//! # Dropping, and the end of a program
//! Dropping a [`Guard`], or a [`DistributedLock`] that is held, gives the lock up and waits for that, a second at most;
//! what is not answered by then goes on in the background. So a lock is free when `main` returns or panics while it
//! holds. [`std::process::exit`], an abort and a signal drop nothing: then others wait until the lease has run out.
//!
//! # Inside an async runtime
//! These calls may be made there: they neither panic nor wait for the runtime. But they block the thread they are made
//! on, and with it every task that is to run on that thread; on a runtime of one thread that is all of them. Whoever
//! waits for a lock that a task of the same thread is to release waits for ever. So call them in tokio's
//! `spawn_blocking`, or use the async types. On the library's own threads, which run what is given to
//! [`Runtime::spawn`](crate::runtime::Runtime::spawn), each call fails at once, with
//! [`Error::Invalid`](crate::Error::Invalid).
//!
//! # With the async types
//! [`Session`] is made of an async one, and gives one, by `From`: both take the same locks on the same lease. A backend
//! on a clock that is not the machine's, such as a simulation's, cannot be waited for like this: its time stands still
//! while its thread is blocked.

mod distributed_lock;
mod guard;
mod lost;
mod mutex;
mod session;
mod wait;

pub use distributed_lock::DistributedLock;
pub use guard::Guard;
pub use lost::Lost;
pub use mutex::{Mutex, TryLock};
pub use session::{Session, SessionBuilder};
