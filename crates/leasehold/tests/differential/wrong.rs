//! Embedded stores with a mistake in them, to see that the comparison finds it.

use leasehold_mvcc::{
    Answer, Command, Header, RangeRequest, Revision, StoreError, WatchRequest, WatchResponse,
};

use crate::embedded::Ours;
use crate::operation::Origin;
use crate::side::{FirstWord, Side, Told, Way};

#[derive(Clone, Copy, Debug)]
enum Mistake {
    /// A put that is to keep the key's lease takes it off.
    LosesLeases,
    /// The events of one revision come in the wrong order.
    ReversesEvents,
}

struct Wrong {
    ours: Ours,
    mistake: Mistake,
}

pub(crate) fn loses_leases(origin: Origin, header: Header) -> Box<dyn Side> {
    Box::new(Wrong { ours: Ours::begin(origin, header), mistake: Mistake::LosesLeases })
}

pub(crate) fn reverses_events(origin: Origin, header: Header) -> Box<dyn Side> {
    Box::new(Wrong { ours: Ours::begin(origin, header), mistake: Mistake::ReversesEvents })
}

impl Side for Wrong {
    fn call(&mut self, mut command: Command) -> Result<Answer, StoreError> {
        if let (Mistake::LosesLeases, Command::Put(put)) = (self.mistake, &mut command)
            && put.ignore_lease
            && put.lease.is_none()
            && let Ok(Answer::Range(found)) =
                self.ours.call(Command::Range(RangeRequest::key(put.key.clone())))
        {
            put.ignore_lease = found.kvs.is_empty();
        }
        self.ours.call(command)
    }

    fn watch(&mut self, way: Way, request: WatchRequest) -> FirstWord {
        self.ours.watch(way, request)
    }

    fn cancel(&mut self, watch: usize) -> WatchResponse {
        self.ours.cancel(watch)
    }

    fn settle(&mut self, expected: &[Told]) -> Option<Revision> {
        self.ours.settle(expected)
    }

    fn told(&self) -> Vec<Told> {
        let mut told = self.ours.told();
        if matches!(self.mistake, Mistake::ReversesEvents) {
            for told in &mut told {
                told.events.reverse();
                told.events.sort_by_key(|event| event.kv.mod_revision);
            }
        }
        told
    }

    fn hang_up(&mut self) {
        self.ours.hang_up();
    }
}
