//! `leasehold ls`: all locks that somebody holds.

use leasehold::survey::{self, Summary, Survey};
use serde_json::json;

use crate::args::LsArgs;
use crate::exit::{Code, Failure};
use crate::sight::{self, Lives};
use crate::table::{self, Table};
use crate::visit::Visit;

pub(crate) async fn ls(args: &LsArgs) -> Result<Code, Failure> {
    let what = match args.prefix.as_str() {
        "" => "the list of locks".to_owned(),
        prefix => format!("the locks below {prefix:?}"),
    };
    let mut visit = Visit::open(&args.access, what).await?;
    let etcd = visit.etcd();
    let all = visit.ask(survey::locks(&*etcd, &args.prefix)).await?;
    let leases = all.locks.iter().map(|lock| lock.holder.entry.lease);
    let lives = visit.ask(survey::lives(&*etcd, leases)).await?;
    table::print(&if args.json { as_json(&all, &lives) } else { as_table(&all, &lives) })?;
    Ok(Code::SUCCESS)
}

fn as_table(all: &Survey, lives: &Lives) -> String {
    let mut table = Table::new(&["LOCK", "HELD BY", "PID", "HOST", "SINCE", "LEASE", "WAITING", "NOTE"]);
    for lock in &all.locks {
        let holder = &lock.holder;
        table.row([
            lock.name.to_string(),
            sight::program(holder),
            sight::pid(holder),
            sight::host(holder),
            sight::since(holder),
            sight::life(holder, lives).to_string(),
            lock.waiting.to_string(),
            note(lock),
        ]);
    }
    table.render()
}

fn note(lock: &Summary) -> String {
    let notes = [(lock.foreign, "foreign"), (lock.detached, "without a lease")];
    let told =
        notes.into_iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
    told.collect::<Vec<_>>().join(", ")
}

fn as_json(all: &Survey, lives: &Lives) -> String {
    let locks: Vec<_> = all
        .locks
        .iter()
        .map(|lock| {
            json!({
                "name": lock.name.to_string(),
                "holder": sight::json(&lock.holder, sight::life(&lock.holder, lives)),
                "waiting": lock.waiting,
                "foreign": lock.foreign,
                "without_lease": lock.detached,
            })
        })
        .collect();
    format!("{:#}\n", json!({ "revision": all.revision.get(), "locks": locks }))
}
