//! A wire that answers as the test says.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::future::{pending, ready};
use futures_util::stream;
use leasehold_mvcc::{
    Answer, Code, Command, Event, EventKind, Header, KeepAliveAnswer, KeyValue, LeaseId, RangeAnswer,
    Revision, StoreError, TxnAnswer, WatchId, WatchRequest, WatchResponse,
};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::etcd::remote::{
    Credentials, Endpoint, KeepAliveLine, Lane, Token, WatchLine, WatchOrder, Wire, WireError, verdict,
};
use crate::exclusive::Exclusive;

/// How an endpoint treats calls.
#[derive(Clone, Default)]
pub(super) enum Manner {
    #[default]
    Answers,
    /// It takes requests and says nothing.
    Frozen,
    Fails(WireError),
    /// It fails what is asked of it next, and answers again then. It gives tokens all the while.
    FailsOnce(WireError),
}

#[derive(Default)]
pub(super) struct Scripted {
    state: Exclusive<State>,
}

#[derive(Default)]
struct State {
    manners: BTreeMap<String, Manner>,
    asked: Vec<(String, Lane)>,
    watches: Vec<Line<WatchOrder, WatchResponse>>,
    renewals: Vec<Line<LeaseId, KeepAliveAnswer>>,
    opened: Vec<(String, Lane)>,
    distrusted: Vec<String>,
    closed: bool,
    /// How often a token was asked for; tokens are numbered so.
    logins: u64,
    /// The first token that counts; none if nobody has to log in.
    tokens_count_from: Option<u64>,
}

impl State {
    fn manner(&self, endpoint: &Endpoint) -> Manner {
        self.manners.get(&endpoint.to_string()).cloned().unwrap_or_default()
    }

    /// How a stream or call fails that is begun now, if it does.
    fn failure(&mut self, endpoint: &Endpoint) -> Option<WireError> {
        match self.manner(endpoint) {
            Manner::Answers | Manner::Frozen => None,
            Manner::Fails(error) => Some(error),
            Manner::FailsOnce(error) => {
                self.manners.remove(&endpoint.to_string());
                Some(error)
            }
        }
    }

    /// What etcd says to a token that does not count, or to none.
    fn admit(&self, token: Option<&Token>) -> Result<(), WireError> {
        let number = token.and_then(|token| token.as_str().parse::<u64>().ok());
        match (self.tokens_count_from, number) {
            (None, _) => Ok(()),
            (Some(from), Some(number)) if number >= from => Ok(()),
            (Some(_), Some(_)) => {
                Err(verdict::judge(StoreError::new(Code::Unauthenticated, "etcdserver: invalid auth token")))
            }
            (Some(_), None) => {
                Err(verdict::judge(StoreError::new(Code::InvalidArgument, "etcdserver: user name is empty")))
            }
        }
    }
}

/// The server's end of a stream.
pub(super) struct Line<Q, A> {
    pub(super) endpoint: String,
    /// What it was opened with.
    pub(super) token: Option<Token>,
    received: UnboundedReceiver<Q>,
    answers: UnboundedSender<Result<A, WireError>>,
}

impl<Q, A> Line<Q, A> {
    /// What was said since the last look.
    pub(super) fn said(&mut self) -> Vec<Q> {
        std::iter::from_fn(|| self.received.try_recv().ok()).collect()
    }

    pub(super) fn answer(&self, answer: A) {
        let _ = self.answers.send(Ok(answer));
    }

    pub(super) fn fail(&self, error: WireError) {
        let _ = self.answers.send(Err(error));
    }

    pub(super) fn is_dropped(&self) -> bool {
        self.answers.is_closed()
    }
}

pub(super) fn not_done() -> WireError {
    WireError::NotDone { cause: "connection refused".into() }
}

pub(super) fn unknown() -> WireError {
    WireError::OutcomeUnknown { cause: "the connection broke".into() }
}

impl Scripted {
    pub(super) fn set(&self, endpoint: &str, manner: Manner) {
        self.state.lock().manners.insert(endpoint.into(), manner);
    }

    /// Who was asked since the last look.
    pub(super) fn asked(&self) -> Vec<String> {
        self.asked_by_lane().into_iter().map(|(endpoint, _)| endpoint).collect()
    }

    pub(super) fn asked_by_lane(&self) -> Vec<(String, Lane)> {
        std::mem::take(&mut self.state.lock().asked)
    }

    /// Where streams were opened since the last look.
    pub(super) fn opened(&self) -> Vec<(String, Lane)> {
        std::mem::take(&mut self.state.lock().opened)
    }

    /// The watch stream opened first of those not looked at.
    pub(super) fn watch_line(&self) -> Line<WatchOrder, WatchResponse> {
        self.state.lock().watches.remove(0)
    }

    pub(super) fn next_watch_line(&self) -> Option<Line<WatchOrder, WatchResponse>> {
        let mut state = self.state.lock();
        if state.watches.is_empty() { None } else { Some(state.watches.remove(0)) }
    }

    pub(super) fn renewal_line(&self) -> Line<LeaseId, KeepAliveAnswer> {
        self.state.lock().renewals.remove(0)
    }

    pub(super) fn distrusted(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().distrusted)
    }

    /// From now on a token is wanted, and those given so far do not count.
    pub(super) fn forget_tokens(&self) {
        let mut state = self.state.lock();
        state.tokens_count_from = Some(state.logins + 1);
    }

    /// No token counts, whatever is done.
    pub(super) fn accept_no_token(&self) {
        self.state.lock().tokens_count_from = Some(u64::MAX);
    }

    pub(super) fn logins(&self) -> u64 {
        self.state.lock().logins
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }
}

impl Wire for Scripted {
    fn call(
        &self,
        endpoint: &Endpoint,
        lane: Lane,
        token: Option<Token>,
        command: Command,
        _patience: Duration,
    ) -> BoxFuture<'static, Result<Answer, WireError>> {
        let mut state = self.state.lock();
        state.asked.push((endpoint.to_string(), lane));
        if let Err(stale) = state.admit(token.as_ref()) {
            return Box::pin(ready(Err(stale)));
        }
        if let Some(error) = state.failure(endpoint) {
            return Box::pin(ready(Err(error)));
        }
        match state.manner(endpoint) {
            Manner::Frozen => Box::pin(pending()),
            _ => Box::pin(ready(Ok(match command {
                Command::Range(_) => Answer::Range(RangeAnswer::default()),
                _ => Answer::Txn(TxnAnswer::default()),
            }))),
        }
    }

    fn authenticate(
        &self,
        endpoint: &Endpoint,
        _lane: Lane,
        credentials: Credentials,
        _patience: Duration,
    ) -> BoxFuture<'static, Result<Token, WireError>> {
        let mut state = self.state.lock();
        match state.manner(endpoint) {
            Manner::Frozen => return Box::pin(pending()),
            Manner::Fails(error) => return Box::pin(ready(Err(error))),
            Manner::Answers | Manner::FailsOnce(_) => {}
        }
        state.logins += 1;
        Box::pin(ready(match (credentials.password(), state.tokens_count_from) {
            (_, None) => Err(WireError::Refused(StoreError::new(
                Code::FailedPrecondition,
                "etcdserver: authentication is not enabled",
            ))),
            ("right", Some(_)) => Ok(Token::new(state.logins.to_string())),
            _ => Err(WireError::Refused(StoreError::new(
                Code::InvalidArgument,
                "etcdserver: authentication failed, invalid user ID or password",
            ))),
        }))
    }

    fn open_watch(&self, endpoint: &Endpoint, lane: Lane, token: Option<Token>) -> WatchLine {
        let ((orders, received), (answers, told)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let mut state = self.state.lock();
        state.opened.push((endpoint.to_string(), lane));
        if let Some(error) = state.failure(endpoint) {
            let _ = answers.send(Err(error));
        } else {
            state.watches.push(Line { endpoint: endpoint.to_string(), token, received, answers });
        }
        WatchLine { orders, answers: stream_of(told) }
    }

    fn open_keep_alive(&self, endpoint: &Endpoint, lane: Lane, token: Option<Token>) -> KeepAliveLine {
        let ((ids, received), (answers, told)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
        let mut state = self.state.lock();
        state.opened.push((endpoint.to_string(), lane));
        if let Err(stale) = state.admit(token.as_ref()) {
            let _ = answers.send(Err(stale));
        } else if let Some(error) = state.failure(endpoint) {
            let _ = answers.send(Err(error));
        } else {
            state.renewals.push(Line { endpoint: endpoint.to_string(), token, received, answers });
        }
        KeepAliveLine { ids, answers: stream_of(told) }
    }

    fn distrust(&self, endpoint: &Endpoint, _lane: Lane) {
        self.state.lock().distrusted.push(endpoint.to_string());
    }

    fn close(&self) {
        self.state.lock().closed = true;
    }
}

fn stream_of<T: Send + 'static>(
    mut told: UnboundedReceiver<T>,
) -> futures_core::stream::BoxStream<'static, T> {
    Box::pin(stream::poll_fn(move |context| told.poll_recv(context)))
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scripted").finish_non_exhaustive()
    }
}

pub(super) type WatchEnd = Line<WatchOrder, WatchResponse>;

impl WatchEnd {
    /// The creates among what was said: where each starts.
    pub(super) fn starts(&mut self) -> Vec<i64> {
        self.creates().iter().map(|request| request.start_revision.get()).collect()
    }

    pub(super) fn creates(&mut self) -> Vec<WatchRequest> {
        let create = |order| match order {
            WatchOrder::Create(request) => Some(request),
            WatchOrder::Cancel(_) => None,
        };
        self.said().into_iter().filter_map(create).collect()
    }

    /// The cancels among what was said.
    pub(super) fn cancels(&mut self) -> Vec<i64> {
        let cancel = |order| match order {
            WatchOrder::Create(_) => None,
            WatchOrder::Cancel(id) => Some(id.get()),
        };
        self.said().into_iter().filter_map(cancel).collect()
    }

    pub(super) fn created(&self, id: i64, revision: i64) {
        self.answer(WatchResponse { created: true, ..message(id, revision) });
    }

    pub(super) fn events(&self, id: i64, events: &[(i64, &'static str)]) {
        self.answer(WatchResponse { events: puts(events), ..message(id, last(events)) });
    }

    pub(super) fn fragment(&self, id: i64, events: &[(i64, &'static str)]) {
        self.answer(WatchResponse { events: puts(events), fragment: true, ..message(id, last(events)) });
    }
}

pub(super) fn message(id: i64, revision: i64) -> WatchResponse {
    let header = Header { cluster_id: 1, member_id: 1, revision: Revision::new(revision), raft_term: 1 };
    WatchResponse { header, watch_id: WatchId::new(id), ..WatchResponse::default() }
}

fn last(events: &[(i64, &'static str)]) -> i64 {
    events.iter().map(|(revision, _)| *revision).max().unwrap_or(0)
}

fn puts(events: &[(i64, &'static str)]) -> Vec<Event> {
    let put = |&(revision, key): &(i64, &'static str)| {
        let kv = KeyValue { key: key.into(), mod_revision: Revision::new(revision), ..KeyValue::default() };
        Event { kind: EventKind::Put, kv, prev_kv: None }
    };
    events.iter().map(put).collect()
}

/// An answer to a renewal.
pub(super) fn renewed(id: LeaseId, ttl: i64) -> KeepAliveAnswer {
    KeepAliveAnswer { header: Header::default(), id, ttl }
}
