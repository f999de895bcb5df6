//! The store's own story: every change of every key, by a watch that goes on where the last one broke off.
//!
//! It does not go through the library, which is under test: it reads the JSON face of one member after the
//! other. As it watches all keys, a revision that it did not see shows as a gap.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use leasehold_mvcc::Revision;
use serde_json::{Value, json};

use crate::history::Entry;

/// After how long without a word another member is asked.
const SILENCE: Duration = Duration::from_secs(1);

/// Watches the store until it is told to stop.
#[derive(Debug)]
pub struct Witness {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    seen: AtomicI64,
    stop: AtomicBool,
    story: Mutex<Story>,
}

#[derive(Debug, Default)]
struct Story {
    /// By the key and its create revision.
    entries: BTreeMap<(String, i64), Entry>,
    /// The create revision of the key's present entry.
    standing: BTreeMap<String, i64>,
    gaps: Vec<String>,
}

impl Witness {
    /// Watches from the store's beginning.
    pub fn start(members: Vec<SocketAddr>, locks: Vec<String>) -> Self {
        let shared = Arc::new(Shared::default());
        // Revision 1 is the empty store's.
        shared.seen.store(1, Ordering::Release);
        let watching = shared.clone();
        let thread = std::thread::spawn(move || {
            for member in members.iter().cycle() {
                if watching.stop.load(Ordering::Acquire) {
                    return;
                }
                // Whatever ends a watch, the next goes on behind the last revision seen.
                if follow(*member, &watching, &locks).is_err() {
                    std::thread::sleep(Duration::from_millis(50));
                }
            }
        });
        Self { shared, thread: Some(thread) }
    }

    /// The newest revision of which all is known: history below it may go.
    pub fn seen(&self) -> Revision {
        Revision::new(self.shared.seen.load(Ordering::Acquire))
    }

    /// Waits until everything up to a revision was seen; says whether it was.
    pub fn reaches(&self, revision: Revision, within: Duration) -> bool {
        let start = Instant::now();
        while self.seen() < revision {
            if start.elapsed() > within {
                return false;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// What stood in the queues, and what was missed.
    pub fn finish(mut self) -> (Vec<Entry>, Vec<String>) {
        self.end();
        let mut story = self.shared.story.lock().unwrap_or_else(PoisonError::into_inner);
        let story = std::mem::take(&mut *story);
        (story.entries.into_values().collect(), story.gaps)
    }

    fn end(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.end();
    }
}

/// One watch at one member, until it breaks or is silent.
fn follow(member: SocketAddr, shared: &Shared, locks: &[String]) -> std::io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&member, SILENCE)?;
    stream.set_read_timeout(Some(SILENCE))?;
    let next = shared.seen.load(Ordering::Acquire) + 1;
    // From the lowest key to the highest: both ends are a zero byte.
    let body =
        json!({"create_request": {"key": "AA==", "range_end": "AA==", "start_revision": next.to_string()}})
            .to_string();
    let head = format!("POST /v3/watch HTTP/1.0\r\nHost: {member}\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes())?;
    for line in BufReader::new(stream).lines() {
        let line = line?;
        if shared.stop.load(Ordering::Acquire) {
            return Ok(());
        }
        let Ok(answer) = serde_json::from_str::<Value>(&line) else { continue };
        let result = &answer["result"];
        let mut story = shared.story.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(compacted) = result["compact_revision"].as_str() {
            story
                .gaps
                .push(format!("history before {compacted} was compacted before it was seen from {next} on"));
            let compacted: i64 = compacted.parse().unwrap_or(next);
            shared.seen.store(compacted - 1, Ordering::Release);
            return Ok(());
        }
        if result["canceled"].as_bool() == Some(true) {
            return Ok(());
        }
        for event in result["events"].as_array().into_iter().flatten() {
            let revision = number(&event["kv"]["mod_revision"]);
            let seen = shared.seen.load(Ordering::Acquire);
            if revision > seen + 1 {
                story.gaps.push(format!("after revision {seen} came {revision}"));
            }
            shared.seen.store(revision.max(seen), Ordering::Release);
            story.note(event, revision, locks);
        }
    }
    Ok(())
}

impl Story {
    fn note(&mut self, event: &Value, revision: i64, locks: &[String]) {
        let key = text(&event["kv"]["key"]);
        let own = |lock: &&String| {
            key.strip_prefix(lock.as_str())
                .and_then(|rest| rest.strip_prefix('/'))
                .is_some_and(|rest| !rest.contains('/'))
        };
        let Some(lock) = locks.iter().find(own) else { return };
        if event["type"].as_str() == Some("DELETE") {
            let created = self.standing.remove(&key).unwrap_or_default();
            if let Some(entry) = self.entries.get_mut(&(key, created)) {
                entry.removed = Some(Revision::new(revision));
            }
            return;
        }
        let created = number(&event["kv"]["create_revision"]);
        self.standing.insert(key.clone(), created);
        self.entries.entry((key.clone(), created)).or_insert_with(|| Entry {
            lock: lock.clone(),
            key,
            created: Revision::new(created),
            removed: None,
            // The store tells no times, and its news comes late.
            removed_at: None,
            epoch: 0,
        });
    }
}

/// The JSON face writes 64-bit numbers as text.
fn number(value: &Value) -> i64 {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or_default()
}

/// And bytes in base 64; the keys here are plain ASCII.
fn text(value: &Value) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut held, mut bytes) = (0_u32, 0, Vec::new());
    for letter in value.as_str().unwrap_or_default().bytes() {
        let Some(digit) = DIGITS.iter().position(|digit| *digit == letter) else { break };
        (bits, held) = ((bits << 6 | digit as u32) & 0xfff, held + 6);
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_out_of_base_64() {
        for (coded, plain) in
            [("", ""), ("YQ==", "a"), ("YWI=", "ab"), ("YWJj", "abc"), ("Zi8xLTA=", "f/1-0")]
        {
            assert_eq!(text(&json!(coded)), plain);
        }
    }

    #[test]
    fn an_entry_is_told_from_the_next_under_the_same_key() {
        let mut story = Story::default();
        let locks = ["f".to_owned()];
        let kv = |created: &str| json!({"key": "Zi8xLTA=", "create_revision": created});
        let event = |kind: &str, created: &str| json!({"type": kind, "kv": kv(created)});
        story.note(&event("PUT", "2"), 2, &locks);
        story.note(&event("DELETE", "0"), 3, &locks);
        story.note(&event("PUT", "5"), 5, &locks);
        story.note(&event("PUT", "5"), 6, &locks);
        let entries: Vec<_> = story
            .entries
            .values()
            .map(|entry| (entry.created.get(), entry.removed.map(Revision::get)))
            .collect();
        assert_eq!(entries, [(2, Some(3)), (5, None)]);
    }
}
