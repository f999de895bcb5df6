//! What the pages list is what the code has.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test"
)]

use std::fs;
use std::path::Path;

/// Level and message of each event in a source file.
fn events(source: &str) -> Vec<(String, String)> {
    let source = source.split("#[cfg(test)]").next().unwrap_or_default();
    let calls = source.split("tracing::").skip(1).filter_map(|rest| {
        let (level, rest) = rest.split_once("!(")?;
        let call = rest.split_once(";\n").map_or(rest, |(call, _)| call);
        // The message is the last text in it; what it is filled with stands in brackets on the page.
        let message = call.rsplit('"').nth(1)?;
        let message = message.split('{').next()?.trim_end_matches(' ');
        Some((level.to_owned(), message.to_owned()))
    });
    calls.collect()
}

fn sources(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else {
            found.push(fs::read_to_string(path).unwrap());
        }
    }
}

#[test]
fn the_operations_page_lists_every_event_with_its_level() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("../../docs/operations.md")).unwrap();
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    let events: Vec<_> = files.iter().flat_map(|source| events(source)).collect();
    assert!(events.len() > 15, "only {} events were found: {events:?}", events.len());
    for (level, message) in events {
        let listed = page
            .lines()
            .any(|line| line.starts_with(&format!("| {level} |")) && line.contains(&format!("`{message}")));
        assert!(listed, "docs/operations.md does not list the event {message:?} of level {level}");
    }
}
