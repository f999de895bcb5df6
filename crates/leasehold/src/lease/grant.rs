//! Getting a lease, and getting rid of one.

use std::sync::Arc;
use std::time::Duration;

use leasehold_mvcc::{Code, Instant, LeaseGrantAnswer, LeaseGrantRequest, LeaseId};

use crate::error::{Error, Result};
use crate::etcd::{Call, Etcd};
use crate::name::Ttl;
use crate::runtime::{Backoff, Runtime, before};

/// How long a request that was given up may still be under way.
const LATE: Duration = Duration::from_secs(20);

/// How long each of the first two tries to revoke a lease may take, before another member is asked: three of them have to
/// fit into what the closing of a session waits. The next ones may take longer each time.
const TRY: Duration = Duration::from_millis(400);

/// A grant under way. If it is dropped unfinished, or its answer is lost, the lease is revoked by its number.
pub(super) struct Grant {
    id: LeaseId,
    etcd: Arc<dyn Etcd>,
    call: Option<Call<LeaseGrantAnswer>>,
}

impl Grant {
    pub(super) fn new(id: LeaseId, etcd: Arc<dyn Etcd>) -> Self {
        Self { id, etcd, call: None }
    }

    pub(super) async fn send(&mut self, ttl: Ttl) -> Result<LeaseGrantAnswer> {
        let call =
            self.call.insert(self.etcd.lease_grant(LeaseGrantRequest { ttl: ttl.as_secs(), id: self.id }));
        let answer = call.await;
        let unknown = answer.as_ref().is_err_and(Error::is_outcome_unknown);
        self.call = unknown.then(|| Box::pin(std::future::ready(answer.clone())) as Call<LeaseGrantAnswer>);
        answer
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        let Some(call) = self.call.take() else { return };
        let (id, runtime) = (self.id, self.etcd.runtime());
        let (dedicated, clock) = (self.etcd.dedicated(), runtime.clone());
        let job = async move {
            match call.await {
                Ok(_) => _ = revoke(&dedicated, &*clock, id, clock.now() + LATE).await,
                // It may come late: that it is not there yet says nothing.
                Err(error) if error.is_outcome_unknown() => {
                    revoke_when_it_comes(&dedicated, &*clock, id).await
                }
                Err(_) => {}
            }
        };
        runtime.spawn_dedicated("revoke an unwanted lease", Box::pin(job)).detach();
    }
}

/// Revokes a lease that a late request may make, for as long as such a request may reasonably be under way. One that comes
/// later still is empty, and ends by itself.
async fn revoke_when_it_comes(etcd: &Arc<dyn Etcd>, runtime: &dyn Runtime, id: LeaseId) {
    let until = runtime.now() + LATE;
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(2));
    while runtime.now() < until {
        match etcd.lease_revoke(id).await {
            Ok(_) | Err(Error::Closed { .. }) => return,
            Err(_) => backoff.pause(runtime).await,
        }
    }
}

/// Revokes a lease; tries until it is known to be gone or `until` is past. Says whether it is known.
pub(super) async fn revoke(etcd: &Arc<dyn Etcd>, runtime: &dyn Runtime, id: LeaseId, until: Instant) -> bool {
    let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
    let mut silent: u32 = 0;
    loop {
        let patience = TRY * (1 << silent.saturating_sub(1).min(5));
        let at = until.min(runtime.now() + patience);
        match before(runtime, at, etcd.lease_revoke(id)).await {
            Some(Ok(_)) => return true,
            Some(Err(error)) if error.refusal().is_some_and(|no| no.code == Code::NotFound) => return true,
            Some(Err(error)) if error.is_transient() && runtime.now() < until => backoff.pause(runtime).await,
            Some(Err(error)) => {
                tracing::debug!(lease = %id, %error, "the lease is not revoked; it ends by itself");
                return false;
            }
            None if runtime.now() < until => silent = silent.saturating_add(1),
            None => return false,
        }
    }
}
