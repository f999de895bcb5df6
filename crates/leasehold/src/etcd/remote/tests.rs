//! The client's decisions, over a wire that does what the test says and a clock that jumps.

mod calls;
mod logins;
mod manual;
mod renewals;
mod scripted;
mod table;
mod watches;

use std::sync::Arc;
use std::time::Duration;

use super::{Remote, RemoteOptions};
use manual::Manual;
use scripted::Scripted;

/// A client of these endpoints, with the wire that it talks through and the clock that it lives by.
fn client(endpoints: &str) -> (Remote, Arc<Scripted>, Arc<Manual>) {
    client_of(RemoteOptions::new(endpoints).unwrap())
}

fn client_of(options: RemoteOptions) -> (Remote, Arc<Scripted>, Arc<Manual>) {
    let (wire, runtime) = (Arc::new(Scripted::default()), Arc::new(Manual::default()));
    let options = options.wire(wire.clone()).runtime(runtime.clone());
    let remote = options.call_timeout(Duration::from_secs(6)).open().unwrap();
    (remote, wire, runtime)
}
