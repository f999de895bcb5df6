//! The command: found before the lock is taken, run in a process group of its own, and ended as a group.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;

use leasehold::Guard;
use leasehold::runtime::{Instant, Runtime};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{AccessFlags, Pid, access};
use tokio::process::{Child, Command};

use crate::exit::{Code, Failure};
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
    ended: Option<ExitStatus>,
}

impl Group {
    /// Starts the command under the lock. What it is told of the lock is set last, so that a nested lock's values win
    /// over those it inherits.
    pub(crate) fn start(command: &[OsString], guard: &Guard) -> Result<Self, Failure> {
        let [program, args @ ..] = command else { return Err(Failure::usage("no command is given")) };
        let mut starting = std::process::Command::new(program);
        starting
            .args(args)
            .env("ETCD_LOCK_KEY", guard.key().to_string())
            .env("ETCD_LOCK_REV", guard.grant_revision().get().to_string())
            .env("LEASEHOLD_TOKEN", guard.token().to_string())
            .process_group(0);
        let child = Command::from(starting).spawn().map_err(|error| not_started(program, &error))?;
        let id = child.id().and_then(|id| i32::try_from(id).ok()).map(Pid::from_raw);
        let id = id.ok_or_else(|| Failure::machine("the command's process has no id"))?;
        Ok(Self { child, id, ended: None })
    }

    pub(crate) fn id(&self) -> Pid {
        self.id
    }

    /// Waits for the command itself.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    pub(crate) async fn wait(&mut self) -> Result<ExitStatus, Failure> {
        if let Some(ended) = self.ended {
            return Ok(ended);
        }
        let ended = self.child.wait().await;
        let ended =
            ended.map_err(|error| Failure::machine(format!("cannot wait for the command: {error}")))?;
        Ok(*self.ended.insert(ended))
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

    fn is_gone(&self) -> bool {
        killpg(self.id, None) == Err(Errno::ESRCH)
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
        while runtime.now() < at {
            let look = at.min(runtime.now() + LOOK);
            // Until the command is waited for it stays in its group.
            let ended =
                self.ended.is_some() || matches!(before(runtime, look, self.wait()).await, Some(Ok(_)));
            if ended && self.is_gone() {
                return true;
            }
            runtime.sleep_until(look).await;
        }
        false
    }
}

fn not_started(program: &OsStr, error: &io::Error) -> Failure {
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
