//! Who owns the terminal. The command has a process group of its own, and only one group at a time may read a terminal:
//! so it is lent to the command, and taken back.

use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::time::Duration;

use leasehold::runtime::Runtime;
use nix::sys::signal::{SigSet, Signal, kill, killpg};
use nix::unistd::{Pid, getpgid, getpgrp, getpid, getppid, getsid, tcgetpgrp, tcsetpgrp};

use crate::child::Group;
use crate::signals::Signals;

/// Long enough for a stop of this process to take hold: whatever runs after the pause runs after the process was
/// continued.
const SETTLE: Duration = Duration::from_millis(20);

/// The job that the shell knows: the process group it gives the terminal to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    group: Pid,
    /// The process that stands before this one, and is stopped in its place.
    front: Option<Pid>,
}

impl Job {
    /// That of this process, or of the one before it.
    pub(crate) fn of(front: Option<i32>) -> Self {
        let front = front.map(Pid::from_raw);
        let group = front.and_then(|front| getpgid(Some(front)).ok()).unwrap_or_else(getpgrp);
        Self { group, front }
    }

    /// Whether standard input is a terminal that belongs to the job.
    fn has_the_terminal(self) -> bool {
        let stdin = std::io::stdin();
        stdin.is_terminal() && tcgetpgrp(stdin.as_fd()) == Ok(self.group)
    }
}

/// The terminal at standard input, if there is one, and whether the command has it.
#[derive(Debug)]
pub(crate) struct Terminal {
    job: Job,
    lent: bool,
    /// While the job is stopped and this process is not: whether the command had the terminal.
    suspended: Option<bool>,
}

impl Terminal {
    /// Lends the terminal to a command that has just started, if it is this job's alone: if standard output or error
    /// goes elsewhere, a pager or another part of the pipeline may need it more. A command that turns out to need it gets
    /// it then, see [`Terminal::stopped`].
    pub(crate) fn lend_to(group: &Group, job: Job) -> Self {
        let mut terminal = Self { job, lent: false, suspended: None };
        if std::io::stdout().is_terminal() && std::io::stderr().is_terminal() && job.has_the_terminal() {
            terminal.lend(group);
        }
        terminal
    }

    /// The command was stopped by `signal`. Either it needs the terminal, and gets it; or the user stopped the job, and
    /// then the process that the shell minds stops too, as it expects, until the job is continued. If that is this one, it
    /// returns then, and the caller must look whether the lock is still held before it lets the command go on.
    pub(crate) async fn stopped(
        &mut self,
        signal: Signal,
        runtime: &dyn Runtime,
        signals: &mut Signals,
    ) -> Stop {
        match signal {
            Signal::SIGTTIN | Signal::SIGTTOU if self.job.has_the_terminal() => Stop::NeedsTerminal,
            Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU => {
                let had_it = self.take_back();
                signals.drain(Signal::SIGCONT);
                if had_it {
                    // The terminal told the command only; the rest of the job stops too.
                    let _ = killpg(self.job.group, Signal::SIGTSTP);
                }
                if let Some(front) = self.job.front {
                    let _ = kill(front, Signal::SIGSTOP);
                    self.suspended = Some(had_it);
                    return Stop::Meant;
                }
                stop_here();
                self.settled(had_it, runtime, signals).await
            }
            // By somebody's own hand, who will continue it.
            _ => Stop::Meant,
        }
    }

    /// Whether the job is stopped, and this process is not.
    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended.is_some()
    }

    /// The job was continued.
    pub(crate) async fn continued(&mut self, runtime: &dyn Runtime, signals: &mut Signals) -> Stop {
        match self.suspended.take() {
            Some(had_it) => self.settled(had_it, runtime, signals).await,
            None => Stop::Meant,
        }
    }

    /// What to do once the job goes on, and what told it to stop has been forgotten.
    async fn settled(&self, had_it: bool, runtime: &dyn Runtime, signals: &mut Signals) -> Stop {
        runtime.sleep_until(runtime.now() + SETTLE).await;
        signals.drain(Signal::SIGTSTP);
        if had_it && self.job.has_the_terminal() { Stop::NeedsTerminal } else { Stop::Over }
    }

    /// Makes the command's group the terminal's.
    pub(crate) fn lend(&mut self, group: &Group) {
        self.lent = give_to(group.id());
        if self.lent {
            // It may have asked too early, and been stopped for it.
            group.signal(Signal::SIGCONT);
        }
    }

    /// Takes the terminal back from a command that ended or was stopped. Says whether it had it.
    pub(crate) fn take_back(&mut self) -> bool {
        let lent = std::mem::take(&mut self.lent);
        if lent {
            give_to(self.job.group);
        }
        lent
    }
}

/// What to do about a command that was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Lend it the terminal and continue it.
    NeedsTerminal,
    /// Continue it.
    Over,
    /// Leave it.
    Meant,
}

/// Stops this process, as the terminal's stop key would have, unless there is nobody to continue it.
pub(crate) fn stop_here() {
    if is_minded() {
        let _ = kill(getpid(), Signal::SIGSTOP);
    }
}

/// Whether the shell of a terminal may want to stop this process.
pub(crate) fn is_under_job_control() -> bool {
    let at_terminal =
        std::io::stdin().is_terminal() || std::io::stdout().is_terminal() || std::io::stderr().is_terminal();
    at_terminal && is_minded()
}

/// Whether there is somebody who may continue this process if it is stopped.
fn is_minded() -> bool {
    let parent = getppid();
    parent.as_raw() > 1 && getsid(Some(parent)) == getsid(None)
}

/// Makes a group the terminal's. A group that the terminal does not belong to is stopped for trying, unless it blocks
/// that signal.
fn give_to(group: Pid) -> bool {
    let ttou = SigSet::from(Signal::SIGTTOU);
    let Ok(before) = ttou.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK) else { return false };
    let given = tcsetpgrp(std::io::stdin().as_fd(), group).is_ok();
    let _ = before.thread_set_mask();
    given
}
