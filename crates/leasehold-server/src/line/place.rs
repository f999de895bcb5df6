//! One call's place in a line, for as long as the call lasts.

use bytes::Bytes;
use leasehold_mvcc::{
    Compare, DeleteRequest, Header, Key, KeyRange, KeyValue, LeaseId, RangeRequest, Revision, SortOrder,
    SortTarget, Txn, WatchRequest,
};
use tonic::Status;

use super::{Line, LineLease, first_of};
use crate::stopping::{stopped, unless_stopped};

/// A place in a line. Dropping it gives it up, unless it is kept: the call that wanted it has ended.
pub(crate) struct Place {
    line: Line,
    prefix: Key,
    entry: KeyValue,
    /// Only the call that made the entry takes it out again: another call of the same lease may hold by it.
    made_here: bool,
    lease: LineLease,
}

/// What one look at the line shows.
enum Look {
    First(Header),
    Behind { before: Key, seen: Revision },
    Gone,
}

impl Place {
    pub(super) fn new(line: Line, prefix: Key, entry: KeyValue, lease: LineLease, made_here: bool) -> Self {
        Self { line, prefix, entry, made_here, lease }
    }

    /// The key that stands in the line.
    pub(crate) fn key(&self) -> Bytes {
        self.entry.key.to_bytes()
    }

    /// The lease it hangs on.
    pub(crate) fn lease(&self) -> LeaseId {
        self.lease.id()
    }

    /// When it was created: its place in the order.
    pub(crate) fn create_revision(&self) -> Revision {
        self.entry.create_revision
    }

    /// The value that it was found or made with.
    pub(crate) fn value(&self) -> &Bytes {
        &self.entry.value
    }

    /// Waits to be the first of the line, and gives the header of the answer that showed it. Fails at once with `gone`
    /// if the key goes, as it does with its lease: etcd lets such a client wait for its turn first.
    pub(crate) async fn first(&self, gone: impl Fn() -> Status) -> Result<Header, Status> {
        unless_stopped(self.line.stopping(), async {
            loop {
                match self.look()? {
                    Look::First(header) => return Ok(header),
                    Look::Gone => return Err(gone()),
                    Look::Behind { before, seen } => self.change(before, seen).await?,
                }
            }
        })
        .await
    }

    /// Leaves the key and its lease where they are.
    pub(crate) fn keep(mut self) -> Bytes {
        self.made_here = false;
        self.lease.made_here = false;
        self.entry.key.to_bytes()
    }

    /// That it still stands in the line.
    pub(crate) fn still_there(&self) -> Compare {
        Compare::created_at(self.entry.key.clone(), self.entry.create_revision)
    }

    fn look(&self) -> Result<Look, Status> {
        let mut before = RangeRequest::prefix(self.prefix.clone());
        before.max_create_revision = self.entry.create_revision.previous();
        let before = before.sorted(SortTarget::Create, SortOrder::Descend).limited(1);
        let answer = self.line.transact(Txn::new().when(self.still_there()).then(before))?;
        if !answer.succeeded {
            return Ok(Look::Gone);
        }
        Ok(match first_of(&answer) {
            Some(kv) => Look::Behind { before: kv.key.clone(), seen: answer.header.revision },
            None => Look::First(answer.header),
        })
    }

    /// Ends when one of the two keys was deleted after `seen`, or when that can no longer be told.
    async fn change(&self, before: Key, seen: Revision) -> Result<(), Status> {
        let (control, mut messages) = self.line.etcd().watch_stream();
        for key in [before, self.entry.key.clone()] {
            control.create(WatchRequest::range(KeyRange::key(key)).deletes_only().since(seen.next()));
        }
        loop {
            let message = messages.next().await.ok_or_else(stopped)?;
            if message.canceled || !message.events.is_empty() {
                return Ok(());
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.made_here {
            let leave = Txn::new().when(self.still_there()).then(DeleteRequest::key(self.entry.key.clone()));
            // What fails here ends with the lease.
            let _ = self.line.transact(leave);
        }
    }
}
