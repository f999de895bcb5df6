//! Watch messages too large for a client's limit, cut into pieces that it puts together again.

use leasehold_proto::pb::etcdserverpb as pb;
use leasehold_proto::pb::mvccpb;
use prost::Message;

/// From this size on a message is cut: etcd's limit of a request, and room for what surrounds it.
const PIECE_BYTES: usize = (3 << 19) + (512 << 10);

/// The message in pieces below the limit, all but the last marked. An event is never cut: a piece of one event may be
/// larger.
pub(super) fn split(message: pb::WatchResponse) -> Vec<pb::WatchResponse> {
    split_at(message, PIECE_BYTES)
}

fn split_at(mut message: pb::WatchResponse, limit: usize) -> Vec<pb::WatchResponse> {
    if message.events.len() < 2 || message.encoded_len() < limit {
        return vec![message];
    }
    let events = std::mem::take(&mut message.events);
    // The mark is counted even where the last piece has none.
    let frame = pb::WatchResponse { fragment: true, ..message };
    let empty = frame.encoded_len();
    let mut pieces = Vec::new();
    let mut piece = frame.clone();
    let mut size = empty;
    for event in events {
        let more = size_in_message(&event);
        if !piece.events.is_empty() && size + more >= limit {
            pieces.push(std::mem::replace(&mut piece, frame.clone()));
            size = empty;
        }
        size += more;
        piece.events.push(event);
    }
    piece.fragment = false;
    pieces.push(piece);
    pieces
}

fn size_in_message(event: &mvccpb::Event) -> usize {
    let len = event.encoded_len();
    1 + prost::length_delimiter_len(len) + len
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(sizes: &[usize]) -> pb::WatchResponse {
        let event = |(at, size): (usize, &usize)| mvccpb::Event {
            kv: Some(mvccpb::KeyValue {
                version: at as i64,
                value: vec![7; *size].into(),
                ..Default::default()
            }),
            ..Default::default()
        };
        let events = sizes.iter().enumerate().map(event).collect();
        let header = Some(pb::ResponseHeader { revision: 9, ..Default::default() });
        pb::WatchResponse { header, watch_id: 3, events, ..Default::default() }
    }

    #[test]
    fn a_small_message_stays_whole() {
        let small = message(&[10, 10]);
        assert_eq!(split_at(small.clone(), 1000), [small]);
    }

    #[test]
    fn pieces_are_below_the_limit_and_hold_every_event_in_order() {
        let whole = message(&[40; 50]);
        for limit in [100, 101, 137, 500, 1999] {
            let pieces = split_at(whole.clone(), limit);
            assert!(pieces.iter().all(|piece| piece.encoded_len() < limit), "limit {limit}");
            let marks: Vec<bool> = pieces.iter().map(|piece| piece.fragment).collect();
            assert_eq!(marks.iter().filter(|mark| !**mark).count(), 1);
            assert_eq!(marks.last(), Some(&false));
            let events: Vec<_> = pieces.into_iter().flat_map(|piece| piece.events).collect();
            assert_eq!(events, whole.events);
        }
    }

    #[test]
    fn an_event_over_the_limit_has_a_piece_of_its_own() {
        let counts: Vec<usize> =
            split_at(message(&[10, 900, 10]), 200).iter().map(|piece| piece.events.len()).collect();
        assert_eq!(counts, [1, 1, 1]);
    }
}
