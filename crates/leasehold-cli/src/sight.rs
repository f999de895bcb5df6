//! What is told of an entry in a lock's queue: to people, and to programs.

use std::collections::BTreeMap;

use leasehold::LeaseId;
use leasehold::survey::{Form, Life, Standing};
use serde_json::{Value, json};

use crate::moment;
use crate::table::NOTHING;

/// How long leases still run.
pub(crate) type Lives = BTreeMap<LeaseId, Life>;

/// How long an entry's lease still runs.
pub(crate) fn life(standing: &Standing, lives: &Lives) -> Life {
    if standing.entry.lease.is_none() {
        return Life::Endless;
    }
    lives.get(&standing.entry.lease).copied().unwrap_or(Life::Untold)
}

/// Who it is.
pub(crate) fn program(standing: &Standing) -> String {
    match (&standing.entry.who, standing.form) {
        (Some(who), _) => who.program.clone(),
        (None, Form::Plain) => format!("token {}", text(&standing.value)),
        (None, Form::Foreign) => "a key of another kind".into(),
        (None, form) if standing.value.is_empty() => form.to_string(),
        // An election's proposal says more than its layout.
        (None, form) => format!("{form}: {}", text(&standing.value)),
    }
}

pub(crate) fn host(standing: &Standing) -> String {
    standing.entry.who.as_ref().map_or_else(|| NOTHING.into(), |who| who.host.clone())
}

pub(crate) fn pid(standing: &Standing) -> String {
    standing.entry.who.as_ref().map_or_else(|| NOTHING.into(), |who| who.pid.to_string())
}

/// When the attempt began, on that machine's clock.
pub(crate) fn since(standing: &Standing) -> String {
    standing.entry.who.as_ref().map_or_else(|| NOTHING.into(), |who| moment::utc(who.since))
}

/// A value for people: so much of it as fits into a row.
fn text(value: &[u8]) -> String {
    const SHOWN: usize = 40;
    let text = String::from_utf8_lossy(value);
    let mut shown: String = text.chars().take(SHOWN).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// The entry for programs. What is not known is `null`.
pub(crate) fn json(standing: &Standing, life: Life) -> Value {
    let entry = &standing.entry;
    let who = entry.who.as_ref();
    let (left, granted, overdue) = match life {
        Life::Left { left, granted } => (Some(left), Some(granted), None),
        Life::Overdue(by) => (None, None, Some(by)),
        _ => (None, None, None),
    };
    let seconds = |time: Option<std::time::Duration>| time.map(|time| time.as_secs());
    json!({
        "key": entry.key.to_string(),
        "form": match standing.form {
            Form::Attempt => "leasehold",
            Form::Lease => "lease",
            Form::Plain => "plain",
            _ => "foreign",
        },
        "create_revision": entry.create_revision.get(),
        "program": who.map(|who| &who.program),
        "host": who.map(|who| &who.host),
        "pid": who.map(|who| who.pid),
        "since": who.map(|who| moment::utc(who.since)),
        "value": who.is_none().then(|| String::from_utf8_lossy(&standing.value)),
        "lease": (!entry.lease.is_none()).then(|| entry.lease.to_string()),
        "lease_left_s": seconds(left),
        "lease_granted_s": seconds(granted),
        "lease_overdue_s": seconds(overdue),
    })
}
