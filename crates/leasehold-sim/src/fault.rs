//! What can go wrong, each with the place where it goes wrong in the real world, and a plan of what goes wrong when.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use crate::executor::Random;
use crate::kind::kinds;

kinds! {
    /// Requests are lost: a connection is reset before the server read what was sent on it.
    LoseRequests "lose-requests" 4,
    /// Answers are lost after the request was carried out: a connection is reset, or a proxy times out.
    LoseReplies "lose-replies" 6,
    /// Requests are carried out seconds after their caller gave up: they waited in a frozen member, a proxy, or raft.
    LateRequests "late-requests" 6,
    /// Messages take up to a second, and so overtake those of other connections.
    Delays "delays" 4,
    /// Streams break when they carry something: etcd ends them when a member loses its leader, proxies when idle.
    CutStreams "cut-streams" 4,
    /// All connections of one client break at once, as when a NAT forgets them.
    BreakConnections "break-connections" 3,
    /// Watch messages wait for etcd's 100 ms round, as when a watcher's channel was full once.
    WatchRounds "watch-rounds" 3,
    /// Watch messages with several events come in parts, as etcd sends them when they grow large.
    Fragments "fragments" 2,
    /// Nothing gets from a client to a member, while what it sends comes back: a one-way partition.
    CutTo "cut-to" 3,
    /// A member's answers do not get back to a client, while requests arrive: the other one-way partition.
    CutFrom "cut-from" 4,
    /// A client reaches no member at all.
    IsolateClient "isolate-client" 4,
    /// A member is stopped (SIGSTOP, a full disk, a paused VM): connections stand and nothing is answered.
    FreezeMember "freeze-member" 3,
    /// The leader is stopped until another is elected; woken, it answers renewals until it hears of the new one.
    FreezeLeader "freeze-leader" 5,
    /// A member is killed and started again: its connections break, its disk stays.
    KillMember "kill-member" 3,
    /// The one member that a client knows leads, is stopped, and answers once more when woken, before the client is cut
    /// off: the last that it hears is what a leader of yesterday says.
    StrandClient "strand-client" 3,
    /// The leader is killed: a new one gives every lease its whole TTL and an election timeout more.
    KillLeader "kill-leader" 3,
    /// A member hears nothing of the others, and clients still reach it; a leader goes on for an election timeout.
    IsolateMember "isolate-member" 3,
    /// The leader is cut off from the others, and clients still reach it.
    IsolateLeader "isolate-leader" 4,
    /// A member applies the log late, so that its store and its watches are behind: a slow disk.
    LagMember "lag-member" 4,
    /// The lead moves (`etcdctl move-leader`, a rolling restart): every lease's time begins anew.
    MoveLeader "move-leader" 3,
    /// Leases that are due are not ended for seconds: etcd ends at most a thousand a second, in rounds.
    StallExpiry "stall-expiry" 3,
    /// All history is compacted, under watches that are behind.
    Compact "compact" 3,
    /// Everybody is refused for a while, whatever the token: a user was taken away and given back.
    RefuseCredentials "refuse-credentials" 1,
    /// All tokens are forgotten: `--auth-token-ttl` is over, a member was restarted, or a user was changed. It turns the
    /// cluster's users on.
    ForgetTokens "forget-tokens" 0,
    /// A client's process stops and its clock runs on: SIGSTOP, a pause by the host, a long collection of garbage.
    PauseClient "pause-client" 6,
    /// A client's machine sleeps: timers stop, and `CLOCK_BOOTTIME` runs on.
    SuspendClient "suspend-client" 3,
    /// All threads of a client's own runtime are blocked, while the library's run.
    BlockProgram "block-program" 4,
    /// A client is killed, and started anew some seconds later.
    KillClient "kill-client" 4,
    /// A client's clock changes its rate, within what the margin allows.
    SkewClient "skew-client" 3,
    /// A client's clock runs slower than the margin allows: then only the fencing token protects.
    WildClock "wild-clock" 0,
    /// A leader of yesterday, woken, has leases ended that were renewed at the new one: seen on etcd up to 3.7.2.
    StaleRevokes "stale-revokes" 0,
    /// Somebody revokes a lease by hand: the lock is given away at once, and loss follows.
    RevokeLease "revoke-lease" 0,
    /// Somebody deletes a key by hand: the same.
    DeleteKey "delete-key" 0,
    /// The cluster is restored from a backup: revisions and terms go back.
    Restore "restore" 0,
}

/// One fault of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When it begins.
    pub at: Duration,
    /// What it is.
    pub kind: Kind,
    /// How long it lasts, where it lasts.
    pub lasts: Duration,
    /// Which client or member it strikes, and how hard: drawn, and taken modulo what there is.
    pub draw: u64,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {} for {:?} (draw {})", self.at, self.kind, self.lasts, self.draw)
    }
}

/// How often each kind is drawn against the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Weights(BTreeMap<Kind, u32>);

impl Default for Weights {
    /// All that the promises hold under.
    fn default() -> Self {
        Self(Kind::ALL.iter().map(|kind| (*kind, kind.weight())).filter(|(_, weight)| *weight > 0).collect())
    }
}

impl Weights {
    /// None at all.
    pub fn none() -> Self {
        Self(BTreeMap::new())
    }

    /// These alone, all equally often.
    pub fn only(kinds: impl IntoIterator<Item = Kind>) -> Self {
        Self(kinds.into_iter().map(|kind| (kind, 1)).collect())
    }

    /// The same with another weight for one kind; 0 switches it off.
    #[must_use]
    pub fn with(mut self, kind: Kind, weight: u32) -> Self {
        self.0.insert(kind, weight);
        self
    }

    /// Whether a kind can come.
    pub fn has(&self, kind: Kind) -> bool {
        self.0.get(&kind).is_some_and(|weight| *weight > 0)
    }

    /// Whether nothing but these can come.
    pub fn within(&self, kinds: &[Kind]) -> bool {
        self.0.iter().all(|(kind, weight)| *weight == 0 || kinds.contains(kind))
    }

    /// A plan for so long, with a fault about every `gap`.
    pub fn draw(&self, seed: u64, length: Duration, gap: Duration) -> Vec<Fault> {
        let mut random = Random::new(seed ^ 0x5eed_fa17);
        let total: u64 = self.0.values().map(|weight| u64::from(*weight)).sum();
        let (mut faults, mut at) = (Vec::new(), Duration::from_secs(1));
        if total == 0 {
            return faults;
        }
        loop {
            at += millis(random.next() % (2 * whole_millis(gap)).max(1));
            if at >= length {
                break;
            }
            let mut pick = random.next() % total;
            let drawn = self.0.iter().find(|(_, weight)| {
                let weight = u64::from(**weight);
                let found = pick < weight;
                pick = pick.saturating_sub(weight);
                found
            });
            let Some((kind, _)) = drawn else { break };
            // Mostly short, now and then longer than any lease lives.
            let longest = if random.next().is_multiple_of(8) { 25_000 } else { 6_000 };
            faults.push(Fault {
                at,
                kind: *kind,
                lasts: millis(50 + random.next() % longest),
                draw: random.next() % 1_000_000,
            });
        }
        faults
    }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn whole_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_found_by_its_name_and_an_unknown_one_is_told_with_all_there_are() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(*kind));
            assert!(!kind.about().is_empty());
        }
        let refused = "gremlins".parse::<Kind>().unwrap_err();
        assert!(refused.contains("\"gremlins\"") && refused.contains("lose-replies"), "{refused}");
    }

    #[test]
    fn a_seed_draws_the_same_plan_and_only_what_has_weight() {
        let weights = Weights::default();
        let (length, gap) = (Duration::from_secs(3600), Duration::from_secs(1));
        let plan = weights.draw(7, length, gap);
        assert_eq!(plan, weights.draw(7, length, gap));
        assert_ne!(plan, weights.draw(8, length, gap));
        for kind in Kind::ALL {
            let drawn = plan.iter().any(|fault| fault.kind == *kind);
            assert_eq!(drawn, kind.weight() > 0, "{kind}");
        }
    }

    #[test]
    fn no_weights_no_faults() {
        assert!(Weights::none().draw(1, Duration::from_secs(60), Duration::from_secs(1)).is_empty());
    }
}
