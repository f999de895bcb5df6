//! From a list that differs to the shortest one that still does (delta debugging, after Zeller).

use leasehold_mvcc::{
    Command, Compare, DeleteRequest, LeaseId, PutRequest, RangeRequest, Revision, SortOrder, SortTarget, Txn,
    TxnOp, WatchRequest,
};

use crate::comparison::Difference;
use crate::operation::{Operation, Origin, without};

/// What is left of a list, and how the sides differ in it.
#[derive(Debug)]
pub(crate) struct Shortest {
    pub(crate) list: Vec<Operation>,
    pub(crate) difference: Difference,
    /// How many lists were tried.
    pub(crate) tries: usize,
}

/// Shortens a list for as long as it differs: first whole steps, many at a time and then fewer, then parts of steps.
pub(crate) fn shortest(
    origin: Origin,
    list: Vec<Operation>,
    difference: Difference,
    differs: &mut dyn FnMut(&[Operation]) -> Option<Difference>,
) -> Shortest {
    let mut search = Search { origin, best: Shortest { list, difference, tries: 0 }, differs };
    search.cut();
    loop {
        let (steps, size) = (search.best.list.len(), search.size());
        search.drop_steps();
        search.simplify_steps();
        if (search.best.list.len(), search.size()) == (steps, size) {
            return search.best;
        }
    }
}

struct Search<'a> {
    origin: Origin,
    best: Shortest,
    differs: &'a mut dyn FnMut(&[Operation]) -> Option<Difference>,
}

impl Search<'_> {
    fn size(&self) -> usize {
        self.best.list.iter().map(|operation| operation.to_string().len()).sum()
    }

    /// Leaves out what comes after the difference.
    fn cut(&mut self) {
        self.best.list.truncate(self.best.difference.step + 1);
    }

    /// Takes a list if it still differs.
    fn takes(&mut self, list: Vec<Operation>) -> bool {
        self.best.tries += 1;
        let Some(difference) = (self.differs)(&list) else { return false };
        self.best = Shortest { list, difference, tries: self.best.tries };
        self.cut();
        true
    }

    fn drop_steps(&mut self) {
        let mut chunk = self.best.list.len().div_ceil(2);
        while chunk > 0 {
            // From the end: later steps hang on earlier ones.
            let mut end = self.best.list.len();
            while end > 0 {
                let start = end.saturating_sub(chunk);
                let shorter = without(&self.best.list, self.origin, &|at| (start..end).contains(&at));
                self.takes(shorter);
                end = start.min(self.best.list.len());
            }
            chunk /= 2;
        }
    }

    fn simplify_steps(&mut self) {
        let mut at = 0;
        while at < self.best.list.len() {
            let simpler = simpler(&self.best.list[at]).into_iter().any(|operation| {
                let mut list = self.best.list.clone();
                if list[at] == operation {
                    return false;
                }
                list[at] = operation;
                self.takes(list)
            });
            if !simpler {
                at += 1;
            }
        }
    }
}

/// The same step with a little less in it, in each way there is.
fn simpler(operation: &Operation) -> Vec<Operation> {
    match operation {
        Operation::Call(Command::Txn(txn)) => {
            let mut simpler: Vec<Operation> = ops_of(txn).map(on_its_own).collect();
            simpler.extend(simpler_txns(txn).into_iter().map(|txn| Operation::Call(Command::Txn(txn))));
            simpler
        }
        Operation::Watch(request) => {
            let changes: [fn(&mut WatchRequest); 4] = [
                |request| request.prev_kv = false,
                |request| request.no_put = false,
                |request| request.no_delete = false,
                |request| request.start_revision = Revision::ZERO,
            ];
            changed(request, &changes).into_iter().map(Operation::Watch).collect()
        }
        Operation::Call(command) => match op_of(command) {
            Some(op) => simpler_ops(&op).iter().map(on_its_own).collect(),
            None => Vec::new(),
        },
        Operation::Cancel(_) | Operation::Restart => Vec::new(),
    }
}

fn ops_of(txn: &Txn) -> impl Iterator<Item = &TxnOp> {
    txn.success.iter().chain(&txn.failure)
}

fn on_its_own(op: &TxnOp) -> Operation {
    Operation::Call(match op.clone() {
        TxnOp::Range(request) => Command::Range(request),
        TxnOp::Put(request) => Command::Put(request),
        TxnOp::Delete(request) => Command::Delete(request),
        TxnOp::Txn(txn) => Command::Txn(txn),
    })
}

fn op_of(command: &Command) -> Option<TxnOp> {
    Some(match command.clone() {
        Command::Range(request) => TxnOp::Range(request),
        Command::Put(request) => TxnOp::Put(request),
        Command::Delete(request) => TxnOp::Delete(request),
        Command::Txn(txn) => TxnOp::Txn(txn),
        _ => return None,
    })
}

fn simpler_ops(op: &TxnOp) -> Vec<TxnOp> {
    match op {
        TxnOp::Range(request) => {
            let changes: [fn(&mut RangeRequest); 10] = [
                |request| request.limit = 0,
                |request| request.revision = Revision::ZERO,
                |request| request.sort_order = SortOrder::None,
                |request| request.sort_target = SortTarget::Key,
                |request| request.serializable = false,
                |request| request.keys_only = false,
                |request| request.count_only = false,
                |request| (request.min_mod_revision, request.max_mod_revision) = Default::default(),
                |request| (request.min_create_revision, request.max_create_revision) = Default::default(),
                |request| request.range.end = Default::default(),
            ];
            changed(request, &changes).into_iter().map(TxnOp::Range).collect()
        }
        TxnOp::Put(request) => {
            let changes: [fn(&mut PutRequest); 5] = [
                |request| request.prev_kv = false,
                |request| request.ignore_value = false,
                |request| request.ignore_lease = false,
                |request| request.lease = LeaseId::NONE,
                |request| request.value = Default::default(),
            ];
            changed(request, &changes).into_iter().map(TxnOp::Put).collect()
        }
        TxnOp::Delete(request) => {
            let changes: [fn(&mut DeleteRequest); 2] =
                [|request| request.prev_kv = false, |request| request.range.end = Default::default()];
            changed(request, &changes).into_iter().map(TxnOp::Delete).collect()
        }
        TxnOp::Txn(txn) => {
            let mut simpler: Vec<TxnOp> = ops_of(txn).cloned().collect();
            simpler.extend(simpler_txns(txn).into_iter().map(TxnOp::Txn));
            simpler
        }
    }
}

fn simpler_txns(txn: &Txn) -> Vec<Txn> {
    let compares = shorter(&txn.compare).into_iter().map(|compare| Txn { compare, ..txn.clone() });
    let success = fewer(&txn.success).into_iter().map(|success| Txn { success, ..txn.clone() });
    let failure = fewer(&txn.failure).into_iter().map(|failure| Txn { failure, ..txn.clone() });
    let single = (0..txn.compare.len()).map(|at| {
        let mut txn = txn.clone();
        let Compare { range, .. } = &mut txn.compare[at];
        range.end = Default::default();
        txn
    });
    compares.chain(success).chain(failure).chain(single).filter(|simpler| simpler != txn).collect()
}

/// The lists that lack one operation, and those in which one is simpler.
fn fewer(ops: &[TxnOp]) -> Vec<Vec<TxnOp>> {
    let mut lists = shorter(ops);
    for (at, op) in ops.iter().enumerate() {
        for simpler in simpler_ops(op) {
            let mut list = ops.to_vec();
            list[at] = simpler;
            lists.push(list);
        }
    }
    lists
}

/// The lists that lack one entry; if there are many, also the half.
fn shorter<T: Clone>(list: &[T]) -> Vec<Vec<T>> {
    let halves = (list.len() > 8).then(|| list[..list.len() / 2].to_vec());
    let lacking = (0..list.len()).map(|gone| {
        list.iter().enumerate().filter(|(at, _)| *at != gone).map(|(_, entry)| entry.clone()).collect()
    });
    halves.into_iter().chain(lacking).collect()
}

fn changed<T: Clone + PartialEq>(request: &T, changes: &[fn(&mut T)]) -> Vec<T> {
    let change = |change: &fn(&mut T)| {
        let mut changed = request.clone();
        change(&mut changed);
        changed
    };
    changes.iter().map(change).filter(|changed| changed != request).collect()
}
