//! A client process: tasks that contend for the locks through the real library, and one that reads and writes
//! plainly.

use std::future::Future;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use clap::Parser;
use futures_util::future::Either;
use leasehold::mvcc::{Compare, PutRequest, RangeRequest, Txn};
use leasehold::runtime::{SystemRuntime, race};
use leasehold::{
    Error, ErrorKind, EtcdExt, Guard, LeaseId, Mutex, Remote, RemoteOptions, Session, TryLock, Ttl,
};
use tokio::signal::unix::{SignalKind, signal};

use super::line::{Ask, Line, Told, say};
use super::skew::Skewed;
use crate::Random;

/// The longest time a task holds a lock.
pub const LONGEST_HOLD: Duration = Duration::from_secs(2);

/// How long a stubborn holder waits for an answer before it works on.
const ANSWER: Duration = Duration::from_millis(200);

/// How long one key is read and written before the next takes its place: the search for an order grows with a
/// key's story.
const KEY_LASTS: Duration = Duration::from_secs(10);

/// What a client is told to do.
#[derive(Clone, Debug, Parser)]
#[command(name = "client")]
pub struct Orders {
    /// Who it is.
    #[arg(long)]
    pub name: String,
    /// Where etcd is.
    #[arg(long)]
    pub endpoints: String,
    /// The locks, separated by commas.
    #[arg(long, value_delimiter = ',')]
    pub locks: Vec<String>,
    /// The leases' time to live, in seconds.
    #[arg(long)]
    pub ttl: u64,
    /// What decides its choices.
    #[arg(long)]
    pub seed: u64,
    /// How many tasks contend.
    #[arg(long)]
    pub tasks: usize,
    /// How much faster its clock runs, in millionths.
    #[arg(long, allow_hyphen_values = true)]
    pub ppm: i64,
    /// What its clock shows at the start, in seconds.
    #[arg(long)]
    pub offset: u64,
}

impl Orders {
    /// The same as arguments.
    pub fn words(&self) -> Vec<String> {
        let pairs = [
            ("name", self.name.clone()),
            ("endpoints", self.endpoints.clone()),
            ("locks", self.locks.join(",")),
            ("ttl", self.ttl.to_string()),
            ("seed", self.seed.to_string()),
            ("tasks", self.tasks.to_string()),
            ("ppm", self.ppm.to_string()),
            ("offset", self.offset.to_string()),
        ];
        pairs.into_iter().map(|(name, value)| format!("--{name}={value}")).collect()
    }
}

struct Worker {
    orders: Orders,
    clock: Arc<Skewed>,
    remote: Remote,
    stop: AtomicBool,
    numbers: AtomicU64,
}

/// Follows orders until SIGTERM.
pub fn main(orders: Orders) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let outcome = runtime.map_err(|error| error.to_string()).and_then(|runtime| {
        let outcome = runtime.block_on(work(orders)).map_err(|error| error.to_string());
        // A task may be within a blocking stall.
        runtime.shutdown_timeout(LONGEST_HOLD);
        outcome
    });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(what) => {
            say(&Line::Surprise { what });
            ExitCode::FAILURE
        }
    }
}

async fn work(orders: Orders) -> leasehold::Result<()> {
    let (offset, ppm) = (Duration::from_secs(orders.offset), orders.ppm);
    let clock = Arc::new(Skewed::new(SystemRuntime::shared()?, offset, ppm));
    let remote = RemoteOptions::new(orders.endpoints.as_str())?.runtime(clock.clone()).open()?;
    let (stop, numbers) = (AtomicBool::new(false), AtomicU64::new(0));
    let worker = Arc::new(Worker { orders, clock, remote, stop, numbers });
    let mut tasks = tokio::task::JoinSet::new();
    tasks.spawn(worker.clone().operate());
    let Some(session) = worker.or_stopped(worker.open()).await.flatten() else { return Ok(()) };
    for task in 0..worker.orders.tasks {
        tasks.spawn(worker.clone().contend(session.clone(), task));
    }
    if let Ok(mut terminate) = signal(SignalKind::terminate()) {
        terminate.recv().await;
    }
    worker.stop.store(true, Ordering::Release);
    while tasks.join_next().await.is_some() {}
    // A cluster under faults may not answer in time; the lease ends by itself then.
    let _ = session.close().await;
    Ok(())
}

impl Worker {
    fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed)
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    fn now(&self) -> u64 {
        self.clock.true_now().as_nanos()
    }

    /// What `future` gives, unless the process is told to stop first.
    async fn or_stopped<T>(&self, future: impl Future<Output = T>) -> Option<T> {
        let stopped = async {
            while !self.stopped() {
                pause(Duration::from_millis(20)).await;
            }
        };
        match race(future, stopped).await {
            Either::Left(value) => Some(value),
            Either::Right(()) => None,
        }
    }

    async fn open(&self) -> Option<Session> {
        let ttl = Ttl::seconds(self.orders.ttl).ok()?;
        loop {
            let builder = Session::builder(self.remote.clone()).ttl(ttl).program(self.orders.name.clone());
            match builder.open().await {
                Ok(session) => return Some(session),
                Err(error) => surprise_unless_expected(&error),
            }
            pause(Duration::from_millis(100)).await;
        }
    }

    async fn contend(self: Arc<Self>, session: Session, task: usize) {
        let name = format!("{}/t{task}", self.orders.name);
        let mut random = Random::new(self.orders.seed.wrapping_add(1 + task as u64));
        while !self.stopped() {
            let lock = self.orders.locks[random.below(self.orders.locks.len())].clone();
            let Ok(lock_name) = lock.parse() else { return };
            let mutex = Mutex::new(&session, lock_name);
            let patience = Duration::from_millis(1000 + random.below(5000) as u64);
            let way = random.below(10);
            let acquired = self.or_stopped(async {
                match way {
                    0 => mutex.try_lock().await.map(TryLock::acquired),
                    1..=3 => mutex.lock_timeout(patience).await,
                    _ => mutex.lock().await.map(Some),
                }
            });
            match acquired.await {
                None => return,
                Some(Ok(Some(guard))) => {
                    let stubborn = task == 0;
                    self.hold(guard, &name, stubborn, &mut random).await;
                }
                Some(Ok(None)) => {}
                Some(Err(error)) => {
                    surprise_unless_expected(&error);
                    pause(Duration::from_millis(50)).await;
                }
            }
            pause(Duration::from_millis(random.below(60) as u64)).await;
        }
    }

    /// One hold, told from its first instant to its last. A stubborn holder goes on until etcd answers, or until it
    /// is told that it has lost: only so the last instants of a hold are put to the test.
    async fn hold(&self, guard: Guard, task: &str, stubborn: bool, random: &mut Random) {
        let (from, id, lock) = (self.now(), self.number(), guard.name().to_string());
        let mut valid = self.valid_until(&guard);
        say(&Line::Held {
            id,
            task: task.to_owned(),
            lock: lock.clone(),
            key: String::from_utf8_lossy(guard.key().as_ref()).into_owned(),
            token: guard.token().as_u64(),
            created: guard.create_revision().get(),
            proven: guard.grant_revision().get(),
            from,
            valid,
        });
        let stall = stubborn || random.below(15) == 0;
        let margin = if stubborn { Duration::ZERO } else { Duration::from_millis(100) };
        let longest = if stall { LONGEST_HOLD.as_millis() as usize - 200 } else { 60 };
        let end = from + Duration::from_millis(5 + random.below(longest) as u64).as_nanos() as u64;
        if stall && !stubborn && random.below(2) == 0 {
            // Work that gives the thread to nobody else: renewals must go on all the same.
            std::thread::sleep(Duration::from_nanos(end.saturating_sub(self.now())));
        }
        let lost = loop {
            let asked = self.now();
            match guard.ensure_held(margin) {
                Ok(()) => {
                    let until = self.valid_until(&guard);
                    // A microsecond for the translation of one clock to the other.
                    if asked > until + 1000 {
                        say(&Line::Overdue { id, asked, until });
                    }
                    say(&Line::Write {
                        task: task.to_owned(),
                        lock: lock.clone(),
                        token: guard.token().as_u64(),
                    });
                }
                // Not lost, but too near the end to begin anything: give it up.
                Err(_) if guard.ensure_held(Duration::ZERO).is_ok() => break None,
                Err(cause) => break Some(cause),
            }
            let now = self.now();
            if self.stopped() || (now >= end && !stubborn) {
                break None;
            }
            if now >= end {
                match race(guard.verify(), pause(ANSWER)).await {
                    Either::Left(Ok(())) => break None,
                    // Lost, which the next look tells, or nobody to be reached.
                    Either::Left(Err(_)) | Either::Right(()) => {}
                }
            }
            let step = Duration::from_nanos(end.saturating_sub(now));
            let step = step.clamp(Duration::from_millis(5), Duration::from_millis(50));
            if let Either::Left(cause) = race(guard.lost().wait(), pause(step)).await {
                break Some(cause);
            }
            let renewed = self.valid_until(&guard);
            if renewed != valid {
                valid = renewed;
                say(&Line::Valid { id, until: valid });
            }
        };
        // Never longer than it may count on, whenever it comes to say so: it may have been frozen meanwhile.
        let until = self.now().min(self.valid_until(&guard));
        // Told before it is given up: from here on this task does not count on it.
        say(&Line::Ended { id, until, lost: lost.map(|cause| format!("{cause:?}")) });
        if let Err(error) = guard.release().await {
            surprise_unless_expected(&error);
        }
    }

    fn valid_until(&self, guard: &Guard) -> u64 {
        self.clock.true_of(guard.valid_until()).as_nanos()
    }

    /// Plain reads and writes, one after the other.
    async fn operate(self: Arc<Self>) {
        let mut random = Random::new(self.orders.seed);
        let mut last: Option<String> = None;
        while !self.stopped() {
            pause(Duration::from_millis(50 + random.below(200) as u64)).await;
            let (id, at) = (self.number(), self.now());
            let key = format!("plain/{}/{}", u128::from(at) / KEY_LASTS.as_nanos(), random.below(2));
            let new = format!("{}-{id}", self.orders.name);
            let ask = match random.below(8) {
                0..=2 => Ask::Read,
                3 | 4 => Ask::Put(new),
                5 => Ask::Delete,
                6 => Ask::Swap { expected: last.clone(), new },
                _ => Ask::Swap { expected: None, new },
            };
            say(&Line::Called { id, key: key.clone(), at, ask: ask.clone() });
            let told = self.ask(&key, &ask).await.unwrap_or_else(|error| {
                surprise_unless_expected(&error);
                if error.is_outcome_unknown() { Told::Unknown } else { Told::Refused }
            });
            say(&Line::Answered { id, at: self.now(), told: told.clone() });
            if let Told::Value(value) = told {
                last = value;
            }
        }
    }

    async fn ask(&self, key: &str, ask: &Ask) -> leasehold::Result<Told> {
        let etcd: &dyn leasehold::etcd::Etcd = &self.remote;
        let key = || key.to_owned();
        Ok(match ask {
            Ask::Read => Told::Value(
                etcd.get(key()).await?.map(|found| String::from_utf8_lossy(&found.value).into_owned()),
            ),
            Ask::Put(new) => {
                etcd.put(key(), new.clone(), LeaseId::NONE).await?;
                Told::Done(true)
            }
            Ask::Delete => Told::Done(etcd.delete(key()).await?),
            Ask::Swap { expected, new } => {
                let compare = match expected {
                    Some(expected) => Compare::value(key(), expected.clone()),
                    None => Compare::absent(key()),
                };
                // Comparisons alone, when they fail, are answered by one member's memory; the read is not.
                let txn = Txn::new()
                    .when(compare)
                    .then(PutRequest::new(key(), new.clone()))
                    .otherwise(RangeRequest::key(key()));
                Told::Done(etcd.txn(txn).await?.succeeded)
            }
        })
    }
}

/// Faults explain calls that find nobody, or no answer; nothing explains the rest.
fn surprise_unless_expected(error: &Error) {
    let expected = matches!(
        error.kind(),
        ErrorKind::Unavailable | ErrorKind::OutcomeUnknown | ErrorKind::Lost | ErrorKind::TimedOut
    );
    if !expected {
        say(&Line::Surprise { what: error.to_string() });
    }
}

async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}
