//! Many processes on one lock of a real etcd, ours and etcdctl's in one queue.

use std::thread;
use std::time::{Duration, Instant};

use leasehold::mvcc::RangeRequest;
use leasehold::{Remote, etcd::Etcd};
use leasehold_testbed::{Etcdctl, Options, RealEtcd, Version, WitnessFile, block_on};

use crate::stage::{PATIENCE, Stage};

const OURS: usize = 8;
const THEIRS: usize = 2;
const TURNS: usize = 10;

#[test]
fn eight_of_ours_and_two_of_etcdctls_are_never_two_inside_and_each_gets_its_turns() {
    let Some(server) = RealEtcd::start(Version::V37, Options::default()) else { return };
    let etcdctl = Etcdctl::find(&server.endpoints());
    let stage = Stage::new();
    let witness = WitnessFile::new(stage.path("turns"));
    // The plain revision is the token that both kinds know.
    let turn = |who: &str| {
        let file = witness.path().display();
        format!("echo begin {who} $ETCD_LOCK_REV >> {file}; echo end {who} $ETCD_LOCK_REV >> {file}")
    };
    thread::scope(|scope| {
        for n in 0..OURS {
            let (stage, server, turn) = (&stage, &server, turn(&format!("ours-{n}")));
            scope.spawn(move || {
                for _ in 0..TURNS {
                    let args = ["run", "--endpoints", &server.endpoint(), "crowd", "--", "sh", "-c", &turn];
                    stage.run(args).ended_with(0);
                }
            });
        }
        for n in 0..THEIRS {
            let (etcdctl, turn) = (&etcdctl, turn(&format!("theirs-{n}")));
            scope.spawn(move || {
                for _ in 0..TURNS {
                    etcdctl.as_ref().map(|etcdctl| etcdctl.run(&["lock", "crowd", "--", "sh", "-c", &turn]));
                }
            });
        }
    });
    let turns = witness.check(&[]);
    let theirs = if etcdctl.is_some() { THEIRS } else { 0 };
    assert_eq!(turns.len(), (OURS + theirs) * TURNS);
    assert!(turns.iter().all(|turn| turn.ended));
    let left =
        block_on(Remote::connect(server.endpoint()).unwrap().range(RangeRequest::prefix("crowd"))).unwrap();
    assert_eq!(left.kvs, [], "something is left in the queue");
    // etcdctl leaves its leases to expire, after ten seconds; ours are revoked.
    let start = Instant::now();
    while !server.gateway().leases().unwrap().is_empty() {
        assert!(start.elapsed() < PATIENCE, "leases are left: {:?}", server.gateway().leases());
        thread::sleep(Duration::from_millis(100));
    }
}
