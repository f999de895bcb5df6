//! An etcd behind a bad network: any backend, with requests and answers lost, late and delayed, and watches broken.
//!
//! Chance is the backend's runtime's, so on a seeded runtime the faults replay too. Whatever is
//! done here keeps to what [`Etcd`] promises: a caller that errs under these faults would err on a real network.

mod watch;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use leasehold::Error;
use leasehold::etcd::{Call, Etcd, Updates};
use leasehold::runtime::Runtime;
use leasehold_mvcc::{
    KeepAliveAnswer, LeaseGrantAnswer, LeaseGrantRequest, LeaseId, LeaseRevokeAnswer, LeaseTimeToLiveAnswer,
    RangeAnswer, RangeRequest, Txn, TxnAnswer, WatchRequest,
};
use tokio::sync::oneshot;

/// How often which fault strikes: so many of a thousand calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Rates {
    /// Nobody can be asked: [`Error::Unavailable`], and the request is not carried out.
    pub refused: u32,
    /// The request gets lost: [`Error::OutcomeUnknown`], and it is not carried out.
    pub lost_requests: u32,
    /// The answer gets lost: [`Error::OutcomeUnknown`], and it was carried out before.
    pub lost_replies: u32,
    /// The request comes late: [`Error::OutcomeUnknown`], and it is carried out afterwards.
    pub late_requests: u32,
    /// Request and answer take their time. Such a request is carried out even if its caller goes.
    pub delays: u32,
    /// The longest that a failing or delayed call takes, and a delayed answer or watch update once more.
    pub max_delay: Duration,
    /// The longest after the caller's error that a late request is carried out.
    pub max_late: Duration,
    /// How long a watch's connection lasts on average; `None` for ever.
    pub watch_life: Option<Duration>,
    /// The longest gap between a watch's connections.
    pub max_gap: Duration,
}

impl Rates {
    /// No faults at all.
    pub const NONE: Self = Self {
        refused: 0,
        lost_requests: 0,
        lost_replies: 0,
        late_requests: 0,
        delays: 0,
        max_delay: Duration::ZERO,
        max_late: Duration::ZERO,
        watch_life: None,
        max_gap: Duration::ZERO,
    };

    /// A tenth of all calls fails, half are slow, and watches break every few seconds.
    pub const ROUGH: Self = Self {
        refused: 20,
        lost_requests: 20,
        lost_replies: 30,
        late_requests: 30,
        delays: 500,
        max_delay: Duration::from_millis(300),
        max_late: Duration::from_secs(5),
        watch_life: Some(Duration::from_secs(5)),
        max_gap: Duration::from_secs(1),
    };
}

/// What was done to the calls so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Injected {
    /// Calls made, harmed or not.
    pub calls: u64,
    /// See [`Rates::refused`].
    pub refused: u64,
    /// See [`Rates::lost_requests`].
    pub lost_requests: u64,
    /// See [`Rates::lost_replies`].
    pub lost_replies: u64,
    /// See [`Rates::late_requests`].
    pub late_requests: u64,
    /// See [`Rates::delays`].
    pub delays: u64,
    /// Watch connections broken.
    pub broken_watches: u64,
}

impl Injected {
    /// How many calls failed for the caller.
    pub fn failed(&self) -> u64 {
        self.refused + self.lost_requests + self.lost_replies + self.late_requests
    }
}

/// The switch and the counter of a [`Lossy`], and of all that come of it by [`Etcd::dedicated`].
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Mutex<(Rates, Injected)>>);

impl Faults {
    /// Sets the rates from now on.
    pub fn set(&self, rates: Rates) {
        self.lock().0 = rates;
    }

    /// Ends all faults; late requests under way still arrive.
    pub fn calm(&self) {
        self.set(Rates::NONE);
    }

    /// The rates of now.
    pub fn rates(&self) -> Rates {
        self.lock().0
    }

    /// What was done so far.
    pub fn injected(&self) -> Injected {
        self.lock().1
    }

    fn lock(&self) -> MutexGuard<'_, (Rates, Injected)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, what: impl FnOnce(&mut Injected) -> &mut u64) {
        *what(&mut self.lock().1) += 1;
    }

    /// Whether a watch's next update is to come late.
    fn delays_update(&self, runtime: &dyn Runtime) -> bool {
        runtime.random_u64() % 1000 < u64::from(self.rates().delays)
    }

    fn draw(&self, runtime: &dyn Runtime) -> Fate {
        let drawn = runtime.random_u64() % 1000;
        let mut state = self.lock();
        let (rates, injected) = &mut *state;
        injected.calls += 1;
        let mut bound = 0;
        let fates = [
            (rates.refused, Fate::Refused, &mut injected.refused),
            (rates.lost_requests, Fate::LostRequest, &mut injected.lost_requests),
            (rates.lost_replies, Fate::LostReply, &mut injected.lost_replies),
            (rates.late_requests, Fate::LateRequest, &mut injected.late_requests),
            (rates.delays, Fate::Delayed, &mut injected.delays),
        ];
        for (rate, fate, counter) in fates {
            bound += u64::from(rate);
            if drawn < bound {
                *counter += 1;
                return fate;
            }
        }
        Fate::Unharmed
    }
}

#[derive(Clone, Copy)]
enum Fate {
    Unharmed,
    Refused,
    LostRequest,
    LostReply,
    LateRequest,
    Delayed,
}

/// A backend with faults. Make one with [`Lossy::new`]; it begins without any.
#[derive(Clone, Debug)]
pub struct Lossy {
    inner: Arc<dyn Etcd>,
    faults: Faults,
}

impl Lossy {
    /// `inner` seen through a network that [`Lossy::faults`] makes bad.
    pub fn new(inner: Arc<dyn Etcd>) -> Self {
        Self { inner, faults: Faults::default() }
    }

    /// The switch and the counter.
    pub fn faults(&self) -> Faults {
        self.faults.clone()
    }

    fn call<T: Send + 'static>(
        &self,
        operation: &'static str,
        start: impl FnOnce(&dyn Etcd) -> Call<T> + Send + 'static,
    ) -> Call<T> {
        let Self { inner, faults } = self.clone();
        Box::pin(async move {
            let (runtime, rates) = (inner.runtime(), faults.rates());
            let endpoint = || "a lossy network".to_owned();
            let unknown =
                |cause: &str| Error::OutcomeUnknown { operation, endpoint: endpoint(), cause: cause.into() };
            match faults.draw(&*runtime) {
                Fate::Unharmed => start(&*inner).await,
                Fate::Refused => {
                    pause(&*runtime, rates.max_delay).await;
                    Err(Error::Unavailable {
                        operation,
                        endpoints: endpoint(),
                        cause: "refused by chance".into(),
                    })
                }
                Fate::LostRequest => {
                    pause(&*runtime, rates.max_delay).await;
                    Err(unknown("no answer (the request was lost)"))
                }
                Fate::LostReply => {
                    // Once begun it is carried out, even if the caller goes.
                    let answer = send(&inner, Duration::ZERO, start);
                    let _ = answer.await;
                    pause(&*runtime, rates.max_delay).await;
                    Err(unknown("no answer (the answer was lost)"))
                }
                Fate::LateRequest => {
                    let told = up_to(&*runtime, rates.max_delay);
                    let late = told + Duration::from_nanos(1) + up_to(&*runtime, rates.max_late);
                    drop(send(&inner, late, start));
                    runtime.sleep_until(runtime.now() + told).await;
                    Err(unknown("no answer (the request is late)"))
                }
                Fate::Delayed => {
                    let answer = send(&inner, up_to(&*runtime, rates.max_delay), start).await;
                    pause(&*runtime, rates.max_delay).await;
                    answer.unwrap_or_else(|_| Err(unknown("the backend is gone")))
                }
            }
        })
    }
}

/// Carries the request out after a delay, whether or not anybody waits for the answer.
fn send<T: Send + 'static>(
    etcd: &Arc<dyn Etcd>,
    delay: Duration,
    start: impl FnOnce(&dyn Etcd) -> Call<T> + Send + 'static,
) -> oneshot::Receiver<leasehold::Result<T>> {
    let (tell, answer) = oneshot::channel();
    let (etcd, runtime) = (etcd.clone(), etcd.runtime());
    let spawner = runtime.clone();
    let task = async move {
        if !delay.is_zero() {
            runtime.sleep_until(runtime.now() + delay).await;
        }
        let _ = tell.send(start(&*etcd).await);
    };
    spawner.spawn("lossy network", Box::pin(task)).detach();
    answer
}

fn up_to(runtime: &dyn Runtime, longest: Duration) -> Duration {
    let longest = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(if longest == 0 { 0 } else { runtime.random_u64() % longest })
}

async fn pause(runtime: &dyn Runtime, longest: Duration) {
    runtime.sleep_until(runtime.now() + up_to(runtime, longest)).await;
}

impl Etcd for Lossy {
    fn range(&self, request: RangeRequest) -> Call<RangeAnswer> {
        self.call("read", |etcd| etcd.range(request))
    }

    fn txn(&self, txn: Txn) -> Call<TxnAnswer> {
        self.call("do a transaction", |etcd| etcd.txn(txn))
    }

    fn lease_grant(&self, request: LeaseGrantRequest) -> Call<LeaseGrantAnswer> {
        self.call("grant a lease", move |etcd| etcd.lease_grant(request))
    }

    fn lease_keep_alive(&self, id: LeaseId) -> Call<KeepAliveAnswer> {
        self.call("renew a lease", move |etcd| etcd.lease_keep_alive(id))
    }

    fn lease_revoke(&self, id: LeaseId) -> Call<LeaseRevokeAnswer> {
        self.call("revoke a lease", move |etcd| etcd.lease_revoke(id))
    }

    fn lease_time_to_live(&self, id: LeaseId, keys: bool) -> Call<LeaseTimeToLiveAnswer> {
        self.call("ask for a lease's time", move |etcd| etcd.lease_time_to_live(id, keys))
    }

    fn watch(&self, request: WatchRequest) -> Updates {
        watch::broken_now_and_then(self.clone(), request)
    }

    fn close(&self) -> BoxFuture<'static, ()> {
        self.inner.close()
    }

    fn dedicated(&self) -> Arc<dyn Etcd> {
        Arc::new(Self { inner: self.inner.dedicated(), faults: self.faults.clone() })
    }

    fn runtime(&self) -> Arc<dyn Runtime> {
        self.inner.runtime()
    }
}

impl From<Lossy> for Arc<dyn Etcd> {
    fn from(etcd: Lossy) -> Self {
        Arc::new(etcd)
    }
}

#[cfg(test)]
mod tests;
