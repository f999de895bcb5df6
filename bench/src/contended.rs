//! Several sessions on one lock: how many grants a second, and how long from one holder's release to the next one's grant.
//!
//! The peer is etcd's own lock service, v3lock, which runs Go's `concurrency.Mutex` inside the server: so it pays for no
//! connection of its own. Each contender has a lease and a connection to itself and does nothing under the lock but look
//! that it is alone there.

mod ours;
mod v3lock;

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use leasehold_testbed::RealEtcd;

use crate::options::Length;
use crate::report::{Figure, Findings, Found, Goal, Row};
use crate::samples::{Samples, Summary};
use ours::Ours;
use v3lock::V3Lock;

/// Who takes the lock over and over.
trait Contender: Send + 'static {
    type Held: Send;

    fn lock(&mut self) -> impl Future<Output = Self::Held> + Send;
    fn unlock(&mut self, held: Self::Held) -> impl Future<Output = ()> + Send;
}

pub(crate) fn measure(etcd: &RealEtcd, length: Length, contenders: usize) -> Findings {
    // Both sides' tasks have as many threads as the machine has cores.
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(run(etcd, length, contenders))
}

async fn run(etcd: &RealEtcd, length: Length, contenders: usize) -> Findings {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..contenders {
        ours.push(Ours::connect(etcd, &format!("bench/{contenders}/ours")).await);
        theirs.push(V3Lock::connect(etcd, &format!("bench/{contenders}/v3lock")).await);
    }
    // The first turn makes connections and watch streams.
    let warm_up = length.turn / 4;
    let (mut ours, _) = contend(ours, warm_up).await;
    let (mut theirs, _) = contend(theirs, warm_up).await;

    let (mut our_turns, mut their_turns) = (Vec::new(), Vec::new());
    for round in 0..length.rounds {
        for contestant in 0..2 {
            let turn;
            if (round + contestant) % 2 == 0 {
                (ours, turn) = contend(ours, length.turn).await;
                our_turns.push(turn);
            } else {
                (theirs, turn) = contend(theirs, length.turn).await;
                their_turns.push(turn);
            }
        }
    }
    for contender in ours {
        contender.close().await;
    }
    for contender in theirs {
        contender.close().await;
    }
    findings(contenders, &our_turns, &their_turns)
}

fn findings(contenders: usize, ours: &[Turn], theirs: &[Turn]) -> Findings {
    let (all_ours, all_theirs) = (Turn::sum(ours), Turn::sum(theirs));
    let by_round = |figure: fn(&Turn) -> f64| -> Vec<f64> {
        ours.iter().zip(theirs).map(|(ours, theirs)| figure(ours) / figure(theirs)).collect()
    };
    let row = |what: &str, goal, figure: fn(&Turn) -> f64, unit: fn(f64) -> Figure| Row {
        what: format!("{contenders} contenders, {what}"),
        goal,
        found: Found::Measured {
            ours: unit(figure(&all_ours)),
            peer: Some(("v3lock", unit(figure(&all_theirs)))),
            rounds: by_round(figure),
        },
    };
    let least = if contenders <= 2 { 8.0 } else { 5.0 };
    let rows = vec![
        row("grants", Goal::AtLeast(least), Turn::rate, Figure::PerSecond),
        row("hand-off p99", Goal::AtMost(0.1), |turn| turn.hand_offs.quantile(0.99), Figure::Seconds),
    ];
    let name = |who: &str| format!("{contenders} contenders, hand-off: {who}");
    let samples = vec![
        Summary::of(name("Leasehold"), &all_ours.hand_offs),
        Summary::of(name("v3lock"), &all_theirs.hand_offs),
    ];
    Findings { rows, samples }
}

/// What one turn of one contestant came to.
#[derive(Clone, Debug, Default)]
struct Turn {
    length: Duration,
    grants: u32,
    /// From the call that releases to the return of the call that acquires, where those are two contenders'.
    hand_offs: Samples,
}

impl Turn {
    fn rate(&self) -> f64 {
        f64::from(self.grants) / self.length.as_secs_f64()
    }

    fn sum(turns: &[Self]) -> Self {
        let mut sum = Self::default();
        for turn in turns.iter().cloned() {
            sum.length += turn.length;
            sum.grants += turn.grants;
            sum.hand_offs.extend(turn.hand_offs);
        }
        sum
    }
}

/// Lets them contend for so long. They are given back for the next turn.
async fn contend<C: Contender>(contenders: Vec<C>, length: Duration) -> (Vec<C>, Turn) {
    let ring = Arc::new(Ring {
        until: Instant::now() + length,
        held: AtomicBool::new(false),
        state: Mutex::default(),
    });
    let mut tasks = Vec::new();
    for (number, mut contender) in contenders.into_iter().enumerate() {
        let ring = ring.clone();
        tasks.push(tokio::spawn(async move {
            while Instant::now() < ring.until {
                let held = contender.lock().await;
                ring.granted(number);
                ring.releasing(number);
                contender.unlock(held).await;
            }
            contender
        }));
    }
    let mut contenders = Vec::new();
    for task in tasks {
        contenders.push(task.await.unwrap());
    }
    let state = std::mem::take(&mut *ring.state.lock().unwrap());
    (contenders, Turn { length, grants: state.grants, hand_offs: state.hand_offs })
}

/// What the contenders of one turn share: who was last, and what has been seen.
#[derive(Debug)]
struct Ring {
    until: Instant,
    /// Whether somebody is inside: a fast lock that lets in two would win every race.
    held: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    last: Option<(usize, Instant)>,
    grants: u32,
    hand_offs: Samples,
}

impl Ring {
    fn granted(&self, number: usize) {
        let now = Instant::now();
        assert!(!self.held.swap(true, Ordering::SeqCst), "two are inside the lock at one time");
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Once the time is up nobody enters the queue any more, and what is left of it is no contest.
        if now >= self.until {
            return;
        }
        state.grants += 1;
        if let Some((last, released)) = state.last
            && last != number
        {
            state.hand_offs.add(now - released);
        }
    }

    fn releasing(&self, number: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.last = Some((number, Instant::now()));
        drop(state);
        assert!(self.held.swap(false, Ordering::SeqCst), "it was held");
    }
}
