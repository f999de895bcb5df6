//! Does faults, and undoes them.

use std::time::{Duration, Instant};

use super::clients::Clients;
use super::faults::{Kind, Step};
use super::members::Members;
use super::network::{MEMBERS, Network, Way};
use super::recorder::Recorder;
use super::stop::Stop;
use super::witness::Witness;

/// What faults are done to.
#[derive(Debug)]
pub struct Scene<'a> {
    /// The members.
    pub members: &'a mut Members,
    /// The clients.
    pub clients: &'a mut Clients,
    /// The network between them.
    pub network: &'a Network,
    /// What the store told.
    pub witness: &'a Witness,
    /// Where faults are noted.
    pub recorder: &'a Recorder,
    /// Whether to go on.
    pub stop: &'a Stop,
    /// The leases' time to live.
    pub ttl: Duration,
}

/// A fault that lasts.
#[derive(Clone, Copy, Debug)]
struct Lasting {
    kind: Kind,
    victim: usize,
    /// When it ends, if that is before its step does.
    until: Option<Instant>,
}

impl Scene<'_> {
    /// Does a step of the schedule from its beginning to its end, which is the instant from which the locks
    /// have to be granted again.
    ///
    /// # Errors
    /// If a fault could not be done or undone.
    pub fn play(&mut self, step: &Step) -> Result<(), String> {
        let mut lasting = Vec::new();
        for (kind, pick) in &step.faults {
            lasting.extend(self.begin(*kind, *pick)?);
        }
        let mut end = Instant::now() + step.lasts;
        if lasting.iter().any(|fault| fault.kind == Kind::FreezeLeaderLong) {
            end = end.max(Instant::now() + self.ttl + Duration::from_secs(2));
        }
        while Instant::now() < end && !self.stop.is_set() {
            let now = Instant::now();
            for fault in lasting.extract_if(.., |fault| fault.until.is_some_and(|until| until <= now)) {
                self.end(fault)?;
            }
            for fault in lasting.iter().filter(|fault| fault.kind == Kind::CutConnections) {
                self.network.break_client(fault.victim);
            }
            let left = end.saturating_duration_since(now);
            let next = lasting.iter().filter_map(|fault| fault.until).min();
            let next = next.map_or(left, |until| until.saturating_duration_since(now));
            self.stop.pause(left.min(next).min(Duration::from_millis(300)));
        }
        lasting.into_iter().try_for_each(|fault| self.end(fault))
    }

    fn begin(&mut self, kind: Kind, pick: u64) -> Result<Option<Lasting>, String> {
        let leader = self.members.leader();
        // Half of what befalls members befalls the leader.
        let any = (pick / 2 % MEMBERS as u64) as usize;
        let member = if pick.is_multiple_of(2) || kind == Kind::FreezeLeaderLong {
            leader.unwrap_or(any)
        } else {
            any
        };
        let client = (pick / 2 % self.clients.count() as u64) as usize;
        let member = if matches!(kind, Kind::MoveLeader | Kind::Compact) { any } else { member };
        let victim = if kind.is_of_members() { member } else { client };
        let one_way = if (pick / 64).is_multiple_of(2) { Way::Out } else { Way::In };
        let role = if !kind.is_of_members() {
            "client"
        } else if leader == Some(member) {
            "leader, member"
        } else {
            "member"
        };
        let way = match kind {
            Kind::OneWayMember | Kind::OneWayClient => format!(", {one_way:?}"),
            _ => String::new(),
        };
        self.recorder.fault(format!("{} begins: {role} {victim}{way}", kind.name()));
        let mut until = None;
        match kind {
            Kind::KillMember => self.members.kill(member),
            Kind::RestartMember => self.members.launch(member),
            Kind::FreezeMember => {
                // At a leader a lease may have little more than half its time left. A leader that sleeps beyond
                // that may revoke it when it wakes, renewed elsewhere or not: a fault with a name of its own.
                let may_lead = leader.is_none_or(|leader| leader == member);
                until = may_lead.then(|| Instant::now() + self.ttl * 2 / 5);
                self.members.freeze(member);
            }
            Kind::FreezeLeaderLong => self.members.freeze(member),
            Kind::MoveLeader => self.tolerate(self.members.move_leader(member)),
            Kind::IsolateMember => self.network.cut_member(member, Way::Both)?,
            Kind::OneWayMember => self.network.cut_member(member, one_way)?,
            Kind::IsolateClient => self.network.cut_client(client, Way::Both)?,
            Kind::OneWayClient => self.network.cut_client(client, one_way)?,
            Kind::Delay => {
                self.network.slow_client(client, Duration::from_millis(50 + pick / 64 % 950), 0);
            }
            Kind::Loss => self.network.slow_client(client, Duration::ZERO, 10 + pick / 64 % 30),
            Kind::LateDelivery => self.network.hold_client(client, Way::Out),
            Kind::CutConnections => self.network.break_client(client),
            Kind::KillClient => self.clients.kill(client),
            Kind::FreezeClient => self.clients.freeze(client),
            Kind::Compact => self.tolerate(self.members.compact(member, self.witness.seen())),
            Kind::Defragment => self.tolerate(self.members.defragment(member)),
        }
        Ok((!kind.is_momentary()).then_some(Lasting { kind, victim, until }))
    }

    fn end(&mut self, fault: Lasting) -> Result<(), String> {
        let victim = fault.victim;
        match fault.kind {
            Kind::KillMember => self.members.launch(victim),
            Kind::FreezeMember | Kind::FreezeLeaderLong => self.members.thaw(victim),
            Kind::IsolateMember | Kind::OneWayMember => self.network.heal_members()?,
            Kind::KillClient => self.clients.launch(victim),
            Kind::FreezeClient => self.clients.thaw(victim),
            _ => self.network.heal_client(victim)?,
        }
        self.recorder.fault(format!("{} ends", fault.kind.name()));
        Ok(())
    }

    /// That a cluster under another fault refuses is no fault of the run.
    fn tolerate(&self, outcome: Result<(), String>) {
        if let Err(why) = outcome {
            self.recorder.fault(format!("that was refused: {why}"));
        }
    }
}
