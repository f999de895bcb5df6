//! (c): tokens strictly rise, and a resource that checks them accepts no stale write.

use std::collections::BTreeMap;

use super::{Promise, Violation, named};
use crate::history::{History, Hold};

/// `holds` of one lock, in the order in which they were proven.
pub(super) fn check_holds(holds: &[&Hold]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut violation = |before: &Hold, hold: &Hold| {
        let what = format!("{} came after {} with a token not above its", named(hold), named(before));
        violations.push(Violation { promise: Promise::Tokens, at: hold.from, what });
    };
    for pair in holds.windows(2) {
        if pair[1].token <= pair[0].token {
            violation(pair[0], pair[1]);
        }
    }
    // And in the order of time, which is what somebody at the resource sees.
    let mut by_time = holds.to_vec();
    by_time.sort_by_key(|hold| hold.from);
    let mut ended = holds.to_vec();
    ended.sort_by_key(|hold| hold.until);
    let (mut ended, mut highest): (_, Option<&Hold>) = (ended.into_iter().peekable(), None);
    for hold in by_time {
        while let Some(before) = ended.next_if(|before| before.until <= hold.from) {
            if before.key != hold.key && highest.is_none_or(|highest| before.token > highest.token) {
                highest = Some(before);
            }
        }
        if let Some(before) = highest.filter(|before| before.token >= hold.token) {
            violation(before, hold);
        }
    }
    violations
}

/// One client is never given a token that is not above all it was given before, restores from backup included.
pub(super) fn check_clients(history: &History) -> Vec<Violation> {
    let mut last: BTreeMap<(&str, &str), &Hold> = BTreeMap::new();
    let mut violations = Vec::new();
    for hold in &history.holds {
        if let Some(before) = last.insert((&hold.client, &hold.lock), hold)
            && before.token >= hold.token
            && before.until <= hold.from
        {
            let what = format!("{} came after its own {}", named(hold), named(before));
            violations.push(Violation { promise: Promise::Tokens, at: hold.from, what });
        }
    }
    violations
}

/// Writes in the order in which they came.
pub(super) fn check_writes(history: &History) -> Vec<Violation> {
    let mut violations = Vec::new();
    // The highest seen, and the highest accepted.
    let mut highest: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for write in &history.writes {
        let (seen, accepted) = highest.entry(&write.lock).or_default();
        let why = match write.accepted {
            true if write.token < *accepted => format!("was accepted after {accepted}"),
            false if write.token >= *seen => format!("was refused although {seen} was the highest"),
            _ => String::new(),
        };
        if !why.is_empty() {
            let what = format!("a write of {} with token {} {why}", write.client, write.token);
            violations.push(Violation { promise: Promise::Tokens, at: write.at, what });
        }
        *seen = write.token.max(*seen);
        if write.accepted {
            *accepted = write.token.max(*accepted);
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::made::{at, broken, good};
    use super::*;
    use crate::history::Write;

    #[test]
    fn a_token_that_does_not_rise_is_found() {
        let mut history = good();
        history.holds[1].token = history.holds[0].token;
        assert!(broken(&history).contains(&Promise::Tokens));
        history.holds[1].token -= 1;
        assert!(broken(&history).contains(&Promise::Tokens));
    }

    #[test]
    fn a_client_is_never_given_a_lower_token_not_even_after_a_restore() {
        let mut history = good();
        history.holds[1].token = 1;
        history.entries[1].epoch = 1;
        history.restores.push(at(10));
        assert_eq!(broken(&history), []);
        history.holds[1].client = history.holds[0].client.clone();
        assert_eq!(broken(&history), [Promise::Tokens]);
    }

    #[test]
    fn a_resource_may_refuse_what_is_stale_and_nothing_else() {
        let writes = |list: &[(u64, bool)]| {
            let write = |&(token, accepted): &(u64, bool)| Write {
                lock: "lock".to_owned(),
                client: "client".to_owned(),
                token,
                at: at(1),
                accepted,
            };
            broken(&History { writes: list.iter().map(write).collect(), ..History::default() })
        };
        assert_eq!(writes(&[(1, true), (1, true), (3, true), (2, false), (3, true)]), []);
        assert_eq!(writes(&[(3, true), (2, true)]), [Promise::Tokens]);
        assert_eq!(writes(&[(3, true), (4, false)]), [Promise::Tokens]);
    }
}
