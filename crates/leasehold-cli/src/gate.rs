//! The gate before the command. Between the making of its process and the moment its number is known to the guardian,
//! nobody would end the command if leasehold were killed. So the process is made first, and becomes the command when it is
//! told to, by which time it is guarded; if leasehold dies before that, it ends.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};

use crate::child::not_started;
use crate::exit::{Code, Failure};
use crate::guardian::THIS_PROGRAM;

/// The gate, from leasehold's side. Dropping it unopened ends who waits there.
#[derive(Debug)]
#[must_use = "the command waits until this is opened"]
pub(crate) struct Gate(OwnedFd);

/// A process's way to the gate, handed to it as it starts.
#[derive(Debug)]
pub(crate) struct Way(OwnedFd);

impl Gate {
    pub(crate) fn make() -> io::Result<(Self, Way)> {
        let (way, gate) = nix::unistd::pipe2(OFlag::O_CLOEXEC)?;
        Ok((Self(gate), Way(way)))
    }

    /// Lets the command begin. That nobody waits there any more is no failure: it is seen to have ended.
    pub(crate) fn open(self) {
        let _ = nix::unistd::write(&self.0, b"!");
    }
}

impl Way {
    /// A process that will be the command once the gate opens. The next process to be started inherits the way: it must be
    /// this one, after which the way is dropped.
    pub(crate) fn command(&self, command: &[OsString]) -> io::Result<Command> {
        fcntl(&self.0, FcntlArg::F_SETFD(FdFlag::empty()))?;
        let mut waiting = Command::new(THIS_PROGRAM);
        waiting.arg0("leasehold").args(["at-gate", "--way"]).arg(self.0.as_raw_fd().to_string());
        waiting.arg("--").args(command);
        Ok(waiting)
    }
}

/// Waits at the gate, then becomes the command. Returns only if that fails.
pub(crate) fn pass(way: i32, command: &[OsString]) -> Result<Code, Failure> {
    let failed = |error: io::Error| Failure::machine(format!("cannot start the command: {error}"));
    // The number is all there is to go by, and only a file that was opened here can be read.
    let mut gate = File::open(format!("/proc/self/fd/{way}")).map_err(failed)?;
    nix::unistd::close(way).map_err(|errno| failed(errno.into()))?;
    let opened = gate.read(&mut [0]).map_err(failed)? > 0;
    drop(gate);
    match command {
        [program, args @ ..] if opened => Err(not_started(program, &Command::new(program).args(args).exec())),
        // Leasehold has died, or changed its mind, and has said so itself.
        _ => Ok(Code::LOST),
    }
}
