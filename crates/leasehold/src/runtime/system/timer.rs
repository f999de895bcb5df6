//! All sleeps of the process, over one alarm of the machine that counts suspension.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::clock::{self, Alarm};
use crate::exclusive::Exclusive;
use crate::runtime::Instant;

#[derive(Debug)]
pub(super) struct Timers {
    alarm: Alarm,
    sleepers: Exclusive<Sleepers>,
}

#[derive(Debug)]
struct Sleepers {
    /// Who sleeps, in the order of waking. The number tells sleepers of one instant apart.
    wakers: BTreeMap<(Instant, u64), Waker>,
    next_number: u64,
    /// When the alarm rings. It may ring for a sleeper that has gone, never too late for one that has not.
    armed: Instant,
}

impl Timers {
    /// Starts the thread that waits for the alarm.
    pub(super) fn start() -> std::io::Result<Arc<Self>> {
        let sleepers = Sleepers { wakers: BTreeMap::new(), next_number: 0, armed: Instant::NEVER };
        let timers = Arc::new(Self { alarm: Alarm::new()?, sleepers: Exclusive::new(sleepers) });
        let driven = timers.clone();
        let endless = move || loop {
            driven.alarm.rung();
            driven.wake_due();
        };
        std::thread::Builder::new().name("leasehold-timer".into()).spawn(endless)?;
        Ok(timers)
    }

    fn wake_due(&self) {
        let due = {
            let mut sleepers = self.sleepers.lock();
            let later = sleepers.wakers.split_off(&(clock::now(), u64::MAX));
            let due = std::mem::replace(&mut sleepers.wakers, later);
            sleepers.armed = Instant::NEVER;
            if let Some(next) = sleepers.wakers.keys().next().map(|(at, _)| *at) {
                self.arm(&mut sleepers, next);
            }
            due
        };
        for waker in due.into_values() {
            waker.wake();
        }
    }

    /// Arming under the lock keeps the alarm and `armed` in step when two sleepers come at once.
    fn arm(&self, sleepers: &mut Sleepers, at: Instant) {
        if at < sleepers.armed {
            sleepers.armed = at;
            self.alarm.set(at);
        }
    }

    pub(super) fn sleep_until(self: &Arc<Self>, at: Instant) -> Sleep {
        Sleep { timers: self.clone(), at, number: None }
    }
}

/// One sleep. It reads the clock itself whenever it is polled, so it ends in time even if the alarm is late.
#[derive(Debug)]
pub(super) struct Sleep {
    timers: Arc<Timers>,
    at: Instant,
    number: Option<u64>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.at == Instant::NEVER {
            return Poll::Pending;
        }
        if clock::now() >= self.at {
            return Poll::Ready(());
        }
        let timers = self.timers.clone();
        let mut sleepers = timers.sleepers.lock();
        let number = self.number.unwrap_or_else(|| {
            sleepers.next_number += 1;
            sleepers.next_number
        });
        self.number = Some(number);
        sleepers.wakers.insert((self.at, number), context.waker().clone());
        timers.arm(&mut sleepers, self.at);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            self.timers.sleepers.lock().wakers.remove(&(self.at, number));
        }
    }
}
