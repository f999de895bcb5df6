//! The one conversion between etcd's messages and Leasehold's vocabulary.
//!
//! An answer of the whole call must have its header: without one there is no revision to believe in. Headers within
//! a transaction's answer are of no such weight, and absent ones count as empty.

mod compare;
mod entry;
mod lease;
mod range;
mod txn;
mod watch;
mod write;

pub use entry::header_of;
pub use watch::{WatchCommand, WatchCreate};
