//! The client processes, as their parent sees them.

use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use leasehold_testbed::Contained;

use super::line::Line;
use super::network::{MEMBERS, Network};
use super::recorder::Recorder;
use super::worker::Orders;
use crate::Random;

/// How long a client may take to end when it is told to.
const PATIENCE: Duration = Duration::from_secs(15);

/// The clients. Their processes go with this value.
#[derive(Debug)]
pub struct Clients {
    own: PathBuf,
    network: Arc<Network>,
    recorder: Recorder,
    orders: Vec<Orders>,
    processes: Vec<Option<Client>>,
    started: u64,
}

/// What all clients have in common.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// The locks they contend for.
    pub locks: &'a [String],
    /// Their leases' time to live, in seconds.
    pub ttl: u64,
    /// What decides their choices and their clocks.
    pub seed: u64,
    /// How wrong the rates of their clocks are at most, in millionths.
    pub clock_error: u32,
}

#[derive(Debug)]
struct Client {
    name: String,
    process: Contained,
    listener: JoinHandle<()>,
}

impl Clients {
    /// So many clients, started, with clocks that are wrong.
    ///
    /// # Errors
    /// If this program does not know where it is.
    pub fn start(
        count: usize,
        terms: &Terms<'_>,
        network: Arc<Network>,
        recorder: Recorder,
    ) -> std::io::Result<Self> {
        let mut random = Random::new(terms.seed ^ 0xc11e);
        let orders = (0..count)
            .map(|client| Orders {
                name: format!("c{client}"),
                endpoints: network.endpoints(client).to_owned(),
                locks: terms.locks.to_vec(),
                ttl: terms.ttl,
                seed: random.next(),
                tasks: 3,
                ppm: random.below(2 * terms.clock_error as usize + 1) as i64 - i64::from(terms.clock_error),
                offset: random.below(10_000_000) as u64,
            })
            .collect();
        let processes = (0..count).map(|_| None).collect();
        let own = std::env::current_exe()?;
        let mut clients = Self { own, network, recorder, orders, processes, started: 0 };
        for client in 0..count {
            clients.launch(client);
        }
        Ok(clients)
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.orders.len()
    }

    /// Starts one that does not run.
    pub fn launch(&mut self, client: usize) {
        self.started += 1;
        let mut orders = self.orders[client].clone();
        // A process that comes after another is somebody else.
        orders.name = format!("c{client}.{}", self.started);
        orders.seed = orders.seed.wrapping_add(self.started << 32);
        let name = orders.name.clone();
        let words = ["client".to_owned()].into_iter().chain(orders.words()).map(Into::into).collect();
        let mut process = self.network.program(MEMBERS + client, &self.own, words).start();
        let (lines, recorder, whose) = (process.lines(), self.recorder.clone(), name.clone());
        let listener = std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                match serde_json::from_str::<Line>(&line) {
                    Ok(line) => recorder.hear(&whose, line),
                    // The last line of a killed process may be cut off.
                    Err(_) => recorder.fault(format!("{whose} said {line:?}")),
                }
            }
        });
        self.processes[client] = Some(Client { name, process, listener });
    }

    /// Kills one. What it said before is heard first; then its holds end.
    pub fn kill(&mut self, client: usize) {
        let Some(Client { name, process, listener }) = self.processes[client].take() else { return };
        process.kill();
        let at = self.recorder.now();
        let _ = listener.join();
        self.recorder.killed(&name, at);
    }

    /// Stops one where it stands.
    pub fn freeze(&self, client: usize) {
        self.processes[client].iter().for_each(|client| client.process.freeze());
    }

    /// Lets it go on.
    pub fn thaw(&self, client: usize) {
        self.processes[client].iter().for_each(|client| client.process.thaw());
    }

    /// Notes those that have ended by themselves, which none should.
    pub fn look(&self) {
        for client in self.processes.iter().flatten().filter(|client| !client.process.is_alive()) {
            self.recorder.failure(format!("client {} has ended by itself", client.name));
        }
    }

    /// Tells all to end in good order, and kills those that do not.
    pub fn end(&mut self) {
        for client in self.processes.iter().flatten().filter(|client| client.process.is_alive()) {
            client.process.terminate();
        }
        let start = Instant::now();
        let running = |client: &Client| client.process.is_alive();
        while self.processes.iter().flatten().any(running) && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(20));
        }
        for client in 0..self.count() {
            if self.processes[client].as_ref().is_some_and(running) {
                self.recorder.failure(format!("client c{client} did not end within {PATIENCE:?}"));
            }
            self.kill(client);
        }
    }
}
