//! Looking at locks without touching them: who holds them, who waits, and what else lies among their keys.
//!
//! What is seen was there at one revision. It may be over by the time it is read: these are words for people and for
//! monitors, and no proof of a hold.
//!
//! A lock `NAME` queues under the keys `NAME/…`, whatever client made them; [`Form`] tells these apart. A lock of one key
//! ([`DistributedLock`](crate::DistributedLock)) is the key `NAME` itself.
//!
//! ```
//! use leasehold::survey::{self, Form, Life};
//! use leasehold::{Embedded, Mutex, Session};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let etcd = Embedded::start()?;
//! let session = Session::open(etcd.clone()).await?;
//! let guard = Mutex::new(&session, "jobs/nightly".parse()?).lock().await?;
//!
//! let all = survey::locks(&etcd, "jobs/").await?;
//! assert_eq!(all.locks[0].name.to_string(), "jobs/nightly");
//! assert_eq!(all.locks[0].waiting, 0);
//!
//! let one = survey::lock(&etcd, &"jobs/nightly".parse()?).await?;
//! let holder = &one.queue[0];
//! assert_eq!((&holder.entry.key, holder.form), (guard.key(), Form::Attempt));
//! assert_eq!(holder.entry.who.as_ref().unwrap().pid, std::process::id());
//! assert!(matches!(survey::life(&etcd, holder.entry.lease).await?, Life::Left { .. }));
//! # Ok::<(), leasehold::Error>(())
//! # }).unwrap();
//! ```

mod form;
mod life;
mod pages;

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::StreamExt;
use leasehold_mvcc::{Key, KeyRange, KeyValue, LeaseId, Revision};

use crate::error::Result;
use crate::etcd::Etcd;
use crate::name::LockName;
use crate::queue::Entry;

pub use form::Form;
pub use life::{Life, life, lives};
pub(crate) use pages::{Tries, read};

/// How many leases are asked for at a time.
const AT_A_TIME: usize = 16;

/// No token is longer that a lock of one key is known by.
const LONGEST_TOKEN: usize = 1024;

/// All locks below a prefix, as of one revision.
///
/// See [`locks`] for an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// When this was so.
    pub revision: Revision,
    /// The locks, by their names.
    pub locks: Vec<Summary>,
}

/// One of many locks: its holder, and how many wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The lock's name. It is not always a [`LockName`]: other clients take any bytes.
    pub name: Key,
    /// Whoever is first. The value of a foreign key is left out.
    pub holder: Standing,
    /// How many stand behind the holder.
    pub waiting: usize,
    /// How many of all these, the holder included, are keys of some other kind: [`Form::Foreign`].
    pub foreign: usize,
    /// How many of all these, the holder included, hang on no lease and stay until somebody deletes them.
    pub detached: usize,
}

/// One lock as a whole, as of one revision.
///
/// See [`lock`] for an example.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// When this was so.
    pub revision: Revision,
    /// Who holds the lock and who waits for it, in the order in which they will get it. Whatever stands here is waited
    /// for, foreign keys too.
    pub queue: Vec<Standing>,
    /// The key that is the lock's name itself, if there is one: the lock of a
    /// [`DistributedLock`](crate::DistributedLock), or something else. The queue does not mind it.
    pub plain: Option<Standing>,
    /// How many keys there are of locks whose names begin with this one's and a slash. They have nothing to do with this
    /// lock here; but clients of Go's package and etcdctl wait for them too.
    pub nested: usize,
}

/// A key that stands in a lock's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The key, its rank, its lease, and who made it by his own account.
    pub entry: Entry,
    /// What made it, by its form.
    pub form: Form,
    /// What is written in it: nothing by Go's mutex and etcdctl, the proposal by an election, the token by a
    /// [`DistributedLock`](crate::DistributedLock).
    pub value: Bytes,
    /// How often the key was written; what a lock made is written once.
    pub version: i64,
}

impl Standing {
    fn new(kv: &KeyValue, form: Form) -> Self {
        Self { entry: Entry::read(kv), form, value: kv.value.clone(), version: kv.version }
    }
}

/// The locks whose names begin with `prefix`; an empty one means all.
///
/// A name counts as a lock's if at least one key below it is a lock's entry by its form, or if it is a key of its own that
/// looks like the lock of a [`DistributedLock`](crate::DistributedLock): written once, and alone on its lease. So keys of
/// other kinds are not taken for locks, and a lock on which only such a key lies is seen by [`lock`] alone.
///
/// It reads all keys that begin with the prefix, page by page: on a large store give one.
///
/// ```
/// use leasehold::{Embedded, EtcdExt, LeaseId, Mutex, Session, survey};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let etcd = Embedded::start()?;
/// let session = Session::open(etcd.clone()).await?;
/// let _guard = Mutex::new(&session, "a".parse()?).lock().await?;
/// etcd.put("a/settings", "on", LeaseId::NONE).await?;
/// etcd.put("b/settings", "on", LeaseId::NONE).await?;
///
/// let [a] = &survey::locks(&etcd, "").await?.locks[..] else { panic!("b is no lock") };
/// assert_eq!((a.name.to_string(), a.waiting, a.foreign, a.detached), ("a".into(), 1, 1, 1));
/// # Ok::<(), leasehold::Error>(())
/// # }).unwrap();
/// ```
///
/// # Errors
/// What kept etcd from answering; also that the history of one revision was compacted away under each of several tries.
///
/// # Cancel safety
/// It changes nothing.
pub async fn locks(etcd: &dyn Etcd, prefix: &str) -> Result<Survey> {
    let mut tries = Tries::default();
    loop {
        match locks_once(etcd, prefix).await {
            Err(error) if tries.again(&error) => {}
            read => return read,
        }
    }
}

/// One lock, with all that stands in its queue. A lock that nobody holds or waits for has an empty one: etcd keeps nothing
/// of it.
///
/// ```
/// use leasehold::{Embedded, Mutex, Session, survey};
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let etcd = Embedded::start()?;
/// let session = Session::open(etcd.clone()).await?;
/// let _outer = Mutex::new(&session, "a".parse()?).lock().await?;
/// let _inner = Mutex::new(&session, "a/b".parse()?).lock().await?;
///
/// let a = survey::lock(&etcd, &"a".parse()?).await?;
/// assert_eq!((a.queue.len(), a.nested), (1, 1));
/// assert!(survey::lock(&etcd, &"c".parse()?).await?.queue.is_empty());
/// # Ok::<(), leasehold::Error>(())
/// # }).unwrap();
/// ```
///
/// # Errors
/// As [`locks`].
///
/// # Cancel safety
/// It changes nothing.
pub async fn lock(etcd: &dyn Etcd, name: &LockName) -> Result<View> {
    let mut tries = Tries::default();
    loop {
        match lock_once(etcd, name).await {
            Err(error) if tries.again(&error) => {}
            read => return read.map_err(|error| error.of_lock(name.as_str())),
        }
    }
}

/// One try of [`locks`].
async fn locks_once(etcd: &dyn Etcd, prefix: &str) -> Result<Survey> {
    let mut kvs = Vec::new();
    let range = KeyRange::prefix(prefix.to_owned());
    let revision = read(etcd, range, Revision::ZERO, &mut |kv| kvs.push(slim(kv))).await?;
    let (queues, others) = sorted_into_queues(kvs, prefix.as_bytes());
    let mut locks = Vec::with_capacity(queues.len());
    for (name, mut queue) in queues {
        queue.sort_by_key(|kv| kv.create_revision);
        let Some(first) = queue.first() else { continue };
        locks.push(Summary {
            name,
            holder: Standing::new(first, Form::of(first)),
            waiting: queue.len() - 1,
            foreign: queue.iter().filter(|kv| Form::of(kv) == Form::Foreign).count(),
            detached: queue.iter().filter(|kv| kv.lease.is_none()).count(),
        });
    }
    for kv in alone_on_their_leases(etcd, others).await? {
        let (name, holder) = (kv.key.clone(), Standing::new(&kv, Form::Plain));
        locks.push(Summary { name, holder, waiting: 0, foreign: 0, detached: 0 });
    }
    locks.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Survey { revision, locks })
}

/// A key as it is kept while others are read: a copy, since a part of a page keeps the whole page, and without a value
/// that is not shown.
fn slim(kv: KeyValue) -> KeyValue {
    let is_shown = Form::of(&kv) != Form::Foreign || may_be_one_keys_lock(&kv);
    let value = if is_shown { Bytes::copy_from_slice(&kv.value) } else { Bytes::new() };
    KeyValue { key: Key::from(kv.key.as_bytes().to_vec()), value, ..kv }
}

/// Whether a `DistributedLock` may have made it: written once, on a lease, with a token.
fn may_be_one_keys_lock(kv: &KeyValue) -> bool {
    kv.version == 1 && !kv.lease.is_none() && (1..=LONGEST_TOKEN).contains(&kv.value.len())
}

/// One try of [`lock`].
async fn lock_once(etcd: &dyn Etcd, name: &LockName) -> Result<View> {
    let (mut own, mut nested) = (Vec::new(), 0);
    let mut take = |kv: KeyValue| {
        if name.owns(&kv.key) {
            own.push(Standing::new(&kv, Form::of(&kv)));
        } else {
            nested += 1;
        }
    };
    let revision = read(etcd, name.queue(), Revision::ZERO, &mut take).await?;
    own.sort_by_key(|one| one.entry.create_revision);
    let mut plain = None;
    let itself = KeyRange::key(name.as_str().to_owned());
    read(etcd, itself, revision, &mut |kv| plain = Some(Standing::new(&kv, Form::Plain))).await?;
    Ok(View { revision, queue: own, plain, nested })
}

/// The keys by the locks in whose queues they stand, and those that stand in none.
fn sorted_into_queues(kvs: Vec<KeyValue>, prefix: &[u8]) -> (BTreeMap<Key, Vec<KeyValue>>, Vec<KeyValue>) {
    let mut groups: BTreeMap<Key, Vec<KeyValue>> = BTreeMap::new();
    let mut others = Vec::new();
    for kv in kvs {
        match form::name_of(&kv) {
            Some(name) if name.starts_with(prefix) => {
                groups.entry(Key::from(name.to_vec())).or_default().push(kv);
            }
            // It stands in the queue of a lock that was not asked for.
            Some(_) if Form::of(&kv) != Form::Foreign => {}
            _ => others.push(kv),
        }
    }
    let is_lock = |group: &[KeyValue]| group.iter().any(|kv| Form::of(kv) != Form::Foreign);
    let (queues, no_queues): (BTreeMap<_, _>, BTreeMap<_, _>) =
        groups.into_iter().partition(|(_, group)| is_lock(group));
    others.extend(no_queues.into_values().flatten());
    (queues, others)
}

/// Those that a `DistributedLock` may have made, and that are alone on their lease.
async fn alone_on_their_leases(etcd: &dyn Etcd, kvs: Vec<KeyValue>) -> Result<Vec<KeyValue>> {
    let mut on_lease: BTreeMap<LeaseId, Vec<KeyValue>> = BTreeMap::new();
    for kv in kvs.into_iter().filter(may_be_one_keys_lock) {
        on_lease.entry(kv.lease).or_default().push(kv);
    }
    let (mut leases, mut candidates) = (Vec::new(), Vec::new());
    for (lease, mut kvs) in on_lease {
        if let (Some(kv), true) = (kvs.pop(), kvs.is_empty()) {
            leases.push(lease);
            candidates.push(kv);
        }
    }
    let asked = leases.into_iter().map(|lease| etcd.lease_time_to_live(lease, true));
    let mut answers = futures_util::stream::iter(asked).buffered(AT_A_TIME);
    let mut alone = Vec::new();
    for kv in candidates {
        match answers.next().await {
            Some(Ok(answer)) if answer.keys.as_slice() == std::slice::from_ref(&kv.key) => alone.push(kv),
            // Not to be told what else hangs there means that something does.
            Some(Err(error)) if error.refusal().is_none() => return Err(error),
            _ => {}
        }
    }
    Ok(alone)
}
