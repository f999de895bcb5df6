//! `leasehold show`: one lock, and everybody in its queue.

use std::fmt::Write as _;

use leasehold::LockName;
use leasehold::survey::{self, Form, View};
use serde_json::json;

use crate::args::ShowArgs;
use crate::exit::{Code, Failure};
use crate::sight::{self, Lives};
use crate::table::{self, Table, plain};
use crate::visit::Visit;

pub(crate) async fn show(args: &ShowArgs) -> Result<Code, Failure> {
    let mut visit = Visit::open(&args.access, format!("lock {:?}", args.name.as_str())).await?;
    let etcd = visit.etcd();
    let view = visit.ask(survey::lock(&*etcd, &args.name)).await?;
    let leases = view.queue.iter().chain(&view.plain).map(|one| one.entry.lease);
    let lives = visit.ask(survey::lives(&*etcd, leases)).await?;
    let told =
        if args.json { as_json(&args.name, &view, &lives) } else { as_table(&args.name, &view, &lives) };
    table::print(&told)?;
    Ok(Code::SUCCESS)
}

fn as_table(name: &LockName, view: &View, lives: &Lives) -> String {
    let mut told = String::new();
    if view.queue.is_empty() {
        let _ = writeln!(told, "lock {:?}: nobody holds it and nobody waits for it", name.as_str());
    } else {
        let mut table = Table::new(&["PLACE", "WHO", "PID", "HOST", "SINCE", "LEASE", "", "KEY"]);
        for (place, one) in view.queue.iter().enumerate() {
            let lease = one.entry.lease;
            table.row([
                if place == 0 { "holds".to_owned() } else { place.to_string() },
                sight::program(one),
                sight::pid(one),
                sight::host(one),
                sight::since(one),
                if lease.is_none() { String::new() } else { lease.to_string() },
                sight::life(one, lives).to_string(),
                one.entry.key.to_string(),
            ]);
        }
        told += &table.render();
    }
    for note in notes(name, view, lives) {
        let _ = writeln!(told, "note: {}", plain(&note));
    }
    told
}

/// What is not as it should be, and what else lies there.
fn notes(name: &LockName, view: &View, lives: &Lives) -> Vec<String> {
    let mut notes = Vec::new();
    for one in &view.queue {
        let key = &one.entry.key;
        if one.form == Form::Foreign {
            notes.push(format!(
                "the key {key} is no lock's entry by its form, and is waited for all the same; if it has no business \
                 here, delete it"
            ));
        } else if one.entry.lease.is_none() {
            notes.push(format!(
                "the entry {key} hangs on no lease: somebody put it anew without one, and it stays until it is deleted; \
                 if its author is gone, `leasehold break` frees it"
            ));
        }
    }
    if let Some(holder) = view.queue.first()
        && let survey::Life::Overdue(by) = sight::life(holder, lives)
    {
        notes.push(format!(
            "the holder's lease is past its end by {} s, and etcd has not ended it; if the holder is dead, `leasehold \
             break` frees the lock",
            by.as_secs()
        ));
    }
    if let Some(plain) = &view.plain {
        let lease = match plain.entry.lease {
            lease if lease.is_none() => "on no lease".to_owned(),
            lease => format!("on lease {lease} ({})", sight::life(plain, lives)),
        };
        notes.push(format!(
            "the key {} itself is there, {lease}, with {}: a lock of that one key (DistributedLock), or something else; \
             this queue does not mind it",
            name.as_str(),
            sight::program(plain)
        ));
    }
    if view.nested > 0 {
        notes.push(format!(
            "{} keys belong to locks nested below {}/: nothing to leasehold, but etcdctl and Go wait for them too",
            view.nested,
            name.as_str()
        ));
    }
    notes
}

fn as_json(name: &LockName, view: &View, lives: &Lives) -> String {
    let told = |one| sight::json(one, sight::life(one, lives));
    let queue: Vec<_> = view.queue.iter().map(told).collect();
    let all = json!({
        "name": name.as_str(),
        "revision": view.revision.get(),
        "queue": queue,
        "plain": view.plain.as_ref().map(told),
        "nested_keys": view.nested,
    });
    format!("{all:#}\n")
}
