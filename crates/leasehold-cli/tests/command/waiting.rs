//! What a wait says of itself with `--verbose`.

use nix::sys::signal::Signal;

use crate::stage::{Running, Stage, soon};

/// A waiter that has entered the queue behind `before` others, holder included.
fn waiter(stage: &Stage, before: usize) -> Running {
    let waiter = stage.start(stage.shell(&["--local", "--verbose"], "echo in; read line"));
    soon("it says where it stands", || {
        waiter.said().contains(&format!("place {before} in the queue")).then_some(())
    });
    waiter
}

#[test]
fn a_waiter_says_who_holds_and_its_place_and_says_so_again_when_that_changes() {
    let stage = Stage::new();
    let mut holder = stage.start(stage.shell(&["--local"], "echo in; read line"));
    assert_eq!(holder.line(), "in");
    let first = waiter(&stage, 1);
    let mut second = waiter(&stage, 2);
    let third = waiter(&stage, 3);
    let named = format!("waiting; held by leasehold run sh (pid {}) on ", holder.pid());
    assert!(second.said().contains(&named), "{}", second.said());

    // One of those before it leaves; its own place changes, the holder does not.
    first.signal(Signal::SIGTERM);
    first.outcome().ended_with(143);
    soon("the second moves up", || second.said().contains("place 1 in the queue").then_some(()));
    soon("the third moves up", || third.said().contains("place 2 in the queue").then_some(()));

    // The holder changes.
    holder.write("\n");
    holder.outcome().ended_with(0);
    assert_eq!(second.line(), "in");
    let now = format!("waiting; held by leasehold run sh (pid {}) on ", second.pid());
    soon("the third says who holds now", || third.said().contains(&now).then_some(()));

    let said = third.said();
    let words: Vec<_> = said.lines().filter(|line| line.contains("waiting;")).collect();
    assert_eq!(words.len(), 3, "each state is told once: {words:?}");
    second.write("\n");
    second.outcome().ended_with(0);
    assert_eq!(third.line(), "in");
}

#[test]
fn a_waiter_says_nothing_unless_asked_to() {
    let stage = Stage::new();
    let mut holder = stage.start(stage.shell(&["--local"], "echo in; read line"));
    assert_eq!(holder.line(), "in");
    let quiet = stage.start(stage.shell(&["--local"], "true"));
    soon("it stands in the queue", || (stage.queue("demo").len() == 2).then_some(()));
    let verbose = waiter(&stage, 2);
    holder.write("\n");
    let outcome = quiet.outcome().ended_with(0);
    assert!(!outcome.stderr.contains("waiting"), "{outcome:?}");
    assert_eq!(verbose.line(), "in");
}
