use std::time::Duration;

use futures_util::future::join_all;
use futures_util::{FutureExt, StreamExt};
use leasehold_mvcc::{KeyRange, LeaseId, PutRequest, RangeRequest, Txn, WatchRequest, WatchResponse};

use super::client_of;
use super::scripted::{Manner, WatchEnd, message, not_done, renewed};
use crate::error::{Error, ErrorKind};
use crate::etcd::remote::{Credentials, RemoteOptions};
use crate::etcd::{Etcd, WatchUpdate};
use crate::runtime::Runtime;

const LEASE: LeaseId = LeaseId::new(7);

fn read() -> RangeRequest {
    RangeRequest::key("k")
}

fn write() -> Txn {
    Txn::new().then(PutRequest::new("k", "v"))
}

fn options(endpoints: &str, password: &str) -> RemoteOptions {
    let credentials = Credentials::new("someone", password).unwrap();
    RemoteOptions::new(endpoints).unwrap().credentials(credentials)
}

#[test]
fn a_token_is_asked_for_once_and_sent_with_every_request() {
    let (remote, wire, runtime) = client_of(options("a:1", "right"));
    wire.forget_tokens();
    runtime.block_on(async {
        join_all((0..20).map(|_| remote.range(read())))
            .await
            .into_iter()
            .for_each(|read| drop(read.unwrap()));
        remote.txn(write()).await.unwrap();
        assert_eq!((wire.logins(), wire.asked().len()), (1, 21));
    });
}

#[test]
fn a_forgotten_token_costs_one_login_and_no_request_not_even_a_write() {
    let (remote, wire, runtime) = client_of(options("a:1,b:1", "right"));
    wire.forget_tokens();
    runtime.block_on(async {
        remote.txn(write()).await.unwrap();
        for round in 2..5 {
            wire.forget_tokens();
            remote.txn(write()).await.unwrap();
            assert_eq!(wire.logins(), round);
        }
        assert_eq!(wire.asked(), ["a:1"; 7], "a refusal is no reason to leave a member");
    });
}

#[test]
fn who_is_refused_with_a_fresh_token_too_is_told_so_after_few_tries() {
    let (remote, wire, runtime) = client_of(options("a:1", "right"));
    wire.accept_no_token();
    runtime.block_on(async {
        let error = remote.range(read()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
        assert_eq!((wire.logins(), wire.asked().len()), (3, 3));
        let error = remote.lease_keep_alive(LEASE).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
        let mut updates = remote.watch(WatchRequest::range(KeyRange::key("k")));
        runtime.settle().await;
        // Streams are refused one by one, as each is opened.
        while let Some(line) = wire.next_watch_line() {
            line.answer(denied(-1));
            runtime.settle().await;
        }
        let error = updates.next().now_or_never().unwrap().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
    });
}

#[test]
fn a_wrong_password_is_told_at_once_and_by_its_kind() {
    let (remote, wire, runtime) = client_of(options("a:1,b:1", "wrong"));
    wire.forget_tokens();
    runtime.block_on(async {
        let begun = runtime.now();
        for error in [
            remote.range(read()).await.unwrap_err(),
            remote.txn(write()).await.unwrap_err(),
            remote.lease_keep_alive(LEASE).await.unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
            assert!(
                error.to_string().contains("log in") && error.to_string().contains("password"),
                "{error}"
            );
        }
        let mut updates = remote.watch(WatchRequest::range(KeyRange::key("k")));
        runtime.settle().await;
        let error = updates.next().now_or_never().unwrap().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth, "{error}");
        assert!(runtime.now().since(begun) < Duration::from_millis(5), "no time is spent on it");
        assert_eq!(wire.asked().len(), 0, "nothing is asked without a token");
    });
}

#[test]
fn without_a_name_a_refusal_for_its_want_is_an_answer() {
    let (remote, wire, runtime) = client_of(RemoteOptions::new("a:1").unwrap());
    wire.forget_tokens();
    runtime.block_on(async {
        let error = remote.range(read()).await.unwrap_err();
        assert_eq!((error.kind(), wire.logins(), wire.asked().len()), (ErrorKind::Auth, 0, 1), "{error}");
    });
}

#[test]
fn an_etcd_without_users_is_used_without() {
    let (remote, wire, runtime) = client_of(options("a:1", "right"));
    runtime.block_on(async {
        remote.range(read()).await.unwrap();
        remote.range(read()).await.unwrap();
        assert_eq!(wire.logins(), 1, "it is asked once");
        // Somebody turns them on.
        wire.forget_tokens();
        remote.txn(write()).await.unwrap();
    });
}

#[test]
fn a_member_that_gives_no_token_is_passed_over() {
    for manner in [Manner::Fails(not_done()), Manner::Frozen] {
        let (remote, wire, runtime) = client_of(options("a:1,b:1", "right"));
        wire.forget_tokens();
        wire.set("a:1", manner);
        runtime.block_on(async {
            remote.txn(write()).await.unwrap();
            assert_eq!(wire.asked(), ["b:1"]);
            assert!(runtime.now().as_nanos() <= 3_000_000_000, "half a call's time at most");
        });
    }
}

#[test]
fn a_renewal_whose_token_was_forgotten_is_sent_again_on_a_new_stream() {
    let (remote, wire, runtime) = client_of(options("a:1", "right"));
    wire.forget_tokens();
    runtime.block_on(async {
        remote.range(read()).await.unwrap();
        wire.forget_tokens();
        let mut renewal = remote.lease_keep_alive(LEASE);
        assert!((&mut renewal).now_or_never().is_none());
        runtime.settle().await;
        let line = wire.renewal_line();
        assert_eq!(line.token.as_ref().map(|token| token.as_str().to_owned()), Some("2".into()));
        line.answer(renewed(LEASE, 15));
        assert_eq!(renewal.await.unwrap().ttl, 15);
    });
}

/// What a member says to a watch of one whose token it has forgotten.
fn denied(id: i64) -> WatchResponse {
    WatchResponse {
        created: true,
        canceled: true,
        cancel_reason: "etcdserver: permission denied".into(),
        ..message(id, 10)
    }
}

#[test]
fn a_wait_goes_on_with_a_new_token_where_it_stood_and_a_true_no_is_told() {
    let (remote, wire, runtime) = client_of(options("a:1", "right"));
    wire.forget_tokens();
    runtime.block_on(async {
        let mut waiting = remote.watch(WatchRequest::range(KeyRange::key("mine")));
        runtime.settle().await;
        let first: WatchEnd = wire.watch_line();
        first.created(0, 10);
        first.events(0, &[(11, "mine")]);
        runtime.settle().await;
        // By the time of the second watch the stream's token is forgotten; it is the stream that must be new.
        let mut foreign = remote.watch(WatchRequest::range(KeyRange::key("theirs")));
        runtime.settle().await;
        first.answer(denied(-1));
        runtime.settle().await;
        assert!(first.is_dropped());
        let mut second = wire.watch_line();
        assert_ne!(first.token, second.token);
        assert_eq!(second.starts(), [12, 0]);
        second.created(0, 12);
        second.answer(denied(-1));
        second.events(0, &[(13, "mine")]);
        runtime.settle().await;
        assert_eq!(events(&mut waiting), 2);
        let error = foreign.next().now_or_never().unwrap().unwrap().unwrap_err();
        assert!(matches!(error, Error::Refused { .. }) && error.kind() == ErrorKind::Auth, "{error}");
        assert_eq!(wire.logins(), 2, "once a refusal, and no more");
    });
}

fn events(updates: &mut crate::etcd::Updates) -> usize {
    let mut all = 0;
    while let Some(Some(update)) = updates.next().now_or_never() {
        if let WatchUpdate::Events { events, .. } = update.unwrap() {
            all += events.len();
        }
    }
    all
}

#[test]
fn a_watch_that_cannot_log_in_yet_waits_and_does_not_spin() {
    let (remote, wire, runtime) = client_of(options("a:1,b:1", "right"));
    wire.forget_tokens();
    wire.set("a:1", Manner::Fails(not_done()));
    wire.set("b:1", Manner::Frozen);
    runtime.block_on(async {
        let mut waiting = remote.watch(WatchRequest::range(KeyRange::key("mine")));
        runtime.pass(Duration::from_secs(60)).await;
        assert_eq!(wire.opened().len(), 0, "no stream without a token");
        wire.set("a:1", Manner::Answers);
        wire.set("b:1", Manner::Answers);
        runtime.pass(Duration::from_secs(8)).await;
        // The newest; earlier ones were silent for too long.
        let line = std::iter::from_fn(|| wire.next_watch_line()).last().unwrap();
        line.created(0, 10);
        runtime.settle().await;
        assert!(matches!(waiting.next().now_or_never(), Some(Some(Ok(WatchUpdate::Confirmed(_))))));
    });
}
