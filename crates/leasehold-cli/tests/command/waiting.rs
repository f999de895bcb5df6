//! What a wait says of itself with `--verbose`.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use leasehold::{EtcdExt, LeaseId};
use leasehold_testbed::block_on;
use nix::sys::signal::Signal;

use crate::stage::{Running, Served, Stage, soon};

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

/// An address that leads to `target`, and how many bytes were sent that way.
fn counted(target: String) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let sent = Arc::new(AtomicUsize::new(0));
    let counter = sent.clone();
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(&target).unwrap();
            let there = (client.try_clone().unwrap(), server.try_clone().unwrap(), counter.clone());
            for (mut from, mut to, count) in [there, (server, client, Arc::default())] {
                std::thread::spawn(move || {
                    let mut chunk = [0; 4096];
                    while let Ok(read @ 1..) = from.read(&mut chunk) {
                        count.fetch_add(read, Ordering::SeqCst);
                        if to.write_all(&chunk[..read]).is_err() {
                            break;
                        }
                    }
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    (address, sent)
}

#[test]
fn a_waiter_asks_nothing_while_nothing_happens_and_once_a_second_at_most_while_much_does() {
    let stage = Stage::new();
    let served = Served::start(&stage);
    let holder = stage.start(["lock", "--endpoints", &served.endpoint, "demo"]);
    holder.line();
    let (endpoint, sent) = counted(served.endpoint.clone());
    // No renewal comes in between.
    let waiter = stage.start(["run", "--verbose", "--ttl", "300s", "--endpoints", &endpoint, "demo", "true"]);
    soon("it waits", || waiter.said().contains("place 1 in the queue").then_some(()));
    // The look that follows the watch's beginning.
    std::thread::sleep(Duration::from_millis(1500));
    let before = sent.load(Ordering::SeqCst);
    std::thread::sleep(Duration::from_secs(2));
    let in_silence = sent.load(Ordering::SeqCst) - before;
    assert!(in_silence < 100, "{in_silence} bytes");

    let started = Instant::now();
    let comings_and_goings = block_on(async {
        let etcd = served.etcd();
        let mut count = 0;
        while started.elapsed() < Duration::from_secs(3) {
            etcd.put("demo/other", "", LeaseId::NONE).await.unwrap();
            etcd.delete("demo/other").await.unwrap();
            count += 1;
        }
        count
    });
    let in_turmoil = sent.load(Ordering::SeqCst) - before - in_silence;
    assert!(comings_and_goings > 100, "{comings_and_goings}");
    // A look takes about a hundred.
    assert!(in_turmoil > 100 && in_turmoil < 1500, "{in_turmoil} bytes for {comings_and_goings}");
}
