//! One client alone: what the lock adds to the two transactions that any lock on etcd needs.
//!
//! The peer is the least that can claim a key and give it up: a put if the key is absent, on a lease, and a delete if it
//! is still the same key. Both go through one and the same client, so the ratio holds the lock's own doings and nothing
//! of the connection, the server or the disk.

use std::sync::Arc;
use std::time::Instant;

use leasehold::etcd::Etcd;
use leasehold::mvcc::{Compare, DeleteRequest, Key, LeaseGrantRequest, PutRequest, Txn};
use leasehold::{LeaseId, Mutex, Remote, Session};
use leasehold_testbed::RealEtcd;

use crate::options::Length;
use crate::report::{Figure, Findings, Found, Goal, Row};
use crate::samples::{Samples, Summary};

/// How many pairs one contestant does before it is the other's turn. Few, for the disk's mood changes within seconds.
const TURN: usize = 10;

pub(crate) fn measure(etcd: &RealEtcd, length: Length) -> Findings {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(run(etcd, length))
}

async fn run(server: &RealEtcd, length: Length) -> Findings {
    let etcd = Remote::connect(server.endpoint()).unwrap();
    let session = Session::open(Arc::new(etcd.clone()) as Arc<dyn Etcd>).await.unwrap();
    let mutex = Mutex::new(&session, "bench/uncontended".parse().unwrap());
    // Renewals are the session's doing in both cases: the raw lease outlives the run without any.
    let grant = LeaseGrantRequest { ttl: 3600, id: LeaseId::NONE };
    let raw = Raw { lease: etcd.lease_grant(grant).await.unwrap().id, etcd };

    // The first ones make connections, open files and fill caches.
    for _ in 0..TURN {
        raw.claim_and_delete().await;
        lock_and_unlock(&mutex).await;
    }
    let (mut ours, mut theirs, mut rounds) = (Samples::default(), Samples::default(), Vec::new());
    for _ in 0..length.rounds {
        let (mut locks, mut claims) = (Samples::default(), Samples::default());
        for turn in 0..length.pairs / TURN {
            // Who begins changes, so that neither always follows the other.
            for contestant in 0..2 {
                for _ in 0..TURN {
                    let begun = Instant::now();
                    if (turn + contestant) % 2 == 0 {
                        raw.claim_and_delete().await;
                        claims.add(begun.elapsed());
                    } else {
                        lock_and_unlock(&mutex).await;
                        locks.add(begun.elapsed());
                    }
                }
            }
        }
        rounds.push(locks.median() / claims.median());
        ours.extend(locks);
        theirs.extend(claims);
    }
    raw.etcd.lease_revoke(raw.lease).await.unwrap();
    session.close().await.unwrap();

    let found = Found::Measured {
        ours: Figure::Seconds(ours.median()),
        peer: Some(("raw claim + delete", Figure::Seconds(theirs.median()))),
        rounds,
    };
    let row = Row { what: "uncontended lock + unlock, p50".into(), goal: Goal::AtMost(1.05), found };
    let samples = vec![
        Summary::of("uncontended: Leasehold", &ours),
        Summary::of("uncontended: raw claim + delete", &theirs),
    ];
    Findings { rows: vec![row], samples }
}

async fn lock_and_unlock(mutex: &Mutex) {
    mutex.lock().await.unwrap().release().await.unwrap();
}

/// The floor: the two transactions, sent by the same client.
struct Raw {
    etcd: Remote,
    lease: LeaseId,
}

impl Raw {
    async fn claim_and_delete(&self) {
        let key = Key::from("bench/raw/694d7bd0");
        let put = PutRequest::new(key.clone(), "").on(self.lease);
        let claim = Txn::new().when(Compare::absent(key.clone())).then(put);
        let claimed = self.etcd.txn(claim).await.unwrap();
        assert!(claimed.succeeded, "nobody else claims this key");
        let mine = Compare::created_at(key.clone(), claimed.header.revision);
        let gone = self.etcd.txn(Txn::new().when(mine).then(DeleteRequest::key(key))).await.unwrap();
        assert!(gone.succeeded, "nobody else deletes this key");
    }
}
