//! One attempt's key in etcd, and its removal.
//!
//! A [`Place`] owns the key from before its creation is asked for until it is known to be gone. Whatever ends the
//! attempt, success apart, is its drop: it removes the key in the background, on the library's own thread.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use leasehold_mvcc::{Compare, DeleteRequest, Instant, Key, Revision, Txn, TxnAnswer};

use super::{LossCause, Lost};
use crate::error::{Error, Result};
use crate::etcd::Call;
use crate::exclusive::Exclusive;
use crate::lease::{Lease, own_key};
use crate::runtime::{Backoff, before};

/// How long whoever leaves waits to hear that the key is gone, before that goes on in the background.
const LEAVE_BOUND: Duration = Duration::from_secs(5);

/// How long one try of that may take, before another member is asked.
const TRY: Duration = Duration::from_secs(2);

/// How far the creation of the key has come.
enum Stage {
    /// It was not asked for, or certainly not carried out.
    Absent,
    /// It is under way.
    Sending(Exclusive<Call<TxnAnswer>>),
    /// The key may or may not be there.
    Unknown,
    /// The key was there, created at this revision.
    Standing(Revision),
    /// The key is gone, by a removal that was bound to its creation or, if that was never known, to the lease alone.
    Left { bound: bool },
}

pub(crate) struct Place {
    lease: Arc<Lease>,
    key: Key,
    number: u64,
    lost: Lost,
    stage: Stage,
    /// A copy of the creation went unanswered: it may come late and bring the key back.
    late_copy: bool,
    /// What must hold besides for the key to be removed.
    only_if: Option<Compare>,
}

impl Place {
    /// A place on a lease, for the key that `name_key` makes of the attempt's number.
    ///
    /// # Errors
    /// [`Error::Lost`] if the lease is over.
    pub(crate) fn new(lease: &Arc<Lease>, name_key: impl FnOnce(u64) -> Key) -> Result<Self> {
        let lost = Lost::default();
        let (number, key) = lease.join(name_key, &lost)?;
        Ok(Self {
            lease: lease.clone(),
            key,
            number,
            lost,
            stage: Stage::Absent,
            late_copy: false,
            only_if: None,
        })
    }

    /// The same place, whose key is removed only if this holds too.
    pub(crate) fn only_if(mut self, compare: Compare) -> Self {
        self.only_if = Some(compare);
        self
    }

    pub(crate) fn key(&self) -> &Key {
        &self.key
    }

    pub(crate) fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    pub(crate) fn lost(&self) -> &Lost {
        &self.lost
    }

    /// Until when this may count as held. It reads no clock.
    pub(crate) fn valid_until(&self) -> Instant {
        self.lease.valid_until_of(self.number)
    }

    /// Whether the hold lasts for `margin` from now at least; reads the clock, and says at once if it does not.
    pub(crate) fn ensure(&self, margin: Duration) -> Result<(), LossCause> {
        if let Some(cause) = self.lost.cause() {
            return Err(cause);
        }
        let now = self.lease.runtime().now();
        if now >= self.valid_until() {
            return Err(self.lease.overdue(self.number, now));
        }
        if now + margin >= self.valid_until() { Err(LossCause::Deadline) } else { Ok(()) }
    }

    /// The create revision, once it is known.
    pub(crate) fn created(&self) -> Option<Revision> {
        match self.stage {
            Stage::Standing(revision) => Some(revision),
            _ => None,
        }
    }

    /// The key was seen to be there, created at this revision.
    pub(crate) fn stands(&mut self, created: Revision) {
        self.stage = Stage::Standing(created);
    }

    /// The answer showed that the key was not created.
    pub(crate) fn is_absent(&mut self) {
        self.stage = Stage::Absent;
    }

    /// From now on this is a hold: its own key is watched, and `max_hold` counts.
    ///
    /// # Errors
    /// [`Error::Lost`] if it is over already.
    pub(crate) fn hold(&self, created: Revision) -> Result<()> {
        self.lease.hold(self.number, created);
        self.ensure(Duration::ZERO).map_err(|cause| Error::Lost { cause })
    }

    /// The key was seen to be gone: tells so, with the cause.
    pub(crate) async fn gone(&self) -> LossCause {
        own_key::tell(&self.lease, &self.key, &self.lost).await
    }

    /// Sends a transaction that may create the key. After an answer the caller must say what it showed, by
    /// [`Place::stands`] or [`Place::is_absent`].
    ///
    /// # Cancel safety
    /// If the place is dropped with this future, the call is finished in the background and undone.
    pub(crate) async fn send(&mut self, txn: Txn) -> Result<TxnAnswer> {
        let seen = self.lease.seen();
        self.stage = Stage::Sending(Exclusive::new(self.lease.etcd().txn(txn)));
        let answer = self.answer().await?;
        self.lease.follow(seen, answer.header)?;
        Ok(answer)
    }

    /// Waits for the answer to the call under way.
    async fn answer(&mut self) -> Result<TxnAnswer> {
        let stage = &mut self.stage;
        let answer = poll_fn(|context| match stage {
            Stage::Sending(call) => call.get_mut().as_mut().poll(context),
            _ => Poll::Pending,
        })
        .await;
        self.stage = match &answer {
            Ok(_) => {
                self.lease.may_read(&self.key);
                Stage::Unknown
            }
            Err(error) if error.is_outcome_unknown() => {
                self.late_copy = true;
                self.lease.retire();
                Stage::Unknown
            }
            Err(_) if self.late_copy => Stage::Unknown,
            Err(_) => Stage::Absent,
        };
        answer
    }

    /// Removes the key. It is gone then, and the answer tells whether this is what removed it. If the answer does not
    /// come, the removal goes on in the background once the place is dropped, which is all that may be done with it.
    pub(crate) async fn leave(&mut self, cause: LossCause) -> Result<bool> {
        self.lost.set(cause);
        if matches!(self.stage, Stage::Sending(_)) {
            // Whoever waited for it gave up; a removal that overtook it would remove nothing.
            let _ = self.answer().await;
        }
        if matches!(self.stage, Stage::Absent) && !self.late_copy {
            return Ok(false);
        }
        match self.remove_within(LEAVE_BOUND).await {
            Ok(removed) => {
                self.stage = Stage::Left { bound: self.created().is_some() };
                Ok(removed)
            }
            Err(error) => {
                // Dropped as it stands: the removal starts anew on the lease's thread.
                self.lease.retire();
                Err(error)
            }
        }
    }

    /// Asks for the removal until there is an answer, at another member if one is silent: it may be carried out twice.
    /// Says whether it was this that removed the key, as far as can be known.
    async fn remove_within(&self, bound: Duration) -> Result<bool> {
        let runtime = self.lease.runtime().clone();
        let until = runtime.now() + bound;
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
        let mut unanswered = false;
        loop {
            let patience = until.min(runtime.now() + TRY);
            let answer = before(&*runtime, patience, self.lease.etcd().txn(self.removal())).await;
            let error = match answer {
                // The key is gone, and an earlier copy may be what removed it.
                Some(Ok(answer)) => return Ok(answer.succeeded || unanswered),
                Some(Err(error)) if !error.is_transient() => return Err(error),
                Some(Err(error)) => error,
                None => Error::OutcomeUnknown {
                    operation: "remove a lock's key",
                    endpoint: "the session's endpoints".into(),
                    cause: format!("no answer within {bound:?}"),
                },
            };
            if error.is_outcome_unknown() {
                unanswered = true;
                if self.created().is_none() {
                    // A late copy would remove a later attempt's key of the same name.
                    self.lease.retire();
                }
            }
            tracing::debug!(key = %self.key, %error, "the removal is not answered yet");
            let resume = runtime.now() + backoff.next_delay(&*runtime);
            if resume >= until {
                return Err(error);
            }
            runtime.sleep_until(resume).await;
        }
    }

    fn removal(&self) -> Txn {
        let txn = removal(&self.lease, &self.key, self.created());
        match &self.only_if {
            Some(compare) => txn.when(compare.clone()),
            None => txn,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lost.set(LossCause::Released);
        let mut late_copy = self.late_copy;
        if late_copy {
            self.lease.doubt(self.key.clone());
        }
        // A removal that is bound to the creation harms nobody, however late another copy of it comes. One that is bound
        // to the lease alone would remove a later attempt's key of the same name.
        let bound = match self.stage {
            Stage::Absent | Stage::Left { bound: true } if !late_copy => {
                return self.lease.part_cleanly(self.number);
            }
            Stage::Absent | Stage::Left { .. } => return self.lease.part(self.number),
            Stage::Standing(_) => true,
            Stage::Sending(_) | Stage::Unknown => false,
        };
        let removal = self.removal();
        let stage = std::mem::replace(&mut self.stage, Stage::Left { bound });
        let (lease, key, number) = (self.lease.clone(), self.key.clone(), self.number);
        let runtime = lease.runtime().clone();
        let job = async move {
            if let Stage::Sending(call) = stage
                && call.into_inner().await.is_err_and(|error| error.is_outcome_unknown())
            {
                late_copy = true;
                lease.retire();
                lease.doubt(key.clone());
            }
            let gone = remove(&lease, &key, removal).await;
            if gone && bound && !late_copy { lease.part_cleanly(number) } else { lease.part(number) }
        };
        runtime.spawn_dedicated("remove a key", Box::pin(job)).detach();
    }
}

/// The one way by which a key of ours is deleted: only as the creation we know, or, while that is not known, only if it
/// hangs on our own lease.
pub(crate) fn removal(lease: &Lease, key: &Key, created: Option<Revision>) -> Txn {
    let ours = match created {
        Some(revision) => Compare::created_at(key.clone(), revision),
        None => Compare::lease(key.clone(), lease.id()),
    };
    Txn::new().when(ours).then(DeleteRequest::key(key.clone()))
}

/// Removes a key, however long it takes, until it is known to be gone or goes with its lease; says whether it is known.
pub(crate) async fn remove(lease: &Lease, key: &Key, removal: Txn) -> bool {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
    loop {
        match lease.dedicated().txn(removal.clone()).await {
            Ok(_) => return true,
            Err(Error::Closed { .. }) => return false,
            Err(error) if error.is_transient() && !lease.is_surely_dead() => {
                lease.retire();
                tracing::debug!(%key, %error, "the key is not known to be removed yet");
                backoff.pause(&**lease.runtime()).await;
            }
            Err(error) => {
                // Whatever this answer means, the lease must not keep the key: it is asked for with each renewal, and
                // the lease ends once nobody else is on it.
                lease.retire();
                lease.doubt(key.clone());
                tracing::warn!(%key, lease = %lease.id(), %error, "the key could not be removed; it goes with its lease");
                return false;
            }
        }
    }
}

impl std::fmt::Debug for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Place")
            .field("key", &self.key)
            .field("created", &self.created())
            .finish_non_exhaustive()
    }
}
