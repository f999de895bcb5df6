//! Who owns the terminal. The command has a process group of its own, and only one group at a time may read a terminal:
//! so it is lent to the command, and taken back.

use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::time::Duration;

use leasehold::runtime::Runtime;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::{Pid, getpgrp, getpid, getppid, getsid, tcgetpgrp, tcsetpgrp};

use crate::child::Group;
use crate::signals::Signals;

/// Long enough for a stop of this process to take hold: whatever runs after the pause runs after the process was
/// continued.
const SETTLE: Duration = Duration::from_millis(20);

/// The terminal at standard input, if there is one, and whether the command has it.
#[derive(Debug, Default)]
pub(crate) struct Terminal {
    lent: bool,
}

impl Terminal {
    /// Lends the terminal to a command that has just started, if it is this program's alone: if standard output or error
    /// goes elsewhere, a pager or another part of the pipeline may need it more. A command that turns out to need it gets
    /// it then, see [`Terminal::stopped`].
    pub(crate) fn lend_to(group: &Group) -> Self {
        let mut terminal = Self::default();
        if std::io::stdout().is_terminal() && std::io::stderr().is_terminal() && is_ours() {
            terminal.lend(group);
        }
        terminal
    }

    /// The command was stopped by `signal`. Either it needs the terminal, and gets it; or the user stopped the job, and
    /// then this program stops too, as its shell expects, until the job is continued. Returns once the command may go on;
    /// the caller must look whether the lock is still held before it lets it.
    pub(crate) async fn stopped(
        &mut self,
        signal: Signal,
        runtime: &dyn Runtime,
        signals: &mut Signals,
    ) -> Stop {
        match signal {
            Signal::SIGTTIN | Signal::SIGTTOU if is_ours() => Stop::NeedsTerminal,
            Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU => {
                let had_it = self.take_back();
                if had_it {
                    // The terminal told the command only; the rest of the job stops too.
                    let _ = kill(Pid::from_raw(0), Signal::SIGTSTP);
                }
                stop_here();
                runtime.sleep_until(runtime.now() + SETTLE).await;
                signals.drain(Signal::SIGTSTP);
                if had_it && is_ours() { Stop::NeedsTerminal } else { Stop::Over }
            }
            // By somebody's own hand, who will continue it.
            _ => Stop::Meant,
        }
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
            give_to(getpgrp());
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
    let parent = getppid();
    let minded = parent.as_raw() > 1 && getsid(Some(parent)) == getsid(None);
    if minded {
        let _ = kill(getpid(), Signal::SIGSTOP);
    }
}

/// Whether standard input is a terminal that belongs to this program's group.
fn is_ours() -> bool {
    let stdin = std::io::stdin();
    stdin.is_terminal() && tcgetpgrp(stdin.as_fd()) == Ok(getpgrp())
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
