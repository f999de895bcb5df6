//! Holder processes hold, die, and take turns.

use std::time::Duration;

use leasehold::FencingToken;
use leasehold_testbed::{Holder, Options, Order, RealEtcd, Scratch, Version, WitnessFile};

leasehold_testbed::holder_entry!();

#[test]
fn a_killed_holders_lock_goes_to_the_next_process() {
    let Some(server) = RealEtcd::start(Version::V37, Options::default()) else { return };
    for order in
        [Order::mutex(&server.endpoints(), "mutex"), Order::distributed(&server.endpoints(), "distributed")]
    {
        let first = Holder::start(&order.clone().who("first").ttl(2));
        let token = first.wait_held();
        let second =
            Holder::start_program(env!("CARGO_BIN_EXE_leasehold-holder"), &order.who("second").ttl(2));
        first.kill();
        assert!(second.wait_held() > token);
    }
}

#[test]
fn a_frozen_holder_learns_of_its_loss_when_it_wakes() {
    let Some(server) = RealEtcd::start(Version::V37, Options::default()) else { return };
    let order = Order::mutex(&server.endpoints(), "mutex").ttl(2);
    let first = Holder::start(&order.clone().who("first"));
    let token: FencingToken = first.wait_held();
    first.freeze();
    let second = Holder::start(&order.who("second"));
    assert!(second.wait_held() > token);
    first.thaw();
    let cause = first.wait_lost(Duration::from_secs(10));
    assert!(!cause.is_empty());
}

#[test]
fn processes_take_turns_and_never_two_at_once() {
    let Some(server) = RealEtcd::start(Version::V35, Options::default()) else { return };
    let scratch = Scratch::new("turns");
    for order in
        [Order::mutex(&server.endpoints(), "mutex"), Order::distributed(&server.endpoints(), "distributed")]
    {
        let file = WitnessFile::new(scratch.path().join(&order.name));
        let holders = ["a", "b", "c"].map(|who| {
            let order = order.clone().who(who).turns(5, Duration::from_millis(2), &file);
            Holder::start(&order)
        });
        for holder in &holders {
            holder.wait_done(Duration::from_secs(60));
        }
        let turns = file.check(&[]);
        assert_eq!(turns.len(), 15);
        assert!(turns.iter().all(|turn| turn.ended));
    }
}
