//! What happened in a run, as one number and as its last lines.

use std::collections::VecDeque;

use leasehold::runtime::Instant;

/// So many notes are kept; the hash covers all.
const KEPT: usize = 1000;

pub(super) struct Trace {
    hash: u64,
    lines: VecDeque<String>,
}

impl Default for Trace {
    fn default() -> Self {
        Self { hash: 0xcbf2_9ce4_8422_2325, lines: VecDeque::new() }
    }
}

impl Trace {
    pub(super) fn poll(&mut self, at: Instant, task: u64, polls: u64) {
        self.word(at.as_nanos());
        self.word(task);
        self.word(polls);
    }

    pub(super) fn task(&mut self, task: u64, name: &str) {
        self.word(task);
        self.mix(name.as_bytes());
    }

    pub(super) fn note(&mut self, at: Instant, line: &str) {
        self.word(at.as_nanos());
        self.mix(line.as_bytes());
        if self.lines.len() == KEPT {
            self.lines.pop_front();
        }
        self.lines.push_back(format!("{:?}: {line}", at.since(Instant::ZERO)));
    }

    pub(super) fn hash(&self) -> u64 {
        self.hash
    }

    pub(super) fn lines(&self) -> Vec<String> {
        self.lines.iter().cloned().collect()
    }

    /// Polls are many: they are taken by the word.
    fn word(&mut self, word: u64) {
        self.hash = (self.hash ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
    }

    /// FNV-1a.
    fn mix(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}
