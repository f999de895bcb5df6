#![allow(clippy::disallowed_methods, reason = "a test of virtual time needs a real clock and a real thread")]

use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::Notify;

use super::*;
use leasehold_testbed::join;

/// Tasks that sleep for times they draw, and notes of the order in which they wake.
fn run(seed: u64) -> (u64, Vec<String>) {
    let seeded = Seeded::new(seed);
    let (runtime, notes) = (seeded.handle(), seeded.notes());
    seeded.block_on(async {
        let sleepers: Vec<_> = (0..10)
            .map(|n| {
                let (own, notes) = (runtime.clone(), notes.clone());
                join(&*runtime, "sleeper", async move {
                    for _ in 0..5 {
                        own.sleep_until(own.now() + Duration::from_millis(own.random_u64() % 20)).await;
                        notes.note(format_args!("{n} woke"));
                    }
                })
            })
            .collect();
        for sleeper in sleepers {
            sleeper.await;
        }
    });
    (seeded.trace_hash(), seeded.transcript())
}

#[test]
fn one_seed_gives_one_run_and_another_seed_another() {
    let (first, other) = (run(7), run(8));
    assert_eq!(first, run(7));
    assert_ne!(first.0, other.0);
    assert_ne!(first.1, other.1);
}

#[test]
fn every_order_of_ready_tasks_comes_up() {
    let orders: std::collections::BTreeSet<String> = (0..200)
        .map(|seed| {
            let seeded = Seeded::new(seed);
            let (runtime, notes) = (seeded.handle(), seeded.notes());
            seeded.block_on(async {
                let tasks: Vec<_> = ["a", "b", "c"]
                    .map(|name| {
                        let notes = notes.clone();
                        join(&*runtime, name, async move { notes.note(name) })
                    })
                    .into();
                for task in tasks {
                    task.await;
                }
            });
            seeded.transcript().concat()
        })
        .collect();
    assert_eq!(orders.len(), 6, "{orders:?}");
}

#[test]
fn sleepers_wake_in_the_order_of_their_times_and_time_leaps() {
    let real = std::time::Instant::now();
    let seeded = Seeded::new(1);
    let (runtime, notes) = (seeded.handle(), seeded.notes());
    seeded.block_on(async {
        let sleepers = [3600, 5, 60].map(|seconds| {
            let (own, notes) = (runtime.clone(), notes.clone());
            join(&*runtime, "sleeper", async move {
                own.sleep_until(own.now() + Duration::from_secs(seconds)).await;
                notes.note(seconds);
            })
        });
        for sleeper in sleepers {
            sleeper.await;
        }
    });
    assert_eq!(seeded.transcript(), ["5s: 5", "60s: 60", "3600s: 3600"]);
    assert_eq!(seeded.now(), Instant::ZERO + Duration::from_secs(3600));
    assert_eq!(runtime.wall_clock(), UNIX_EPOCH + EPOCH + Duration::from_secs(3600));
    assert!(real.elapsed() < Duration::from_secs(60));
}

#[test]
fn a_dropped_task_stops_and_lets_go_of_what_it_owns() {
    struct Owned(Arc<AtomicU32>);
    impl Drop for Owned {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let seeded = Seeded::new(3);
    let (runtime, ends) = (seeded.handle(), Arc::new(AtomicU32::new(0)));
    let endless = |owned: Owned| {
        let own = runtime.clone();
        Box::pin(async move {
            let _owned = owned;
            own.sleep_until(Instant::NEVER).await;
        })
    };
    let dropped = runtime.spawn("dropped", endless(Owned(ends.clone())));
    runtime.spawn("detached", endless(Owned(ends.clone()))).detach();
    seeded.block_on(async {
        runtime.sleep_until(runtime.now() + Duration::from_secs(1)).await;
        drop(dropped);
        runtime.sleep_until(runtime.now() + Duration::from_secs(1)).await;
    });
    assert_eq!(ends.load(Ordering::Relaxed), 1);
    assert_eq!(seeded.tasks(), ["detached"]);
    drop(seeded);
    assert_eq!(ends.load(Ordering::Relaxed), 2);
}

#[test]
#[should_panic(
    expected = "nothing is ready and no timer is set. Who waits:\n  world: waiter: polled 1 times"
)]
fn a_deadlock_names_who_waits() {
    let seeded = Seeded::new(4);
    let runtime = seeded.handle();
    let never = Arc::new(Notify::new());
    let waiter = join(&*runtime, "waiter", async move { never.notified().await });
    seeded.block_on(waiter);
}

#[test]
#[should_panic(expected = "not over by 10s")]
fn a_run_that_goes_on_beyond_its_limit_ends() {
    let seeded = Seeded::new(5).limit(Duration::from_secs(10));
    let runtime = seeded.handle();
    seeded.block_on(async {
        loop {
            runtime.sleep_until(runtime.now() + Duration::from_secs(1)).await;
        }
    });
}

#[test]
#[should_panic(expected = "polls without time going on")]
fn a_task_that_turns_in_circles_is_noticed() {
    let seeded = Seeded::new(6);
    seeded.block_on(std::future::poll_fn(|context| {
        context.waker().wake_by_ref();
        Poll::<()>::Pending
    }));
}

#[test]
#[should_panic(expected = "the task main was woken from another thread")]
fn a_wake_up_from_another_thread_is_noticed() {
    let seeded = Seeded::new(6);
    seeded.block_on(std::future::poll_fn(|context| {
        let waker = context.waker().clone();
        thread::spawn(move || waker.wake()).join().unwrap();
        Poll::<()>::Pending
    }));
}

/// A node whose program ticks every second of its own time, and what true time it was at each tick.
fn ticking(seeded: &Seeded, clock: ClockError) -> (Node, Arc<std::sync::Mutex<Vec<u64>>>) {
    let (node, ticks) = (seeded.node("node", clock), Arc::new(std::sync::Mutex::new(Vec::new())));
    let (own, seen) = (node.notes(), ticks.clone());
    let tick = async move {
        loop {
            own.sleep_until(own.now() + Duration::from_secs(1)).await;
            seen.lock().unwrap().push(own.true_now().since(Instant::ZERO).as_secs());
        }
    };
    node.spawn("tick", tick).detach();
    (node, ticks)
}

async fn until(runtime: &Arc<dyn Runtime>, seconds: u64) {
    runtime.sleep_until(Instant::ZERO + Duration::from_secs(seconds)).await;
}

#[test]
fn a_node_lives_by_its_own_clock() {
    let seeded = Seeded::new(1);
    let (_node, ticks) = ticking(&seeded, ClockError { ppm: -500_000, ..ClockError::NONE });
    let world = seeded.handle();
    seeded.block_on(until(&world, 9));
    assert_eq!(*ticks.lock().unwrap(), [2, 4, 6, 8]);
}

#[test]
fn a_paused_node_does_nothing_and_then_finds_its_clock_gone_on() {
    let seeded = Seeded::new(1);
    let (node, ticks) = ticking(&seeded, ClockError::NONE);
    let world = seeded.handle();
    seeded.block_on(async {
        until(&world, 3).await;
        node.pause();
        until(&world, 7).await;
        assert_eq!(node.now(), Instant::ZERO + Duration::from_secs(7));
        node.resume();
        until(&world, 9).await;
    });
    assert!(ticks.lock().unwrap().starts_with(&[1, 2]));
    assert!(ticks.lock().unwrap().ends_with(&[7, 8]) || ticks.lock().unwrap().ends_with(&[7, 8, 9]));
}

#[test]
fn a_clock_that_stops_in_suspension_wakes_with_the_time_of_before() {
    let seeded = Seeded::new(1);
    let (node, _) = ticking(&seeded, ClockError { stops_in_suspension: true, ..ClockError::NONE });
    let world = seeded.handle();
    seeded.block_on(async {
        until(&world, 3).await;
        node.suspend();
        until(&world, 7).await;
        node.wake();
        until(&world, 8).await;
    });
    assert_eq!(node.now(), Instant::ZERO + Duration::from_secs(4));
}

#[test]
fn a_blocked_program_leaves_the_library_running() {
    let seeded = Seeded::new(1);
    let (node, ticks) = ticking(&seeded, ClockError::NONE);
    let (world, library) = (seeded.handle(), Arc::new(AtomicU32::new(0)));
    let (own, count) = (node.runtime(), library.clone());
    let work = async move {
        loop {
            own.sleep_until(own.now() + Duration::from_secs(1)).await;
            count.fetch_add(1, Ordering::Relaxed);
        }
    };
    node.runtime().spawn_dedicated("library", Box::pin(work)).detach();
    node.block();
    seeded.block_on(until(&world, 5));
    assert!(ticks.lock().unwrap().is_empty());
    assert!(library.load(Ordering::Relaxed) >= 4);
    node.unblock();
    seeded.block_on(until(&world, 7));
    assert_eq!(ticks.lock().unwrap()[0], 6);
}

#[test]
fn a_killed_node_does_not_even_tidy_up() {
    struct SpawnsWhenDropped(Arc<dyn Runtime>, Arc<AtomicU32>);
    impl Drop for SpawnsWhenDropped {
        fn drop(&mut self) {
            let count = self.1.clone();
            let tidy = async move {
                count.fetch_add(1, Ordering::Relaxed);
            };
            self.0.spawn_dedicated("tidy up", Box::pin(tidy)).detach();
        }
    }
    let seeded = Seeded::new(1);
    let (node, tidied) = (seeded.node("node", ClockError::NONE), Arc::new(AtomicU32::new(0)));
    let owned = SpawnsWhenDropped(node.runtime(), tidied.clone());
    let held = async move {
        let _owned = owned;
        std::future::pending::<()>().await;
    };
    node.spawn("holder", held).detach();
    let world = seeded.handle();
    seeded.block_on(async {
        until(&world, 1).await;
        node.kill();
        until(&world, 2).await;
    });
    assert!(node.is_dead() && node.tasks().is_empty());
    assert_eq!(tidied.load(Ordering::Relaxed), 0);
}
