//! The line before a lock or an election, in the layout of Go's `concurrency` package: one key a lease below the name,
//! the oldest of them first in the line. etcd's own services stand in it for their clients; so do these.

mod place;

use bytes::Bytes;
use leasehold::Embedded;
use leasehold_mvcc::{
    Answer, Command, Compare, Header, Key, KeyValue, LeaseGrantRequest, LeaseId, PutRequest, RangeRequest,
    SortOrder, SortTarget, Txn, TxnAnswer, TxnOpAnswer,
};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::answer::status_without_code as refused;
pub(crate) use place::Place;

/// The life of a lease that the server makes for a client which names none, in seconds. As in etcd nobody renews it.
const SERVER_LEASE_TTL: i64 = 60;

/// Stands in lines for clients.
#[derive(Clone)]
pub(crate) struct Line {
    etcd: Embedded,
    stopping: CancellationToken,
}

impl Line {
    pub(crate) fn new(etcd: Embedded, stopping: CancellationToken) -> Self {
        Self { etcd, stopping }
    }

    /// Goes to the end of the line of `name`, or back to the place that the lease has in it.
    pub(crate) fn enter(&self, name: &[u8], lease: LeaseId, value: Bytes) -> Result<Place, Status> {
        let lease = self.lease_or_new(lease)?;
        let key = Key::from(lease.id().to_string()).prefixed(prefix_of(name).as_bytes());
        let claim = Txn::new()
            .when(Compare::absent(key.clone()))
            .then(PutRequest::new(key.clone(), value.clone()).on(lease.id()))
            .otherwise(RangeRequest::key(key.clone()));
        let answer = self.transact(claim)?;
        let entry = match first_of(&answer) {
            Some(found) => found.clone(),
            None => KeyValue { key, value, create_revision: answer.header.revision, ..KeyValue::default() },
        };
        Ok(Place::new(self.clone(), prefix_of(name), entry, lease, answer.succeeded))
    }

    /// The client's lease, or one made now if it names none.
    pub(crate) fn lease_or_new(&self, id: LeaseId) -> Result<LineLease, Status> {
        if !id.is_none() {
            return Ok(LineLease { etcd: self.etcd.clone(), id, made_here: false });
        }
        let request = LeaseGrantRequest { ttl: SERVER_LEASE_TTL, id };
        match self.etcd.apply(Command::LeaseGrant(request)).map_err(refused)? {
            Answer::LeaseGrant(granted) => {
                Ok(LineLease { etcd: self.etcd.clone(), id: granted.id, made_here: true })
            }
            _ => Err(no_answer()),
        }
    }

    /// Who is first in a line.
    pub(crate) fn first(&self, name: &[u8]) -> Result<(Header, Option<KeyValue>), Status> {
        let first =
            RangeRequest::prefix(prefix_of(name)).sorted(SortTarget::Create, SortOrder::Ascend).limited(1);
        match self.etcd.apply(Command::Range(first)).map_err(refused)? {
            Answer::Range(answer) => Ok((answer.header, answer.kvs.into_iter().next())),
            _ => Err(no_answer()),
        }
    }

    pub(crate) fn transact(&self, txn: Txn) -> Result<TxnAnswer, Status> {
        match self.etcd.apply(Command::Txn(txn)).map_err(refused)? {
            Answer::Txn(answer) => Ok(answer),
            _ => Err(no_answer()),
        }
    }

    pub(crate) fn etcd(&self) -> &Embedded {
        &self.etcd
    }

    pub(crate) fn stopping(&self) -> &CancellationToken {
        &self.stopping
    }
}

/// Every key of a name's line.
pub(crate) fn prefix_of(name: &[u8]) -> Key {
    Key::from([name, b"/"].concat())
}

/// A lease for a place in a line. One that was made here ends when this is dropped, unless it is kept.
pub(crate) struct LineLease {
    etcd: Embedded,
    id: LeaseId,
    made_here: bool,
}

impl LineLease {
    pub(crate) fn id(&self) -> LeaseId {
        self.id
    }

    /// Leaves the lease to whoever was told of it.
    pub(crate) fn keep(mut self) {
        self.made_here = false;
    }
}

impl Drop for LineLease {
    fn drop(&mut self) {
        if self.made_here {
            // It may have run out by itself.
            let _ = self.etcd.apply(Command::LeaseRevoke(self.id));
        }
    }
}

/// The first key that the transaction's one read found.
fn first_of(answer: &TxnAnswer) -> Option<&KeyValue> {
    answer.ops.first().and_then(TxnOpAnswer::as_range)?.kvs.first()
}

fn no_answer() -> Status {
    Status::internal("the store answers another question")
}
