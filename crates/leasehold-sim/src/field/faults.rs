//! What can be done to a cluster and its clients, and in which order a seed does it.

use std::time::Duration;

use crate::Random;
use crate::kind::kinds;

kinds! {
    /// Kills a member and starts it again on its data later.
    KillMember "kill-member" 1,
    /// Kills a member and starts it again at once.
    RestartMember "restart-member" 1,
    /// Stops a member where it stands, for less than half a TTL if it leads.
    FreezeMember "freeze-member" 1,
    /// Stops the leader for longer than a TTL; awake, it may revoke leases renewed at its successor.
    FreezeLeaderLong "freeze-leader-long" 0,
    /// Has the leader hand its part to another member.
    MoveLeader "move-leader" 1,
    /// Cuts a member off from its peers; clients reach it as before.
    IsolateMember "isolate-member" 1,
    /// Cuts off what a member sends its peers, or what they send it.
    OneWayMember "one-way-member" 1,
    /// Cuts a client off from all members, both ways.
    IsolateClient "isolate-client" 1,
    /// Cuts a client off one way: its requests, or the answers.
    OneWayClient "one-way-client" 1,
    /// Everything between a client and the members takes up to a second longer.
    Delay "delay" 1,
    /// Pieces between a client and the members get lost, and come late.
    Loss "loss" 1,
    /// What a client sends is held back and delivered at the end.
    LateDelivery "late-delivery" 1,
    /// Breaks a client's connections, again and again.
    CutConnections "cut-connections" 1,
    /// Kills a client process and starts another in its place later.
    KillClient "kill-client" 1,
    /// Stops a client process where it stands, also for longer than its TTL.
    FreezeClient "freeze-client" 1,
    /// Forgets the store's history, up to what the witness has seen.
    Compact "compact" 1,
    /// Has a member rewrite its store, during which it answers nothing.
    Defragment "defragment" 1,
}

impl Kind {
    /// The faults done unless others are named.
    pub fn defaults() -> Vec<Self> {
        Self::ALL.iter().copied().filter(|kind| kind.weight() > 0).collect()
    }

    /// Whether it concerns the members and not one client.
    pub fn is_of_members(self) -> bool {
        !matches!(
            self,
            Self::IsolateClient
                | Self::OneWayClient
                | Self::Delay
                | Self::Loss
                | Self::LateDelivery
                | Self::CutConnections
                | Self::KillClient
                | Self::FreezeClient
        )
    }

    /// Whether it is over as soon as it is done.
    pub fn is_momentary(self) -> bool {
        matches!(self, Self::RestartMember | Self::MoveLeader | Self::Compact | Self::Defragment)
    }
}

/// One step of the schedule: faults that begin and end together. Never two of members, so that a majority
/// stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is done, each with the number that picks its victim.
    pub faults: Vec<(Kind, u64)>,
    /// For how long.
    pub lasts: Duration,
    /// How long nothing happens afterwards, besides the time until the locks are granted again.
    pub calm: Duration,
}

/// The endless schedule of a seed.
#[derive(Clone, Debug)]
pub struct Schedule {
    random: Random,
    kinds: Vec<Kind>,
    /// Those not done yet in this round: every kind comes once before any comes again.
    round: Vec<Kind>,
}

impl Schedule {
    /// The schedule that a seed makes of these kinds.
    pub fn new(seed: u64, kinds: &[Kind]) -> Self {
        Self { random: Random::new(seed), kinds: kinds.to_vec(), round: Vec::new() }
    }

    fn draw(&mut self, fits: impl Fn(Kind) -> bool) -> Option<Kind> {
        if self.round.is_empty() {
            self.round.clone_from(&self.kinds);
        }
        let fitting: Vec<_> = (0..self.round.len()).filter(|place| fits(self.round[*place])).collect();
        let place = fitting.get(self.random.below(fitting.len().max(1)))?;
        Some(self.round.remove(*place))
    }
}

impl Iterator for Schedule {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let first = self.draw(|_| true)?;
        let mut faults = vec![(first, self.random.next())];
        // Now and then trouble at both ends.
        if self.random.below(4) == 0
            && let Some(second) = self.draw(|kind| kind.is_of_members() != first.is_of_members())
        {
            faults.push((second, self.random.next()));
        }
        let momentary = faults.iter().all(|(kind, _)| kind.is_momentary());
        let lasts = 1000 + self.random.below(7001) as u64;
        Some(Step {
            faults,
            lasts: Duration::from_millis(if momentary { 0 } else { lasts }),
            calm: Duration::from_millis(500 + self.random.below(1500) as u64),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_decides_the_schedule() {
        let first = |seed| Schedule::new(seed, &Kind::defaults()).take(50).collect::<Vec<_>>();
        assert_eq!(first(1), first(1));
        assert_ne!(first(1), first(2));
    }

    #[test]
    fn members_fail_one_at_a_time_and_every_kind_has_its_turn() {
        let steps: Vec<_> = Schedule::new(3, &Kind::defaults()).take(200).collect();
        for step in &steps {
            assert!(step.faults.iter().filter(|(kind, _)| kind.is_of_members()).count() <= 1, "{step:?}");
            assert!(step.lasts <= Duration::from_secs(8) && step.calm <= Duration::from_secs(2));
        }
        for kind in Kind::defaults() {
            let times = steps.iter().flat_map(|step| &step.faults).filter(|(done, _)| *done == kind).count();
            assert!(times >= 5, "{} came {times} times", kind.name());
        }
        assert!(steps.iter().all(|step| step.faults.iter().all(|(kind, _)| kind.weight() > 0)));
    }

    #[test]
    fn names_are_found_again_and_every_fault_says_what_it_does() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(*kind));
            assert!(kind.about().ends_with('.') && kind.about().len() > 20);
        }
        assert!("flood".parse::<Kind>().is_err());
    }
}
