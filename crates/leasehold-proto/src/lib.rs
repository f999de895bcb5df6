//! etcd's v3 wire, and the one conversion between it and Leasehold's vocabulary.
//!
//! [`pb`] holds the messages, generated from our own `.proto` files, and behind the features `client` and `server`
//! the gRPC code of all six etcd services and of etcd's lock and election services. The words that the rest of
//! Leasehold speaks are those of [`leasehold_mvcc`]; here and nowhere else the one becomes the other:
//!
//! * each request and answer, and what it is made of, has `From` to its message, and from it `From`, or `TryFrom`
//!   with a [`DecodeError`] where the wire can be wrong;
//! * [`Request`] is any [`Command`](leasehold_mvcc::Command) as a message, for a client to send;
//! * [`Call`] goes from a request message to its command and from the answer to the response message, for a server,
//!   and from the response message to the answer, for a client;
//! * [`WatchCommand`] is what a client says on a watch stream;
//! * [`code_number`] and [`code_from_number`] are the gRPC status codes.
//!
//! ```
//! use leasehold_mvcc::{Command, KeyRange, RangeRequest};
//! use leasehold_proto::{Call, Request, pb::etcdserverpb as pb};
//!
//! let command = Command::Range(RangeRequest::range(KeyRange::prefix("job/")));
//! let Some(Request::Range(message)) = Request::from_command(command.clone()) else { panic!("a range is a range") };
//! assert_eq!(message.range_end, "job0");
//! assert_eq!(message.into_command(), Ok(command));
//!
//! let refused = pb::RangeRequest { key: "job/".into(), sort_order: 7, ..Default::default() }.into_command();
//! assert_eq!(refused.unwrap_err().to_string(), "RangeRequest.sort_order has the unknown number 7");
//! ```

mod call;
mod convert;
mod error;
// Generated code is not ours to polish, and tonic's own types are what it is made of.
#[allow(
    missing_docs,
    unreachable_pub,
    rustdoc::all,
    clippy::all,
    clippy::disallowed_types,
    clippy::unwrap_used,
    clippy::use_self
)]
pub mod pb;
mod secret;
mod status;

pub use call::{Call, Request};
pub use convert::{WatchCommand, WatchCreate, header_of};
pub use error::{DecodeError, WrongAnswer};
pub use status::{code_from_number, code_number};
