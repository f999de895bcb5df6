//! Leasehold side by side with the ways of locking that etcd itself has.
//!
//! ```text
//! cargo build --release -p leasehold-cli -p leasehold-bench
//! target/release/leasehold-bench [--quick] [--json FILE]
//! ```
//!
//! Every contestant of a row meets the same etcd 3.7.2, flushing to the local disk, in turns of one run: figures of two
//! runs, or of two machines, say nothing about each other, ratios do. The table on standard output is Markdown. What is
//! not on this machine (an etcdctl, the `leasehold` command) is "not measured", and says what is missing.
//!
//! | row | file |
//! |---|---|
//! | one client alone, against the two transactions that any lock needs | `uncontended.rs` |
//! | two and eight sessions on one lock, against etcd's own lock service | `contended.rs` |
//! | the embedded store on one core | `embedded.rs` |
//! | `leasehold run` against `etcdctl lock` | `command.rs` |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a measuring program: it lives on real time and real tasks, and a failure ends it with its story"
)]

mod command;
mod contended;
mod embedded;
mod options;
mod report;
mod samples;
mod uncontended;

use leasehold_testbed::{Options, RealEtcd, Version};
use report::Report;

fn main() {
    let options = options::read();
    let length = options.length;
    let fsync = Options { fsync: true, ..Options::default() };
    let etcd = RealEtcd::start(Version::V37, fsync).unwrap_or_else(|| {
        eprintln!("leasehold-bench: there is no etcd 3.7.2 for this machine, and nothing to compare with without one");
        std::process::exit(1);
    });

    let mut report = Report::begin(length);
    report.add("uncontended", || uncontended::measure(&etcd, length));
    report.add("two contenders", || contended::measure(&etcd, length, 2));
    report.add("eight contenders", || contended::measure(&etcd, length, 8));
    report.add("embedded", || embedded::measure(length));
    report.add("command", || command::measure(&etcd, length));
    drop(etcd);

    print!("{}", report.markdown());
    if let Some(file) = options.json {
        let text = format!("{:#}\n", report.json());
        std::fs::write(&file, text)
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
    }
}
