//! The same conversation with a real etcd and with ours, message by message.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a client of the wire, on real time; a failure is a panic"
)]

#[path = "same_as_etcd/scenes.rs"]
mod scenes;
mod support;

use leasehold_testbed::{Options, RealEtcd, Version};
use support::{Running, connect};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_conversation_goes_as_with_etcd_3_5() {
    compare(Version::V35).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_conversation_goes_as_with_etcd_3_7() {
    compare(Version::V37).await;
}

async fn compare(version: Version) {
    let Some(real) = RealEtcd::start(version, Options::default()) else { return };
    let ours = Running::start().await;
    let (theirs, here) = (connect(&real.endpoint()).await, ours.channel().await);
    let mut differences = Vec::new();
    // The scenes follow each other on the same servers: revisions are part of what must agree.
    for (name, there, mine) in scenes::play(&theirs, &here).await {
        if there.len() != mine.len() {
            differences.push(format!("{name}: etcd said {} things, ours {}", there.len(), mine.len()));
        }
        for (at, (there, mine)) in
            there.iter().zip(&mine).enumerate().filter(|(_, (there, mine))| there != mine)
        {
            differences.push(format!("{name} [{at}]\n  etcd: {there}\n  ours: {mine}"));
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
