//! The keys that exist now.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::{Key, KeyRange, KeyValue};

/// All keys that exist now, in order. Deleted keys are not here, so the cost of a range is that of what it finds,
/// however many keys came and went in it.
#[derive(Clone, Debug, Default)]
pub(super) struct Present {
    keys: BTreeMap<Key, KeyValue>,
}

impl Present {
    pub(super) fn get(&self, key: &Key) -> Option<&KeyValue> {
        self.keys.get(key)
    }

    /// Writes a key; gives what was there before.
    pub(super) fn insert(&mut self, kv: KeyValue) -> Option<KeyValue> {
        self.keys.insert(kv.key.clone(), kv)
    }

    pub(super) fn remove(&mut self, key: &Key) -> Option<KeyValue> {
        self.keys.remove(key)
    }

    /// The keys of a range that is not a single key, in order.
    pub(super) fn span(&self, range: &KeyRange) -> impl Iterator<Item = &KeyValue> + use<'_> {
        let end = if range.is_open() {
            Bound::Unbounded
        } else {
            // A map panics at bounds that cross; to etcd such a range is just empty.
            Bound::Excluded((&range.end).max(&range.start))
        };
        self.keys.range::<Key, _>((Bound::Included(&range.start), end)).map(|(_, kv)| kv)
    }

    /// The keys of any range, in order.
    pub(super) fn in_range(&self, range: &KeyRange) -> Vec<&KeyValue> {
        if range.is_single() {
            self.get(&range.start).into_iter().collect()
        } else {
            self.span(range).collect()
        }
    }

    pub(super) fn count(&self, range: &KeyRange) -> usize {
        if range.is_single() {
            usize::from(self.keys.contains_key(&range.start))
        } else {
            self.span(range).count()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn present(keys: &[&'static str]) -> Present {
        let mut present = Present::default();
        for key in keys {
            present.insert(KeyValue { key: Key::from(*key), ..KeyValue::default() });
        }
        present
    }

    #[test]
    fn a_range_that_ends_before_it_starts_is_empty() {
        let present = present(&["a", "b", "c"]);
        for range in [KeyRange::between("c", "a"), KeyRange::between("b", "b"), KeyRange::between("b", "a")] {
            assert_eq!(present.count(&range), 0, "{range:?}");
            assert!(present.in_range(&range).is_empty(), "{range:?}");
        }
    }

    #[test]
    fn a_range_gives_its_keys_in_order() {
        let present = present(&["c", "a", "b", "d"]);
        let keys: Vec<_> =
            present.in_range(&KeyRange::between("b", "d")).iter().map(|kv| kv.key.to_string()).collect();
        assert_eq!(keys, ["b", "c"]);
        assert_eq!(present.count(&KeyRange::all()), 4);
        assert_eq!(present.count(&KeyRange::key("c")), 1);
    }
}
