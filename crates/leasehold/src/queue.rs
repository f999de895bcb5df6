//! The ordered queue of a lock: entering it, looking at it, waiting in it and leaving it.
//!
//! An attempt's entry is a key below `NAME/` on the attempt's lease; its rank is the key's create revision. A hold is
//! proven by one linearizable answer that shows the own entry and none before it. Events are hints: whatever stirs a
//! wait leads to a new look, and only looks decide.

mod entry;
mod wait;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::Either;
use leasehold_mvcc::{
    Code, Compare, CompareResult, CompareTarget, KeyValue, PutRequest, RangeAnswer, RangeRequest, Revision,
    SortOrder, SortTarget, Txn, TxnAnswer, TxnOpAnswer,
};

pub(crate) use entry::Author;
pub use entry::{Entry, Who};

use crate::error::{Error, Result};
use crate::etcd::Etcd;
use crate::hold::place::Place;
use crate::hold::{Guard, LossCause};
use crate::lease::Lease;
use crate::name::LockName;
use crate::runtime::{Backoff, race};
use crate::survey;
use wait::Wait;

/// How many entries one look reads at first.
const PAGE: i64 = 16;

/// The delays between the tries of one step.
fn backoff() -> Backoff {
    Backoff::new(Duration::from_millis(20), Duration::from_secs(1))
}

/// Whether an attempt may stand in line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entering {
    /// Enter in any case, and wait.
    Queue,
    /// Enter only if nobody is there.
    IfFree,
}

/// What a try came to.
#[derive(Debug)]
pub(crate) enum Tried {
    /// The lock is held; proven at this revision.
    Held { at: Revision },
    /// Somebody else is there.
    Busy(Entry),
}

/// What an answer showed of the queue as it concerns one attempt.
#[derive(Debug)]
enum Sight {
    /// The own entry, and none before it, both at `at`.
    First { at: Revision },
    /// The own entry and the nearest before it, both at `at`.
    Behind { ahead: KeyValue, at: Revision },
    /// The own entry is there; what is before it must be looked up.
    Unclear,
    /// The own entry is not there, since somebody else's is.
    NotEntered { holder: Entry },
    /// The own entry was there and is gone.
    Gone,
}

/// One attempt at a lock, from its entry to its end.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    name: &'a LockName,
    place: Place,
}

impl<'a> Attempt<'a> {
    pub(crate) fn new(lease: &Arc<Lease>, name: &'a LockName) -> Result<Self> {
        let place = Place::new(lease, |number| name.attempt(lease.id(), number))?;
        Ok(Self { name, place })
    }

    /// Enters the queue and waits for its turn.
    pub(crate) async fn queue(&mut self, author: &Author) -> Result<Revision> {
        let mut wait = Wait::default();
        let mut sight = self.enter(author, Entering::Queue).await?;
        loop {
            match sight {
                Sight::First { at } => return Ok(at),
                Sight::Behind { ahead, at } => {
                    wait.behind(&self.place, &ahead, at).await?;
                    sight = self.look().await?;
                }
                Sight::Unclear => sight = self.look().await?,
                Sight::NotEntered { .. } | Sight::Gone => {
                    return Err(Error::Lost { cause: self.place.gone().await });
                }
            }
        }
    }

    /// Takes the lock if nobody else is there; else leaves no entry and tells who is.
    pub(crate) async fn try_now(&mut self, author: &Author) -> Result<Tried> {
        let mut sight = self.enter(author, Entering::IfFree).await?;
        if matches!(sight, Sight::Unclear) && self.place.created().is_none() {
            // Only keys of nested locks stand there: the one transaction cannot tell, so enter and look.
            sight = self.enter(author, Entering::Queue).await?;
        }
        loop {
            match sight {
                Sight::First { at } => return Ok(Tried::Held { at }),
                Sight::Behind { ahead, .. } => {
                    // The one ahead may be waiting too; it is the holder that the caller wants to know.
                    let holder = first(&**self.place.lease().etcd(), self.name).await?;
                    return Ok(Tried::Busy(holder.unwrap_or_else(|| Entry::read(&ahead))));
                }
                Sight::NotEntered { holder } => return Ok(Tried::Busy(holder)),
                Sight::Unclear => sight = self.look().await?,
                Sight::Gone => return Err(Error::Lost { cause: self.place.gone().await }),
            }
        }
    }

    /// Whether it ended since its lease was gone before it began: then another lease may serve it.
    pub(crate) fn came_too_late(&self, error: &Error) -> bool {
        self.place.created().is_none() && error.loss() == Some(LossCause::LeaseGone)
    }

    /// The guard, for an attempt that was seen first at `at`.
    pub(crate) fn into_guard(self, at: Revision) -> Result<Guard> {
        let Some(created) = self.place.created() else {
            return Err(Error::Protocol {
                endpoint: "etcd".into(),
                why: "a hold was proven without its key".into(),
            });
        };
        Guard::proven(self.place, self.name, created, at)
    }

    /// Leaves the queue, and says so once the entry is gone.
    pub(crate) async fn leave(mut self) -> Result<()> {
        self.place.leave(LossCause::Released).await.map(drop)
    }

    /// Sends the transaction that enters the queue, again and again until it is answered: the key is the attempt's own,
    /// so the copies are one.
    async fn enter(&mut self, author: &Author, entering: Entering) -> Result<Sight> {
        let runtime = self.place.lease().runtime().clone();
        let value = author.sign(runtime.wall_clock());
        let lost = self.place.lost().clone();
        let until = runtime.now() + self.place.lease().granted();
        let mut backoff = backoff();
        let mut copy = false;
        loop {
            let txn = self.entry(value.clone(), entering, copy);
            match race(lost.wait(), self.place.send(txn)).await {
                Either::Left(cause) => return Err(Error::Lost { cause }),
                // The key is there, by a copy that nobody here sent: asked again, etcd shows it.
                Either::Right(Ok(answer)) if !answer.succeeded && answer.ops.is_empty() && !copy => {
                    copy = true
                }
                Either::Right(Ok(answer)) => return self.entered(answer, entering),
                Either::Right(Err(error)) if error.is_transient() && runtime.now() < until => {
                    copy = true;
                    tracing::debug!(lock = %self.name, %error, "entering the queue again");
                    if let Either::Left(cause) = race(lost.wait(), backoff.pause(&*runtime)).await {
                        // The failure says more than that time ran out.
                        tracing::debug!(lock = %self.name, ?cause, "gave up entering");
                        return Err(error);
                    }
                }
                Either::Right(Err(error)) if error.refusal().is_some_and(|no| no.code == Code::NotFound) => {
                    // All that a put can miss is its lease.
                    return Err(Error::Lost { cause: self.place.lease().end(LossCause::LeaseGone) });
                }
                Either::Right(Err(error)) => return Err(error),
            }
        }
    }

    /// The claim, and what is read if it fails: what else but a copy of it could have made the key? So the first one has
    /// nothing to read then, which the server would unpack and check in any case.
    ///
    /// Whoever enters reads the last of the queue before the own key is put, in the same transaction: that shows who is
    /// ahead, and whoever is first finds nothing there, which costs the server next to nothing. To read it behind the put
    /// would cost 3 % of an uncontended lock and unlock more, and a claim by "no key in the queue", with all this in its
    /// other branch, 8 % (measured on 3.7.2): etcd unpacks and checks both branches.
    fn entry(&self, value: Bytes, entering: Entering, copy: bool) -> Txn {
        let key = self.place.key().clone();
        let queue = RangeRequest::range(self.name.queue());
        let put = PutRequest::new(key.clone(), value).on(self.place.lease().id());
        let own = RangeRequest::key(key.clone());
        match entering {
            Entering::Queue => {
                let last = queue.sorted(SortTarget::Create, SortOrder::Descend).limited(1);
                let claim = Txn::new().when(Compare::absent(key)).then(last).then(put);
                if copy { claim.otherwise(own) } else { claim }
            }
            Entering::IfFree => {
                let first = queue.sorted(SortTarget::Create, SortOrder::Ascend).limited(PAGE);
                // Holds if there is no key in the range at all.
                let nobody = Compare {
                    range: first.range.clone(),
                    target: CompareTarget::Create(Revision::ZERO),
                    result: CompareResult::Equal,
                };
                Txn::new().when(nobody).then(put).otherwise(own).otherwise(first)
            }
        }
    }

    /// Reads the answer to [`Attempt::entry`].
    fn entered(&mut self, answer: TxnAnswer, entering: Entering) -> Result<Sight> {
        let at = answer.header.revision;
        let view = |place| answer.ops.get(place).and_then(TxnOpAnswer::as_range).ok_or_else(malformed);
        match (answer.succeeded, entering) {
            (true, Entering::Queue) => {
                let before = view(0)?;
                self.place.stands(at);
                Ok(match before.kvs.first() {
                    None if before.count == 0 => Sight::First { at },
                    Some(ahead) if self.name.owns(&ahead.key) => Sight::Behind { ahead: ahead.clone(), at },
                    // The last is a nested lock's.
                    _ => Sight::Unclear,
                })
            }
            (true, Entering::IfFree) => {
                self.place.stands(at);
                Ok(Sight::First { at })
            }
            (false, _) => {
                if let Some(own) = view(0)?.kvs.first() {
                    // An earlier copy of this request was carried out.
                    self.place.stands(own.create_revision);
                    return Ok(Sight::Unclear);
                }
                self.place.is_absent();
                match entering {
                    Entering::Queue => Err(malformed()),
                    Entering::IfFree => Ok(match view(1)?.kvs.iter().find(|kv| self.name.owns(&kv.key)) {
                        Some(first) => Sight::NotEntered { holder: Entry::read(first) },
                        None => Sight::Unclear,
                    }),
                }
            }
        }
    }

    /// Looks until there is an answer, or the lease is lost, or for as long as it lives: a server that renews and does not
    /// answer must not be asked for ever.
    async fn look(&self) -> Result<Sight> {
        let runtime = self.place.lease().runtime();
        let until = runtime.now() + self.place.lease().granted();
        let mut backoff = backoff();
        loop {
            match race(self.place.lost().wait(), self.look_once()).await {
                Either::Left(cause) => return Err(Error::Lost { cause }),
                Either::Right(Err(error)) if error.is_transient() && runtime.now() < until => {
                    backoff.pause(&**runtime).await;
                }
                Either::Right(sight) => return sight,
            }
        }
    }

    /// The own entry, and the nearest before it. Entries before it can only go, never come, so pages read one after the
    /// other prove as much as one answer would: what counts is the last.
    async fn look_once(&self) -> Result<Sight> {
        let Some(created) = self.place.created() else { return Err(malformed()) };
        let (mut newest, mut limit) = (created.previous(), PAGE);
        loop {
            let before =
                RangeRequest { max_create_revision: newest, ..RangeRequest::range(self.name.queue()) }
                    .sorted(SortTarget::Create, SortOrder::Descend)
                    .limited(limit);
            let own = RangeRequest::key(self.place.key().clone());
            let lease = self.place.lease();
            let seen = lease.seen();
            let answer = lease.etcd().txn(Txn::new().then(own).then(before)).await?;
            lease.follow(seen, answer.header)?;
            let at = answer.header.revision;
            let [own, before] = ranges(&answer)?;
            if own.kvs.first().is_none_or(|own| own.create_revision != created) {
                return Ok(Sight::Gone);
            }
            if let Some(ahead) = before.kvs.iter().find(|kv| self.name.owns(&kv.key)) {
                return Ok(Sight::Behind { ahead: ahead.clone(), at });
            }
            match before.kvs.last() {
                // The next page begins with this one's last revision again, at which more keys may have been made, and
                // is larger, so that it gets on even if all were.
                Some(oldest) if before.more => (newest, limit) = (oldest.create_revision, limit * 2),
                _ => return Ok(Sight::First { at }),
            }
        }
    }
}

/// The first entry of a lock's queue: who holds it.
pub(crate) async fn first(etcd: &dyn Etcd, name: &LockName) -> Result<Option<Entry>> {
    let request =
        RangeRequest::range(name.queue()).sorted(SortTarget::Create, SortOrder::Ascend).limited(PAGE);
    let page = etcd.range(request).await?;
    match page.kvs.iter().find(|kv| name.owns(&kv.key)) {
        None if page.more => Ok(entries(etcd, name).await?.into_iter().next()),
        first => Ok(first.map(Entry::read)),
    }
}

/// A lock's whole queue as of one revision, holder first.
pub(crate) async fn entries(etcd: &dyn Etcd, name: &LockName) -> Result<Vec<Entry>> {
    let mut tries = survey::Tries::default();
    let mut entries = Vec::new();
    loop {
        let mut take = |kv: KeyValue| {
            if name.owns(&kv.key) {
                entries.push(Entry::read(&kv));
            }
        };
        match survey::read(etcd, name.queue(), Revision::ZERO, &mut take).await {
            Ok(_) => break,
            Err(error) if tries.again(&error) => entries.clear(),
            Err(error) => return Err(error),
        }
    }
    entries.sort_by_key(|entry| entry.create_revision);
    Ok(entries)
}

fn ranges(answer: &TxnAnswer) -> Result<[&RangeAnswer; 2]> {
    let mut ranges = answer.ops.iter().map(TxnOpAnswer::as_range);
    match (ranges.next().flatten(), ranges.next().flatten()) {
        (Some(first), Some(second)) => Ok([first, second]),
        _ => Err(malformed()),
    }
}

fn malformed() -> Error {
    Error::Protocol {
        endpoint: "etcd".into(),
        why: "the answer to a queue's transaction lacks a part".into(),
    }
}
