//! A machine that contends: a session, and two tasks that take locks in every way, work, and let go in every way.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex, PoisonError};
use std::time::Duration;

use leasehold::etcd::Etcd;
use leasehold::mvcc::{LeaseId, PutRequest, Txn};
use leasehold::runtime::Runtime;
use leasehold::{Error, EtcdExt, Guard, LockName, LossCause, Mutex, Remote, Session, Ttl};
use leasehold_testbed::cut;
use tokio::sync::Notify;

use super::Plan;
use super::recorder::{Held, Recorder};
use super::register::Register;
use crate::cluster::Cluster;
use crate::executor::{Node, SeededHandle};
use crate::history::Step;

/// Tasks that share a machine's session.
const TASKS: usize = 2;

/// Plain operations of one machine at most: what decides whether they are linearizable takes long for many.
const OPERATIONS: usize = 12;

/// Each lock's name begins with the one before and a slash: the keys of one stand among the other's.
pub(super) fn lock_name(lock: usize) -> LockName {
    format!("lock{}", "/nested".repeat(lock)).parse().expect("a lock's name")
}

pub(super) struct Machine {
    pub(super) node: Node,
    pub(super) client: u64,
    /// The one member that it knows, if it does not know all.
    pub(super) home: Option<usize>,
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    node: Node,
    runtime: SeededHandle,
    remote: Remote,
    recorder: Recorder,
    register: Register,
    plan: Plan,
    stop: AtomicBool,
    running: AtomicUsize,
    operations: AtomicUsize,
    doing: StdMutex<[String; TASKS]>,
    ended: Notify,
}

impl Machine {
    pub(super) fn new(
        node: Node,
        home: Option<usize>,
        cluster: &Cluster,
        recorder: &Recorder,
        register: &Register,
        plan: &Plan,
    ) -> Self {
        let mut endpoints = cluster.endpoints();
        if let Some(home) = home {
            endpoints = vec![endpoints.swap_remove(home)];
        }
        let (remote, wire) = cluster.client_of(&node, endpoints);
        let shared = Shared {
            name: node.name(),
            runtime: node.notes(),
            node: node.clone(),
            remote,
            recorder: recorder.clone(),
            register: register.clone(),
            plan: Plan { faults: Vec::new(), ..plan.clone() },
            stop: AtomicBool::new(false),
            running: AtomicUsize::new(TASKS),
            operations: AtomicUsize::new(0),
            doing: StdMutex::default(),
            ended: Notify::new(),
        };
        Self { node, client: wire.client(), home, shared: Arc::new(shared) }
    }

    /// Starts its program.
    pub(super) fn start(&self) {
        let (shared, node) = (self.shared.clone(), self.node.clone());
        let program = async move {
            let Some(session) = shared.open().await else { return shared.running.store(0, Ordering::SeqCst) };
            for task in 0..TASKS {
                let (shared, session) = (shared.clone(), session.clone());
                let contend = async move { shared.contend(task, session).await };
                node.spawn("contend", contend).detach();
            }
        };
        self.node.spawn("program", program).detach();
    }

    /// No new turns.
    pub(super) fn finish(&self) {
        self.shared.stop.store(true, Ordering::SeqCst);
    }

    /// Ends once its tasks have.
    pub(super) async fn finished(&self) {
        loop {
            let mut ended = pin!(self.shared.ended.notified());
            ended.as_mut().enable();
            if self.node.is_dead() || self.shared.running.load(Ordering::SeqCst) == 0 {
                return;
            }
            // The world looks itself now and then, since a dead machine says nothing.
            leasehold::runtime::race(ended, self.shared.recorder.pause(Duration::from_millis(200))).await;
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.shared.name
    }

    pub(super) fn doing(&self) -> String {
        self.shared.doing.lock().unwrap_or_else(PoisonError::into_inner).join("; ")
    }

    /// Tasks of the library that run on.
    pub(super) fn tasks(&self) -> Vec<String> {
        let tasks = self.node.tasks();
        tasks.into_iter().map(|task| format!("{}: {task}", self.name())).collect()
    }
}

impl Shared {
    fn draw(&self, below: u64) -> u64 {
        self.runtime.random_u64() % below
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    async fn sleep(&self, millis: u64) {
        self.runtime.sleep_until(self.runtime.now() + Duration::from_millis(millis)).await;
    }

    fn note(&self, what: &str) {
        self.recorder.note(&self.name, what);
    }

    fn does(&self, task: usize, what: String) {
        self.doing.lock().unwrap_or_else(PoisonError::into_inner)[task] = what;
    }

    async fn open(&self) -> Option<Session> {
        let ttl = Ttl::seconds(self.plan.ttl).expect("a plan's TTL");
        loop {
            match Session::builder(self.remote.clone()).ttl(ttl).open().await {
                Ok(session) => return Some(session),
                Err(_) if self.is_over() => return None,
                Err(error) => self.note(&format!("no session: {error}")),
            }
            self.sleep(200).await;
        }
    }

    async fn contend(self: Arc<Self>, task: usize, session: Session) {
        while !self.is_over() {
            if let Err(error) = self.turn(task, &session).await {
                self.note(&format!("got {error}"));
                self.sleep(20 + self.draw(200)).await;
            }
            self.sleep(self.draw(60)).await;
        }
        // Whatever happened, a machine that lives can hold a lock again.
        let name = lock_name(task % self.plan.locks);
        while let Err(error) = self.once_more(task, &session, &name).await {
            self.note(&format!("got {error}"));
            if matches!(error.loss(), Some(LossCause::Restored | LossCause::ClusterChanged)) {
                // A session that has seen more than the cluster now knows takes no locks any more, and says so.
                break;
            }
            self.sleep(100 + self.draw(200)).await;
        }
        self.does(task, "closing".to_owned());
        if self.running.fetch_sub(1, Ordering::SeqCst) == 1 {
            // Its outcome may be unknown; then the lease dies by itself.
            let _ = session.close().await;
            drop(session);
            self.remote.close().await;
        }
        self.does(task, "ended".to_owned());
        self.ended.notify_waiters();
    }

    async fn once_more(&self, task: usize, session: &Session, name: &LockName) -> Result<(), Error> {
        self.does(task, format!("lock {name} a last time"));
        let guard = Mutex::new(session, name.clone()).lock().await?;
        let held = self.recorder.hold(&self.node, &self.name, guard);
        held.release().await;
        Ok(())
    }

    async fn turn(&self, task: usize, session: &Session) -> Result<(), Error> {
        let lock = self.draw(self.plan.locks as u64) as usize;
        let mutex = Mutex::new(session, lock_name(lock));
        let name = mutex.name().clone();
        match self.draw(20) {
            0..=8 => {
                self.does(task, format!("lock {name}"));
                self.hold(task, mutex.lock().await?).await
            }
            9..=11 => {
                self.does(task, format!("try {name}"));
                match mutex.try_lock().await?.acquired() {
                    Some(guard) => self.hold(task, guard).await,
                    None => Ok(()),
                }
            }
            12..=14 => {
                self.does(task, format!("lock {name} with a time-out"));
                match mutex.lock_timeout(Duration::from_millis(50 + self.draw(3000))).await? {
                    Some(guard) => self.hold(task, guard).await,
                    None => Ok(()),
                }
            }
            15..=16 => {
                self.does(task, format!("lock {name} and give up"));
                match cut(mutex.lock(), 1 + self.draw(12) as usize).await {
                    Some(guard) => self.hold(task, guard?).await,
                    None => Ok(()),
                }
            }
            17 => {
                self.does(task, format!("ask who holds {name}"));
                mutex.holder().await?;
                mutex.queue().await.map(drop)
            }
            _ => {
                self.does(task, "a plain operation".to_owned());
                self.operate().await;
                Ok(())
            }
        }
    }

    async fn hold(&self, task: usize, guard: Guard) -> Result<(), Error> {
        let held = self.recorder.hold(&self.node, &self.name, guard);
        self.does(task, format!("hold {}", held.guard().name()));
        self.work(&held).await?;
        self.does(task, format!("release {}", held.guard().name()));
        match self.draw(10) {
            0..=2 => drop(held),
            _ => held.release().await,
        }
        Ok(())
    }

    /// Works in steps, each only after a look at the clock.
    async fn work(&self, held: &Held) -> Result<(), Error> {
        let (lock, token) = (held.guard().name().to_string(), held.guard().token().as_u64());
        // Few hold on for as long as they may: it is in the last instants of a hold that most can go wrong.
        let steps = if self.draw(50) == 0 { 200 } else { 1 + self.draw(4) };
        for _ in 0..steps {
            // Others wait: at the end nobody holds longer than it must.
            if self.is_over() || held.guard().ensure_held(Duration::ZERO).is_err() {
                return Ok(());
            }
            // Now and then a write is under way for longer than any lease lives.
            let delay = if self.draw(50) == 0 { 20_000 } else { 20 };
            self.register.send(&lock, &self.name, token, Duration::from_millis(self.draw(delay)));
            match self.draw(90) {
                0..=1 => held.guard().verify().await?,
                2..=3 => {
                    let write = PutRequest::new(format!("guarded-{lock}"), token.to_string());
                    held.guard().txn(Txn::new().then(write)).await?;
                }
                4 => self.sleep(self.draw(8000)).await,
                _ => self.sleep(self.draw(80)).await,
            }
        }
        Ok(())
    }

    /// A plain operation on a key of its own kind, taken down for the checker of the store's answers.
    async fn operate(&self) {
        if self.operations.fetch_add(1, Ordering::SeqCst) >= OPERATIONS {
            return;
        }
        let key = format!("register{}", self.draw(3));
        let value = format!("{}-{}", self.name, self.draw(1 << 40));
        let asked = match self.draw(4) {
            0 => Step::Read(None),
            1 => Step::Put(value),
            2 => Step::Delete(None),
            _ => Step::CompareAndPut { expected: None, new: value, done: None },
        };
        let call = self.recorder.calls(&self.name, &key, asked.clone());
        let told = match asked {
            Step::Read(_) => self
                .remote
                .get(key)
                .await
                .map(|kv| Step::Read(Some(kv.map(|kv| String::from_utf8_lossy(&kv.value).into_owned())))),
            Step::Put(value) => {
                self.remote.put(key, value.clone(), LeaseId::NONE).await.map(|_| Step::Put(value))
            }
            Step::Delete(_) => self.remote.delete(key).await.map(|deleted| Step::Delete(Some(deleted))),
            Step::CompareAndPut { expected, new, .. } => {
                let put = self.remote.put_if_not_exists(key, new.clone(), LeaseId::NONE).await;
                put.map(|done| Step::CompareAndPut { expected, new, done: Some(done) })
            }
        };
        match told {
            Ok(answer) => self.recorder.answered(call, Some(answer)),
            Err(error) if error.is_outcome_unknown() => {}
            Err(_) => self.recorder.answered(call, None),
        }
    }
}
