//! What the guardian is told: one line each, and each but the last is answered.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use leasehold::runtime::Instant;
use nix::unistd::Pid;

/// A line to the guardian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// To mind a group from now on, by these times and by none told before.
    Mind(Watch),
    /// The group is nobody's concern any more; its number may soon be another's.
    Over,
}

/// A group, and when it must end if nothing more is heard. The times are of the clock that goes on while the machine is
/// suspended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Watch {
    pub(crate) group: Pid,
    /// When TERM is due.
    pub(crate) term_at: Instant,
    /// When KILL is due.
    pub(crate) kill_at: Instant,
    /// How long after TERM, at most, KILL follows if leasehold has died.
    pub(crate) grace: Duration,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mind(Watch { group, term_at, kill_at, grace }) => {
                let (term_at, kill_at) = (term_at.as_nanos(), kill_at.as_nanos());
                writeln!(f, "mind {group} {term_at} {kill_at} {}", grace.as_nanos())
            }
            Self::Over => f.write_str("over\n"),
        }
    }
}

impl FromStr for Order {
    type Err = ();

    fn from_str(line: &str) -> Result<Self, ()> {
        let mut words = line.split_ascii_whitespace();
        match words.next() {
            Some("over") => Ok(Self::Over),
            Some("mind") => {
                let mut number = || words.next().and_then(|word| word.parse::<u64>().ok()).ok_or(());
                let group = i32::try_from(number()?).map_err(drop)?;
                // Of 0 and 1 the kernel makes the own group and everybody.
                if group <= 1 {
                    return Err(());
                }
                Ok(Self::Mind(Watch {
                    group: Pid::from_raw(group),
                    term_at: Instant::from_nanos(number()?),
                    kill_at: Instant::from_nanos(number()?),
                    grace: Duration::from_nanos(number()?),
                }))
            }
            _ => Err(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_heard() {
        let watch = Watch {
            group: Pid::from_raw(17),
            term_at: Instant::from_nanos(u64::MAX),
            kill_at: Instant::from_nanos(5),
            grace: Duration::from_millis(1875),
        };
        for order in [Order::Mind(watch), Order::Over] {
            let line = order.to_string();
            assert!(line.ends_with('\n') && line.len() < 512, "a line is written in one piece");
            assert_eq!(line.trim_end().parse(), Ok(order));
        }
    }

    #[test]
    fn what_is_no_order_is_not_obeyed() {
        for line in ["", "mind", "mind 17 1 2", "mind 0 1 2 3", "mind 1 1 2 3", "mind -17 1 2 3", "kill 17"] {
            assert_eq!(line.parse::<Order>(), Err(()), "{line:?}");
        }
    }
}
