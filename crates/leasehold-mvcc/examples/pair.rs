//! How fast the store does what an uncontended lock asks of it: a claim (compare, put, look at the queue) and a
//! release (compare, delete). Run it with `cargo run --release -p leasehold-mvcc --example pair`.
//!
//! The requests are made beforehand, so the time is the store's own, together with that of dropping its answers.

use std::hint::black_box;

use leasehold_mvcc::{
    Answer, Command, Compare, DeleteRequest, Instant, KeyRange, LeaseGrantRequest, LeaseId, PutRequest,
    RangeRequest, Revision, SortOrder, SortTarget, Store, StoreOptions, Txn,
};

const ROUNDS: u32 = 10_000;
const PAIRS: u32 = 50;
const LEASE: LeaseId = LeaseId::new(0x09ee_0000_0000_0001);

fn main() {
    for (name, history_limit, waiters) in [
        ("alone", Some(10_000), 0),
        ("alone, all history kept", None, 0),
        ("behind 8 waiters", Some(10_000), 8),
    ] {
        let mut store = Store::new(StoreOptions { history_limit, ..StoreOptions::default() });
        store.apply(Command::LeaseGrant(LeaseGrantRequest { ttl: 60, id: LEASE }), Instant::ZERO);
        for waiter in 0..waiters {
            store.apply(Command::Put(PutRequest::new(format!("job/f{waiter}"), "")), Instant::ZERO);
        }
        let mut times = Vec::new();
        let mut granted = 0;
        for round in 0..ROUNDS {
            let requests = requests(round, store.revision());
            #[allow(clippy::disallowed_methods, reason = "a benchmark reads the clock itself")]
            let start = std::time::Instant::now();
            for request in requests {
                let outcome = black_box(store.apply(Command::Txn(request), Instant::ZERO));
                granted += u32::from(matches!(outcome.answer, Ok(Answer::Txn(answer)) if answer.succeeded));
            }
            times.push(start.elapsed());
        }
        assert_eq!(granted, 2 * ROUNDS * PAIRS, "every claim and every release succeeds");
        times.sort();
        // The median round: what another process takes of the processor is not the store's.
        let per_pair = times.get(times.len() / 2).map_or(0, |round| (*round / PAIRS).as_nanos());
        let per_second = 1_000_000_000_u128.checked_div(per_pair).unwrap_or_default();
        println!("{name}: {per_second} pairs/s, {per_pair} ns a pair");
    }
}

fn requests(round: u32, from: Revision) -> Vec<Txn> {
    let mut requests = Vec::new();
    let mut revision = from;
    for pair in 0..PAIRS {
        let key = format!("job/{LEASE}-{}", round * PAIRS + pair);
        let queue = RangeRequest::range(KeyRange::prefix("job/"));
        let queue = queue.sorted(SortTarget::Create, SortOrder::Descend).limited(2);
        let claim = Txn::new()
            .when(Compare::absent(key.clone()))
            .then(PutRequest::new(key.clone(), "{\"host\":\"here\",\"pid\":4711}").on(LEASE))
            .then(queue.clone())
            .otherwise(RangeRequest::key(key.clone()))
            .otherwise(queue);
        requests.push(claim);
        revision = revision.next();
        requests
            .push(Txn::new().when(Compare::created_at(key.clone(), revision)).then(DeleteRequest::key(key)));
        revision = revision.next();
    }
    requests
}
