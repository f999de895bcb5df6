//! The command: found before the lock is taken, run in a process group of its own, and ended as a group.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::time::Duration;

use leasehold::Guard;
use leasehold::runtime::{Instant, Runtime};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{AccessFlags, Pid, access};
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::exit::{Code, Failure};
use crate::gate::Gate;
use leasehold::runtime::before;

/// How often an ending group is looked at: the kernel tells of a group's last process to nobody.
const LOOK: Duration = Duration::from_millis(10);

/// How long after KILL a group may take to be gone. More means a process that the kernel will not let go.
const REAP: Duration = Duration::from_secs(2);

/// Looks for the command as `execvp` will, so that a typing error never takes a lock.
pub(crate) fn find(command: &OsStr) -> Result<(), Failure> {
    let shown = command.to_string_lossy();
    let found = if command.as_bytes().contains(&b'/') {
        look(Path::new(command))
    } else {
        let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from("/bin:/usr/bin"));
        // As shells do: what is found and cannot be executed is told only if nothing better comes.
        let looks = std::env::split_paths(&path).map(|folder| look(&folder.join(command)));
        looks.reduce(Found::better).unwrap_or(Found::Nothing)
    };
    match found {
        Found::Program => Ok(()),
        Found::NotExecutable(path) => Err(Failure::new(
            Code::NOT_EXECUTABLE,
            format!("{shown:?} cannot be executed: {} is no program, or may not be run", path.display()),
        )),
        Found::Nothing => Err(Failure::new(Code::NOT_FOUND, format!("{shown:?}: command not found"))),
    }
}

#[derive(Debug)]
enum Found {
    Nothing,
    NotExecutable(PathBuf),
    Program,
}

impl Found {
    fn better(self, other: Self) -> Self {
        match (&self, &other) {
            (Self::Program, _) | (_, Self::Nothing) | (Self::NotExecutable(_), Self::NotExecutable(_)) => {
                self
            }
            _ => other,
        }
    }
}

fn look(path: &Path) -> Found {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Found::NotExecutable(path.into()),
        Err(_) => Found::Nothing,
        Ok(file) if file.is_file() && access(path, AccessFlags::X_OK).is_ok() => Found::Program,
        Ok(_) => Found::NotExecutable(path.into()),
    }
}

/// The running command and all that belongs to its process group.
#[derive(Debug)]
pub(crate) struct Group {
    child: Child,
    id: Pid,
    children: Stream,
    ended: Option<ExitStatus>,
}

impl Group {
    /// Makes the command's process, in a group of its own: it waits at the gate, and becomes the command when that is
    /// opened. What it is told of the lock is set last, so that a nested lock's values win over those it inherits.
    pub(crate) fn start(command: &[OsString], guard: &Guard) -> Result<(Self, Gate), Failure> {
        let failed = |error: io::Error| Failure::machine(format!("cannot start the command: {error}"));
        let children = signal(SignalKind::child()).map_err(failed)?;
        let (gate, way) = Gate::make().map_err(failed)?;
        let mut starting = way.command(command).map_err(failed)?;
        starting
            .env("ETCD_LOCK_KEY", guard.key().to_string())
            .env("ETCD_LOCK_REV", guard.grant_revision().get().to_string())
            .env("LEASEHOLD_TOKEN", guard.token().to_string())
            .process_group(0);
        let child = starting.spawn().map_err(failed)?;
        let id = i32::try_from(child.id()).map(Pid::from_raw);
        let id = id.map_err(|_| Failure::machine("the command's process has no id"))?;
        Ok((Self { child, id, children, ended: None }, gate))
    }

    pub(crate) fn id(&self) -> Pid {
        self.id
    }

    /// Waits for the end of the command itself, and leaves it as it is: until it is [reaped](Group::reap) its number, which
    /// is the group's, is nobody else's.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    pub(crate) async fn ended(&mut self) {
        while !self.has_ended() {
            self.children.recv().await;
        }
    }

    fn has_ended(&self) -> bool {
        let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT | WaitPidFlag::WNOHANG;
        // An error is an end, too: by a signal that has no name here, or reaped before.
        self.ended.is_some() || waitid(Id::Pid(self.id), look) != Ok(WaitStatus::StillAlive)
    }

    /// How the command ended, if it has.
    pub(crate) fn reap(&mut self) -> Result<Option<ExitStatus>, Failure> {
        if self.ended.is_none() {
            let ended = self.child.try_wait();
            self.ended =
                ended.map_err(|error| Failure::machine(format!("cannot wait for the command: {error}")))?;
        }
        Ok(self.ended)
    }

    /// Sends a signal to all of the group. That nobody is left to get it is no failure.
    pub(crate) fn signal(&self, signal: Signal) {
        match killpg(self.id, signal) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(error) => crate::notice::tell(&format!("cannot send {signal} to the command: {error}")),
        }
    }

    /// The signal that has stopped the command, told once for each stop.
    pub(crate) fn stopped(&self) -> Option<Signal> {
        match waitid(Id::Pid(self.id), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG) {
            Ok(WaitStatus::Stopped(_, signal)) => Some(signal),
            _ => None,
        }
    }

    /// Ends the group: TERM now, unless `kill_at` is past, and KILL then. Says whether all of it is gone.
    pub(crate) async fn end(&mut self, runtime: &dyn Runtime, kill_at: Instant) -> bool {
        if runtime.now() < kill_at {
            self.signal(Signal::SIGTERM);
            // A stopped process takes its TERM when it goes on.
            self.signal(Signal::SIGCONT);
            if self.is_gone_by(runtime, kill_at).await {
                return true;
            }
        }
        self.signal(Signal::SIGKILL);
        self.is_gone_by(runtime, runtime.now() + REAP).await
    }

    async fn is_gone_by(&mut self, runtime: &dyn Runtime, at: Instant) -> bool {
        loop {
            // Until the command is waited for it stays in its group.
            if self.reap().is_ok_and(|ended| ended.is_some()) && is_gone(self.id) {
                return true;
            }
            let now = runtime.now();
            if now >= at {
                return false;
            }
            before(runtime, at.min(now + LOOK), self.children.recv()).await;
        }
    }
}

/// Whether nothing of a group runs any more. A process that has ended and was not waited for does not run, and may never be
/// waited for: in a container the first process often does not mind those it inherits.
pub(crate) fn is_gone(group: Pid) -> bool {
    if killpg(group, None) == Err(Errno::ESRCH) {
        return true;
    }
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let names = processes.flatten().map(|process| process.file_name());
    let mut pids = names.filter_map(|name| name.to_str()?.parse().ok());
    !pids.any(|pid| Stat::of(pid).is_some_and(|stat| stat.group() == Some(group) && stat.runs()))
}

/// What the kernel tells of a process: `/proc/PID/stat`.
pub(crate) struct Stat(String);

impl Stat {
    pub(crate) fn of(pid: i32) -> Option<Self> {
        Some(Self(std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?))
    }

    /// A field by its number in proc(5), from the third on: before it stands the name, which may hold anything.
    fn field(&self, number: usize) -> Option<&str> {
        self.0.rsplit_once(") ")?.1.split(' ').nth(number - 3)
    }

    fn runs(&self) -> bool {
        !matches!(self.field(3), Some("Z" | "X"))
    }

    fn group(&self) -> Option<Pid> {
        self.field(5)?.parse().ok().map(Pid::from_raw)
    }

    /// When it began, in whatever the kernel counts.
    pub(crate) fn began(&self) -> Option<&str> {
        self.field(22)
    }
}

/// Why what was to be the command is none.
pub(crate) fn not_started(program: &OsStr, error: &io::Error) -> Failure {
    let code = match error.kind() {
        io::ErrorKind::NotFound => Code::NOT_FOUND,
        _ => Code::NOT_EXECUTABLE,
    };
    Failure::new(code, format!("{:?} cannot be executed: {error}", program.to_string_lossy()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_of_which_nobody_was_waited_for_is_gone() {
        let mut ended = std::process::Command::new("sh")
            .args(["-c", "exec sleep 1000"])
            .process_group(0)
            .spawn()
            .unwrap();
        let group = Pid::from_raw(i32::try_from(ended.id()).unwrap());
        assert!(!is_gone(group));
        killpg(group, Signal::SIGKILL).unwrap();
        waitid(Id::Pid(group), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
        assert_eq!(killpg(group, None), Ok(()), "its number is still taken");
        assert!(is_gone(group));
        ended.wait().unwrap();
        assert!(is_gone(group));
    }

    #[test]
    fn a_command_is_looked_for_as_shells_do() {
        for (command, code) in [
            ("sh", None),
            ("/bin/sh", None),
            ("no-such-command-anywhere", Some(Code::NOT_FOUND)),
            ("/no/such/command", Some(Code::NOT_FOUND)),
            ("", Some(Code::NOT_EXECUTABLE)),
            ("/", Some(Code::NOT_EXECUTABLE)),
            ("/etc/passwd", Some(Code::NOT_EXECUTABLE)),
            ("/etc/passwd/x", Some(Code::NOT_FOUND)),
        ] {
            assert_eq!(find(OsStr::new(command)).err().map(|failure| failure.code), code, "{command:?}");
        }
    }
}
