//! Following who leads, and what the leader says.

use std::collections::VecDeque;

use bytes::Bytes;
use leasehold::etcd::WatchStream;
use leasehold_mvcc::{EventKind, Header, KeyRange, KeyValue, WatchRequest, WatchResponse};
use leasehold_proto::pb::v3electionpb as pb;
use tonic::Status;

use crate::line::{Line, prefix_of};
use crate::stopping::{stopped, unless_stopped};

/// An observer's view of one election: the leader, each value it proclaims, and then the next leader.
pub(super) struct Observation {
    line: Line,
    name: Bytes,
    following: Following,
    /// Seen and not told yet.
    seen: VecDeque<pb::LeaderResponse>,
}

enum Following {
    /// It is time to look who leads.
    Nobody,
    /// Nobody leads: what happens in the line is a reason to look.
    Line(WatchStream),
    /// What happens to the leader's key is what the leader says.
    Leader(WatchStream),
}

impl Observation {
    pub(super) fn new(line: Line, name: Bytes) -> Self {
        Self { line, name, following: Following::Nobody, seen: VecDeque::new() }
    }

    /// The next that is to be told.
    pub(super) async fn next(&mut self) -> Result<pb::LeaderResponse, Status> {
        let stopping = self.line.stopping().clone();
        unless_stopped(&stopping, async {
            loop {
                if let Some(leader) = self.seen.pop_front() {
                    return Ok(leader);
                }
                match &mut self.following {
                    Following::Nobody => self.look()?,
                    Following::Line(messages) => {
                        let message = messages.next().await.ok_or_else(stopped)?;
                        if message.canceled || !message.events.is_empty() {
                            self.following = Following::Nobody;
                        }
                    }
                    Following::Leader(messages) => {
                        let message = messages.next().await.ok_or_else(stopped)?;
                        self.hear(message);
                    }
                }
            }
        })
        .await
    }

    /// Looks who leads, and follows that key from there on; or the line, if nobody does.
    fn look(&mut self) -> Result<(), Status> {
        let (header, first) = self.line.first(&self.name)?;
        let (control, messages) = self.line.etcd().watch_stream();
        let range = match first {
            Some(leader) => {
                let range = KeyRange::key(leader.key.clone());
                self.tell(header, leader);
                self.following = Following::Leader(messages);
                range
            }
            None => {
                self.following = Following::Line(messages);
                KeyRange::prefix(prefix_of(&self.name))
            }
        };
        control.create(WatchRequest::range(range).since(header.revision.next()));
        Ok(())
    }

    fn hear(&mut self, message: WatchResponse) {
        let mut leads = !message.canceled;
        for event in message.events {
            match event.kind {
                EventKind::Put => self.tell(message.header, event.kv),
                EventKind::Delete => leads = false,
            }
        }
        if !leads {
            self.following = Following::Nobody;
        }
    }

    fn tell(&mut self, header: Header, leader: KeyValue) {
        self.seen.push_back(pb::LeaderResponse { header: Some(header.into()), kv: Some(leader.into()) });
    }
}
