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
#[should_panic(expected = "nothing is ready and no timer is set. Who waits:\n  waiter: polled 1 times")]
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
