//! A real cluster of three, of which one member is of no use: dead, frozen, refusing, behind a link that is cut, or slow.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use leasehold::etcd::{Etcd, WatchUpdate};
use leasehold::mvcc::{KeyRange, RangeRequest, WatchRequest};
use leasehold::{DistributedLock, EtcdExt, LeaseId, Mutex, Remote, Session, TryLock, Ttl};
use leasehold_testbed::{Cluster, Options, Proxy, RealEtcd, Version, block_on, join};

use crate::{nap, open, queued, soon, within};

/// A cluster, and the links to its members.
struct Stage {
    cluster: Cluster,
    links: Vec<Proxy>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Trouble {
    /// Nobody listens at its address.
    Dead,
    /// Connections stand, new ones are taken by its machine, and nothing is answered (SIGSTOP).
    Frozen,
    /// Nothing gets through to it, and nobody is told.
    CutOff,
    /// Each way takes a second.
    Slow,
}

const TROUBLES: [Trouble; 4] = [Trouble::Dead, Trouble::Frozen, Trouble::CutOff, Trouble::Slow];

impl Stage {
    async fn start(version: Version) -> Option<Self> {
        let cluster = Cluster::start_with(version, 3, &Options::default().quick_elections())?;
        let mut links = Vec::new();
        for endpoint in cluster.endpoints() {
            links.push(Proxy::start(&endpoint).await);
        }
        Some(Self { cluster, links })
    }

    fn client(&self) -> Remote {
        Remote::connect(self.links.iter().map(Proxy::endpoint).collect::<Vec<_>>()).unwrap()
    }

    /// One that reaches the members themselves: a dead one refuses, where a link would hang up.
    fn direct(&self) -> Remote {
        Remote::connect(self.cluster.endpoints()).unwrap()
    }

    fn disturb(&self, member: usize, trouble: Trouble) {
        match trouble {
            Trouble::Dead => self.cluster.member(member).kill(),
            Trouble::Frozen => self.cluster.member(member).freeze(),
            Trouble::CutOff => self.links[member].cut(),
            Trouble::Slow => self.links[member].delay(Duration::from_secs(1)),
        }
    }

    fn mend(&self, member: usize, trouble: Trouble) {
        match trouble {
            Trouble::Dead => self.cluster.member(member).restart(),
            Trouble::Frozen => self.cluster.member(member).thaw(),
            Trouble::CutOff => self.links[member].heal(),
            Trouble::Slow => self.links[member].delay(Duration::ZERO),
        }
        self.cluster.wait_healthy();
    }
}

/// Every call whose outcome can be known is answered, by whichever member is left.
async fn every_call(remote: &Remote, session: &Session, turn: usize) {
    let mutex = |name: &str| Mutex::new(session, format!("{name}{turn}").parse().unwrap());
    remote.range(RangeRequest::key("k")).await.unwrap();
    let guard = mutex("lock").lock().await.unwrap();
    guard.verify().await.unwrap();
    assert!(matches!(mutex("lock").try_lock().await.unwrap(), TryLock::Busy(_)));
    assert!(mutex("lock").holder().await.unwrap().is_some());
    assert_eq!(mutex("lock").queue().await.unwrap().len(), 1);
    guard.release().await.unwrap();
    drop(mutex("lock").try_lock().await.unwrap().acquired().unwrap());
    drop(mutex("other").lock_timeout(Duration::from_secs(10)).await.unwrap().unwrap());
    let lock = DistributedLock::new(remote.clone(), format!("key{turn}"), "a", Ttl::default()).unwrap();
    assert!(lock.try_lock().await.unwrap());
    assert!(lock.unlock().await.unwrap());
    let another = Session::open(remote.clone()).await.unwrap();
    another.close().await.unwrap();
}

fn one_of_three(version: Version) {
    block_on(async {
        let Some(stage) = Stage::start(version).await else { return };
        for (turn, trouble) in TROUBLES.into_iter().enumerate() {
            // Each client is at one member, by chance; with three of them few turns pass one by.
            let mut clients: Vec<_> = (0..3).map(|_| stage.client()).collect();
            if matches!(trouble, Trouble::Dead | Trouble::Frozen) {
                clients.push(stage.direct());
            }
            let mut sessions = Vec::new();
            for client in &clients {
                sessions.push(open(client.clone(), 10).await);
            }
            let member = turn % 3;
            stage.disturb(member, trouble);
            let calls =
                clients.iter().zip(&sessions).enumerate().map(|(client, (remote, session))| async move {
                    every_call(remote, session, turn * 10 + client).await;
                });
            within(Duration::from_secs(20), &format!("{trouble:?}"), futures_util::future::join_all(calls))
                .await;
            stage.mend(member, trouble);
            for session in sessions {
                session.close().await.unwrap();
            }
        }
    });
}

#[test]
fn a72_b24_one_useless_member_of_three_costs_no_call_on_etcd37() {
    one_of_three(Version::V37);
}

#[test]
fn a72_b24_one_useless_member_of_three_costs_no_call_on_etcd35() {
    one_of_three(Version::V35);
}

/// The holder, the waiter and the observer are each at whatever member they were when the trouble began.
#[test]
fn a26_a27_b07_b24_a_hold_and_a_wait_outlive_every_trouble_of_one_member() {
    block_on(async {
        let Some(stage) = Stage::start(Version::V37).await else { return };
        for trouble in TROUBLES {
            let (holding, waiting) = (open(stage.client(), 4).await, open(stage.client(), 4).await);
            let name = format!("{trouble:?}");
            let mutex = Mutex::new(&holding, name.parse().unwrap());
            let guard = mutex.lock().await.unwrap();
            let waiter = Mutex::new(&waiting, name.parse().unwrap());
            let waiter = join(&*waiting.runtime(), "waits", async move { waiter.lock().await });
            queued(&mutex, 2).await;
            let leader = stage.cluster.leader();
            for member in 0..3 {
                // A leader that is gone is another matter: the others need a moment, and get it in the tests of that.
                if member == leader && trouble != Trouble::CutOff && trouble != Trouble::Slow {
                    continue;
                }
                stage.disturb(member, trouble);
                nap(&holding, Duration::from_millis(1500)).await;
                assert_eq!(guard.ensure_held(Duration::ZERO), Ok(()), "{trouble:?}");
                stage.mend(member, trouble);
            }
            guard.release().await.unwrap();
            let next = soon("the next one", waiter).await.unwrap();
            next.release().await.unwrap();
            holding.close().await.unwrap();
            waiting.close().await.unwrap();
        }
    });
}

/// A rolling restart, quicker than anybody should.
#[test]
fn a26_b24_members_are_restarted_one_after_the_other_and_no_hold_is_lost() {
    block_on(async {
        let Some(stage) = Stage::start(Version::V37).await else { return };
        let session = open(stage.client(), 5).await;
        let guard = Mutex::new(&session, "lock".parse().unwrap()).lock().await.unwrap();
        for turn in 0..9 {
            let member = if turn % 2 == 0 { stage.cluster.leader() } else { turn % 3 };
            stage.cluster.member(member).kill();
            nap(&session, Duration::from_millis(500)).await;
            stage.cluster.member(member).restart();
            assert_eq!(guard.ensure_held(Duration::ZERO), Ok(()), "turn {turn}");
        }
        guard.verify().await.unwrap();
        guard.release().await.unwrap();
        session.close().await.unwrap();
    });
}

/// B03: it is killed and comes back with its data; who waited is there to see the release.
#[test]
fn b03_a_wait_outlives_the_death_of_the_only_server() {
    for version in Version::ALL {
        let Some(server) = RealEtcd::start(version, Options::default()) else { return };
        block_on(async {
            let connect = || Remote::connect(server.endpoints()).unwrap();
            let (holding, waiting) = (open(connect(), 15).await, open(connect(), 15).await);
            let mutex = Mutex::new(&holding, "lock".parse().unwrap());
            let guard = mutex.lock().await.unwrap();
            let waiter = Mutex::new(&waiting, "lock".parse().unwrap());
            let waiter = join(&*waiting.runtime(), "waits", async move { waiter.lock().await });
            queued(&mutex, 2).await;
            server.kill();
            nap(&holding, Duration::from_secs(3)).await;
            server.restart();
            guard.release().await.unwrap();
            soon("the next one", waiter).await.unwrap().release().await.unwrap();
        });
    }
}

#[test]
fn b03_a_watch_misses_nothing_while_members_come_and_go() {
    block_on(async {
        let Some(stage) = Stage::start(Version::V37).await else { return };
        let (remote, writer) = (stage.client(), stage.client());
        let mut updates = remote.watch(WatchRequest::range(KeyRange::key("k")));
        assert!(matches!(updates.next().await, Some(Ok(WatchUpdate::Confirmed(_)))));
        let mut wrote = Vec::new();
        for (turn, trouble) in TROUBLES.into_iter().enumerate() {
            let member = turn % 3;
            stage.disturb(member, trouble);
            let value = vec![u8::try_from(turn).unwrap()];
            // Of a write whose outcome is unknown a second one is no harm here.
            while writer.put("k", value.clone(), LeaseId::NONE).await.is_err() {}
            wrote.push(value);
            stage.mend(member, trouble);
        }
        let mut told: Vec<Vec<u8>> = Vec::new();
        let listen = async {
            while told.last() != wrote.last() {
                if let WatchUpdate::Events { events, .. } = updates.next().await.unwrap().unwrap() {
                    told.extend(events.iter().map(|event| event.kv.value.to_vec()));
                }
            }
        };
        soon("the last event", listen).await;
        told.dedup();
        assert_eq!(told, wrote);
        let remote: Arc<dyn Etcd> = Arc::new(remote);
        remote.close().await;
    });
}

/// What stands at an endpoint beside the real one.
#[derive(Clone, Copy, Debug)]
enum Impostor {
    /// Nobody.
    Refuses,
    /// Takes connections and says nothing.
    Silent,
    /// Takes them and hangs up.
    HangsUp,
    /// Answers as a web server of old.
    SpeaksHttp1,
    /// Answers with noise.
    Noisy,
}

/// Its address, for as long as the listener's thread finds anybody to answer.
fn impostor(kind: Impostor) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let words: &'static [u8] = match kind {
        Impostor::Refuses => return address,
        Impostor::Silent | Impostor::HangsUp => b"",
        Impostor::SpeaksHttp1 => b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        Impostor::Noisy => &[0x16, 0x03, 0x01, 0xff, 0xfe, 0x00, 0x15, 0x42],
    };
    std::thread::spawn(move || {
        let mut kept = Vec::new();
        for stream in listener.incoming().map_while(Result::ok) {
            let mut stream = stream;
            let _ = stream.write_all(words);
            if !matches!(kind, Impostor::HangsUp) {
                kept.push(stream);
            }
        }
    });
    address
}

/// A72, B15: whatever stands at two of three endpoints, and at whichever places.
#[test]
fn a72_b15_a_lock_is_had_in_time_whatever_stands_at_the_other_endpoints() {
    let Some(server) = RealEtcd::start(Version::V35, Options::default()) else { return };
    use Impostor::{HangsUp, Noisy, Refuses, Silent, SpeaksHttp1};
    block_on(async {
        let all = [Refuses, Silent, HangsUp, SpeaksHttp1, Noisy];
        let tries = (0..15).map(|turn| {
            let kind = all[turn % 5];
            let mut endpoints = vec![impostor(kind), impostor(kind)];
            endpoints.insert(turn / 5, server.endpoint());
            async move {
                let remote = Remote::connect(endpoints).unwrap();
                let session = Session::open(remote).await.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
                let mutex = Mutex::new(&session, format!("lock{turn}").parse().unwrap());
                mutex.lock().await.unwrap().release().await.unwrap();
                session.close().await.unwrap_or_else(|error| panic!("{kind:?}: {error}"));
            }
        });
        // All at once: what they wait for is not this machine.
        within(Duration::from_secs(15), "all of them", futures_util::future::join_all(tries)).await;
    });
}
