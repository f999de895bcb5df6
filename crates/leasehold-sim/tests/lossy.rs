//! The library's locks on the seeded runtime behind a lossy network: the smallest simulation.

use std::sync::Arc;
use std::time::Duration;

use leasehold::runtime::Runtime;
use leasehold::{Embedded, Error, Mutex, Session, Ttl};
use leasehold_sim::{Seeded, SeededHandle};
use leasehold_testbed::{Dump, Injected, Lossy, Rates, Witness, join};

const CONTENDERS: usize = 4;
const TURNS: usize = 5;

/// One of those who want the lock, with a session and a network of its own.
#[derive(Clone)]
struct Contender {
    number: usize,
    network: Lossy,
    witness: Witness,
    runtime: SeededHandle,
}

impl Contender {
    async fn contend(self) {
        let session = loop {
            match self.open().await {
                Ok(session) => break session,
                Err(error) => self.note(format!("no session: {error}")),
            }
        };
        for _ in 0..TURNS {
            while let Err(error) = self.turn(&session).await {
                self.note(format!("no lock: {error}"));
                self.sleep(100).await;
            }
        }
        let _ = session.close().await;
    }

    async fn open(&self) -> Result<Session, Error> {
        Session::builder(self.network.clone()).ttl(Ttl::seconds(10)?).open().await
    }

    async fn turn(&self, session: &Session) -> Result<(), Error> {
        let guard = Mutex::new(session, "mutex".parse()?).lock().await?;
        self.note(format!("holds {}", guard.token()));
        let work = guard.run_while_held(async {
            let _inside = self.witness.enter(self.number, guard.token());
            self.sleep(self.runtime.random_u64() % 500).await;
        });
        let done = work.await;
        self.note(format!("{done:?}"));
        // A release that is not confirmed goes on in the background.
        let _ = guard.release().await;
        Ok(())
    }

    async fn sleep(&self, millis: u64) {
        self.runtime.sleep_until(self.runtime.now() + Duration::from_millis(millis)).await;
    }

    fn note(&self, what: String) {
        self.runtime.note(format_args!("{}: {what}", self.number));
    }
}

/// Gives the run's hash, how many calls failed by chance, and how many turns there were.
fn run(seed: u64, rates: Rates) -> (u64, u64, usize) {
    let seeded = Seeded::new(seed).limit(Duration::from_secs(3600));
    let (runtime, witness) = (seeded.notes(), Witness::new());
    let store = Embedded::new(seeded.handle(), Default::default());
    let failed = seeded.block_on(async {
        let contender = |number| {
            let network = Lossy::new(Arc::new(store.clone()));
            network.faults().set(rates);
            Contender { number, network, witness: witness.clone(), runtime: runtime.clone() }
        };
        let contenders: Vec<_> = (0..CONTENDERS).map(contender).collect();
        let tasks: Vec<_> =
            contenders.iter().map(|one| join(&runtime, "contender", one.clone().contend())).collect();
        for task in tasks {
            task.await;
        }
        let faults = || contenders.iter().map(|one| one.network.faults());
        faults().for_each(|faults| faults.calm());
        let end = runtime.now() + Duration::from_secs(60);
        while !Dump::of_embedded(&store).is_empty() {
            assert!(runtime.now() < end, "left behind:\n{}", Dump::of_embedded(&store));
            runtime.sleep_until(runtime.now() + Duration::from_millis(100)).await;
        }
        faults().map(|faults| Injected::failed(&faults.injected())).sum()
    });
    (seeded.trace_hash(), failed, witness.turns())
}

#[test]
fn contenders_on_a_good_network_never_overlap_and_leave_nothing() {
    for seed in 0..50 {
        let (_, failed, turns) = run(seed, Rates::NONE);
        assert_eq!((failed, turns), (0, CONTENDERS * TURNS));
    }
}

#[test]
fn contenders_on_a_rough_network_never_overlap_and_leave_nothing() {
    let failed: u64 = (0..50).map(|seed| run(seed, Rates::ROUGH).1).sum();
    assert!(failed > 50, "{failed}");
}

#[test]
fn a_seed_replays_the_whole_library() {
    for seed in [1, 2] {
        assert_eq!(run(seed, Rates::ROUGH), run(seed, Rates::ROUGH));
    }
    assert_ne!(run(1, Rates::ROUGH).0, run(2, Rates::ROUGH).0);
}
