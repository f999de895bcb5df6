//! One run: a world made from a seed, machines that contend for locks in it, faults, and what the checkers say.

mod distress;
mod foreign;
mod recorder;
mod register;
mod worker;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use leasehold::etcd::Etcd;
use leasehold::mvcc::Revision;
use leasehold::runtime::{Instant, Runtime, before};
use leasehold::{Mutex, Session, Ttl};
use leasehold_testbed::join;

pub use recorder::Line;
use recorder::Recorder;
use register::Register;
use worker::Machine;

use crate::check::{self, Promise, Violation};
use crate::cluster::Cluster;
use crate::executor::{ClockError, Random, Seeded, SeededHandle};
use crate::fault::{Fault, Kind, Weights};
use crate::history::History;

/// How long the news of a lock taken away by hand may be on its way on a good network: a hold must last for 50 ms to be
/// watched, and then a few messages and a look decide.
const NEWS: Duration = Duration::from_millis(150);

/// How often something goes wrong, unless asked otherwise.
pub const GAP: Duration = Duration::from_millis(700);

/// What a run is made of; with its seed it decides everything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// How long faults come, in simulated time.
    pub length: Duration,
    /// Machines that contend, each with a session of its own.
    pub machines: usize,
    /// Locks they contend for.
    pub locks: usize,
    /// The TTL of their sessions, in seconds.
    pub ttl: u64,
    /// How far a clock's rate may be off, in millionths.
    pub skew: u64,
    /// Whether clocks stand still in suspension, as those of the library must not.
    pub clocks_stop: bool,
    /// How soon a lock that is given up must be the next one's, where no fault can hold that up.
    pub prompt: Option<Duration>,
    /// By how much beliefs may overlap.
    pub tolerance: Duration,
    /// What goes wrong and when.
    pub faults: Vec<Fault>,
}

impl Plan {
    /// Contended: eight machines and two locks for two minutes, with a fault every `gap` or so.
    pub fn contended(seed: u64, weights: &Weights, gap: Duration) -> Self {
        let length = Duration::from_secs(120);
        let by_hand = weights.has(Kind::RevokeLease) || weights.has(Kind::DeleteKey);
        let prompt = weights.within(&[Kind::WatchRounds, Kind::Fragments]);
        Self {
            seed,
            length,
            machines: 8,
            locks: 2,
            ttl: 5,
            skew: 20_000,
            clocks_stop: false,
            prompt: prompt.then_some(Duration::from_millis(1500)),
            tolerance: if by_hand { NEWS } else { Duration::ZERO },
            faults: weights.draw(seed, length, gap),
        }
    }
}

/// What came of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// What contradicts the promises.
    pub violations: Vec<Violation>,
    /// A hash over everything that happened: the same for the same plan.
    pub trace_hash: u64,
    /// How long it was, in simulated time.
    pub simulated: Duration,
    /// How many holds were granted.
    pub grants: u64,
    /// How many holds were lost, by cause.
    pub losses: BTreeMap<String, u64>,
    /// How often each effect of a fault came about.
    pub seen: BTreeMap<&'static str, u64>,
    /// Plain operations that were checked for an order that explains them, and keys for which that was not decided.
    pub operations: (u64, u64),
    /// The story, for a timeline.
    pub story: Vec<Line>,
}

/// Runs a plan. A panic within it is a violation, too.
pub fn run(plan: &Plan) -> Outcome {
    let seeded = Seeded::new(plan.seed).limit(plan.length + Duration::from_secs(1800));
    let recorder = Recorder::new(seeded.notes());
    let told = recorder.clone();
    let mut outcome = match catch_unwind(AssertUnwindSafe(|| Run::new(&seeded, plan, told).play())) {
        Ok(outcome) => outcome,
        Err(panic) => {
            let why = panic.downcast_ref::<String>().cloned();
            let why = why.or_else(|| panic.downcast_ref::<&str>().map(|why| (*why).to_owned()));
            let what = format!("panicked: {}", why.unwrap_or_default());
            let violation = Violation { promise: Promise::Progress, at: seeded.now(), what };
            Outcome { violations: vec![violation], ..Outcome::default() }
        }
    };
    outcome.trace_hash = seeded.trace_hash();
    outcome.simulated = seeded.now().since(Instant::ZERO);
    outcome.story = recorder.story();
    outcome
}

struct Run<'a> {
    seeded: &'a Seeded,
    plan: &'a Plan,
    world: SeededHandle,
    cluster: Cluster,
    recorder: Recorder,
    register: Register,
    machines: Vec<Machine>,
    foreign: foreign::Stop,
    born: usize,
}

impl<'a> Run<'a> {
    fn new(seeded: &'a Seeded, plan: &'a Plan, recorder: Recorder) -> Self {
        let mut random = Random::new(plan.seed ^ 0xc10c);
        let clocks: Vec<_> = (0..3).map(|_| clock(plan, &mut random)).collect();
        let cluster = Cluster::new(seeded, 3, |at| clocks[at]);
        if plan.faults.iter().any(|fault| fault.kind == Kind::ForgetTokens) {
            cluster.turn_users_on();
        }
        let world = seeded.notes();
        let register = Register::new(world.clone(), recorder.clone());
        let node = seeded.node("foreign", ClockError::NONE);
        let (remote, _) = cluster.client(&node);
        let foreign = foreign::Foreign::start(node, remote, &recorder, plan.locks, plan.ttl);
        let machines = Vec::new();
        let mut run = Self { seeded, plan, world, cluster, recorder, register, machines, foreign, born: 0 };
        for number in 0..plan.machines {
            let machine = run.machine(number, clock(plan, &mut random));
            run.machines.push(machine);
        }
        run
    }

    /// A machine at a place; what stood there before is dead.
    fn machine(&mut self, number: usize, clock: ClockError) -> Machine {
        self.born += 1;
        let node = self.seeded.node(format!("m{number}.{}", self.born), clock);
        // Some know the member beside them and no other.
        let home = (number < 2).then_some(number);
        Machine::new(node, home, &self.cluster, &self.recorder, &self.register, self.plan)
    }

    fn play(mut self) -> Outcome {
        let seeded = self.seeded;
        seeded.block_on(async {
            for machine in &self.machines {
                machine.start();
            }
            self.distress().await;
            self.recorder.note("world", "faults end");
            self.everybody_goes_on().await;
            self.nothing_is_left().await;
        });
        self.judge()
    }

    /// How long a wait may take once all is well: every machine in the queue may have to be waited for until its lease
    /// has died, and every new leader gives them their time anew.
    fn bound(&self) -> Duration {
        Duration::from_secs(self.plan.ttl * 4 + 30)
    }

    /// (e): after faults end every call ends, and every lock can be had.
    async fn everybody_goes_on(&mut self) {
        for machine in &self.machines {
            machine.finish();
        }
        let end = self.world.now() + self.bound();
        for machine in &self.machines {
            if before(&self.world, end, machine.finished()).await.is_none() {
                self.recorder.violation(
                    Promise::Progress,
                    format!("{} is still at: {}", machine.name(), machine.doing()),
                );
            }
        }
        if before(&self.world, end, self.foreign.finish()).await.is_none() {
            self.recorder.violation(Promise::Progress, "the foreign contender waits in vain".to_owned());
        }
        let node = self.seeded.node("late", ClockError::NONE);
        let (remote, _) = self.cluster.client(&node);
        let (ttl, locks, recorder) = (self.plan.ttl, self.plan.locks, self.recorder.clone());
        let probe = join(&*node.runtime(), "probe", async move {
            let session = Session::builder(remote.clone()).ttl(Ttl::seconds(ttl)?).open().await?;
            for lock in 0..locks {
                let guard = Mutex::new(&session, worker::lock_name(lock)).lock().await?;
                recorder.note("late", &format!("holds {}", guard.name()));
                guard.release().await?;
            }
            session.close().await?;
            remote.close().await;
            Ok::<(), leasehold::Error>(())
        });
        match before(&self.world, self.world.now() + self.bound(), probe).await {
            Some(Ok(())) => {}
            Some(Err(error)) => {
                self.recorder.violation(Promise::Progress, format!("a newcomer got {error}"));
            }
            None => self.recorder.violation(Promise::Progress, "a newcomer waits in vain".to_owned()),
        }
    }

    /// (f): keys, leases, watches and tasks go, soon after the last session is closed.
    async fn nothing_is_left(&mut self) {
        let end = self.world.now() + Duration::from_secs(self.plan.ttl * 2 + 30);
        loop {
            let keys: Vec<_> = self.cluster.with_truth(|truth| {
                let keys = truth.keys().into_iter().map(|key| key.to_string());
                keys.filter(|key| key.starts_with("lock")).collect()
            });
            let (leases, watches) = (self.cluster.leases(), self.cluster.watches());
            let tasks: Vec<_> = self.machines.iter().flat_map(Machine::tasks).collect();
            if keys.is_empty() && leases.is_empty() && watches == 0 && tasks.is_empty() {
                return;
            }
            if self.world.now() >= end {
                let what =
                    format!("keys {keys:?}, leases {leases:?}, {watches} watches, tasks {tasks:?} are left");
                return self.recorder.violation(Promise::Leftover, what);
            }
            self.world.sleep_until(self.world.now() + Duration::from_millis(500)).await;
        }
    }

    fn judge(self) -> Outcome {
        let mut history = self.recorder.history();
        history.entries = self.cluster.with_truth(|truth| truth.entries().to_vec());
        let mut violations = self.recorder.violations();
        let checked = check::check(&history, self.plan.tolerance);
        violations.extend(checked.violations);
        violations.extend(self.plan.prompt.and_then(|within| late_hand_over(&history, within)));
        if self.plan.faults.is_empty() && !self.recorder.losses().is_empty() {
            let what = format!("holds were lost for no reason: {:?}", self.recorder.losses());
            violations.push(Violation { promise: Promise::Progress, at: self.world.true_now(), what });
        }
        Outcome {
            violations,
            operations: (history.operations.len() as u64, checked.undecided as u64),
            grants: history.holds.len() as u64,
            losses: self.recorder.losses(),
            seen: self.cluster.seen(),
            ..Outcome::default()
        }
    }
}

/// (e), more sharply: whoever waited already when the lock was given up has it soon.
fn late_hand_over(history: &History, within: Duration) -> Option<Violation> {
    let removals =
        history.entries.iter().filter_map(|entry| Some((&entry.lock, entry.removed?, entry.removed_at?)));
    let removals: Vec<_> = removals.collect();
    // Whoever believes in nothing waits in a way of its own.
    history.holds.iter().filter(|hold| hold.until > hold.from).find_map(|hold| {
        // The removal that made way for it.
        let way = |removal: &&(&String, Revision, Instant)| {
            *removal.0 == hold.lock && removal.1 > hold.created && removal.1 <= hold.proven
        };
        let (_, _, free) = removals.iter().filter(way).max_by_key(|removal| removal.1)?;
        let late = hold.from.since(*free);
        (late > within).then(|| {
            let what = format!("{} waited in the queue and got {} {late:?} late", hold.client, hold.lock);
            Violation { promise: Promise::Progress, at: hold.from, what }
        })
    })
}

/// A clock with any offset, and a rate within what the plan allows.
fn clock(plan: &Plan, random: &mut Random) -> ClockError {
    let ppm = i64::try_from(random.next() % (2 * plan.skew + 1)).unwrap_or(0) - plan.skew.cast_signed();
    let offset = Duration::from_millis(random.next() % 1_000_000_000);
    ClockError { offset, ppm, stops_in_suspension: plan.clocks_stop }
}
