//! How busy a server is, for one that starts by itself and leaves when nobody needs it.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use leasehold::Embedded;
use leasehold::etcd::Etcd;
use leasehold_mvcc::{Answer, Command};

/// How busy a [`Server`](crate::Server) is. A clone tells of the same server.
#[derive(Clone)]
pub struct Activity {
    etcd: Embedded,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    open: AtomicUsize,
    /// Comings and goings, each one counted: whoever sees the same number twice knows that nothing happened between.
    changes: AtomicUsize,
}

impl Activity {
    pub(crate) fn new(etcd: Embedded) -> Self {
        Self { etcd, counts: Arc::default() }
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.counts.open.load(Ordering::Acquire)
    }

    /// Whether nobody is connected and no lease lives. Keys on no lease do not count: they hold no lock.
    pub fn is_idle(&self) -> bool {
        self.connections() == 0
            && matches!(self.etcd.apply(Command::Leases), Ok(Answer::Leases(answer)) if answer.leases.is_empty())
    }

    /// Ends once the server has been idle for `time`, and before twice that: a `shutdown` for
    /// [`Server::serve`](crate::Server::serve). A client that connects in the last moment is refused, never half served.
    pub async fn idle_for(self, time: Duration) {
        let runtime = self.etcd.runtime();
        loop {
            let before = self.counts.changes.load(Ordering::Acquire);
            let idle = self.is_idle();
            runtime.sleep_until(runtime.now() + time).await;
            if idle && self.is_idle() && self.counts.changes.load(Ordering::Acquire) == before {
                return;
            }
        }
    }

    /// Counts a connection for as long as the answer lives.
    pub(crate) fn arrival(&self) -> Arrival {
        self.counts.open.fetch_add(1, Ordering::AcqRel);
        self.counts.changes.fetch_add(1, Ordering::AcqRel);
        Arrival(self.counts.clone())
    }
}

impl fmt::Debug for Activity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Activity").field("connections", &self.connections()).finish_non_exhaustive()
    }
}

/// An open connection.
#[derive(Debug)]
pub(crate) struct Arrival(Arc<Counts>);

impl Drop for Arrival {
    fn drop(&mut self) {
        self.0.changes.fetch_add(1, Ordering::AcqRel);
        self.0.open.fetch_sub(1, Ordering::AcqRel);
    }
}
