//! The embedded store in this process: what the library itself costs when nothing is far away.

use std::time::{Duration, Instant};

use leasehold::{Embedded, Mutex, Session};
use rustix::time::{ClockId, clock_gettime};

use crate::options::Length;
use crate::report::{Figure, Findings, Found, Goal, Row};

/// How many pairs are done between two looks at the clock.
const PAIRS: u32 = 1000;

pub(crate) fn measure(length: Length) -> Findings {
    // One thread takes and releases; the library's own keeps the lease and has next to nothing to do.
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(run(length))
}

async fn run(length: Length) -> Findings {
    let session = Session::open(Embedded::start().unwrap()).await.unwrap();
    let mutex = Mutex::new(&session, "bench/embedded".parse().unwrap());
    // The first fill caches, and the history up to its bound.
    for _ in 0..20 {
        pairs(&mutex).await;
    }
    let (mut rates, mut done, mut taken) = (Vec::new(), 0, 0.0);
    for _ in 0..length.rounds {
        let (mut count, begun, worked) = (0_u32, Instant::now(), cpu_time());
        while begun.elapsed() < length.turn {
            pairs(&mutex).await;
            count += PAIRS;
        }
        let seconds = (cpu_time() - worked).as_secs_f64();
        rates.push(f64::from(count) / seconds);
        (done, taken) = (done + count, taken + seconds);
    }
    session.close().await.unwrap();

    let ours = Figure::PerSecond(f64::from(done) / taken);
    let found = Found::Measured { ours, peer: None, rounds: rates };
    let what = "embedded lock + unlock, by one core's time".into();
    Findings { rows: vec![Row { what, goal: Goal::AtLeast(200_000.0), found }], samples: Vec::new() }
}

/// What all threads of this process have worked. There is one that works here; and counted so, a core that others use
/// too is no slower.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

async fn pairs(mutex: &Mutex) {
    for _ in 0..PAIRS {
        mutex.lock().await.unwrap().release().await.unwrap();
    }
}
