//! Our side: the embedded etcd. It does everything while it is asked, so there is nothing to wait for.

use std::collections::BTreeMap;

use futures_util::{FutureExt, StreamExt};
use leasehold::Embedded;
use leasehold::etcd::{EmbeddedOptions, Etcd, Updates, WatchControl, WatchStream};
use leasehold::runtime::SystemRuntime;
use leasehold_mvcc::{
    Answer, Command, CompactRequest, DeleteRequest, Header, PutRequest, Revision, StoreError, StoreOptions,
    WatchId, WatchRequest, WatchResponse,
};

use crate::operation::Origin;
use crate::side::{FirstWord, Followed, Reference, Side, Told, Way, deliver, is_steady};

pub(crate) struct Ours {
    pub(crate) etcd: Embedded,
    streams: BTreeMap<Way, (WatchControl, WatchStream)>,
    updates: BTreeMap<usize, Updates>,
    followed: Vec<Followed>,
}

impl Ours {
    /// One that stands as the other side does: at the origin, and at the revision of `header`.
    pub(crate) fn begin(origin: Origin, header: Header) -> Self {
        let first = match origin {
            Origin::Fresh => Revision::new(1),
            // The two revisions in between are made below.
            Origin::Emptied => header.revision.previous().previous(),
        };
        let store = StoreOptions {
            cluster_id: header.cluster_id,
            member_id: header.member_id,
            raft_term: header.raft_term,
            first_revision: first,
            // The default forgets by itself, unlike etcd, and says so.
            history_limit: None,
            ..StoreOptions::default()
        };
        let runtime = SystemRuntime::shared().expect("the machine gives threads");
        let etcd = Embedded::new(runtime, EmbeddedOptions { store });
        if origin == Origin::Emptied {
            empty(&mut |command| etcd.apply(command));
        }
        assert_eq!(etcd.revision(), header.revision, "both begin at one revision");
        Self { etcd, streams: BTreeMap::new(), updates: BTreeMap::new(), followed: Vec::new() }
    }

    fn drain(&mut self) {
        for (way, (_, stream)) in &mut self.streams {
            while let Some(Some(message)) = stream.next().now_or_never() {
                deliver(&mut self.followed, *way, message);
            }
        }
        let followed = &mut self.followed;
        self.updates.retain(|watch, updates| {
            while let Some(Some(update)) = updates.next().now_or_never() {
                if followed[*watch].told.update(update) {
                    return false;
                }
            }
            true
        });
    }

    /// The next message of a stream that has one; all before it have been delivered.
    fn hear(&mut self, way: Way) -> WatchResponse {
        let (_, stream) = self.streams.get_mut(&way).expect("the stream is open");
        let message = stream.next().now_or_never().flatten();
        message.expect("the embedded etcd answers at once")
    }

    fn control(&mut self, way: Way) -> WatchControl {
        let etcd = &self.etcd;
        self.streams.entry(way).or_insert_with(|| etcd.watch_stream()).0.clone()
    }
}

/// The last two revisions before a list that begins with an empty store, and their compaction.
pub(crate) fn empty(call: &mut dyn FnMut(Command) -> Result<Answer, StoreError>) -> Revision {
    let written = call(Command::Put(PutRequest::new("mark", "")));
    let deleted = call(Command::Delete(DeleteRequest::key("mark")));
    let (Ok(_), Ok(Answer::Delete(deleted))) = (written, deleted) else { panic!("the mark is not refused") };
    let revision = deleted.header.revision;
    call(Command::Compact(CompactRequest { revision, physical: true })).expect("the mark is compacted");
    revision
}

impl Side for Ours {
    fn call(&mut self, command: Command) -> Result<Answer, StoreError> {
        self.etcd.apply(command)
    }

    fn watch(&mut self, way: Way, request: WatchRequest) -> FirstWord {
        self.drain();
        if way == Way::Trait {
            let mut updates = self.etcd.watch(request);
            let first = updates.next().now_or_never().flatten().expect("the embedded etcd answers at once");
            let first = first.map_err(|error| error.to_string());
            if first.is_ok() {
                self.updates.insert(self.followed.len(), updates);
            }
            self.followed.push(Followed::by_trait(&first));
            return FirstWord::Trait(first);
        }
        self.control(way).create(request);
        let created = self.hear(way);
        self.followed.push(Followed::on_stream(way, &created));
        FirstWord::Stream(created)
    }

    fn cancel(&mut self, watch: usize) -> WatchResponse {
        self.drain();
        let Followed { way, id, .. } = self.followed[watch];
        self.control(way).cancel(id);
        let canceled = self.hear(way);
        deliver(&mut self.followed, way, canceled.clone());
        canceled
    }

    fn settle(&mut self, _expected: &[Told]) -> Option<Revision> {
        self.drain();
        if !is_steady(&self.followed) {
            return None;
        }
        self.control(Way::Steady).progress();
        let progress = self.hear(Way::Steady);
        assert_eq!(progress.watch_id, WatchId::new(-1), "progress of the whole stream");
        Some(progress.header.revision)
    }

    fn told(&self) -> Vec<Told> {
        self.followed.iter().map(|watch| watch.told.clone()).collect()
    }

    fn hang_up(&mut self) {
        self.streams.clear();
        self.updates.clear();
        self.followed.clear();
    }
}

/// For the tests of the comparison itself, which need no real etcd.
impl Reference for Ours {
    fn begin(&mut self, origin: Origin) -> Header {
        let revision = Revision::new(if origin == Origin::Fresh { 1 } else { 3 });
        *self = Self::begin(origin, Header { revision, ..self.etcd.header() });
        self.etcd.header()
    }

    fn restart(&mut self) {
        self.hang_up();
    }
}
