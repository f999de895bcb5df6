//! The task of one watch stream: it opens it, listens, notices when it has died, and opens the next.

use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

use futures_core::future::BoxFuture;
use futures_util::{FutureExt, StreamExt};
use leasehold_mvcc::WatchResponse;
use tokio::sync::mpsc::UnboundedReceiver;

use super::board::Board;
use super::{IDLE, Message, Retirement, Road};
use crate::error::Error;
use crate::etcd::remote::auth::{self, Pass, Refusals};
use crate::etcd::remote::{WHAT, WatchLine, WireError};
use crate::runtime::{Backoff, Instant};

/// A stream that has spoken and lasted so long was a good one: if it breaks, the next is opened at once.
const STEADY: Duration = Duration::from_secs(1);

pub(super) async fn run(road: Road, mut received: UnboundedReceiver<Message>, retirement: Retirement) {
    let now = road.runtime.now();
    let mut stream = Stream {
        road,
        board: Board::default(),
        line: None,
        login: None,
        refusals: Refusals::default(),
        failures: 0,
        backoff: fresh_backoff(),
        retry: None,
        alarm: (Instant::NEVER, Box::pin(std::future::pending())),
        empty_since: now,
    };
    loop {
        stream.set_alarm();
        match stream.wake(&mut received).await {
            Wake::Message(Some(Message::Watch(ticket, request, feed))) => {
                stream.board.add(ticket, request, feed)
            }
            Wake::Message(Some(Message::Remove(ticket))) => stream.remove(|board| board.remove(ticket)),
            Wake::Message(Some(Message::Resume(ticket))) => stream.board.resume(ticket),
            Wake::Message(Some(Message::Close)) => return stream.board.fail(&Error::Closed { what: WHAT }),
            // Nobody is left who could ask for anything.
            Wake::Message(None) => return,
            Wake::Pass(Ok(pass)) => stream.open(pass),
            Wake::Pass(Err(error)) => stream.not_let_in(error),
            Wake::Answer(Some(Ok(response))) => stream.heard(response),
            Wake::Answer(Some(Err(error))) => stream.broken(error),
            Wake::Answer(None) => {
                stream.broken(WireError::OutcomeUnknown { cause: "the stream ended".into() })
            }
            Wake::Retry => stream.retry = None,
            Wake::Alarm => {
                if stream.rung() && retirement.retire(&received) {
                    return;
                }
            }
        }
        stream.speak();
    }
}

enum Wake {
    Message(Option<Message>),
    Pass(Result<Pass, WireError>),
    Answer(Option<Result<WatchResponse, WireError>>),
    Retry,
    Alarm,
}

struct Stream {
    road: Road,
    board: Board,
    line: Option<Line>,
    /// The login that the next stream waits for.
    login: Option<BoxFuture<'static, Result<Pass, WireError>>>,
    /// Streams in a row that were refused for their token.
    refusals: Refusals,
    /// Streams in a row that broke before they had lasted.
    failures: usize,
    backoff: Backoff,
    /// The pause before the next stream is opened.
    retry: Option<BoxFuture<'static, ()>>,
    /// Wakes the task no later than needed, and is only set again for something earlier: most of what it could wait for
    /// is put off by the next message long before it is due.
    alarm: (Instant, BoxFuture<'static, ()>),
    /// Since when there is no watch, if there is none.
    empty_since: Instant,
}

struct Line {
    line: WatchLine,
    /// What it was opened with.
    pass: Pass,
    /// The endpoint's place.
    at: usize,
    opened: Instant,
    heard: Option<Instant>,
    /// Since when the server owes an answer.
    owed_since: Option<Instant>,
}

fn fresh_backoff() -> Backoff {
    Backoff::new(Duration::from_millis(50), Duration::from_secs(1))
}

impl Stream {
    async fn wake(&mut self, received: &mut UnboundedReceiver<Message>) -> Wake {
        poll_fn(|context| {
            if let Poll::Ready(message) = received.poll_recv(context) {
                return Poll::Ready(Wake::Message(message));
            }
            if let Some(line) = &mut self.line
                && let Poll::Ready(answer) = line.line.answers.poll_next_unpin(context)
            {
                return Poll::Ready(Wake::Answer(answer));
            }
            if let Some(login) = &mut self.login
                && let Poll::Ready(pass) = login.poll_unpin(context)
            {
                return Poll::Ready(Wake::Pass(pass));
            }
            if let Some(retry) = &mut self.retry
                && retry.poll_unpin(context).is_ready()
            {
                return Poll::Ready(Wake::Retry);
            }
            self.alarm.1.poll_unpin(context).map(|()| Wake::Alarm)
        })
        .await
    }

    fn remove(&mut self, remove: impl FnOnce(&mut Board)) {
        remove(&mut self.board);
        if self.board.is_empty() {
            self.empty_since = self.road.runtime.now();
        }
    }

    fn heard(&mut self, response: WatchResponse) {
        if let Some(line) = &mut self.line {
            line.heard = Some(self.road.runtime.now());
        }
        let mended = self.road.login.is_possible();
        let mut stale = None;
        self.remove(|board| stale = board.receive(response, mended));
        // A token is the stream's, from its first day to its last: a new one needs a new stream.
        if let Some(refusal) = stale {
            self.broken(WireError::Unauthorized(refusal));
        }
    }

    /// The stream is over; the next one is opened at once as long as there is an endpoint that was not tried yet.
    fn broken(&mut self, error: WireError) {
        let Some(line) = self.line.take() else { return };
        if line.heard.is_some() && self.road.runtime.now().since(line.opened) >= STEADY {
            // Not the last of a row that broke one after the other, however well each of them began.
            (self.failures, self.backoff, self.refusals) = (0, fresh_backoff(), Refusals::default());
        }
        let Road { pin, lane, login, .. } = &self.road;
        tracing::debug!(?lane, endpoints = pin.names(), cause = %error, "a watch stream broke");
        if let WireError::Unauthorized(refusal) = error {
            if !self.refusals.is_worth_another(login, &line.pass) {
                let fatal = Error::Refused { operation: "watch", source: refusal };
                self.remove(|board| board.fail(&fatal));
            }
            return;
        }
        pin.leave(line.at);
        self.failed(error);
    }

    /// The member asked for a token gives none.
    fn not_let_in(&mut self, error: WireError) {
        self.login = None;
        let Road { pin, lane, .. } = &self.road;
        tracing::debug!(?lane, endpoints = pin.names(), cause = %error, "no token for a watch stream");
        if let WireError::Refused(no) | WireError::Unauthorized(no) = error {
            return self.remove(|board| board.fail(&auth::denied(no)));
        }
        pin.leave(pin.current().0);
        self.failed(error);
    }

    /// Ends the watches for what time does not change, or waits for the next stream's turn.
    fn failed(&mut self, error: WireError) {
        let Road { pin, runtime, .. } = &self.road;
        let fatal = match error {
            WireError::Refused(source) => Some(Error::Refused { operation: "watch", source }),
            WireError::NotEtcd { why, .. } if pin.count() == 1 => {
                Some(Error::Protocol { endpoint: pin.names(), why })
            }
            WireError::Untrusted { why } if pin.count() == 1 => {
                Some(Error::Untrusted { endpoint: pin.names(), why })
            }
            _ => None,
        };
        if let Some(fatal) = fatal {
            return self.remove(|board| board.fail(&fatal));
        }
        self.failures += 1;
        if self.failures.is_multiple_of(pin.count()) {
            let resume = runtime.now() + self.backoff.next_delay(&**runtime);
            self.retry = Some(runtime.sleep_until(resume));
        }
    }

    /// Says what there is to say, on a new stream if there is none.
    fn speak(&mut self) {
        let idle = self.line.is_none() && self.retry.is_none() && self.login.is_none();
        if idle && !self.board.is_empty() {
            match self.road.login.known() {
                Some(pass) => self.open(pass),
                None => self.login = Some(self.road.clone().pass().boxed()),
            }
        }
        let Some(line) = &mut self.line else { return };
        for order in self.board.orders() {
            // A stream that is over says so in its answers.
            let _ = line.line.orders.send(order);
        }
        match (self.board.is_owed(), line.owed_since) {
            (true, None) => line.owed_since = Some(self.road.runtime.now()),
            (true, Some(_)) => {}
            (false, _) => line.owed_since = None,
        }
    }

    fn open(&mut self, pass: Pass) {
        self.login = None;
        let Road { pin, wire, lane, runtime, .. } = &self.road;
        let (at, endpoint) = pin.current();
        let line = wire.open_watch(endpoint, *lane, pass.token.clone());
        self.line = Some(Line { line, pass, at, opened: runtime.now(), heard: None, owed_since: None });
        self.board.restart();
    }

    /// When the task has to look even if nothing happens.
    fn due(&self) -> Instant {
        let Road { silence, connect_timeout, .. } = self.road;
        let answer = silence * 2 / 3;
        match &self.line {
            _ if self.board.is_empty() => self.empty_since + IDLE,
            None => Instant::NEVER,
            Some(Line { heard: None, opened, .. }) => *opened + connect_timeout + answer,
            Some(Line { heard: Some(heard), owed_since: Some(since), .. }) => *heard.max(since) + answer,
            Some(Line { heard: Some(heard), owed_since: None, .. }) => *heard + silence,
        }
    }

    fn set_alarm(&mut self) {
        let due = self.due();
        if due < self.alarm.0 {
            self.alarm = (due, self.road.runtime.sleep_until(due));
        }
    }

    /// Does what silence demands. True if the stream is of no more use.
    fn rung(&mut self) -> bool {
        self.alarm = (Instant::NEVER, Box::pin(std::future::pending()));
        if self.due() > self.road.runtime.now() {
            return false;
        }
        if self.board.is_empty() {
            return true;
        }
        match &self.line {
            Some(Line { heard: Some(_), owed_since: None, .. }) => self.board.probe(),
            Some(line) => {
                let endpoint = self.road.pin.endpoint(line.at);
                self.road.wire.distrust(endpoint, self.road.lane);
                self.broken(WireError::OutcomeUnknown { cause: "the watch stream is silent".into() });
            }
            None => {}
        }
        false
    }
}
