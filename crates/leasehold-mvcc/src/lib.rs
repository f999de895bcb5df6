//! The store behind Leasehold's embedded etcd, and the vocabulary every other crate speaks.
//!
//! This crate is **pure**: it has no clock, no socket, no task and no randomness. A [`Store`] takes one
//! [`Command`] at a time together with the instant at which it happens, and gives back one [`Answer`] (or the
//! very error, code and message, that etcd would give) and the [`Commit`]s that came of it. Feed the same commands
//! to two stores and they agree to the last byte, which is what makes simulation and differential tests possible.
//!
//! ```
//! use leasehold_mvcc::{Answer, Command, Compare, Instant, PutRequest, RangeRequest, Store, StoreOptions, Txn};
//!
//! let mut store = Store::new(StoreOptions::default());
//! let claim = Txn::new()
//!     .when(Compare::absent("job"))
//!     .then(PutRequest::new("job", "me"))
//!     .otherwise(RangeRequest::key("job"));
//! let outcome = store.apply(Command::Txn(claim), Instant::ZERO);
//! let Ok(Answer::Txn(answer)) = outcome.answer else { panic!("a claim is a valid transaction") };
//! assert!(answer.succeeded);
//! assert_eq!(answer.header.revision.get(), 2, "an empty etcd is at revision 1");
//! assert_eq!(outcome.commits.len(), 1);
//! ```
//!
//! The words are etcd's own: see the [etcd API reference](https://etcd.io/docs/v3.5/learning/api/).

mod answer;
mod command;
mod error;
mod event;
mod instant;
mod key;
mod number;
mod store;
mod txn;

pub use answer::{
    Answer, CompactAnswer, DeleteAnswer, Header, KeepAliveAnswer, KeyValue, LeaseGrantAnswer,
    LeaseRevokeAnswer, LeaseTimeToLiveAnswer, LeasesAnswer, PutAnswer, RangeAnswer, TxnAnswer, TxnOpAnswer,
};
pub use command::{
    Command, CompactRequest, DeleteRequest, LeaseGrantRequest, PutRequest, RangeRequest, SortOrder,
    SortTarget,
};
pub use error::{Code, StoreError};
pub use event::{Commit, Event, EventKind, WatchId, WatchRequest, WatchResponse};
pub use instant::Instant;
pub use key::{Key, KeyRange};
pub use number::{LeaseId, Revision};
pub use store::{Compacted, Outcome, Store, StoreOptions};
pub use txn::{Compare, CompareResult, CompareTarget, Txn, TxnOp};
