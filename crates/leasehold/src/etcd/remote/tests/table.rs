//! `docs/failures.md`, row by row, through the whole client.

use futures_util::{FutureExt, StreamExt};
use leasehold_mvcc::{Code, KeyRange, LeaseId, PutRequest, RangeRequest, StoreError, Txn, WatchRequest};
use leasehold_testbed::Version;

use super::client_of;
use super::scripted::{Manner, Scripted};
use crate::error::{Error, ErrorKind};
use crate::etcd::Etcd;
use crate::etcd::remote::{Credentials, Remote, RemoteOptions, WireError, verdict};

const DOC: &str = include_str!("../../../../../../docs/failures.md");

/// What stands for the words that have no row of their own.
const ANYTHING: &str = "anything else";

/// Words of etcd's that are no answer to a client.
const NO_ANSWERS: &[&str] = &["etcdserver: failed to register grpc metrics"];

#[derive(Debug)]
struct Row {
    code: Code,
    words: &'static str,
    meaning: &'static str,
    kind: &'static str,
}

fn rows() -> Vec<Row> {
    let code = |name: &str| CODES.iter().copied().find(|code| format!("{code:?}") == name);
    let row = |line: &'static str| {
        let cells: Vec<_> =
            line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('`')).collect();
        match cells[..] {
            [name, words, meaning, kind] => code(name).map(|code| Row { code, words, meaning, kind }),
            _ => None,
        }
    };
    DOC.lines().filter(|line| line.starts_with('|')).filter_map(row).collect()
}

const CODES: [Code; 16] = [
    Code::Cancelled,
    Code::Unknown,
    Code::InvalidArgument,
    Code::DeadlineExceeded,
    Code::NotFound,
    Code::AlreadyExists,
    Code::PermissionDenied,
    Code::ResourceExhausted,
    Code::FailedPrecondition,
    Code::Aborted,
    Code::OutOfRange,
    Code::Unimplemented,
    Code::Internal,
    Code::Unavailable,
    Code::DataLoss,
    Code::Unauthenticated,
];

impl Row {
    fn answer(&self) -> WireError {
        verdict::judge(StoreError::new(self.code, self.words))
    }

    /// A call at two members of which the first fails once: whether it is answered, and who was asked.
    fn at_two<T>(&self, call: impl AsyncFnOnce(&Remote) -> Result<T, Error>) -> (Option<ErrorKind>, String) {
        let (remote, wire, runtime) = logged_in();
        wire.set("a:1", Manner::FailsOnce(self.answer()));
        let ended = runtime.block_on(call(&remote));
        (ended.err().map(|error| error.kind()), wire.asked().join(" "))
    }
}

fn logged_in() -> (Remote, std::sync::Arc<Scripted>, std::sync::Arc<super::Manual>) {
    let credentials = Credentials::new("someone", "right").unwrap();
    let options = RemoteOptions::new("a:1,b:1").unwrap().credentials(credentials);
    let client = client_of(options);
    client.1.forget_tokens();
    client
}

fn read() -> RangeRequest {
    RangeRequest::key("k")
}

fn write() -> Txn {
    Txn::new().then(PutRequest::new("k", "v"))
}

#[test]
fn each_row_is_what_becomes_of_a_read_and_of_a_write() {
    for row in rows() {
        let read = row.at_two(async |remote| remote.range(read()).await);
        let write = row.at_two(async |remote| remote.txn(write()).await);
        let kind = |kind: Option<ErrorKind>| kind.map_or("answered".into(), |kind| format!("{kind:?}"));
        let (read, write) = ((kind(read.0), read.1), (kind(write.0), write.1));
        let answered = |by: &str| ("answered".to_owned(), by.to_owned());
        let told = (row.kind.to_owned(), "a:1".to_owned());
        let expected = match row.meaning {
            "elsewhere" => (answered("a:1 b:1"), answered("a:1 b:1")),
            "unknown" | "no etcd" => (answered("a:1 b:1"), told),
            "log in" => (answered("a:1 a:1"), answered("a:1 a:1")),
            "no" => (told.clone(), told),
            other => panic!("{other:?} is no meaning: {row:?}"),
        };
        assert_eq!((read, write), expected, "{row:?}");
    }
}

#[test]
fn each_row_says_what_a_write_is_told_that_every_member_answers_so() {
    for row in rows() {
        let (remote, wire, runtime) = super::client("a:1,b:1");
        for member in ["a:1", "b:1"] {
            wire.set(member, Manner::Fails(row.answer()));
        }
        let error = runtime.block_on(remote.txn(write())).unwrap_err();
        assert_eq!(format!("{:?}", error.kind()), row.kind, "{row:?}: {error}");
        assert!(wire.asked().len() < 50, "{row:?}: without pauses");
    }
}

#[test]
fn each_row_is_what_becomes_of_a_renewal_and_of_a_watch() {
    for row in rows() {
        let (next, ended) = match row.meaning {
            "elsewhere" | "unknown" | "no etcd" => (Some("b:1"), false),
            "log in" => (Some("a:1"), false),
            _ => (None, true),
        };
        for watch in [false, true] {
            let (remote, wire, runtime) = logged_in();
            wire.set("a:1", Manner::FailsOnce(row.answer()));
            runtime.block_on(async {
                let mut renewal = remote.lease_keep_alive(LeaseId::new(7));
                let mut updates = remote.watch(WatchRequest::range(KeyRange::key("k")));
                let end = if watch {
                    drop(renewal);
                    runtime.settle().await;
                    updates.next().now_or_never().flatten().and_then(Result::err)
                } else {
                    drop(updates);
                    (&mut renewal).now_or_never().and_then(Result::err)
                };
                let opened: Vec<_> = wire.opened().into_iter().map(|(endpoint, _)| endpoint).collect();
                let expected: Vec<_> = ["a:1"].into_iter().chain(next).collect();
                assert_eq!(
                    (opened, end.is_some()),
                    (expected.iter().map(|at| (*at).to_owned()).collect(), ended),
                    "watch: {watch}, {row:?}"
                );
                if let Some(end) = end {
                    assert_eq!(format!("{:?}", end.kind()), row.kind, "{row:?}: {end}");
                }
            });
        }
    }
}

#[test]
fn every_code_has_a_row_and_no_two_rows_are_of_the_same_words() {
    let rows = rows();
    for code in CODES {
        let of_this: Vec<_> = rows.iter().filter(|row| row.code == code).map(|row| row.words).collect();
        assert!(of_this.contains(&ANYTHING), "no row for anything else of {code:?}");
        let mut distinct = of_this.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(distinct.len(), of_this.len(), "{code:?}");
    }
    for number in 1..=16 {
        assert!(CODES.contains(&leasehold_proto::code_from_number(number)), "{number}");
    }
}

/// What the real thing has words for, has a row.
#[test]
fn all_that_etcd_can_say_has_a_row_and_no_row_is_made_up() {
    let rows = rows();
    let mut words: Vec<_> =
        rows.iter().map(|row| row.words).filter(|words| words.starts_with("etcdserver: ")).collect();
    words.sort_unstable_by_key(|words| std::cmp::Reverse(words.len()));
    let mut made_up = words.clone();
    for version in Version::ALL {
        let Some(program) = version.part().require() else { return };
        let program = std::fs::read(program.path).unwrap();
        let mark = b"etcdserver: ";
        let places = program.windows(mark.len()).enumerate().filter(|(_, found)| found == mark);
        for (place, _) in places {
            let text =
                String::from_utf8_lossy(&program[place..(place + 100).min(program.len())]).into_owned();
            let known = words.iter().chain(NO_ANSWERS).find(|words| text.starts_with(**words));
            let Some(known) = known else { panic!("{version:?} has words without a row: {text:?}") };
            made_up.retain(|words| words != known);
            // The program keeps its words without an end, one behind the other; these would be longer ones.
            let longer =
                text[known.len()..].starts_with([' ', ',', ':']) && !text[known.len()..].starts_with("  ");
            assert!(!longer, "{version:?} goes on behind {known:?}: {text:?}");
        }
    }
    assert!(made_up.is_empty(), "no etcd says {made_up:?}");
}
