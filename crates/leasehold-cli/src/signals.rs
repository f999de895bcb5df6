//! Signals to this process: those to forward, and those that end a wait.

use std::future::poll_fn;
use std::task::Poll;

use nix::sys::signal::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::exit::Failure;

/// What is caught. A signal that was ignored when the program started stays ignored, here and in the command, as
/// `nohup` and a shell's background jobs want it.
const CAUGHT: [Signal; 8] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
];

/// The signals that come to this process, from now on.
#[derive(Debug)]
pub(crate) struct Signals {
    streams: Vec<(Signal, Stream)>,
}

impl Signals {
    pub(crate) fn catch() -> Result<Self, Failure> {
        Self::catch_these(&CAUGHT)
    }

    /// Those, and that a stopped job goes on; which comes after what came before it.
    pub(crate) fn catch_with_continuation() -> Result<Self, Failure> {
        Self::catch_these(&[&CAUGHT[..], &[Signal::SIGCONT]].concat())
    }

    fn catch_these(these: &[Signal]) -> Result<Self, Failure> {
        let ignored = Mask::ignored();
        let mut streams = Vec::with_capacity(these.len());
        for &caught in these.iter().filter(|&&caught| !ignored.holds(caught)) {
            let stream = signal(SignalKind::from_raw(caught as i32))
                .map_err(|error| Failure::machine(format!("cannot catch {caught}: {error}")))?;
            streams.push((caught, stream));
        }
        Ok(Self { streams })
    }

    /// The next signal.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| {
            for (signal, stream) in &mut self.streams {
                if let Poll::Ready(Some(())) = stream.poll_recv(context) {
                    return Poll::Ready(*signal);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The next signal that ends a program that does nothing but wait. The others are meant for a command that does not
    /// run yet, and are let go.
    pub(crate) async fn end(&mut self) -> Signal {
        loop {
            match self.next().await {
                ending @ (Signal::SIGINT | Signal::SIGTERM | Signal::SIGHUP | Signal::SIGQUIT) => {
                    return ending;
                }
                // Nothing runs that must not go on: stopping is all it asks for, and the lease may end meanwhile.
                Signal::SIGTSTP => crate::terminal::stop_here(),
                _ => {}
            }
        }
    }

    /// Forgets what has come and was not read yet.
    pub(crate) fn drain(&mut self, unread: Signal) {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        for (signal, stream) in &mut self.streams {
            while *signal == unread && stream.poll_recv(&mut context).is_ready() {}
        }
    }
}

/// A set of signals, as the kernel tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mask(u64);

impl Mask {
    /// What this process ignores; nothing where the kernel does not tell. (Asking by `sigaction` is unsafe.)
    fn ignored() -> Self {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self::read(&status)
    }

    fn read(status: &str) -> Self {
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        Self(mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0))
    }

    fn holds(self, signal: Signal) -> bool {
        (self.0 >> (signal as i32 - 1)) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_mask_is_read() {
        let mask = Mask::read("Name:\tx\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\t0\n");
        assert!(mask.holds(Signal::SIGHUP) && mask.holds(Signal::SIGPIPE));
        assert!(!mask.holds(Signal::SIGTERM) && !mask.holds(Signal::SIGINT));
        assert_eq!(Mask::read("nothing"), Mask(0));
    }
}
