//! How the program ends: exit codes that tell its own failures from the command's, and the line that explains them.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use leasehold::{Error, ErrorKind};
use nix::sys::signal::Signal;

/// The table in `--help`.
pub(crate) const TABLE: &str = "\
Exit codes:
  the command's own, or 128+n if signal n killed it; and of leasehold itself:
   64  usage: an option, name or setting that cannot be used
   69  etcd could not be reached, or gave no answer in time
   74  the machine refused a file, socket, thread or process
   75  the lock was not acquired: it is busy, or --wait is over (-E N sets another)
   76  etcd refused, or what answers is not etcd
   77  etcd refused permission
  123  the lock was lost: the command was stopped, or could not be trusted to end in time
  126  the command was found and cannot be executed
  127  the command was not found
128+n  signal n ended leasehold while it waited for the lock";

/// An exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Code(u8);

impl Code {
    pub(crate) const SUCCESS: Self = Self(0);
    pub(crate) const USAGE: Self = Self(64);
    pub(crate) const UNREACHABLE: Self = Self(69);
    pub(crate) const MACHINE: Self = Self(74);
    /// As `EX_TEMPFAIL`: try again later. Not flock's 1, which half of all commands exit with themselves.
    pub(crate) const NOT_ACQUIRED: Self = Self(75);
    pub(crate) const REFUSED: Self = Self(76);
    pub(crate) const PERMISSION: Self = Self(77);
    /// Below those of shells (126, 127, 128+n) and of `timeout` (124, 125), which often stands before or behind.
    pub(crate) const LOST: Self = Self(123);
    pub(crate) const NOT_EXECUTABLE: Self = Self(126);
    pub(crate) const NOT_FOUND: Self = Self(127);

    pub(crate) const fn new(code: u8) -> Self {
        Self(code)
    }

    pub(crate) const fn get(self) -> u8 {
        self.0
    }

    /// What shells make of a process that a signal ended.
    pub(crate) fn of_signal(signal: i32) -> Self {
        Self(u8::try_from(128 + signal).unwrap_or(u8::MAX))
    }

    /// The command's own end, passed on.
    pub(crate) fn of_status(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self(u8::try_from(code & 0xff).unwrap_or(u8::MAX)),
            (None, Some(signal)) => Self::of_signal(signal),
            (None, None) => Self(u8::MAX),
        }
    }
}

/// Why the program ends otherwise than its user wished.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    /// One line: what it is about, what happened, what to do.
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Code::USAGE, message)
    }

    pub(crate) fn machine(message: impl Into<String>) -> Self {
        Self::new(Code::MACHINE, message)
    }

    /// A signal came before there was a command to pass it to.
    pub(crate) fn interrupted(signal: Signal, what: &str) -> Self {
        Self::new(Code::of_signal(signal as i32), format!("{what}: ended by {signal}"))
    }

    /// The library's failure, told of `what`, a lock or a setting, unless it names the lock itself.
    pub(crate) fn of_library(what: &str, error: &Error) -> Self {
        let code = match error.kind() {
            ErrorKind::InvalidInput | ErrorKind::Unsupported => Code::USAGE,
            ErrorKind::Unavailable | ErrorKind::OutcomeUnknown | ErrorKind::TimedOut | ErrorKind::Closed => {
                Code::UNREACHABLE
            }
            ErrorKind::Auth => Code::PERMISSION,
            ErrorKind::Io => Code::MACHINE,
            ErrorKind::Lost => match error.loss() {
                // The command never ran: somebody removed the place in the queue, or etcd was away for too long.
                Some(leasehold::LossCause::KeyDeleted | leasehold::LossCause::LeaseGone) => {
                    Code::NOT_ACQUIRED
                }
                _ => Code::UNREACHABLE,
            },
            _ => Code::REFUSED,
        };
        let message =
            if matches!(error, Error::Lock { .. }) { error.to_string() } else { format!("{what}: {error}") };
        Self::new(code, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_lists_every_code() {
        for code in [
            Code::USAGE,
            Code::UNREACHABLE,
            Code::MACHINE,
            Code::NOT_ACQUIRED,
            Code::REFUSED,
            Code::PERMISSION,
            Code::LOST,
            Code::NOT_EXECUTABLE,
            Code::NOT_FOUND,
        ] {
            assert!(TABLE.contains(&format!("\n{:>5}  ", code.get())), "{code:?}");
        }
    }

    #[test]
    fn a_commands_end_is_passed_on_as_shells_do() {
        assert_eq!(Code::of_status(ExitStatus::from_raw(7 << 8)), Code::new(7));
        assert_eq!(Code::of_status(ExitStatus::from_raw(255 << 8)), Code::new(255));
        assert_eq!(Code::of_status(ExitStatus::from_raw(15)), Code::new(143));
    }
}
