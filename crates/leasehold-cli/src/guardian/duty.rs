//! What the guardian does: a process of its own, with no thread and no network, that waits for a line, for the end of all
//! lines, or for a time.

use std::os::fd::AsFd;
use std::time::Duration;

use leasehold::LockName;
use leasehold::runtime::Instant;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal, killpg};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::unistd::{Pid, read, write};

use super::order::{Order, Watch};
use super::{ACTED, ANSWER};
use crate::child::{Stat, is_gone};
use crate::exit::{Code, Failure};
use crate::notice;

/// How often an ending group is looked at, once leasehold is not there to do it.
const LOOK: Duration = Duration::from_millis(10);

/// Minds a command's group on behalf of the `leasehold` that has the other end of standard input, and has already given
/// this order, if it has.
pub(crate) fn stand(lock: &LockName, order: Option<&str>) -> Result<Code, Failure> {
    let failed = |errno: Errno| Failure::machine(format!("lock {:?}: its guardian: {errno}", lock.as_str()));
    stand_apart();
    let mut post = Post { lock, orders: Orders::open(order).map_err(failed)?, minded: None };
    post.keep().map_err(failed)?;
    Ok(Code::SUCCESS)
}

/// Out of reach of the terminal, of signals meant for the command or for leasehold, and of whoever ends processes by
/// leasehold's name.
fn stand_apart() {
    let _ = nix::unistd::setsid();
    let _ = SigSet::all().thread_block();
    let _ = nix::sys::prctl::set_name(c"lock-guardian");
    // Nothing is kept from being unmounted.
    let _ = std::env::set_current_dir("/");
}

struct Post<'a> {
    lock: &'a LockName,
    orders: Orders,
    minded: Option<Minded>,
}

/// What came first.
enum Heard {
    Order(Order),
    /// Leasehold is dead: nobody else has the other end.
    Gone,
    /// The time that was waited for.
    Late,
}

impl Post<'_> {
    fn keep(&mut self) -> Result<(), Errno> {
        loop {
            let due = self.minded.as_ref().map_or(Instant::NEVER, Minded::due);
            match self.orders.next(due)? {
                Heard::Order(Order::Mind(watch)) => {
                    match &mut self.minded {
                        Some(minded) => minded.watch = watch,
                        None => self.minded = Some(Minded::new(watch)),
                    }
                    say(ANSWER);
                }
                Heard::Order(Order::Over) => return Ok(()),
                Heard::Gone => return self.bereft(),
                Heard::Late => {
                    let Some(minded) = &mut self.minded else { continue };
                    if minded.told_to_end && now()? >= minded.watch.kill_at {
                        minded.signal(Signal::SIGKILL);
                        self.explain("leasehold does not run, or not in time");
                        return Ok(());
                    }
                    say(ACTED);
                    minded.tell_to_end();
                }
            }
        }
    }

    /// Leasehold has died: nobody renews the lock any more, or would end the group.
    fn bereft(&mut self) -> Result<(), Errno> {
        let Some(minded) = &mut self.minded else { return Ok(()) };
        minded.tell_to_end();
        let kill_at = minded.watch.kill_at.min(now()? + minded.watch.grace);
        let timer = &self.orders.alarm;
        while !is_gone(minded.watch.group) {
            let now = now()?;
            if now >= kill_at {
                minded.signal(Signal::SIGKILL);
                break;
            }
            set(timer, kill_at.min(now + LOOK))?;
            let _ = timer.wait();
        }
        self.explain("leasehold has died");
        Ok(())
    }

    /// Says what was done. Only once it is done, and if there is room for it: whoever should read it may have stopped reading.
    fn explain(&self, why: &str) {
        let Some(minded) = &self.minded else { return };
        let stderr = std::io::stderr();
        let mut room = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
        if !matches!(poll(&mut room, PollTimeout::ZERO), Ok(1)) {
            return;
        }
        notice::tell(&format!(
            "lock {:?}: {why}; its guardian has stopped the command (process group {})",
            self.lock.as_str(),
            minded.watch.group
        ));
    }
}

/// The group on this guardian's hands.
#[derive(Debug)]
struct Minded {
    watch: Watch,
    /// When its first process began, by which another of the same number is told from it.
    since: Option<String>,
    told_to_end: bool,
}

impl Minded {
    /// Its first process waits at the gate, and so is certainly there.
    fn new(watch: Watch) -> Self {
        Self { watch, since: began(watch.group), told_to_end: false }
    }

    fn due(&self) -> Instant {
        if self.told_to_end { self.watch.kill_at } else { self.watch.term_at.min(self.watch.kill_at) }
    }

    fn tell_to_end(&mut self) {
        self.told_to_end = true;
        self.signal(Signal::SIGTERM);
        // A stopped process takes its TERM when it goes on.
        self.signal(Signal::SIGCONT);
    }

    fn signal(&self, signal: Signal) {
        // As long as any process is in the group its number is not given out again. If there is a first process, it is
        // the one that was minded, or the group is gone and the number another's.
        let first = began(self.watch.group);
        if first.is_none() || self.since.is_none() || first == self.since {
            let _ = killpg(self.watch.group, signal);
        }
    }
}

/// When a process began, in whatever the kernel counts; `None` if there is no such process.
fn began(process: Pid) -> Option<String> {
    Stat::of(process.as_raw())?.began().map(ToOwned::to_owned)
}

/// The lines on standard input, and a clock that goes on while the machine is suspended.
struct Orders {
    alarm: TimerFd,
    unread: Vec<u8>,
}

impl Orders {
    fn open(first: Option<&str>) -> Result<Self, Errno> {
        let alarm = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC)?;
        Ok(Self { alarm, unread: first.unwrap_or_default().into() })
    }

    /// The next order, unless `at` comes first. What was said is heard before any time is judged by: this process, too,
    /// may have been stopped, and times that were told before are not to be acted on when later ones wait to be read.
    fn next(&mut self, at: Instant) -> Result<Heard, Errno> {
        let stdin = std::io::stdin();
        loop {
            if let Some(end) = self.unread.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                let order = std::str::from_utf8(&line).ok().and_then(|line| line.parse().ok());
                return order.map(Heard::Order).ok_or(Errno::EBADMSG);
            }
            set(&self.alarm, at)?;
            let mut ready = [
                PollFd::new(stdin.as_fd(), PollFlags::POLLIN),
                PollFd::new(self.alarm.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut ready, PollTimeout::NONE) {
                Err(Errno::EINTR) => continue,
                polled => polled?,
            };
            if ready[0].any() == Some(true) {
                let mut chunk = [0; 1024];
                match read(&stdin, &mut chunk)? {
                    0 => return Ok(Heard::Gone),
                    count => self.unread.extend_from_slice(&chunk[..count]),
                }
            } else if now()? >= at {
                return Ok(Heard::Late);
            }
        }
    }
}

/// Sets the alarm; for a time that never comes it stays silent.
fn set(alarm: &TimerFd, at: Instant) -> Result<(), Errno> {
    // Zero would switch it off.
    let at = TimeSpec::from_duration(Duration::from_nanos(at.as_nanos().clamp(1, i64::MAX.unsigned_abs())));
    alarm.set(Expiration::OneShot(at), TimerSetTimeFlags::TFD_TIMER_ABSTIME)
}

fn now() -> Result<Instant, Errno> {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME)?;
    Ok(Instant::ZERO + Duration::from(time))
}

/// Answers leasehold, if it is there to hear.
fn say(word: u8) {
    let _ = write(std::io::stdout(), &[word]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_when_it_began() {
        let own = began(nix::unistd::getpid()).unwrap();
        assert!(own.parse::<u64>().is_ok(), "{own:?}");
        assert_eq!(began(nix::unistd::getpid()), Some(own));
        assert_eq!(began(Pid::from_raw(i32::MAX)), None);
    }

    #[test]
    fn a_group_whose_number_became_anothers_gets_no_signal() {
        use std::os::unix::process::CommandExt;
        let mut other = std::process::Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let group = Pid::from_raw(i32::try_from(other.id()).unwrap());
        let never = Instant::NEVER;
        let watch = Watch { group, term_at: never, kill_at: never, grace: Duration::ZERO };
        let earlier = Minded { since: Some("1".into()), ..Minded::new(watch) };
        earlier.signal(Signal::SIGKILL);
        assert!(!is_gone(group));
        Minded::new(watch).signal(Signal::SIGKILL);
        other.wait().unwrap();
        assert!(is_gone(group));
    }

    #[test]
    fn the_clock_is_the_librarys() {
        use leasehold::runtime::{Runtime, SystemRuntime};
        let runtime = SystemRuntime::shared().unwrap();
        let (before, here, after) = (runtime.now(), now().unwrap(), runtime.now());
        assert!(before <= here && here <= after, "{before:?} {here:?} {after:?}");
    }
}
