//! What is done to both sides, and how a list of it keeps its meaning when it is shortened.

use std::fmt;

use leasehold_mvcc::{
    Command, CompactRequest, Compare, CompareTarget, DeleteRequest, Instant, PutRequest, RangeRequest,
    Revision, Store, StoreOptions, Txn, TxnOp, WatchRequest,
};

/// One step of a list. Revisions are counted as if the list began at revision 1; what is 0 or less stands for itself.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operation {
    Call(Command),
    Watch(WatchRequest),
    /// Ends one of the open watches, counted around.
    Cancel(usize),
    /// Kills the real etcd and starts it again on its data. All watches end with it.
    Restart,
}

/// How things stand when a list begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// As a new etcd: revision 1, and nothing was ever compacted.
    Fresh,
    /// As one that lived, but is empty: all up to the first revision is compacted.
    Emptied,
}

impl Origin {
    /// A store at revision 1 that stands so.
    pub(crate) fn model(self) -> Store {
        let mut store = Store::new(StoreOptions::default());
        if self == Self::Emptied {
            let request = CompactRequest { revision: Revision::new(1), physical: true };
            store.apply(Command::Compact(request), Instant::ZERO);
        }
        store
    }
}

impl Operation {
    /// The same step of a list that begins at this revision.
    pub(crate) fn starting_at(&self, first: Revision) -> Self {
        let mut moved = self.clone();
        moved.each_revision(&mut |revision| {
            if *revision > Revision::ZERO {
                // A filter may ask for the greatest number there is.
                *revision = Revision::new(revision.get().saturating_add(first.get() - 1));
            }
        });
        moved
    }

    /// Every place where it names a revision.
    fn each_revision(&mut self, change: &mut dyn FnMut(&mut Revision)) {
        match self {
            Self::Call(Command::Range(request)) => in_range(request, change),
            Self::Call(Command::Txn(txn)) => in_txn(txn, change),
            Self::Call(Command::Compact(request)) => change(&mut request.revision),
            Self::Watch(request) => change(&mut request.start_revision),
            Self::Call(_) | Self::Cancel(_) | Self::Restart => {}
        }
    }
}

fn in_range(request: &mut RangeRequest, change: &mut dyn FnMut(&mut Revision)) {
    change(&mut request.revision);
    change(&mut request.min_mod_revision);
    change(&mut request.max_mod_revision);
    change(&mut request.min_create_revision);
    change(&mut request.max_create_revision);
}

fn in_txn(txn: &mut Txn, change: &mut dyn FnMut(&mut Revision)) {
    for compare in &mut txn.compare {
        if let CompareTarget::Create(revision) | CompareTarget::Mod(revision) = &mut compare.target {
            change(revision);
        }
    }
    for op in txn.success.iter_mut().chain(&mut txn.failure) {
        match op {
            TxnOp::Range(request) => in_range(request, change),
            TxnOp::Txn(txn) => in_txn(txn, change),
            TxnOp::Put(_) | TxnOp::Delete(_) => {}
        }
    }
}

/// The list without some of its steps. What remains goes on naming the same moments: a revision that a step made is
/// named by the number it has now, and one that was in the future is as far in the future as it was.
pub(crate) fn without(list: &[Operation], origin: Origin, gone: &dyn Fn(usize) -> bool) -> Vec<Operation> {
    let (mut before, mut after) = (origin.model(), origin.model());
    // The revision that the old list had reached at each step, and what the new one has reached by then.
    let mut reached = vec![(before.revision(), after.revision())];
    let mut kept = Vec::new();
    for (at, operation) in list.iter().enumerate() {
        if !gone(at) {
            let mut operation = operation.clone();
            let (old_now, new_now) = (before.revision(), after.revision());
            operation.each_revision(&mut |revision| {
                if *revision > old_now {
                    let ahead = revision.get() - old_now.get();
                    *revision = Revision::new(new_now.get().saturating_add(ahead));
                } else if *revision > Revision::ZERO {
                    let made = reached.partition_point(|(old, _)| old < revision);
                    *revision = reached.get(made).map_or(new_now, |(_, new)| *new);
                }
            });
            apply(&mut after, &operation);
            kept.push(operation);
        }
        apply(&mut before, operation);
        reached.push((before.revision(), after.revision()));
    }
    kept
}

fn apply(store: &mut Store, operation: &Operation) {
    if let Operation::Call(command) = operation {
        store.apply(command.clone(), Instant::ZERO);
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(command) => write!(f, "{}", of_command(command)),
            Self::Watch(request) => write!(f, "watch {}", unusual(request, &WatchRequest::default())),
            Self::Cancel(nth) => write!(f, "cancel watch {nth}"),
            Self::Restart => f.write_str("restart etcd"),
        }
    }
}

fn of_command(command: &Command) -> String {
    match command {
        Command::Range(request) => of_range(request),
        Command::Put(request) => of_put(request),
        Command::Delete(request) => of_delete(request),
        Command::Txn(txn) => of_txn(txn),
        other => format!("{other:?}"),
    }
}

fn of_range(request: &RangeRequest) -> String {
    format!("range {}", unusual(request, &RangeRequest::default()))
}

fn of_put(request: &PutRequest) -> String {
    format!("put {}", unusual(request, &PutRequest::default()))
}

fn of_delete(request: &DeleteRequest) -> String {
    format!("delete {}", unusual(request, &DeleteRequest { range: Default::default(), prev_kv: false }))
}

fn of_txn(txn: &Txn) -> String {
    let when: Vec<String> = txn.compare.iter().map(of_compare).collect();
    let ops = |ops: &[TxnOp]| ops.iter().map(of_op).collect::<Vec<_>>().join("; ");
    format!("txn if [{}] then [{}] else [{}]", when.join("; "), ops(&txn.success), ops(&txn.failure))
}

fn of_op(op: &TxnOp) -> String {
    match op {
        TxnOp::Range(request) => of_range(request),
        TxnOp::Put(request) => of_put(request),
        TxnOp::Delete(request) => of_delete(request),
        TxnOp::Txn(txn) => of_txn(txn),
    }
}

fn of_compare(compare: &Compare) -> String {
    format!("{:?} {:?} {:?}", compare.range, compare.target, compare.result)
}

/// The fields of a request that are not as they are by default.
fn unusual<T: fmt::Debug>(request: &T, default: &T) -> String {
    let (given, usual) = (fields(&format!("{request:?}")), fields(&format!("{default:?}")));
    given.into_iter().filter(|field| !usual.contains(field)).collect::<Vec<_>>().join(", ")
}

/// The fields of a struct that was printed for debugging.
fn fields(printed: &str) -> Vec<String> {
    let inner = printed.split_once(" { ").map_or(printed, |(_, rest)| rest.trim_end_matches(" }"));
    let (mut fields, mut depth, mut quoted, mut escaped) = (vec![String::new()], 0_i32, false, false);
    for letter in inner.chars() {
        match letter {
            '"' if !escaped => quoted = !quoted,
            '(' | '[' | '{' if !quoted => depth += 1,
            ')' | ']' | '}' if !quoted => depth -= 1,
            ',' if !quoted && depth == 0 => {
                fields.push(String::new());
                continue;
            }
            _ => {}
        }
        escaped = letter == '\\' && !escaped;
        if let Some(field) = fields.last_mut() {
            field.push(letter);
        }
    }
    fields.iter().map(|field| field.trim().to_owned()).collect()
}

/// So much of a text as one can read.
pub(crate) fn readable(text: &str) -> String {
    const MOST: usize = 3000;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{} ... ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}

#[test]
fn a_shortened_list_names_the_same_moments() {
    let put = |key| Operation::Call(Command::Put(PutRequest::new(key, "")));
    let read_at = |revision| {
        let request = RangeRequest { revision: Revision::new(revision), ..RangeRequest::key("a") };
        Operation::Call(Command::Range(request))
    };
    // The puts make the revisions 2, 3 and 4; the reads name the second, the last, and one that is still to come.
    let list = [put("a"), put("b"), put("c"), read_at(3), read_at(4), read_at(6), read_at(-1)];
    assert_eq!(
        without(&list, Origin::Fresh, &|at| at == 0),
        [put("b"), put("c"), read_at(2), read_at(3), read_at(5), read_at(-1)]
    );
    assert_eq!(
        without(&list, Origin::Fresh, &|at| at == 1),
        [put("a"), put("c"), read_at(2), read_at(3), read_at(5), read_at(-1)]
    );
}
