//! What was: the commits since the last compaction, read backwards to find how things stood.

use std::collections::{BTreeMap, VecDeque};

use thiserror::Error;

use super::present::Present;
use crate::{Commit, Event, EventKind, Key, KeyRange, KeyValue, Revision, WatchRequest};

/// The events that a watch asks for are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("etcdserver: mvcc: required revision has been compacted")]
pub struct Compacted {
    /// The oldest revision from which one can watch now.
    pub compact_revision: Revision,
}

/// The commits since the last compaction, oldest first. Every event in them carries what stood there at the revision
/// before, so an old state is the present one with the newer events taken back: writes pay nothing for it, a
/// compaction only lets go of commits, and a read costs as much as has happened since the revision it asks for.
#[derive(Clone, Debug)]
pub(super) struct Past {
    commits: VecDeque<Commit>,
    compacted: Revision,
}

impl Past {
    /// The past of an empty store at its first revision.
    pub(super) fn starting_at(first: Revision) -> Self {
        // etcd counts a history of which nothing was compacted as compacted at -1: so a first compaction at 0 is
        // allowed. A store that follows another cannot tell what happened at the revisions of that one.
        let compacted = if first > Revision::new(1) { first } else { Revision::new(-1) };
        Self { commits: VecDeque::new(), compacted }
    }

    /// The oldest revision that can be read; negative if nothing was compacted.
    pub(super) fn compacted(&self) -> Revision {
        self.compacted
    }

    pub(super) fn push(&mut self, commit: Commit) {
        self.commits.push_back(commit);
    }

    pub(super) fn compact(&mut self, revision: Revision) {
        self.compacted = revision;
        // The events of the compacted revision itself stay: a watch may still start there.
        while self.commits.front().is_some_and(|commit| commit.revision < revision) {
            self.commits.pop_front();
        }
    }

    /// How the keys of a range stood at an old revision, in their order. `pending` are the events of a commit in the
    /// making, which `present` already shows.
    pub(super) fn at<'a>(
        &'a self,
        revision: Revision,
        range: &KeyRange,
        present: &'a Present,
        pending: &'a [Event],
    ) -> Vec<&'a KeyValue> {
        let mut keys: BTreeMap<&Key, &KeyValue> =
            present.in_range(range).into_iter().map(|kv| (&kv.key, kv)).collect();
        let newer = self.commits.iter().rev().take_while(|commit| commit.revision > revision);
        let newer = newer.flat_map(|commit| commit.events.iter().rev());
        for event in pending.iter().rev().chain(newer).filter(|event| range.contains(&event.kv.key)) {
            match &event.prev_kv {
                Some(before) => keys.insert(&event.kv.key, before),
                None => keys.remove(&event.kv.key),
            };
        }
        keys.into_values().collect()
    }

    /// See [`super::Store::history`].
    pub(super) fn history(&self, request: &WatchRequest, from: Revision) -> Result<Vec<Commit>, Compacted> {
        if from < self.compacted {
            return Err(Compacted { compact_revision: self.compacted.max(Revision::ZERO) });
        }
        let start = self.commits.partition_point(|commit| commit.revision < from);
        let commits = self.commits.iter().skip(start).filter_map(|commit| {
            let events: Vec<Event> = self.wanted(commit, request).collect();
            (!events.is_empty()).then_some(Commit { revision: commit.revision, events })
        });
        Ok(commits.collect())
    }

    fn wanted<'a>(
        &'a self,
        commit: &'a Commit,
        request: &'a WatchRequest,
    ) -> impl Iterator<Item = Event> + 'a {
        let compacted = commit.revision <= self.compacted;
        let events = commit.events.iter().enumerate().filter(move |(at, event)| {
            let hidden = match event.kind {
                EventKind::Put => request.no_put,
                EventKind::Delete => request.no_delete,
            };
            // Of a key that changed twice within the compacted revision, only the last state is kept.
            let superseded =
                || compacted && commit.events[at + 1..].iter().any(|later| later.kv.key == event.kv.key);
            !hidden && request.range.contains(&event.kv.key) && !superseded()
        });
        events.map(move |(_, event)| Event {
            kind: event.kind,
            kv: event.kv.clone(),
            // What stood before the compacted revision is compacted.
            prev_kv: if request.prev_kv && !compacted { event.prev_kv.clone() } else { None },
        })
    }
}
