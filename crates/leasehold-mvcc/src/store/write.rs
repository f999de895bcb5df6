//! Writes: the changes of one commit in the making.

use super::lease::Leases;
use super::past::Past;
use super::present::Present;
use super::read::View;
use crate::{
    DeleteAnswer, DeleteRequest, Event, EventKind, Header, Key, KeyValue, LeaseId, PutAnswer, PutRequest,
    Revision,
};

/// One commit in the making. It changes the present as it goes, so later operations see earlier ones; whatever could
/// be refused must have been before it starts.
pub(super) struct Writer<'a> {
    present: &'a mut Present,
    past: &'a Past,
    leases: &'a mut Leases,
    /// The revision before.
    before: Revision,
    events: Vec<Event>,
}

impl<'a> Writer<'a> {
    pub(super) fn new(
        present: &'a mut Present,
        past: &'a Past,
        leases: &'a mut Leases,
        before: Revision,
    ) -> Self {
        Self { present, past, leases, before, events: Vec::new() }
    }

    /// The changes made; none at all make no revision.
    pub(super) fn finish(self) -> Vec<Event> {
        self.events
    }

    /// The state as changed so far.
    pub(super) fn view(&self) -> View<'_> {
        View { present: self.present, past: self.past, pending: &self.events, revision: self.revision() }
    }

    pub(super) fn revision(&self) -> Revision {
        if self.events.is_empty() { self.before } else { self.before.next() }
    }

    /// Writes a key. The header of the answer holds the revision only.
    pub(super) fn put(&mut self, request: PutRequest) -> PutAnswer {
        let before = self.present.get(&request.key);
        let revision = self.before.next();
        let kv = KeyValue {
            value: match before {
                Some(before) if request.ignore_value => before.value.clone(),
                _ => request.value,
            },
            create_revision: before.map_or(revision, |before| before.create_revision),
            mod_revision: revision,
            version: before.map_or(0, |before| before.version).saturating_add(1),
            lease: match before {
                Some(before) if request.ignore_lease => before.lease,
                _ => request.lease,
            },
            key: request.key,
        };
        let lease_before = before.map_or(LeaseId::NONE, |before| before.lease);
        if lease_before != kv.lease {
            self.leases.detach(lease_before, &kv.key);
            self.leases.attach(kv.lease, &kv.key);
        }
        let before = self.present.insert(kv.clone());
        let prev_kv = if request.prev_kv { before.clone() } else { None };
        self.note(Event { kind: EventKind::Put, kv, prev_kv: before });
        PutAnswer { header: Header { revision, ..Header::default() }, prev_kv }
    }

    /// Deletes a range. The header of the answer holds the revision only.
    pub(super) fn delete(&mut self, request: &DeleteRequest) -> DeleteAnswer {
        let mut answer = DeleteAnswer::default();
        let mut note = |removed: Option<KeyValue>| {
            if let Some(kv) = removed {
                answer.deleted = answer.deleted.saturating_add(1);
                if request.prev_kv {
                    answer.prev_kvs.push(kv);
                }
            }
        };
        if request.range.is_single() {
            note(self.delete_key(&request.range.start));
        } else {
            let keys: Vec<Key> = self.present.span(&request.range).map(|kv| kv.key.clone()).collect();
            for key in &keys {
                note(self.delete_key(key));
            }
        }
        answer.header.revision = self.revision();
        answer
    }

    /// Deletes one key; gives what was there.
    pub(super) fn delete_key(&mut self, key: &Key) -> Option<KeyValue> {
        let removed = self.present.remove(key)?;
        self.leases.detach(removed.lease, key);
        let revision = self.before.next();
        let prev_kv = if removed.mod_revision == revision {
            self.before_this_commit(key)
        } else {
            Some(removed.clone())
        };
        let kv = KeyValue { key: removed.key.clone(), mod_revision: revision, ..KeyValue::default() };
        self.note(Event { kind: EventKind::Delete, kv, prev_kv });
        Some(removed)
    }

    fn note(&mut self, event: Event) {
        if self.events.is_empty() {
            // Most commits have one event, and a vector would make room for four.
            self.events.reserve_exact(1);
        }
        self.events.push(event);
    }

    /// How a key that this commit has changed already stood before it: to an event, "before" is the revision before.
    fn before_this_commit(&self, key: &Key) -> Option<KeyValue> {
        self.events.iter().find(|event| event.kv.key == *key).and_then(|event| event.prev_kv.clone())
    }
}
