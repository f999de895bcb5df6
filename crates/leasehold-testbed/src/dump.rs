//! What stands in an etcd: keys and leases, so that a test can see that nothing was left behind.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use leasehold::Embedded;
use leasehold::etcd::Etcd;
use leasehold_mvcc::{Answer, Command, Key, KeyRange, KeyValue, LeaseId, RangeRequest};

/// The keys below a prefix and the leases of a list, as they were at one time.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Dump {
    /// The keys.
    pub keys: BTreeMap<Key, KeyValue>,
    /// The leases that live, each with the TTL it was granted, in seconds, and its keys (of any prefix).
    pub leases: BTreeMap<LeaseId, (i64, Vec<Key>)>,
}

impl Dump {
    /// Reads the keys that start with `prefix`, and those of `leases` that still live. [`Etcd`] cannot list leases:
    /// the list is [`Tracked::leases`](crate::Tracked::leases), [`Gateway::leases`](crate::Gateway::leases) or
    /// [`embedded_leases`].
    ///
    /// # Panics
    /// If it cannot be read.
    pub async fn take(etcd: &dyn Etcd, prefix: &str, leases: &[LeaseId]) -> Self {
        let kvs =
            etcd.range(RangeRequest::prefix(prefix.to_owned())).await.expect("a dump reads the keys").kvs;
        let mut dump =
            Self { keys: kvs.into_iter().map(|kv| (kv.key.clone(), kv)).collect(), leases: BTreeMap::new() };
        for lease in leases {
            let answer = etcd.lease_time_to_live(*lease, true).await.expect("a dump reads the leases");
            // Real etcd answers -1 for one that is gone and 0 for one whose revocation is about to be carried out.
            if answer.ttl >= 0 && answer.granted_ttl > 0 {
                dump.leases.insert(*lease, (answer.granted_ttl, answer.keys));
            }
        }
        dump
    }

    /// Everything in an embedded etcd, also in one that is closed.
    ///
    /// # Panics
    /// If it refuses to tell.
    pub fn of_embedded(etcd: &Embedded) -> Self {
        let all = RangeRequest::range(KeyRange::all());
        let Ok(Answer::Range(answer)) = etcd.apply(Command::Range(all)) else {
            panic!("a dump reads the keys")
        };
        let mut dump =
            Self { keys: answer.kvs.into_iter().map(|kv| (kv.key.clone(), kv)).collect(), ..Self::default() };
        for lease in embedded_leases(etcd) {
            if let Ok(Answer::LeaseTimeToLive(answer)) = etcd.apply(Command::LeaseTimeToLive(lease, true)) {
                dump.leases.insert(lease, (answer.granted_ttl, answer.keys));
            }
        }
        dump
    }

    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.leases.is_empty()
    }

    /// What is different in `later`.
    pub fn diff(&self, later: &Self) -> Diff {
        let mut lines = Vec::new();
        changes(&self.keys, &later.keys, |_, kv| shown_key(kv), &mut lines);
        changes(&self.leases, &later.leases, |id, lease| shown_lease(*id, lease), &mut lines);
        Diff(lines)
    }

    /// Takes dumps until one is empty; clean-up goes on in the background for a while.
    ///
    /// # Panics
    /// If none is empty `within` that time, with what is left.
    pub async fn assert_nothing_left(etcd: &dyn Etcd, prefix: &str, leases: &[LeaseId], within: Duration) {
        let runtime = etcd.runtime();
        let end = runtime.now() + within;
        loop {
            let dump = Self::take(etcd, prefix, leases).await;
            if dump.is_empty() {
                return;
            }
            assert!(runtime.now() < end, "something is still left behind after {within:?}:\n{dump}");
            runtime.sleep_until(runtime.now() + Duration::from_millis(20)).await;
        }
    }
}

/// All leases of an embedded etcd.
///
/// # Panics
/// If it refuses to list them.
pub fn embedded_leases(etcd: &Embedded) -> Vec<LeaseId> {
    match etcd.apply(Command::Leases) {
        Ok(Answer::Leases(answer)) => answer.leases,
        other => panic!("the embedded etcd answers {other:?} when asked for its leases"),
    }
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Self::default().diff(self))
    }
}

/// The difference of two dumps: one line for each key and lease that came (`+`), went (`-`) or changed (both).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diff(Vec<String>);

impl Diff {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_empty() { "nothing" } else { "" })?;
        f.write_str(&self.0.join("\n"))
    }
}

fn changes<K: Ord, V: PartialEq>(
    before: &BTreeMap<K, V>,
    after: &BTreeMap<K, V>,
    shown: impl Fn(&K, &V) -> String,
    lines: &mut Vec<String>,
) {
    for (key, value) in before.iter().filter(|(key, value)| after.get(key) != Some(value)) {
        lines.push(format!("- {}", shown(key, value)));
    }
    for (key, value) in after.iter().filter(|(key, value)| before.get(key) != Some(value)) {
        lines.push(format!("+ {}", shown(key, value)));
    }
}

fn shown_key(kv: &KeyValue) -> String {
    let lease = if kv.lease.is_none() { String::new() } else { format!(", lease {}", kv.lease) };
    let (created, written) = (kv.create_revision, kv.mod_revision);
    format!(
        "key {} = \"{}\" (created at {created}, written at {written}{lease})",
        kv.key,
        kv.value.escape_ascii()
    )
}

fn shown_lease(id: LeaseId, (ttl, keys): &(i64, Vec<Key>)) -> String {
    format!("lease {id} of {ttl} s with the keys {keys:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kv(key: &'static str, value: &'static str) -> (Key, KeyValue) {
        let kv = KeyValue {
            key: key.into(),
            value: value.into(),
            lease: LeaseId::new(0x1f),
            ..KeyValue::default()
        };
        (key.into(), kv)
    }

    #[test]
    fn a_difference_reads_as_what_came_and_went() {
        let before = Dump { keys: [kv("a", "1"), kv("b", "1")].into(), ..Dump::default() };
        let after = Dump {
            keys: [kv("b", "2"), kv("c", "3")].into(),
            leases: [(LeaseId::new(0x1f), (15, vec!["b".into()]))].into(),
        };
        let diff = before.diff(&after).to_string();
        let starts: Vec<_> = diff.lines().map(|line| line.split(" (").next().unwrap()).collect();
        let expected = [r#"- key a = "1""#, r#"- key b = "1""#, r#"+ key b = "2""#, r#"+ key c = "3""#];
        assert_eq!(starts[..4], expected);
        assert_eq!(starts[4], r#"+ lease 1f of 15 s with the keys ["b"]"#);
        assert!(before.diff(&before).is_empty());
        assert_eq!(Dump::default().to_string(), "nothing");
    }
}
