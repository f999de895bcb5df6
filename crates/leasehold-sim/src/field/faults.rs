//! What can be done to a cluster and its clients, and in which order a seed does it.

use std::time::Duration;

use crate::Random;

/// Declares the faults with their names, their sentences, and whether they are in the default set.
macro_rules! kinds {
    ($($variant:ident $name:literal $default:literal $doc:literal;)*) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind {
            $(#[doc = $doc] $variant,)*
        }

        impl Kind {
            /// All there are.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Its name on the command line.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What it does.
            pub const fn doc(self) -> &'static str {
                match self { $(Self::$variant => $doc,)* }
            }

            /// Whether it is done unless others are named.
            pub const fn is_default(self) -> bool {
                match self { $(Self::$variant => $default,)* }
            }
        }
    };
}

kinds! {
    KillMember "kill-member" true "Kills a member and starts it again on its data later.";
    RestartMember "restart-member" true "Kills a member and starts it again at once.";
    FreezeMember "freeze-member" true "Stops a member where it stands, for less than half a TTL if it leads.";
    FreezeLeaderLong "freeze-leader-long" false
        "Stops the leader for longer than a TTL; awake, it may revoke leases renewed at its successor.";
    MoveLeader "move-leader" true "Has the leader hand its part to another member.";
    IsolateMember "isolate-member" true "Cuts a member off from its peers; clients reach it as before.";
    OneWayMember "one-way-member" true "Cuts off what a member sends its peers, or what they send it.";
    IsolateClient "isolate-client" true "Cuts a client off from all members, both ways.";
    OneWayClient "one-way-client" true "Cuts a client off one way: its requests, or the answers.";
    Delay "delay" true "Everything between a client and the members takes up to a second longer.";
    Loss "loss" true "Pieces between a client and the members get lost, and come late.";
    LateDelivery "late-delivery" true "What a client sends is held back and delivered at the end.";
    CutConnections "cut-connections" true "Breaks a client's connections, again and again.";
    KillClient "kill-client" true "Kills a client process and starts another in its place later.";
    FreezeClient "freeze-client" true "Stops a client process where it stands, also for longer than its TTL.";
    Compact "compact" true "Forgets the store's history, up to what the witness has seen.";
    Defragment "defragment" true "Has a member rewrite its store, during which it answers nothing.";
}

impl Kind {
    /// The kind of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.name() == name)
    }

    /// The faults done unless others are named.
    pub fn defaults() -> Vec<Self> {
        Self::ALL.iter().copied().filter(|kind| kind.is_default()).collect()
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
        assert!(steps.iter().all(|step| step.faults.iter().all(|(kind, _)| kind.is_default())));
    }

    #[test]
    fn names_are_found_again_and_every_fault_says_what_it_does() {
        for kind in Kind::ALL {
            assert_eq!(Kind::of_name(kind.name()), Some(*kind));
            assert!(kind.doc().ends_with('.') && kind.doc().len() > 20);
        }
        assert_eq!(Kind::of_name("flood"), None);
    }
}
