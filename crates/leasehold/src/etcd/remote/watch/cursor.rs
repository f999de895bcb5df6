//! How far one watch has come, across broken connections.

use leasehold_mvcc::{Event, Key, Revision};

/// What was delivered of a watch, and from where it goes on.
#[derive(Debug)]
pub(super) struct Cursor {
    /// From where a new stream must start; 0 as long as nothing is known, for "from now on".
    next: Revision,
    /// Every event up to this revision was delivered.
    ///
    /// It follows from events alone, unlike `next`, which progress moves too: should a server report progress before the
    /// events it covers, they still get through.
    delivered: Revision,
    /// The keys delivered of the revision after that, if it came in fragments and they are not complete. Within one
    /// revision no key changes twice.
    begun: Option<(Revision, Vec<Key>)>,
}

impl Cursor {
    pub(super) fn new(start: Revision) -> Self {
        Self { next: start, delivered: Revision::ZERO, begun: None }
    }

    /// Where to start (again).
    pub(super) fn start(&self) -> Revision {
        self.next
    }

    /// The server has made the watch, when its store was at `now`. Gives the revision after which every event will come.
    pub(super) fn confirmed(&mut self, now: Revision) -> Revision {
        if self.next.is_zero() {
            self.next = now.next();
        }
        self.next.previous()
    }

    /// Takes the events of one message, and gives back those that were not delivered before.
    pub(super) fn take(&mut self, events: Vec<Event>, more_of_the_last: bool) -> Vec<Event> {
        let Some(last) = events.iter().map(|event| event.kv.mod_revision).max() else { return events };
        let fresh: Vec<Event> = events.into_iter().filter(|event| self.is_fresh(event)).collect();
        if more_of_the_last {
            let keys =
                fresh.iter().filter(|event| event.kv.mod_revision == last).map(|event| event.kv.key.clone());
            match &mut self.begun {
                Some((begun, known)) if *begun == last => known.extend(keys),
                begun => *begun = Some((last, keys.collect())),
            }
            self.delivered = self.delivered.max(last.previous());
            self.next = self.next.max(last);
        } else {
            if self.begun.as_ref().is_some_and(|(begun, _)| *begun <= last) {
                self.begun = None;
            }
            self.delivered = self.delivered.max(last);
            self.next = self.next.max(last.next());
        }
        fresh
    }

    fn is_fresh(&self, event: &Event) -> bool {
        let at = event.kv.mod_revision;
        let begun =
            self.begun.as_ref().is_some_and(|(begun, keys)| *begun == at && keys.contains(&event.kv.key));
        at > self.delivered && !begun
    }

    /// The server says that nothing more will come up to `revision`.
    pub(super) fn progressed(&mut self, revision: Revision) {
        if self.begun.is_none() {
            self.next = self.next.max(revision.next());
        }
    }
}

#[cfg(test)]
mod tests {
    use leasehold_mvcc::{EventKind, KeyValue};

    use super::*;

    fn at(revision: i64, key: &'static str) -> Event {
        let kv = KeyValue { key: key.into(), mod_revision: Revision::new(revision), ..KeyValue::default() };
        Event { kind: EventKind::Put, kv, prev_kv: None }
    }

    fn names(events: &[Event]) -> Vec<String> {
        events.iter().map(|event| format!("{}@{}", event.kv.key, event.kv.mod_revision)).collect()
    }

    #[test]
    fn a_watch_from_now_on_goes_on_behind_the_revision_that_confirmed_it() {
        let mut cursor = Cursor::new(Revision::ZERO);
        assert_eq!(cursor.confirmed(Revision::new(7)), Revision::new(7));
        assert_eq!(cursor.start(), Revision::new(8));
        assert_eq!(
            cursor.confirmed(Revision::new(90)),
            Revision::new(7),
            "a second stream starts where the first ended"
        );
    }

    #[test]
    fn what_comes_twice_is_delivered_once() {
        let mut cursor = Cursor::new(Revision::new(5));
        assert_eq!(names(&cursor.take(vec![at(5, "a"), at(6, "a")], false)), ["a@5", "a@6"]);
        assert_eq!(names(&cursor.take(vec![at(6, "a"), at(7, "a")], false)), ["a@7"]);
        assert_eq!(cursor.start(), Revision::new(8));
    }

    #[test]
    fn a_revision_that_came_in_part_is_asked_for_again_and_only_its_rest_delivered() {
        let mut cursor = Cursor::new(Revision::new(5));
        cursor.take(vec![at(5, "a"), at(6, "a")], true);
        cursor.take(vec![at(6, "b")], true);
        assert_eq!(cursor.start(), Revision::new(6));
        let again = vec![at(6, "a"), at(6, "b"), at(6, "c")];
        assert_eq!(names(&cursor.take(again, false)), ["c@6"]);
        assert_eq!(cursor.start(), Revision::new(7));
    }

    #[test]
    fn fragments_of_one_stream_all_get_through() {
        let mut cursor = Cursor::new(Revision::new(5));
        assert_eq!(names(&cursor.take(vec![at(5, "a")], true)), ["a@5"]);
        assert_eq!(names(&cursor.take(vec![at(5, "b")], true)), ["b@5"]);
        assert_eq!(names(&cursor.take(vec![at(5, "c"), at(9, "c")], false)), ["c@5", "c@9"]);
        assert_eq!(cursor.start(), Revision::new(10));
    }

    #[test]
    fn progress_moves_the_start_but_swallows_no_event() {
        let mut cursor = Cursor::new(Revision::new(5));
        cursor.progressed(Revision::new(40));
        assert_eq!(cursor.start(), Revision::new(41));
        assert_eq!(names(&cursor.take(vec![at(30, "late")], false)), ["late@30"]);
        assert_eq!(cursor.start(), Revision::new(41));
    }
}
