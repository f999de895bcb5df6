//! Brings a plan's faults about, and takes each back when its time is over.

use std::collections::BTreeMap;
use std::time::Duration;

use leasehold::runtime::{Instant, Runtime};

use super::{Run, clock};
use crate::cluster::LinkFaults;
use crate::executor::Random;
use crate::fault::{Fault, Kind};

type Undo = Box<dyn FnOnce(&mut Run<'_>)>;

impl Run<'_> {
    /// Plays the plan. At its end all is well again.
    pub(super) async fn distress(&mut self) {
        let mut moments: Vec<(Duration, bool, usize)> = Vec::new();
        for (index, fault) in self.plan.faults.iter().enumerate() {
            moments.push((fault.at, true, index));
            moments.push(((fault.at + fault.lasts).min(self.plan.length), false, index));
        }
        moments.sort_by_key(|(at, begins, index)| (*at, *begins, *index));
        let mut undo: BTreeMap<usize, Undo> = BTreeMap::new();
        for (at, begins, index) in moments {
            self.world.sleep_until(Instant::ZERO + at).await;
            let fault = self.plan.faults[index];
            if begins {
                self.recorder.note("world", &format!("{} begins", fault.kind));
                if let Some(back) = self.begin(&fault) {
                    undo.insert(index, back);
                }
            } else if let Some(back) = undo.remove(&index) {
                self.recorder.note("world", &format!("{} ends", fault.kind));
                back(self);
            }
        }
        self.world.sleep_until(Instant::ZERO + self.plan.length).await;
    }

    /// Begins a fault; gives what ends it, if it lasts.
    fn begin(&mut self, fault: &Fault) -> Option<Undo> {
        let members = self.cluster.size();
        let member = (fault.draw % members as u64) as usize;
        let leader = self.cluster.leader().unwrap_or(member);
        let place = (fault.draw / 7 % self.machines.len() as u64) as usize;
        let client = self.machines[place].client;
        // A link's faults strike one client's or everybody's, and one member's or all.
        let (of, at) = (
            (!fault.draw.is_multiple_of(3)).then_some(client),
            (!fault.draw.is_multiple_of(2)).then_some(member),
        );
        let strength = 50 + (fault.draw / 11 % 500) as u32;
        match fault.kind {
            Kind::LoseRequests => {
                self.links(of, at, LinkFaults { lose_request: strength, ..LinkFaults::NONE })
            }
            Kind::LoseReplies => self.links(of, at, LinkFaults { lose_reply: strength, ..LinkFaults::NONE }),
            Kind::LateRequests => {
                let max_late = Duration::from_secs(12);
                self.links(of, at, LinkFaults { late: strength, max_late, ..LinkFaults::NONE })
            }
            Kind::Delays => {
                let delay = Duration::from_millis(u64::from(strength) * 2);
                self.links(of, at, LinkFaults { delay, ..LinkFaults::NONE })
            }
            Kind::CutStreams => self.links(of, at, LinkFaults { cut_streams: strength, ..LinkFaults::NONE }),
            Kind::WatchRounds => self.links(of, at, LinkFaults { watch_round: 800, ..LinkFaults::NONE }),
            Kind::Fragments => self.links(of, at, LinkFaults { fragment: 800, ..LinkFaults::NONE }),
            Kind::BreakConnections => {
                self.cluster.break_connections(Some(client), at);
                None
            }
            Kind::CutTo => self.cut(client, Some(member), true, false),
            Kind::CutFrom => self.cut(client, Some(member), false, true),
            Kind::IsolateClient => self.cut(client, None, true, true),
            Kind::FreezeMember => self.freeze(member),
            Kind::FreezeLeader => self.freeze(leader),
            // It takes its time, and must be over with the others.
            Kind::StrandClient if fault.at + Duration::from_secs(14) > self.plan.length => None,
            Kind::StrandClient => self.strand(fault.draw),
            Kind::KillMember => self.kill_member(member),
            Kind::KillLeader => self.kill_member(leader),
            Kind::IsolateMember => self.isolate(member),
            Kind::IsolateLeader => self.isolate(leader),
            Kind::LagMember => self.lag(member, fault.lasts),
            Kind::MoveLeader => {
                self.cluster.move_leader(member);
                None
            }
            Kind::StallExpiry => {
                self.cluster.stall_expiry(fault.lasts);
                None
            }
            Kind::Compact => {
                self.cluster.compact();
                None
            }
            Kind::ForgetTokens => {
                self.cluster.forget_tokens();
                None
            }
            Kind::RefuseCredentials => {
                self.cluster.refuse_credentials();
                Some(Box::new(|run| run.cluster.accept_credentials()))
            }
            Kind::PauseClient | Kind::SuspendClient | Kind::BlockProgram => self.stop(place, fault.kind),
            Kind::KillClient => self.kill_client(place, fault.draw),
            Kind::SkewClient | Kind::WildClock => self.skew(place, fault),
            Kind::StaleRevokes => {
                self.cluster.let_stale_revokes_pass(true);
                None
            }
            Kind::RevokeLease => {
                let leases = self.cluster.leases();
                let lease = leases.get((fault.draw % leases.len().max(1) as u64) as usize)?;
                self.cluster.revoke(*lease);
                None
            }
            Kind::DeleteKey => {
                let keys = self.cluster.with_truth(crate::cluster::Truth::keys);
                let keys: Vec<_> =
                    keys.into_iter().filter(|key| key.as_bytes().starts_with(b"lock")).collect();
                let key = keys.get((fault.draw % keys.len().max(1) as u64) as usize)?;
                self.cluster.delete(key.clone());
                None
            }
            Kind::Restore => {
                self.recorder.restored();
                self.cluster.restore((fault.draw / 3 % 300) as usize, fault.draw.is_multiple_of(2));
                None
            }
        }
    }

    fn links(&mut self, of: Option<u64>, at: Option<usize>, faults: LinkFaults) -> Option<Undo> {
        self.cluster.change_links(of, at, |before| before.and(faults));
        Some(Box::new(move |run| run.cluster.change_links(of, at, |now| now.without(faults))))
    }

    fn cut(&mut self, client: u64, at: Option<usize>, to: bool, from: bool) -> Option<Undo> {
        self.cluster.cut(Some(client), at, to, from);
        Some(Box::new(move |run| run.cluster.mend(Some(client), at, to, from)))
    }

    fn freeze(&mut self, member: usize) -> Option<Undo> {
        self.cluster.freeze(member);
        Some(Box::new(move |run| run.cluster.thaw(member)))
    }

    fn strand(&mut self, draw: u64) -> Option<Undo> {
        let known: Vec<_> =
            self.machines.iter().filter_map(|machine| Some((machine.client, machine.home?))).collect();
        let (client, home) = known[(draw % known.len() as u64) as usize];
        let (cluster, world) = (self.cluster.clone(), self.world.clone());
        let pass = move |millis: u64| world.sleep_until(world.now() + Duration::from_millis(millis));
        let story = async move {
            cluster.move_leader(home);
            pass(2000 + draw / 3 % 1700).await;
            cluster.freeze(home);
            pass(2600 + draw / 5 % 1800).await;
            cluster.thaw(home);
            pass(100 + draw / 7 % 300).await;
            cluster.cut(Some(client), None, true, true);
            pass(8000).await;
            cluster.mend(Some(client), None, true, true);
        };
        self.world.spawn("a client is stranded", Box::pin(story)).detach();
        None
    }

    fn kill_member(&mut self, member: usize) -> Option<Undo> {
        self.cluster.kill(member);
        Some(Box::new(move |run| run.cluster.start(member)))
    }

    fn isolate(&mut self, member: usize) -> Option<Undo> {
        self.cluster.isolate(member);
        Some(Box::new(move |run| run.cluster.rejoin(member)))
    }

    fn lag(&mut self, member: usize, lasts: Duration) -> Option<Undo> {
        self.cluster.lag(member);
        let (cluster, world) = (self.cluster.clone(), self.world.clone());
        let end = world.now() + lasts;
        let creep = async move {
            while world.now() < end {
                world.sleep_until(world.now() + Duration::from_millis(50 + world.random_u64() % 400)).await;
                cluster.creep(member);
            }
        };
        let creeping = self.world.spawn("a slow disk", Box::pin(creep));
        Some(Box::new(move |run| {
            drop(creeping);
            run.cluster.keep_pace(member);
        }))
    }

    fn stop(&mut self, place: usize, kind: Kind) -> Option<Undo> {
        let node = self.machines[place].node.clone();
        match kind {
            Kind::PauseClient => node.pause(),
            Kind::SuspendClient => node.suspend(),
            _ => node.block(),
        }
        Some(Box::new(move |_| match kind {
            Kind::PauseClient => node.resume(),
            Kind::SuspendClient => node.wake(),
            _ => node.unblock(),
        }))
    }

    fn kill_client(&mut self, place: usize, draw: u64) -> Option<Undo> {
        if self.machines[place].node.is_dead() {
            return None;
        }
        self.machines[place].node.kill();
        Some(Box::new(move |run| {
            let clock = clock(run.plan, &mut Random::new(draw));
            let machine = run.machine(place, clock);
            machine.start();
            run.machines[place] = machine;
        }))
    }

    fn skew(&mut self, place: usize, fault: &Fault) -> Option<Undo> {
        let node = self.machines[place].node.clone();
        let ppm = match fault.kind {
            // Half as fast as it should be.
            Kind::WildClock => -500_000,
            _ => (fault.draw % (2 * self.plan.skew + 1)).cast_signed() - self.plan.skew.cast_signed(),
        };
        node.set_rate(ppm);
        (fault.kind == Kind::WildClock).then(|| -> Undo { Box::new(move |_| node.set_rate(0)) })
    }
}
