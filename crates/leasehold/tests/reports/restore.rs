//! A cluster that is put back to a snapshot while locks are held, as an operator would; and members that only lag.

use std::time::Duration;

use leasehold::{DistributedLock, EtcdExt, LossCause, Mutex, Remote, Ttl};
use leasehold_testbed::{Cluster, Etcdctl, Options, RealEtcd, Scratch, Version, block_on, connect, join};

use crate::{nap, open, queued, soon};

/// What a person is told.
fn says_what_to_do(text: &str) {
    assert!(text.contains("restore from backup") && text.contains("--bump-revision"), "{text}");
}

#[test]
fn a_snapshot_restored_on_every_member_is_noticed_and_refused_with_what_to_do() {
    let options = Options::default().quick_elections();
    let Some(cluster) = Cluster::start_with(Version::V35, 3, &options) else { return };
    let Some(etcdctl) = Etcdctl::find(&cluster.member(0).endpoints()) else { return };
    let scratch = Scratch::new("snapshot");
    let snapshot = scratch.path().join("db");
    etcdctl.run(&["snapshot", "save", &snapshot.display().to_string()]);
    block_on(async {
        let remote = Remote::connect(cluster.endpoints()).unwrap();
        let (holding, waiting) = (open(remote.clone(), 30).await, open(remote.clone(), 30).await);
        let mutex = Mutex::new(&holding, "lock".parse().unwrap());
        for _ in 0..20 {
            mutex.lock().await.unwrap().release().await.unwrap();
        }
        let guard = mutex.lock().await.unwrap();
        let waiter = Mutex::new(&waiting, "lock".parse().unwrap());
        let waiter = join(&*waiting.runtime(), "waits", async move { waiter.lock().await });
        queued(&mutex, 2).await;
        let theirs = DistributedLock::new(remote.clone(), "key", "ours", Ttl::seconds(30).unwrap()).unwrap();
        assert!(theirs.try_lock().await.unwrap());
        let token = guard.token();

        tokio::task::block_in_place(|| {
            cluster.members().iter().for_each(RealEtcd::kill);
            cluster.members().iter().for_each(|member| member.restore_snapshot(&etcdctl, &snapshot));
            cluster.members().iter().for_each(RealEtcd::launch);
            cluster.wait_healthy();
        });

        // Nobody needs to ask: the watch on the own key is set up anew, and the next renewal comes.
        assert_eq!(soon("the loss", guard.lost().wait()).await, LossCause::Restored);
        says_what_to_do(&guard.lost().cause().unwrap().to_string());
        let error = soon("the wait", waiter).await.unwrap_err();
        assert_eq!(error.loss(), Some(LossCause::Restored), "{error}");
        // And whoever asks is refused, with the lock's name and what to do, for as long as revisions are behind.
        for error in [
            soon("a lock", mutex.lock()).await.unwrap_err(),
            soon("a try", mutex.try_lock()).await.unwrap_err(),
            soon("a bounded wait", mutex.lock_timeout(Duration::from_secs(5))).await.unwrap_err(),
        ] {
            assert_eq!(error.loss(), Some(LossCause::Restored), "{error}");
            assert!(error.to_string().contains("\"lock\""), "{error}");
            says_what_to_do(&error.to_string());
        }
        assert_eq!(soon("the other loss", theirs.lost().unwrap().wait()).await, LossCause::Restored);
        assert_eq!(
            soon("another try", theirs.try_lock()).await.unwrap_err().loss(),
            Some(LossCause::Restored)
        );

        // Once revisions are beyond what was given out before, no token can come again.
        while remote.put("x", "y", Default::default()).await.unwrap().header.revision
            <= token.revision().next()
        {}
        let next = soon("the lock", mutex.lock()).await.unwrap();
        assert!(next.token() > token);
        next.release().await.unwrap();
    });
}

/// Its answers come late and its watches are behind; what it says when asked properly is as good as anybody's.
#[test]
fn a_member_that_lags_far_behind_is_not_taken_for_a_restore() {
    let options = Options::default().quick_elections();
    for version in Version::ALL {
        let Some(cluster) = Cluster::start_with(version, 3, &options) else { return };
        block_on(async {
            let writer = connect(&cluster.endpoints());
            for turn in 0..3 {
                let late = cluster.follower();
                // Its first words are the latest revision there is, by whoever is asked first.
                let remote = Remote::connect(cluster.endpoints()).unwrap();
                let session = open(remote, 10).await;
                let mutex = Mutex::new(&session, format!("lock{turn}").parse().unwrap());
                mutex.lock().await.unwrap().release().await.unwrap();
                cluster.member(late).freeze();
                for _ in 0..500 {
                    while writer.put("x", vec![0; 1000], Default::default()).await.is_err() {}
                }
                let guard = mutex.lock().await.unwrap();
                cluster.member(late).thaw();
                // The one that lags is all there is to ask for the next while, with one of the others to make a majority.
                let only = open(connect(&cluster.member(late).endpoints()), 10).await;
                for _ in 0..20 {
                    guard.verify().await.unwrap();
                    let other = Mutex::new(&only, format!("other{turn}").parse().unwrap());
                    other.lock().await.unwrap().release().await.unwrap();
                }
                nap(&session, Duration::from_millis(500)).await;
                assert_eq!(guard.ensure_held(Duration::ZERO), Ok(()));
                guard.release().await.unwrap();
                session.close().await.unwrap();
                only.close().await.unwrap();
            }
        });
    }
}
