//! Clusters of real etcd servers.

use std::time::{Duration, Instant};

use crate::etcd::{Options, RealEtcd, Version};

/// How long an election may take.
const ELECTION: Duration = Duration::from_secs(60);

/// A cluster. Its members die with it.
#[derive(Debug)]
pub struct Cluster {
    members: Vec<RealEtcd>,
}

impl Cluster {
    /// A healthy cluster of this many members. `None` if this version is not on this machine: then that has been
    /// said, and the test must return.
    #[must_use = "a missing etcd means the test must return"]
    pub fn start(version: Version, size: usize) -> Option<Self> {
        Self::start_with(version, size, &Options::default())
    }

    /// The same, with each member set up like this.
    ///
    /// # Panics
    /// If it does not get healthy.
    #[must_use = "a missing etcd means the test must return"]
    pub fn start_with(version: Version, size: usize, options: &Options) -> Option<Self> {
        version.part().require()?;
        for _ in 0..10 {
            let prepare = |n: usize| RealEtcd::prepare(version, options.clone(), &format!("m{n}"));
            let mut members: Vec<_> = (0..size).map(prepare).collect();
            let all = members.iter().map(RealEtcd::peer_entry).collect::<Vec<_>>().join(",");
            for member in &mut members {
                member.join(&all);
                member.launch();
            }
            if members.iter().all(|member| member.healthy_or_clash().is_ok()) {
                return Some(Self { members });
            }
        }
        panic!("a member found its ports taken, ten times over");
    }

    /// Its members, which can be killed, restarted, frozen and thawed one by one. A restart that waits until the
    /// member serves needs a majority of the others; see [`RealEtcd::launch`].
    pub fn members(&self) -> &[RealEtcd] {
        &self.members
    }

    /// One member.
    pub fn member(&self, n: usize) -> &RealEtcd {
        &self.members[n]
    }

    /// The addresses of all members.
    pub fn endpoints(&self) -> Vec<String> {
        self.members.iter().map(RealEtcd::endpoint).collect()
    }

    /// Which member leads. Waits until one says of itself that it does, and no other says so of a later term.
    ///
    /// # Panics
    /// If none does for a minute.
    pub fn leader(&self) -> usize {
        self.leader_besides(&[])
    }

    /// The same without asking some members: frozen ones, which would take their time not to answer.
    ///
    /// # Panics
    /// If none leads for a minute.
    pub fn leader_besides(&self, without: &[usize]) -> usize {
        let start = Instant::now();
        loop {
            let asked = self
                .members
                .iter()
                .enumerate()
                .filter(|(n, member)| !without.contains(n) && member.pid().is_some());
            let mut newest = None;
            for (n, member) in asked {
                let Ok(status) = member.gateway().status() else { continue };
                let leads = status.leader == status.member;
                if newest.is_none_or(|(term, _)| term < status.term) && (leads || status.leader == 0) {
                    newest = Some((status.term, leads.then_some(n)));
                }
            }
            if let Some((_, Some(leader))) = newest {
                return leader;
            }
            assert!(start.elapsed() < ELECTION, "no member leads after {ELECTION:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// A member that does not lead.
    pub fn follower(&self) -> usize {
        (self.leader() + 1) % self.members.len()
    }

    /// Makes this member the leader, and waits until it is.
    ///
    /// # Panics
    /// If that fails for a minute.
    pub fn move_leader(&self, to: usize) {
        let start = Instant::now();
        let target = || self.members[to].gateway().status().map(|status| status.member);
        loop {
            let leader = self.leader();
            if leader == to {
                return;
            }
            let moved = target().and_then(|target| self.members[leader].gateway().move_leader(target));
            if let Err(why) = moved {
                assert!(start.elapsed() < ELECTION, "cannot move the lead from {leader} to {to}: {why}");
                std::thread::sleep(Duration::from_millis(50));
            }
        }
    }

    /// Waits until every member serves linearizable reads.
    pub fn wait_healthy(&self) {
        for member in &self.members {
            member.wait_healthy();
        }
    }

    /// Kills all members, then starts all again on their data, and waits until they serve.
    pub fn restart(&self) {
        for member in &self.members {
            member.kill();
        }
        for member in &self.members {
            member.launch();
        }
        self.wait_healthy();
    }
}
