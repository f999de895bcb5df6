//! The server behind `--local`: begins when no other is there, leaves when nobody needs it.

use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use futures_util::future::Either;
use leasehold::Embedded;
use leasehold::runtime::Runtime;
use leasehold_server::{Activity, BindError, Server};
use nix::fcntl::{Flock, FlockArg};

use super::folder::Folder;
use super::{READY, TRY};
use crate::duration::Span;
use crate::exit::{Code, Failure};
use crate::floor::Floor;
use crate::serve::embedded;
use crate::signals::Signals;
use leasehold::runtime::race;

/// How long the server stays without anybody to serve, if not a minute; for tests.
pub(crate) const IDLE: &str = "LEASEHOLD_LOCAL_IDLE";

/// How long to wait for the commands of a server that crashed: as long as the longest of them may take to stop.
const PATIENCE: Duration = Duration::from_secs(30);

/// Serves from a folder until there is nobody left to serve.
pub(crate) async fn serve(path: &Path) -> Result<Code, Failure> {
    // Out of the session of the command that started it: its terminal and its signals are none of the server's.
    let _ = nix::unistd::setsid();
    let _ = std::env::set_current_dir("/");
    let outcome = begin(path).await;
    match &outcome {
        Ok(_) => say(READY),
        Err(failure) => say(&failure.message),
    }
    let Some(office) = outcome? else { return Ok(Code::SUCCESS) };
    office.serve().await
}

/// Says one line to whoever started this, and closes the line: it is not held up by it any more.
fn say(line: &str) {
    let mut stdout = std::io::stdout();
    let _ = writeln!(stdout, "{line}").and_then(|()| stdout.flush());
    if let Ok(nothing) = File::options().write(true).open("/dev/null") {
        let _ = nix::unistd::dup2_stdout(nothing);
    }
}

/// All that makes one server the user's etcd.
#[derive(Debug)]
struct Office {
    folder: Folder,
    server: Server,
    etcd: Embedded,
    floor: Floor,
    idle: Duration,
    /// Held as long as this process lives.
    _alive: Flock<File>,
}

/// Becomes the user's etcd, unless there is one by the time it can.
async fn begin(path: &Path) -> Result<Option<Office>, Failure> {
    let folder = Folder::at(path)?;
    let idle = idle()?;
    let clock = leasehold::runtime::SystemRuntime::shared();
    let clock = clock.map_err(|error| Failure::of_library("the etcd of --local", &error))?;
    let until = clock.now() + PATIENCE;
    let mut reserved = None;
    loop {
        if UnixStream::connect(folder.socket()).is_ok() {
            return Ok(None);
        }
        // Nobody else begins or leaves, and no command of an earlier server is left that could still hold a lock.
        if let Some(_alone) = folder.lock("users.lock", FlockArg::LockExclusiveNonblock)?
            && let Some(alive) = folder.lock("alive.lock", FlockArg::LockExclusiveNonblock)?
        {
            let floor = reserved.take().map_or_else(|| Floor::reserve(&folder.floor()), Ok)?;
            let etcd = embedded(&floor)?;
            match Server::bind(folder.socket(), etcd.clone()).await {
                Ok(server) => return Ok(Some(Office { folder, server, etcd, floor, idle, _alive: alive })),
                // Some program that is no server of ours listens there; it may leave.
                Err(BindError { cause, .. }) if cause.kind() == std::io::ErrorKind::AddrInUse => {
                    reserved = Some(floor);
                }
                Err(error) => return Err(Failure::machine(error.to_string())),
            }
        }
        if clock.now() >= until {
            let why = "an earlier one has ended, and a command that may still hold its lock has not; end that first";
            return Err(Failure::new(Code::UNREACHABLE, why));
        }
        clock.sleep_until(clock.now() + TRY).await;
    }
}

fn idle() -> Result<Duration, Failure> {
    let refused = |why: String| Failure::usage(format!("{IDLE}: {why}"));
    match std::env::var(IDLE) {
        Ok(text) => text.parse().map(|Span(idle)| idle).map_err(refused),
        Err(_) => Ok(Duration::from_secs(60)),
    }
}

impl Office {
    async fn serve(self) -> Result<Code, Failure> {
        let Self { folder, server, etcd, mut floor, idle, _alive } = self;
        let mut signals = Signals::catch()?;
        let activity = server.activity();
        let mut gate = None;
        let mut failed = None;
        let end = async {
            let nobody = nobody_left(&folder, activity, idle);
            match race(nobody, race(signals.end(), floor.keep(&etcd))).await {
                Either::Left(alone) => gate = Some(alone),
                Either::Right(Either::Left(_signal)) => {}
                Either::Right(Either::Right(failure)) => failed = Some(failure),
            }
        };
        server.serve(end).await;
        floor.settle(etcd.revision());
        // Only now may another begin.
        drop(gate);
        failed.map_or(Ok(Code::SUCCESS), Err)
    }
}

/// Ends when nobody has needed the server for `idle`, with the lock that keeps newcomers out until it has left.
async fn nobody_left(folder: &Folder, activity: Activity, idle: Duration) -> Result<Flock<File>, Failure> {
    loop {
        activity.clone().idle_for(idle).await;
        if let Some(alone) = folder.lock("users.lock", FlockArg::LockExclusiveNonblock)?
            && activity.is_idle()
        {
            return Ok(alone);
        }
    }
}
