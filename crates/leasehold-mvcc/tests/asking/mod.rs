//! Short ways to ask a store for things, for tests that know what kind of answer comes.
#![allow(dead_code, reason = "each test file asks for something else")]

use std::time::Duration;

use leasehold_mvcc::{
    Answer, Code, Command, Commit, CompactRequest, DeleteAnswer, DeleteRequest, Event, EventKind, Instant,
    KeepAliveAnswer, Key, KeyRange, KeyValue, LeaseGrantRequest, LeaseId, LeaseTimeToLiveAnswer, Outcome,
    PutAnswer, PutRequest, RangeAnswer, RangeRequest, Revision, Store, StoreError, StoreOptions, Txn,
    TxnAnswer, WatchRequest,
};

pub(crate) const START: Instant = Instant::ZERO;

pub(crate) fn fresh() -> Store {
    Store::new(StoreOptions::default())
}

pub(crate) fn after(seconds: u64) -> Instant {
    START + Duration::from_secs(seconds)
}

pub(crate) fn rev(revision: i64) -> Revision {
    Revision::new(revision)
}

pub(crate) fn lease(id: i64) -> LeaseId {
    LeaseId::new(id)
}

macro_rules! asks {
    ($name:ident, $command:ident ( $($request:ty),* ), $answer:ident, $given:ty) => {
        fn $name(&mut self, request: asks!(@arg $($request),*)) -> Result<$given, StoreError> {
            match self.ask(Command::$command(request)).answer {
                Ok(Answer::$answer(answer)) => Ok(answer),
                Ok(other) => panic!("not the kind of answer asked for: {other:?}"),
                Err(refusal) => Err(refusal),
            }
        }
    };
    (@arg $request:ty) => { $request };
}

pub(crate) trait Ask {
    fn ask(&mut self, command: Command) -> Outcome;

    asks!(put, Put(PutRequest), Put, PutAnswer);
    asks!(delete, Delete(DeleteRequest), Delete, DeleteAnswer);
    asks!(read, Range(RangeRequest), Range, RangeAnswer);
    asks!(txn, Txn(Txn), Txn, TxnAnswer);
    asks!(keep_alive, LeaseKeepAlive(LeaseId), LeaseKeepAlive, KeepAliveAnswer);

    fn compact(&mut self, revision: i64) -> Result<(), StoreError> {
        let request = CompactRequest { revision: rev(revision), physical: false };
        self.ask(Command::Compact(request)).answer.map(drop)
    }

    fn grant(&mut self, id: i64, ttl: i64) -> Result<i64, StoreError> {
        match self.ask(Command::LeaseGrant(LeaseGrantRequest { ttl, id: lease(id) })).answer? {
            Answer::LeaseGrant(answer) => Ok(answer.ttl),
            other => panic!("not a grant: {other:?}"),
        }
    }

    fn revoke(&mut self, id: i64) -> Outcome {
        self.ask(Command::LeaseRevoke(lease(id)))
    }

    fn time_to_live(&mut self, id: i64) -> LeaseTimeToLiveAnswer {
        match self.ask(Command::LeaseTimeToLive(lease(id), true)).answer {
            Ok(Answer::LeaseTimeToLive(answer)) => answer,
            other => panic!("not a time to live: {other:?}"),
        }
    }

    fn keys_of(&mut self, id: i64) -> Vec<String> {
        self.time_to_live(id).keys.iter().map(Key::to_string).collect()
    }

    /// Writes `key`, and gives the revision of that.
    fn write(&mut self, key: &'static str, value: &'static str) -> Revision {
        self.put(PutRequest::new(key, value)).expect("a plain put is valid").header.revision
    }

    fn remove(&mut self, key: &'static str) -> Revision {
        self.delete(DeleteRequest::key(key)).expect("a plain delete is valid").header.revision
    }

    fn get(&mut self, key: &'static str) -> Option<KeyValue> {
        self.read(RangeRequest::key(key)).expect("a plain read is valid").kvs.pop()
    }
}

impl Ask for Store {
    fn ask(&mut self, command: Command) -> Outcome {
        self.apply(command, START)
    }
}

pub(crate) fn names(answer: &RangeAnswer) -> Vec<String> {
    answer.kvs.iter().map(|kv| kv.key.to_string()).collect()
}

/// What a watch of everything gets: `+key` for a put and `-key` for a delete, by revision.
pub(crate) fn told(commits: &[Commit]) -> Vec<(i64, String)> {
    let sign = |event: &Event| if event.kind == EventKind::Put { '+' } else { '-' };
    let tell = |commit: &Commit| {
        let events: Vec<_> =
            commit.events.iter().map(|event| format!("{}{}", sign(event), event.kv.key)).collect();
        (commit.revision.get(), events.join(" "))
    };
    commits.iter().map(tell).collect()
}

pub(crate) fn everything() -> WatchRequest {
    WatchRequest::range(KeyRange::all())
}

pub(crate) fn refused<T: std::fmt::Debug>(code: Code, message: &str, answer: Result<T, StoreError>) {
    let refusal = answer.expect_err("it must be refused");
    assert_eq!((refusal.code, refusal.message.as_str()), (code, message));
}
