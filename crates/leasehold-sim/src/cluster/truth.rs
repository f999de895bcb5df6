//! What has really been committed, told by a store that no fault reaches.

use std::collections::BTreeMap;

use leasehold::runtime::Instant;
use leasehold_mvcc::{Command, EventKind, Key, KeyRange, RangeRequest, Revision, Store, StoreOptions};

use crate::history::Entry;

/// The committed log as one store, and the story of its locks' queues.
#[derive(Debug)]
pub struct Truth {
    store: Store,
    entries: Vec<Entry>,
    /// Where in `entries` the key that stands now is.
    standing: BTreeMap<Key, usize>,
    epoch: usize,
}

impl Default for Truth {
    fn default() -> Self {
        Self {
            store: Store::new(StoreOptions::default()),
            entries: Vec::new(),
            standing: BTreeMap::new(),
            epoch: 0,
        }
    }
}

impl Truth {
    /// Every queue's entries so far.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The newest revision.
    pub fn revision(&self) -> Revision {
        self.store.revision()
    }

    /// All keys that stand.
    pub fn keys(&self) -> Vec<Key> {
        let all = RangeRequest::range(KeyRange::all());
        self.store
            .range(&all)
            .map(|answer| answer.kvs.into_iter().map(|kv| kv.key).collect())
            .unwrap_or_default()
    }

    pub(super) fn apply(&mut self, now: Instant, command: &Command) {
        let outcome = self.store.apply(command.clone(), Instant::ZERO);
        for commit in outcome.commits {
            for event in commit.events {
                match event.kind {
                    EventKind::Put => self.stands(event.kv.key, event.kv.create_revision),
                    EventKind::Delete => self.is_gone(&event.kv.key, commit.revision, now),
                }
            }
        }
    }

    /// Begins anew with a part of the log.
    pub(super) fn restore(&mut self, log: &[Command]) {
        self.store = Store::new(StoreOptions::default());
        self.standing.clear();
        self.epoch += 1;
        for command in log {
            self.apply(Instant::ZERO, command);
        }
    }

    fn stands(&mut self, key: Key, created: Revision) {
        let Some((lock, _)) = std::str::from_utf8(key.as_bytes()).ok().and_then(|key| key.rsplit_once('/'))
        else {
            return;
        };
        if self.standing.contains_key(&key) {
            return;
        }
        self.entries.push(Entry {
            lock: lock.to_owned(),
            key: key.to_string(),
            created,
            removed: None,
            removed_at: None,
            epoch: self.epoch,
        });
        self.standing.insert(key, self.entries.len() - 1);
    }

    fn is_gone(&mut self, key: &Key, revision: Revision, at: Instant) {
        if let Some(entry) = self.standing.remove(key) {
            self.entries[entry].removed = Some(revision);
            self.entries[entry].removed_at = Some(at);
        }
    }
}
