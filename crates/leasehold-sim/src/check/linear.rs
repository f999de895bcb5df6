//! (g): the answers to plain operations on one key fit one order, in which each takes effect at one instant between its
//! call and its answer.
//!
//! The search is Wing and Gong's, with Lowe's memory of what was seen: a set of operations carried out, and the value
//! that it leaves, need to be looked at once. Linearizability is local, so each key is judged by itself.

use std::collections::{BTreeMap, HashSet};

use leasehold::runtime::Instant;

use super::{Promise, Violation};
use crate::history::{Operation, Step};

/// How many steps may be spent on one key.
const BUDGET: usize = 3_000_000;

/// What contradicts itself, and how many keys were not decided within the budget.
pub(super) fn check(operations: &[Operation]) -> (Vec<Violation>, usize) {
    let mut keys: BTreeMap<&str, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        // A read without an answer says nothing.
        if !(operation.answered.is_none() && matches!(operation.step, Step::Read(_))) {
            keys.entry(&operation.key).or_default().push(operation);
        }
    }
    let (mut violations, mut undecided) = (Vec::new(), 0);
    for operations in keys.into_values() {
        match Search::new(operations).run(BUDGET) {
            Verdict::Fits => {}
            Verdict::Undecided => undecided += 1,
            Verdict::Broken(violation) => violations.push(violation),
        }
    }
    (violations, undecided)
}

enum Verdict {
    Fits,
    Undecided,
    Broken(Violation),
}

/// A set of operations, by their places.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Done(Vec<u64>);

impl Done {
    fn has(&self, place: usize) -> bool {
        self.0[place / 64] & (1 << (place % 64)) != 0
    }

    fn with(&self, place: usize) -> Self {
        let mut more = self.clone();
        more.0[place / 64] |= 1 << (place % 64);
        more
    }
}

struct Search<'a> {
    /// In the order of their calls.
    operations: Vec<&'a Operation>,
}

impl<'a> Search<'a> {
    fn new(mut operations: Vec<&'a Operation>) -> Self {
        operations.sort_by_key(|operation| operation.called);
        Self { operations }
    }

    fn run(&self, budget: usize) -> Verdict {
        let mut seen: HashSet<(Done, Option<&str>)> = HashSet::new();
        let nothing = Done(vec![0; self.operations.len().div_ceil(64)]);
        let mut todo: Vec<(Done, Option<&str>)> = vec![(nothing, None)];
        // The operation that is next to be answered where the search came furthest.
        let mut furthest: (Instant, Option<&Operation>) = (Instant::ZERO, None);
        let mut steps = 0;
        while let Some((done, value)) = todo.pop() {
            let open = |place: &usize| !done.has(*place);
            let places = (0..self.operations.len()).filter(open);
            let first_answer =
                places.clone().filter_map(|place| Some((self.operations[place].answered?, place))).min();
            let Some((answer, next)) = first_answer else { return Verdict::Fits };
            if furthest.1.is_none() || answer > furthest.0 {
                furthest = (answer, Some(self.operations[next]));
            }
            // What was called after that answer cannot have come before it.
            for place in places.take_while(|place| self.operations[*place].called <= answer) {
                steps += 1;
                if steps > budget {
                    return Verdict::Undecided;
                }
                if let Some(after) = effect(self.operations[place], value) {
                    let state = (done.with(place), after);
                    if seen.insert(state.clone()) {
                        todo.push(state);
                    }
                }
            }
        }
        let (at, operation) = furthest;
        let what = operation.map_or_else(String::new, |operation| {
            format!(
                "no order explains what {} was answered about {}: {:?}, called at {:?}",
                operation.client,
                operation.key,
                operation.step,
                operation.called.since(Instant::ZERO)
            )
        });
        Verdict::Broken(Violation { promise: Promise::Linearizable, at, what })
    }
}

/// The value that an operation leaves, if its answer fits the value before.
fn effect<'a>(operation: &'a Operation, before: Option<&'a str>) -> Option<Option<&'a str>> {
    match &operation.step {
        Step::Read(told) => {
            let fits = told.as_ref().is_none_or(|told| told.as_deref() == before);
            fits.then_some(before)
        }
        Step::Put(value) => Some(Some(value)),
        Step::Delete(told) => told.is_none_or(|deleted| deleted == before.is_some()).then_some(None),
        Step::CompareAndPut { expected, new, done } => {
            let does = expected.as_deref() == before;
            done.is_none_or(|done| done == does).then_some(if does { Some(new) } else { before })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::made::at;
    use super::*;
    use crate::executor::Random;

    fn operation(called: u64, answered: Option<u64>, step: Step) -> Operation {
        let (client, key) = ("client".to_owned(), "key".to_owned());
        Operation { client, key, called: at(called), answered: answered.map(at), step }
    }

    fn read(called: u64, answered: u64, value: Option<&str>) -> Operation {
        operation(called, Some(answered), Step::Read(Some(value.map(str::to_owned))))
    }

    fn put(called: u64, answered: Option<u64>, value: &str) -> Operation {
        operation(called, answered, Step::Put(value.to_owned()))
    }

    fn claim(called: u64, answered: u64, value: &str, done: bool) -> Operation {
        let step = Step::CompareAndPut { expected: None, new: value.to_owned(), done: Some(done) };
        operation(called, Some(answered), step)
    }

    fn delete(called: u64, answered: u64, deleted: bool) -> Operation {
        operation(called, Some(answered), Step::Delete(Some(deleted)))
    }

    fn fits(operations: &[Operation]) -> bool {
        let (violations, undecided) = check(operations);
        assert_eq!(undecided, 0);
        violations.is_empty()
    }

    #[test]
    fn a_read_may_see_what_overlaps_it_and_must_see_what_is_over() {
        assert!(fits(&[put(1, Some(4), "a"), read(2, 3, None)]));
        assert!(fits(&[put(1, Some(4), "a"), read(2, 3, Some("a"))]));
        assert!(!fits(&[put(1, Some(2), "a"), read(3, 4, None)]));
        assert!(!fits(&[put(1, Some(4), "a"), read(2, 3, Some("a")), read(5, 6, None)]));
    }

    #[test]
    fn a_write_without_an_answer_may_come_late_or_never_but_not_before_its_call() {
        assert!(fits(&[put(1, None, "a"), read(2, 3, None)]));
        assert!(fits(&[
            put(1, None, "a"),
            put(2, Some(3), "b"),
            read(4, 5, Some("b")),
            read(6, 7, Some("a"))
        ]));
        assert!(!fits(&[read(1, 2, Some("a")), put(3, None, "a")]));
        assert!(!fits(&[put(1, None, "a"), read(2, 3, Some("a")), read(4, 5, None)]));
    }

    #[test]
    fn of_two_claims_one_succeeds() {
        assert!(fits(&[claim(1, 5, "a", true), claim(1, 5, "b", false)]));
        assert!(!fits(&[claim(1, 5, "a", true), claim(1, 5, "b", true)]));
        assert!(!fits(&[claim(1, 5, "a", false), claim(1, 5, "b", false)]));
        assert!(fits(&[claim(1, 2, "a", true), delete(3, 4, true), claim(5, 6, "b", true)]));
        assert!(!fits(&[claim(1, 2, "a", true), delete(3, 4, false)]));
    }

    #[test]
    fn keys_are_judged_apart() {
        let mut elsewhere = read(3, 4, None);
        elsewhere.key = "another".to_owned();
        assert!(fits(&[put(1, Some(2), "a"), elsewhere]));
    }

    /// Operations that were carried out in the order given, with calls and answers spread around that.
    fn carried_out(seed: u64, count: u64, unknown: u64) -> Vec<Operation> {
        let mut random = Random::new(seed);
        let mut value: Option<String> = None;
        let mut operations = Vec::new();
        for place in 1..=count {
            let new = format!("{}", random.below(4));
            let step = match random.below(4) {
                0 => Step::Read(Some(value.clone())),
                1 => {
                    value = Some(new.clone());
                    Step::Put(new)
                }
                2 => Step::Delete(Some(value.take().is_some())),
                _ => {
                    let done = value.is_none();
                    value.get_or_insert(new.clone());
                    Step::CompareAndPut { expected: None, new, done: Some(done) }
                }
            };
            let instant = place * 10;
            let called = instant - random.next() % 40.min(instant);
            let answered = (random.next() % 100 >= unknown).then(|| instant + random.next() % 40);
            operations.push(operation(called, answered, step));
        }
        operations
    }

    #[test]
    fn whatever_was_carried_out_in_some_order_fits() {
        for seed in 0..300 {
            assert!(fits(&carried_out(seed, 40, 10)), "seed {seed}");
        }
    }

    #[test]
    fn three_hundred_operations_are_decided() {
        for seed in 0..5 {
            assert!(fits(&carried_out(seed, 300, 5)), "seed {seed}");
        }
    }

    /// By trying all orders of all choices of what was carried out.
    fn fits_by_force(left: &[Operation], value: Option<&str>) -> bool {
        if left.iter().all(|operation| operation.answered.is_none()) {
            return true;
        }
        let answer = left.iter().filter_map(|operation| operation.answered).min().unwrap_or_default();
        (0..left.len()).any(|place| {
            let mut rest = left.to_vec();
            let first = rest.remove(place);
            first.called <= answer && effect(&first, value).is_some_and(|after| fits_by_force(&rest, after))
        })
    }

    #[test]
    fn the_search_agrees_with_one_that_tries_everything() {
        let mut broken = 0;
        for seed in 0..2000 {
            let mut operations = carried_out(seed, 6, 20);
            let mut random = Random::new(!seed);
            // One answer is changed, which may or may not be explained.
            let changed = random.below(operations.len());
            if let Step::Read(Some(value)) = &mut operations[changed].step {
                *value = Some("3".to_owned());
            } else if let Step::Delete(Some(deleted)) = &mut operations[changed].step {
                *deleted = !*deleted;
            }
            let expected = fits_by_force(&operations, None);
            assert_eq!(fits(&operations), expected, "seed {seed}: {operations:#?}");
            broken += u32::from(!expected);
        }
        assert!(broken > 100, "{broken}");
    }
}
