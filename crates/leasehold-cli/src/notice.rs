//! What is told on standard error: one line each, with the program's name before it, so that it can be told from the
//! command's own words.

use std::io::Write;

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

use crate::exit::Failure;

/// Says why the program ends.
pub(crate) fn failure(failure: &Failure) {
    tell(&failure.message);
}

/// Says something. That standard error is closed is no reason to fail.
pub(crate) fn tell(message: &str) {
    let line: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    // At a terminal that is set so (`stty tostop`), whoever writes without having it is stopped, unless it blocks that.
    let before = SigSet::from(Signal::SIGTTOU).thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let _ = writeln!(std::io::stderr(), "leasehold: {line}");
    let _ = before.and_then(|before| before.thread_set_mask());
}

/// Tells what happens step by step, if that was asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Steps {
    verbose: bool,
}

impl Steps {
    pub(crate) fn new(verbose: bool) -> Self {
        Self { verbose }
    }

    pub(crate) fn wanted(self) -> bool {
        self.verbose
    }

    pub(crate) fn tell(self, message: impl FnOnce() -> String) {
        if self.verbose {
            tell(&message());
        }
    }
}
