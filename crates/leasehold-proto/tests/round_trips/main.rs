//! What goes to the wire comes back as it was: every word of the vocabulary, by way of its encoded bytes.

// Clippy's leave for tests covers only the test functions themselves, not what they share.
#![allow(clippy::expect_used)]

mod answers;
mod requests;
mod words;

use prost::Message;

/// The message as the other side would see it.
fn over_the_wire<M: Message + Default>(message: &M) -> M {
    M::decode(message.encode_to_vec().as_slice()).expect("what was encoded decodes")
}

/// A round trip cannot see a wrong number, so here are the two that do not count on from their neighbours.
#[test]
fn the_numbers_out_of_line_are_etcds() {
    use leasehold_proto::pb::{etcdserverpb as pb, mvccpb};

    let compare = pb::Compare { range_end: "b".into(), ..Default::default() };
    assert_eq!(compare.encode_to_vec(), [0x82, 0x04, 1, b'b'], "range_end is field 64");
    let response = pb::WatchResponse { events: vec![mvccpb::Event::default()], ..Default::default() };
    assert_eq!(response.encode_to_vec(), [0x5a, 0], "events is field 11");
}
