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
    pub(super) fn poll(&mut self, at: Instant, name: &str, task: u64, polls: u64) {
        self.mix(&at.as_nanos().to_le_bytes());
        self.mix(name.as_bytes());
        self.mix(&task.to_le_bytes());
        self.mix(&polls.to_le_bytes());
    }

    pub(super) fn note(&mut self, at: Instant, line: &str) {
        self.mix(&at.as_nanos().to_le_bytes());
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

    /// FNV-1a.
    fn mix(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.hash = (self.hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}
