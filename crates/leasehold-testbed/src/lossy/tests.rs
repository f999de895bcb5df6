use std::future::Future;

use futures_util::StreamExt;
use leasehold::etcd::WatchUpdate;
use leasehold::{Embedded, EtcdExt, LeaseId};
use leasehold_mvcc::{KeyRange, Revision};

use super::*;
use crate::join::join;
use leasehold_sim::Seeded;

fn with_faults<F: Future>(seed: u64, test: impl FnOnce(Lossy, Embedded) -> F) -> F::Output {
    let seeded = Seeded::new(seed);
    let embedded = Embedded::new(seeded.handle(), Default::default());
    seeded.block_on(test(Lossy::new(Arc::new(embedded.clone())), embedded))
}

async fn is_there(etcd: &Embedded, key: &'static str) -> bool {
    etcd.get(key).await.unwrap().is_some()
}

async fn wait(etcd: &Embedded, time: Duration) {
    let runtime = etcd.runtime();
    runtime.sleep_until(runtime.now() + time).await;
}

const MAX: Duration = Duration::from_secs(1);

#[test]
fn a_refused_or_lost_request_is_never_carried_out() {
    with_faults(1, |lossy, etcd| async move {
        for (rates, unknown) in [
            (Rates { refused: 1000, max_delay: MAX, ..Rates::NONE }, false),
            (Rates { lost_requests: 1000, max_delay: MAX, ..Rates::NONE }, true),
        ] {
            lossy.faults().set(rates);
            let error = lossy.put("k", "v", LeaseId::NONE).await.unwrap_err();
            assert_eq!(error.is_outcome_unknown(), unknown, "{error}");
            wait(&etcd, MAX * 10).await;
            assert!(!is_there(&etcd, "k").await);
        }
        let injected = lossy.faults().injected();
        assert_eq!(
            (injected.calls, injected.refused, injected.lost_requests, injected.failed()),
            (2, 1, 1, 2)
        );
    });
}

#[test]
fn a_request_whose_answer_is_lost_was_carried_out() {
    with_faults(2, |lossy, etcd| async move {
        lossy.faults().set(Rates { lost_replies: 1000, max_delay: MAX, ..Rates::NONE });
        let error = lossy.put("k", "v", LeaseId::NONE).await.unwrap_err();
        assert!(error.is_outcome_unknown(), "{error}");
        assert!(is_there(&etcd, "k").await);
    });
}

#[test]
fn a_late_request_is_carried_out_after_its_caller_was_told_of_failure() {
    with_faults(3, |lossy, etcd| async move {
        lossy.faults().set(Rates { late_requests: 1000, max_delay: MAX, max_late: MAX, ..Rates::NONE });
        let error = lossy.put("k", "v", LeaseId::NONE).await.unwrap_err();
        assert!(error.is_outcome_unknown(), "{error}");
        assert!(!is_there(&etcd, "k").await);
        lossy.faults().calm();
        wait(&etcd, MAX).await;
        assert!(is_there(&etcd, "k").await);
    });
}

#[test]
fn a_delayed_request_is_carried_out_even_if_its_caller_has_gone() {
    with_faults(4, |lossy, etcd| async move {
        lossy.faults().set(Rates { delays: 1000, max_delay: MAX, ..Rates::NONE });
        let runtime = etcd.runtime();
        let put = lossy.put("k", "v", LeaseId::NONE);
        let caller = join(&*runtime, "caller", put);
        wait(&etcd, Duration::from_nanos(1)).await;
        drop(caller);
        wait(&etcd, MAX * 2).await;
        assert!(is_there(&etcd, "k").await);
    });
}

#[test]
fn a_watch_that_keeps_breaking_tells_every_event_once_and_in_order() {
    for seed in 0..50 {
        with_faults(seed, |lossy, etcd| async move {
            let (life, max_delay) = (Some(Duration::from_millis(50)), Duration::from_millis(20));
            let rates = Rates { watch_life: life, max_gap: max_delay, delays: 300, max_delay, ..Rates::NONE };
            lossy.faults().set(rates);
            let mut watch = lossy.watch(WatchRequest::range(KeyRange::prefix("k")));
            let Some(Ok(WatchUpdate::Confirmed(start))) = watch.next().await else {
                panic!("not confirmed first")
            };
            let writer = etcd.clone();
            let runtime = etcd.runtime();
            let writes = join(&*runtime, "writer", async move {
                for n in 0..200 {
                    wait(&writer, Duration::from_millis(5)).await;
                    writer.put("k", n.to_string(), LeaseId::NONE).await.unwrap();
                }
            });
            let (mut revisions, mut confirmed): (Vec<Revision>, u32) = (Vec::new(), 1);
            while revisions.len() < 200 {
                match watch.next().await.unwrap().unwrap() {
                    WatchUpdate::Events { events, .. } => {
                        revisions.extend(events.iter().map(|e| e.kv.mod_revision))
                    }
                    WatchUpdate::Confirmed(_) => confirmed += 1,
                    _ => {}
                }
            }
            writes.await;
            let expected: Vec<_> = (1..=200).map(|n| Revision::new(start.get() + n)).collect();
            assert_eq!(revisions, expected);
            assert!(confirmed > 5, "{confirmed}");
            assert!(lossy.faults().injected().broken_watches > 5);
        });
    }
}

#[test]
fn the_same_seed_injects_the_same_faults() {
    let run = |seed| {
        with_faults(seed, |lossy, _| async move {
            lossy.faults().set(Rates::ROUGH);
            for _ in 0..300 {
                let _ = lossy.dedicated().put("k", "v", LeaseId::NONE).await;
            }
            lossy.faults().injected()
        })
    };
    let first = run(9);
    assert_eq!(first, run(9));
    assert_ne!(first, run(10));
    assert_eq!(first.calls, 300);
    assert!(first.failed() > 0 && first.delays > 0);
}
