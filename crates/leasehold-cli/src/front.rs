//! At a terminal, the process that the shell minds. The stop key must stop it, or the shell would go on waiting; but a stopped
//! process renews no lease. So it does nothing else than to be stopped and continued: leasehold proper runs behind it, in a
//! process group of its own, is told of each signal that comes here, and keeps the lock while this is stopped.
//!
//! Whoever kills this kills what is behind it: the kernel sees to that. The command then has its guardian.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus};

use leasehold::LockName;
use leasehold::runtime::race;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::{Pid, getpid, getppid};
use tokio::signal::unix::{SignalKind, signal};

use crate::exit::{Code, Failure};
use crate::guardian::THIS_PROGRAM;
use crate::signals::Signals;
use crate::terminal::stop_here;

/// Stands before a leasehold with the same arguments, until that ends.
pub(crate) async fn stand(lock: &LockName) -> Result<Code, Failure> {
    let failed =
        |error: std::io::Error| Failure::machine(format!("lock {:?}: cannot start: {error}", lock.as_str()));
    let mut signals = Signals::catch_with_continuation()?;
    let mut children = signal(SignalKind::child()).map_err(failed)?;
    let mut args = std::env::args_os().skip(1);
    let verb = args.next().unwrap_or_else(|| OsString::from("run"));
    let mut proper = Command::new(THIS_PROGRAM);
    proper.arg0("leasehold").arg(verb).arg("--front").arg(getpid().to_string()).args(args).process_group(0);
    let mut proper = proper.spawn().map_err(failed)?;
    let id = i32::try_from(proper.id()).map(Pid::from_raw);
    let id = id.map_err(|_| Failure::machine("leasehold's process has no id"))?;
    loop {
        if let Some(ended) = proper.try_wait().map_err(failed)? {
            return ended_with(ended, lock);
        }
        let stopped = waitid(Id::Pid(id), WaitPidFlag::WSTOPPED | WaitPidFlag::WNOHANG);
        if matches!(stopped, Ok(WaitStatus::Stopped(..))) {
            // It has stopped itself while it waited for the lock, or somebody has stopped it: so is the job.
            stop_here();
        }
        if let futures_util::future::Either::Left(signal) = race(signals.next(), children.recv()).await {
            let _ = kill(id, signal);
        }
    }
}

fn ended_with(ended: ExitStatus, lock: &LockName) -> Result<Code, Failure> {
    let code = Code::of_status(ended);
    match ended.code() {
        // It has said why.
        Some(_) => Ok(code),
        None => Err(Failure::new(
            code,
            format!(
                "lock {:?}: leasehold was killed; if the command ran, its guardian ends it",
                lock.as_str()
            ),
        )),
    }
}

/// Has this process killed when the one before it dies. False if that has happened already.
pub(crate) fn stay_behind(front: i32) -> bool {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL).is_ok() && getppid().as_raw() == front
}
