//! The revisions an embedded etcd must not give out twice.
//!
//! Its data lives in memory, yet a fencing token must be above all earlier ones, those from before a restart included.
//! So a file holds a *floor*: no revision at or above it was ever given out. It is raised on disk well before revisions
//! reach it, a large step at a time; a server that crashes wastes the rest of its step, and none comes twice.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use leasehold::etcd::Etcd;
use leasehold::{Embedded, Revision};
use nix::fcntl::{Flock, FlockArg};

use crate::exit::Failure;
use crate::notice;

/// How many revisions are reserved at a time: minutes of the fastest store there is.
const STEP: i64 = 10_000_000;

/// How often to look whether the next step is due: within it less than a quarter of a step can be used up.
const LOOK: Duration = Duration::from_secs(1);

/// The line in the file, before the number.
const HEADING: &str = "leasehold revision floor v1: ";

/// A range of revisions that belongs to this server.
#[derive(Debug)]
pub(crate) struct Floor {
    path: PathBuf,
    first: i64,
    ceiling: i64,
}

impl Floor {
    /// Reserves the first step above everything that was given out under this path. Without a file the floor is the time
    /// of day in milliseconds: it lies above what an earlier file held if that went with its folder, as the runtime
    /// folder does at a restart of the machine.
    pub(crate) fn reserve(path: &Path) -> Result<Self, Failure> {
        let today = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        Self::reserve_from(path, i64::try_from(today).unwrap_or(1).max(1))
    }

    fn reserve_from(path: &Path, without_file: i64) -> Result<Self, Failure> {
        let mut first = 0;
        let ceiling = update(path, |floor| {
            first = floor.unwrap_or(without_file);
            first.saturating_add(STEP)
        });
        let ceiling = ceiling.map_err(|error| unusable(path, &error))?;
        Ok(Self { path: path.into(), first, ceiling })
    }

    /// The revision to begin with.
    pub(crate) fn first(&self) -> Revision {
        Revision::new(self.first)
    }

    /// Raises the floor in time, for as long as the etcd runs. Ends only if it cannot be raised any more and the etcd must
    /// not go on.
    pub(crate) async fn keep(&mut self, etcd: &Embedded) -> Failure {
        let runtime = etcd.runtime();
        let mut warned = false;
        loop {
            runtime.sleep_until(runtime.now() + LOOK).await;
            if let Err(error) = self.raise(etcd.revision()) {
                let failure = unusable(&self.path, &error);
                if self.left(etcd.revision()) < STEP / 4 {
                    return failure;
                }
                if !std::mem::replace(&mut warned, true) {
                    notice::tell(&format!("{}; trying again", failure.message));
                }
            }
        }
    }

    /// Reserves a further step if less than half of one is left above `revision`.
    fn raise(&mut self, revision: Revision) -> io::Result<()> {
        if self.left(revision) < STEP / 2 {
            let wanted = revision.get().saturating_add(STEP);
            self.ceiling = update(&self.path, |floor| floor.unwrap_or(0).max(wanted))?;
        }
        Ok(())
    }

    fn left(&self, revision: Revision) -> i64 {
        self.ceiling.saturating_sub(revision.get())
    }

    /// Gives back what was reserved and not used, at a good end: `last` was the last revision given out. Only for a floor
    /// that one server at a time has. If it fails nothing is lost but numbers.
    pub(crate) fn settle(self, last: Revision) {
        let _ = update(&self.path, |_| last.next().get());
    }
}

fn unusable(path: &Path, error: &io::Error) -> Failure {
    let what_to_do = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "; free some space there",
        _ => "",
    };
    Failure::machine(format!("the revision floor {}: {error}{what_to_do}", path.display()))
}

/// Replaces the floor by one step that is either whole or not there, and safe on disk when this returns. Servers that
/// share the file do so one after the other.
fn update(path: &Path, next: impl FnOnce(Option<i64>) -> i64) -> io::Result<i64> {
    let lock = OpenOptions::new().create(true).append(true).open(path.with_extension("lock"))?;
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, errno)| io::Error::from(errno))?;
    let floor = match fs::read_to_string(path) {
        Ok(text) => Some(read(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let next = next(floor);
    if floor != Some(next) {
        let fresh = path.with_extension("new");
        let mut file = File::create(&fresh)?;
        writeln!(file, "{HEADING}{next}")?;
        file.sync_all()?;
        fs::rename(&fresh, path)?;
        // The new name, too, must be on disk.
        if let Some(folder) = path.parent() {
            File::open(folder)?.sync_all()?;
        }
    }
    Ok(next)
}

fn read(text: &str) -> io::Result<i64> {
    let floor = text
        .strip_prefix(HEADING)
        .and_then(|number| number.trim_end().parse().ok())
        .filter(|&floor| floor > 0);
    floor.ok_or_else(|| {
        let hint = "it holds something else than a floor; remove it only if no token of this etcd is in use any more";
        io::Error::new(io::ErrorKind::InvalidData, hint)
    })
}

#[cfg(test)]
mod tests {
    use leasehold_testbed::Scratch;

    use super::*;

    fn crash(floor: Floor) {
        drop(floor);
    }

    #[test]
    fn a_server_that_crashed_is_followed_by_one_above_all_it_may_have_given_out() {
        let folder = Scratch::new("floor");
        let path = folder.path().join("floor");
        let first = Floor::reserve_from(&path, 100).unwrap();
        assert_eq!(first.first().get(), 100);
        let ceiling = first.ceiling;
        crash(first);
        let second = Floor::reserve_from(&path, 100).unwrap();
        assert!(second.first().get() >= ceiling);
    }

    #[test]
    fn a_server_that_ended_well_is_followed_by_one_just_above() {
        let folder = Scratch::new("floor");
        let path = folder.path().join("floor");
        Floor::reserve_from(&path, 100).unwrap().settle(Revision::new(123));
        assert_eq!(Floor::reserve_from(&path, 100).unwrap().first().get(), 124);
    }

    #[test]
    fn the_floor_is_raised_before_it_is_reached() {
        let folder = Scratch::new("floor");
        let path = folder.path().join("floor");
        let mut floor = Floor::reserve_from(&path, 1).unwrap();
        let mut last = 1;
        for _ in 0..10 {
            last += STEP / 3;
            assert!(last < floor.ceiling, "a revision above the floor");
            floor.raise(Revision::new(last)).unwrap();
            assert!(read(&fs::read_to_string(&path).unwrap()).unwrap() > last);
        }
    }

    #[test]
    fn servers_that_share_a_floor_leave_it_above_each_of_them() {
        let folder = Scratch::new("floor");
        let path = folder.path().join("floor");
        let mut first = Floor::reserve_from(&path, 1).unwrap();
        let second = Floor::reserve_from(&path, 1).unwrap();
        assert!(second.first().get() >= first.ceiling);
        first.raise(Revision::new(first.ceiling - 1)).unwrap();
        let third = Floor::reserve_from(&path, 1).unwrap();
        assert!(third.first().get() >= second.ceiling.max(first.ceiling));
    }

    #[test]
    fn a_file_that_is_no_floor_is_refused_and_left_alone() {
        let folder = Scratch::new("floor");
        let path = folder.path().join("floor");
        for text in ["", "17", "leasehold revision floor v1: -3", "leasehold revision floor v1: x"] {
            fs::write(&path, text).unwrap();
            let refusal = Floor::reserve_from(&path, 1).unwrap_err();
            assert!(refusal.message.contains("remove it only if"), "{}", refusal.message);
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn a_fresh_floor_is_above_what_any_older_one_can_have_reached() {
        let folder = Scratch::new("floor");
        let floor = Floor::reserve(&folder.path().join("floor")).unwrap();
        assert!(floor.first().get() > 1_700_000_000_000);
        assert!(floor.first().get() < 1 << 47, "a token has 48 bits for the revision");
    }

    /// Without a floor on disk it goes on as long as what was reserved lasts, and not a revision longer.
    #[test]
    fn an_etcd_whose_floor_cannot_be_raised_any_more_ends_before_it_reaches_it() {
        let folder = Scratch::new("floor");
        let path = folder.path().join("gone/floor");
        fs::create_dir(folder.path().join("gone")).unwrap();
        leasehold_testbed::block_on(async {
            for (left, ends) in [(STEP / 4 - 1, true), (STEP / 4 + 1, false)] {
                let mut floor = Floor::reserve_from(&path, 1).unwrap();
                let first_revision = Revision::new(floor.ceiling - left);
                let store = leasehold::mvcc::StoreOptions { first_revision, ..Default::default() };
                let runtime = leasehold::runtime::SystemRuntime::shared().unwrap();
                let etcd = Embedded::new(runtime.clone(), leasehold::etcd::EmbeddedOptions { store });
                fs::remove_dir_all(folder.path().join("gone")).unwrap();
                let until = leasehold::runtime::Runtime::now(&*runtime) + LOOK * 2;
                let failure = leasehold::runtime::before(&*runtime, until, floor.keep(&etcd)).await;
                assert_eq!(
                    failure.map(|failure| failure.message.contains("gone/floor")),
                    ends.then_some(true)
                );
                fs::create_dir(folder.path().join("gone")).unwrap();
            }
        });
    }

    #[test]
    fn a_floor_that_cannot_be_written_is_told_by_its_name() {
        let refusal = Floor::reserve(Path::new("/proc/floor")).unwrap_err();
        assert!(refusal.message.contains("/proc/floor"), "{}", refusal.message);
    }
}
