//! What is told on standard error: one line each, with the program's name before it, so that it can be told from the
//! command's own words.

use std::io::Write;

use crate::exit::Failure;

/// Says why the program ends.
pub(crate) fn failure(failure: &Failure) {
    tell(&failure.message);
}

/// Says something. That standard error is closed is no reason to fail.
pub(crate) fn tell(message: &str) {
    let line: String = message.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let _ = writeln!(std::io::stderr(), "leasehold: {line}");
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
