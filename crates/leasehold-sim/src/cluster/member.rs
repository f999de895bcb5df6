//! One member: its store, how far that has come, and what it believes.

use std::collections::BTreeMap;
use std::sync::Arc;

use leasehold::etcd::{Embedded, EmbeddedOptions};
use leasehold::runtime::Instant;
use leasehold_mvcc::{Answer, Command, Header, LeaseId, StoreError, StoreOptions};
use tokio::sync::oneshot;

use super::lease::Lessor;
use super::timeless::Timeless;
use crate::executor::{Node, SeededHandle};

/// The cluster's id until it is restored from a backup.
pub(super) const CLUSTER: u64 = 0x51;

pub(super) struct Member {
    /// It lends the clock.
    pub(super) node: Node,
    pub(super) store: Embedded,
    /// So many entries of the log are in the store.
    pub(super) applied: usize,
    /// The term it knows of.
    pub(super) term: u64,
    /// There while it believes to lead.
    pub(super) lessor: Option<Lessor>,
    pub(super) frozen: u32,
    pub(super) isolated: u32,
    pub(super) dead: bool,
    /// Applies late.
    pub(super) lagging: bool,
    /// Rises whenever all its connections break.
    pub(super) generation: u64,
    /// Who waits for the answer to an entry of the log.
    pub(super) waiting: BTreeMap<usize, oneshot::Sender<Result<Answer, StoreError>>>,
}

impl Member {
    pub(super) fn new(world: &SeededHandle, node: Node, at: usize) -> Self {
        Self {
            node,
            store: store(world, CLUSTER, at),
            applied: 0,
            term: 1,
            lessor: None,
            frozen: 0,
            isolated: 0,
            dead: false,
            lagging: false,
            generation: 0,
            waiting: BTreeMap::new(),
        }
    }

    /// Applies the next entry of the log.
    pub(super) fn apply(&mut self, command: Command, is_leader: bool, granted: &mut BTreeMap<LeaseId, i64>) {
        let answer = self.store.apply(command.clone());
        let now = self.node.now();
        match (&command, &answer) {
            (Command::LeaseGrant(_), Ok(Answer::LeaseGrant(answer))) => {
                // The list is the log's, so its head alone may extend it.
                if is_leader {
                    granted.insert(answer.id, answer.ttl);
                }
                if let Some(lessor) = &mut self.lessor {
                    lessor.grant(answer.id, answer.ttl, now);
                }
            }
            (Command::LeaseRevoke(id), _) => {
                if is_leader {
                    granted.remove(id);
                }
                if let Some(lessor) = &mut self.lessor {
                    lessor.end(*id);
                }
            }
            _ => {}
        }
        if let Some(waiting) = self.waiting.remove(&self.applied) {
            let _ = waiting.send(answer);
        }
        self.applied += 1;
    }

    /// What its answers are headed with.
    pub(super) fn header(&self) -> Header {
        Header { raft_term: self.term, ..self.store.header() }
    }

    /// Begins to lead: each lease has its whole time again, and an election timeout more.
    pub(super) fn promote(&mut self, term: u64, granted: &BTreeMap<LeaseId, i64>) {
        self.term = term;
        let now = self.node.now();
        let mut lessor = Lessor::default();
        for (id, ttl) in granted {
            lessor.promote(*id, *ttl, now);
        }
        self.lessor = Some(lessor);
    }

    pub(super) fn now(&self) -> Instant {
        self.node.now()
    }
}

/// A store without a time of its own.
pub(super) fn store(world: &SeededHandle, cluster_id: u64, at: usize) -> Embedded {
    let store = StoreOptions {
        cluster_id,
        member_id: 0x100 + at as u64,
        history_limit: None,
        ..StoreOptions::default()
    };
    Embedded::new(Arc::new(Timeless(world.clone())), EmbeddedOptions { store })
}
