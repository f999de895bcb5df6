//! Long streams: watches and renewals.

use std::time::Duration;

use futures_util::future::Either;
use leasehold::etcd::WireError;
use leasehold::etcd::{Lane, Token, WatchControl, WatchOrder, WatchStream};
use leasehold::runtime::{Instant, Runtime, race};
use leasehold_mvcc::{KeepAliveAnswer, LeaseId, WatchId, WatchResponse};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::process::unknown;
use super::users::bad_token;
use super::{Cluster, State};

/// How often etcd brings watches up that are behind.
const ROUND: Duration = Duration::from_millis(100);

/// One client's stream to one member.
struct Stream {
    cluster: Cluster,
    client: u64,
    at: usize,
    token: Option<Token>,
    born: u64,
}

/// It cannot go on.
struct Broken(WireError);

impl Stream {
    /// Connects; `None` if whoever asked for it has gone, or was told why it cannot be.
    async fn open<T>(
        cluster: &Cluster,
        client: u64,
        at: usize,
        (lane, token): (Lane, Option<Token>),
        tell: &UnboundedSender<Result<T, WireError>>,
    ) -> Option<Self> {
        match race(tell.closed(), cluster.connect(client, at, lane)).await {
            Either::Left(()) => return None,
            Either::Right(Ok(())) => {}
            Either::Right(Err(error)) => {
                let _ = tell.send(Err(error));
                return None;
            }
        }
        let born = cluster.lock().generation(client, at);
        Some(Self { cluster: cluster.clone(), client, at, token, born })
    }

    /// Ends once the connection is broken.
    async fn broken(&self) -> WireError {
        let look = |state: &mut State| (state.generation(self.client, self.at) != self.born).then_some(());
        self.cluster.until(look).await;
        unknown("the stream broke")
    }

    async fn or_broken<T>(&self, step: impl Future<Output = T>) -> Result<T, Broken> {
        match race(self.broken(), step).await {
            Either::Left(error) => Err(Broken(error)),
            Either::Right(value) => Ok(value),
        }
    }

    /// A message's way to the member, which then has to be awake.
    async fn there(&self) -> Result<(), Broken> {
        self.or_broken(async {
            self.cluster.sleep(self.cluster.latency(self.client, self.at)).await;
            let _ = self.cluster.gets_there(self.client, self.at, self.born).await;
            self.awake().await;
        })
        .await
    }

    /// A message's way back from the member, which first has to be awake.
    async fn back(&self) -> Result<(), Broken> {
        self.or_broken(async {
            self.awake().await;
            let _ = self.cluster.gets_back(self.client, self.at, self.born).await;
            self.cluster.sleep(self.cluster.latency(self.client, self.at)).await;
        })
        .await
    }

    async fn awake(&self) {
        self.cluster.until(|state| (state.members[self.at].frozen == 0).then_some(())).await;
    }

    /// Whether this message finds the stream cut.
    fn is_cut(&self) -> bool {
        let faults = self.faults();
        let cut = self.cluster.chance(faults.cut_streams);
        if cut {
            self.cluster.saw("stream cut");
        }
        cut
    }

    fn faults(&self) -> super::LinkFaults {
        let state = self.cluster.lock();
        state.links.get(&(self.client, self.at)).map(|link| link.faults).unwrap_or_default()
    }

    /// Waits for etcd's next round.
    async fn round(&self) -> Result<(), Broken> {
        self.cluster.saw("watch message held for a round");
        let now = self.cluster.now().as_nanos();
        let round = u64::try_from(ROUND.as_nanos()).unwrap_or(1);
        let next = Instant::from_nanos((now / round + 1) * round);
        self.or_broken(self.cluster.world().sleep_until(next)).await
    }
}

impl Cluster {
    pub(super) async fn watch_line(
        self,
        client: u64,
        at: usize,
        opened: (Lane, Option<Token>),
        mut orders: UnboundedReceiver<WatchOrder>,
        tell: UnboundedSender<Result<WatchResponse, WireError>>,
    ) {
        let Some(stream) = Stream::open(&self, client, at, opened, &tell).await else { return };
        let store = self.lock().members[at].store.clone();
        let (control, mut messages) = store.watch_stream();
        let talk = stream.talk(&mut orders, &control, &mut messages, &tell);
        if let Either::Right(Err(Broken(error))) = race(tell.closed(), talk).await {
            let _ = tell.send(Err(error));
        }
    }

    pub(super) async fn keep_alive_line(
        self,
        client: u64,
        at: usize,
        opened: (Lane, Option<Token>),
        mut ids: UnboundedReceiver<LeaseId>,
        tell: UnboundedSender<Result<KeepAliveAnswer, WireError>>,
    ) {
        let Some(stream) = Stream::open(&self, client, at, opened, &tell).await else { return };
        let renewals = async {
            while let Some(id) = ids.recv().await {
                stream.there().await?;
                if stream.is_cut() {
                    return Err(Broken(unknown("the stream broke")));
                }
                let answer = stream.or_broken(self.renew(at, stream.token.as_ref(), id)).await?;
                stream.back().await?;
                let failed = answer.is_err();
                let _ = tell.send(answer);
                if failed {
                    break;
                }
            }
            Ok(())
        };
        // A renewal that is under way is carried out even if nobody waits for it any more.
        if let Err(Broken(error)) = renewals.await {
            let _ = tell.send(Err(error));
        }
    }
}

impl Stream {
    async fn talk(
        &self,
        orders: &mut UnboundedReceiver<WatchOrder>,
        control: &WatchControl,
        messages: &mut WatchStream,
        tell: &UnboundedSender<Result<WatchResponse, WireError>>,
    ) -> Result<(), Broken> {
        loop {
            match self.or_broken(race(orders.recv(), messages.next())).await? {
                Either::Left(None) => return Ok(()),
                Either::Left(Some(order)) => {
                    self.there().await?;
                    if self.is_cut() {
                        return Err(Broken(unknown("the stream broke")));
                    }
                    self.obey(order, control, tell).await?;
                }
                Either::Right(None) => return Err(Broken(unknown("the server closed the stream"))),
                Either::Right(Some(message)) => self.deliver(message, tell).await?,
            }
        }
    }

    async fn obey(
        &self,
        order: WatchOrder,
        control: &WatchControl,
        tell: &UnboundedSender<Result<WatchResponse, WireError>>,
    ) -> Result<(), Broken> {
        match order {
            WatchOrder::Create(request) => {
                if self.cluster.admit(self.token.as_ref()).is_err() {
                    self.back().await?;
                    let refused = WatchResponse {
                        watch_id: WatchId::new(-1),
                        created: true,
                        canceled: true,
                        cancel_reason: format!(
                            "rpc error: code = PermissionDenied desc = {}",
                            bad_token().message
                        ),
                        ..WatchResponse::default()
                    };
                    let _ = tell.send(Ok(refused));
                    return Ok(());
                }
                let from_the_past = {
                    let revision = self.cluster.lock().members[self.at].store.revision();
                    !request.start_revision.is_zero() && request.start_revision <= revision
                };
                control.create(request);
                if from_the_past {
                    // What a watch missed comes in etcd's next round, and holds the stream up until then.
                    self.round().await?;
                }
            }
            WatchOrder::Cancel(id) => control.cancel(id),
        }
        Ok(())
    }

    async fn deliver(
        &self,
        mut message: WatchResponse,
        tell: &UnboundedSender<Result<WatchResponse, WireError>>,
    ) -> Result<(), Broken> {
        let faults = self.faults();
        if !message.events.is_empty() && self.cluster.chance(faults.watch_round) {
            self.round().await?;
        }
        self.back().await?;
        if self.is_cut() {
            return Err(Broken(unknown("the stream broke")));
        }
        message.header.raft_term = self.cluster.lock().members[self.at].term;
        if message.events.len() > 1 && self.cluster.chance(faults.fragment) {
            self.cluster.saw("watch message in parts");
            let last = message.events.pop();
            for event in std::mem::take(&mut message.events) {
                let part = WatchResponse { fragment: true, events: vec![event], ..message.clone() };
                let _ = tell.send(Ok(part));
                self.back().await?;
            }
            message.events.extend(last);
        }
        let _ = tell.send(Ok(message));
        Ok(())
    }
}
