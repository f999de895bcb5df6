//! The members: real etcd processes.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use leasehold_mvcc::Revision;
use leasehold_testbed::{Contained, Gateway, Scratch};

use super::network::{MEMBERS, Network};
use super::stop::{Failure, Stop};

/// How long the cluster may take until it serves.
const START: Duration = Duration::from_secs(60);
/// How long one question to a member may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// The cluster. Its processes and data go with this value.
#[derive(Debug)]
pub struct Members {
    binary: PathBuf,
    network: Arc<Network>,
    processes: Vec<Option<Contained>>,
    /// Behind the processes that write there.
    folders: Vec<Scratch>,
}

impl Members {
    /// Starts all members and waits until they serve.
    ///
    /// # Errors
    /// If they do not, or the run is told to stop.
    pub fn start(binary: PathBuf, network: Arc<Network>, stop: &Stop) -> Result<Self, Failure> {
        let folders = (0..MEMBERS).map(|member| Scratch::new(&format!("field-m{member}"))).collect();
        let processes = (0..MEMBERS).map(|_| None).collect();
        let mut members = Self { binary, network, processes, folders };
        for member in 0..MEMBERS {
            members.launch(member);
        }
        let start = Instant::now();
        for member in 0..MEMBERS {
            while !members.gateway(member).is_healthy() {
                stop.check()?;
                let alive = members.processes[member].as_ref().is_some_and(Contained::is_alive);
                if !alive || start.elapsed() > START {
                    let log = std::fs::read_to_string(members.folders[member].path().join("etcd.log"));
                    let log = log.unwrap_or_default();
                    let end = log.lines().last().unwrap_or("it said nothing").to_owned();
                    return Err(Failure::unavailable(format!("etcd does not serve: {end}")));
                }
                stop.pause(Duration::from_millis(20));
            }
        }
        let ids: Vec<_> = (0..MEMBERS).map(|member| members.gateway(member).status()).collect();
        let ids: Result<Vec<_>, _> =
            ids.into_iter().map(|status| status.map(|status| status.member)).collect();
        members.network.know_peers(&ids.map_err(Failure::unavailable)?);
        Ok(members)
    }

    /// Kills a member if it runs, and starts it on its data.
    pub fn launch(&mut self, member: usize) {
        self.kill(member);
        let own = self.network.member(member);
        let all: Vec<_> = (0..MEMBERS)
            .map(|peer| format!("m{peer}=http://{}", self.network.member(peer).advertised))
            .collect();
        let folder = self.folders[member].path();
        let args = [
            format!("--name=m{member}"),
            format!("--data-dir={}", folder.join("data").display()),
            format!("--listen-client-urls=http://{}", own.client),
            format!("--advertise-client-urls=http://{}", own.client),
            format!("--listen-peer-urls=http://{}", own.peer),
            format!("--initial-advertise-peer-urls=http://{}", own.advertised),
            format!("--initial-cluster={}", all.join(",")),
            format!("--initial-cluster-token=field-{}", std::process::id()),
            // A killed process loses nothing by this; only a machine would.
            "--unsafe-no-fsync".to_owned(),
        ];
        let args = args.into_iter().map(Into::into).collect();
        let program = self.network.program(member, &self.binary, args);
        self.processes[member] = Some(program.log(folder.join("etcd.log")).scratch(folder).start());
    }

    /// Kills a member, as a power cut would. Its data stays.
    pub fn kill(&mut self, member: usize) {
        if let Some(process) = self.processes[member].take() {
            process.kill();
        }
    }

    /// Stops a member where it stands.
    pub fn freeze(&self, member: usize) {
        self.processes[member].iter().for_each(Contained::freeze);
    }

    /// Lets it go on.
    pub fn thaw(&self, member: usize) {
        self.processes[member].iter().for_each(Contained::thaw);
    }

    /// A member's JSON face, past all proxies.
    pub fn gateway(&self, member: usize) -> Gateway {
        Gateway::new(&format!("http://{}", self.network.member(member).client)).patient(PATIENCE)
    }

    /// Who leads, if a member that answers knows.
    pub fn leader(&self) -> Option<usize> {
        let status = |member: usize| self.gateway(member).status().ok();
        let known: Vec<_> = (0..MEMBERS).filter_map(|member| Some((member, status(member)?))).collect();
        let leads = known.iter().filter(|(_, status)| status.leader == status.member);
        leads.max_by_key(|(_, status)| status.term).map(|(member, _)| *member)
    }

    /// Hands the lead to another member.
    ///
    /// # Errors
    /// Why it could not.
    pub fn move_leader(&self, to: usize) -> Result<(), String> {
        let leader = self.leader().ok_or("nobody leads")?;
        let to = if to == leader { (to + 1) % MEMBERS } else { to };
        self.gateway(leader).move_leader(self.gateway(to).status()?.member)
    }

    /// Forgets the history below a revision.
    ///
    /// # Errors
    /// Why it could not.
    pub fn compact(&self, member: usize, revision: Revision) -> Result<(), String> {
        self.gateway(member).compact(revision)
    }

    /// Has a member rewrite its store, during which it answers nothing.
    ///
    /// # Errors
    /// Why it could not.
    pub fn defragment(&self, member: usize) -> Result<(), String> {
        let gateway = self.gateway(member).patient(Duration::from_secs(10));
        gateway.post("/v3/maintenance/defragment", &serde_json::json!({})).map(drop)
    }

    /// Waits until all members serve, or this time is over; says whether they do.
    pub fn recovered(&self, within: Duration, stop: &Stop) -> bool {
        let start = Instant::now();
        while !(0..MEMBERS).all(|member| self.gateway(member).is_healthy()) {
            if start.elapsed() > within || stop.is_set() {
                return false;
            }
            stop.pause(Duration::from_millis(50));
        }
        true
    }
}
