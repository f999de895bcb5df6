//! etcdctl, old and new, prints of this server what it prints of a real etcd.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "real programs on real time; a failure is a panic"
)]

mod support;

use leasehold_testbed::{Etcdctl, Options, Part, RealEtcd, Version};
use support::Running;

/// What is typed, one line a command. `{lease}` is the lease granted last.
const SESSION: &[&str] = &[
    "put a 1",
    "put b 2",
    "get a",
    "get a b -w fields",
    "get --prefix --keys-only ab",
    "get nothing",
    "get a --rev=2",
    "get a --rev=99",
    "put a 2 --prev-kv",
    "put a 3 --lease=1234",
    "del a --prev-kv",
    "del nothing",
    "put x/1 c",
    "put x/2 b",
    "put x/3 a",
    "get x/ --prefix --sort-by=VALUE --order=DESCEND --limit=2",
    "get x/2 --from-key",
    "get x/ --prefix --count-only -w fields",
    "del x/ --prefix",
    "lease grant 60",
    "put k v --lease={lease}",
    "lease timetolive {lease} --keys",
    "lease keep-alive --once {lease}",
    "lease list",
    "lease revoke {lease}",
    "lease revoke {lease}",
    "lease timetolive {lease}",
    "lease keep-alive {lease}",
    "get k",
    "lock job -- echo inside",
    "lock job -- false",
    "lock job -- env",
    "compaction 3",
    "compaction 3",
    "compaction 99",
    "watch b --rev=2",
    "get b --rev=2",
    "endpoint health",
    "endpoint status",
    "alarm list",
    "member list",
    "get a -w json",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_3_5_sees_no_difference() {
    compare(Part::Etcdctl).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcdctl_3_4_sees_no_difference() {
    compare(Part::Etcdctl34).await;
}

async fn compare(part: Part) {
    let Some(real) = RealEtcd::start(Version::V35, Options::default()) else { return };
    let server = Running::start().await;
    // Without `http://` before it, which old ones send on as the name of the host; see the crate's page.
    let theirs = [real.endpoint().replace("http://", "")];
    let ours = [server.address.to_string()];
    let (Some(theirs), Some(ours)) = (Etcdctl::find_part(part, &theirs), Etcdctl::find_part(part, &ours))
    else {
        return;
    };
    let play = |etcdctl: Etcdctl| tokio::task::spawn_blocking(move || session(&etcdctl));
    let (there, here) = (play(theirs), play(ours));
    let (there, here) = (there.await.unwrap(), here.await.unwrap());
    for (there, here) in there.iter().zip(&here) {
        assert_eq!(here, there);
    }
    server.stop().await;
}

fn session(etcdctl: &Etcdctl) -> Vec<String> {
    let mut lease = String::new();
    let mut told = Vec::new();
    for line in SESSION {
        let line = line.replace("{lease}", &lease);
        let output = etcdctl.output(&line.split(' ').collect::<Vec<_>>());
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        if line.starts_with("lease grant") {
            lease = out.split(' ').nth(1).unwrap().to_owned();
        }
        // What the client logs of its own tries bears the time of day.
        let err = err.lines().filter(|line| !line.starts_with('{')).collect::<Vec<_>>().join("\n");
        let all = format!("$ {line}\n{out}{err}\n{:?}", output.status.code());
        told.push(same(&if lease.is_empty() { all } else { all.replace(&lease, "#") }));
    }
    told
}

/// The text without what must differ: ids, ports, times, and what a database without a disk has none of.
fn same(text: &str) -> String {
    let lines = text.lines().filter_map(|line| {
        if line.contains(", started, ") {
            return Some("a member that has started".into());
        }
        if line.contains("ETCD_LOCK_") {
            return Some(line.split('/').next()?.to_owned());
        }
        if text.starts_with("$ lock job -- env") && !line.starts_with('$') {
            return None;
        }
        let status = text.starts_with("$ endpoint status");
        let words = line.split_inclusive([' ', ',', ':', '/', '(', ')']).enumerate().map(|(at, word)| {
            let bare = word.trim_end_matches([' ', ',', ':', '/', '(', ')']);
            let id = bare.len() >= 13 && bare.chars().all(|c| c.is_ascii_hexdigit());
            let port = bare.len() >= 4 && line.contains("127.0.0.1:") && bare.parse::<u16>().is_ok();
            let time = bare.ends_with("ms")
                || bare.ends_with("µs")
                || (line.contains("remaining") && bare.starts_with("59"));
            let database =
                status && at > 4 && bare.starts_with(|c: char| c.is_ascii_digit() || c == 'k' || c == 'B');
            if id || port || time || database { word.replace(bare, "#") } else { word.to_owned() }
        });
        Some(words.collect::<String>())
    });
    lines.collect::<Vec<_>>().join("\n")
}
