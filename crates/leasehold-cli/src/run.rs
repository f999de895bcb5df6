//! `leasehold run`: a command for as long as the lock is held, and not longer.

use std::time::Duration;

use leasehold::runtime::{Instant, Runtime};
use leasehold::{Guard, LossCause};
use nix::sys::signal::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

use crate::acquire::acquire;
use crate::args::{RunArgs, program_name};
use crate::child::{self, Group};
use crate::connect::Connection;
use crate::exit::{Code, Failure};
use crate::front;
use crate::guardian::{Guardian, Watch};
use crate::notice::{self, Steps};
use crate::request::Request;
use crate::signals::Signals;
use crate::terminal::{self, Job, Stop, Terminal};
use leasehold::runtime::{before, race};

/// How often in a TTL the guardian is told until when the lock is held. A renewal comes three times in it.
const TELLINGS: u32 = 6;

/// How long, at most, why the command was ended may take to be told.
const TELL: Duration = Duration::from_millis(500);

pub(crate) async fn run(args: &RunArgs) -> Result<Code, Failure> {
    let program = args.command.first();
    if let Some(program) = program {
        child::find(program)?;
    }
    let mut signals = match args.front {
        None if terminal::is_under_job_control() => return front::stand(&args.name).await,
        None => Signals::catch()?,
        Some(front) if front::stay_behind(front) => Signals::catch_with_continuation()?,
        Some(_) => return Ok(Code::LOST),
    };
    let steps = Steps::new(args.taking.verbose);
    let name = program_name(program.map(AsRef::as_ref));
    let mut connection = Connection::open(&args.taking, &args.name, name, &mut signals, steps).await?;
    let guard = match acquire(&mut connection, &args.name, &args.taking, &mut signals, steps).await {
        Ok(guard) => guard,
        Err(failure) => {
            connection.close(steps).await;
            return Err(failure);
        }
    };
    let outcome = under(&guard, args, &mut connection, &mut signals, steps).await;
    match outcome {
        Ok(End::LostAndLeft) => {
            connection.leave_to_expire();
            Ok(Code::LOST)
        }
        Ok(End::Code(code)) => {
            connection.close(steps).await;
            Ok(code)
        }
        Err(failure) => {
            connection.close(steps).await;
            Err(failure)
        }
    }
    // The guard is dropped after the lease is revoked: one request, and not two, gives the lock back.
}

/// How a run ended.
#[derive(Clone, Copy, Debug)]
enum End {
    Code(Code),
    /// The lock is lost, and its lease is not to be revoked: there is no server to do it, or a process of the command
    /// cannot be killed, under whose hands nothing must be given away.
    LostAndLeft,
}

/// What happens while the command runs.
#[derive(Debug)]
enum Event {
    Ended,
    Lost(Loss),
    /// The hold ends soon, if no renewal has come meanwhile.
    Due,
    /// The guardian is to be told how long the hold now lasts.
    Tell,
    /// The guardian has died.
    Unguarded,
    /// Somebody asks this holder to go, by `leasehold break`.
    Asked(String),
    Signal(Signal),
    /// A child has ended, stopped or gone on.
    Child,
}

/// Why the command must end.
#[derive(Clone, Copy, Debug)]
enum Loss {
    Cause(LossCause),
    /// Renewals fail, and the hold ends so soon that the command must begin to end now.
    Imminent,
    /// The etcd of `--local` is gone.
    ServerGone,
}

/// Runs the command under the lock.
async fn under(
    guard: &Guard,
    args: &RunArgs,
    connection: &mut Connection,
    signals: &mut Signals,
    steps: Steps,
) -> Result<End, Failure> {
    let runtime = connection.runtime();
    let mut children = signal(SignalKind::child())
        .map_err(|error| Failure::machine(format!("cannot learn of the command's stops: {error}")))?;
    let grace = args.grace();
    let mut guardian = Guardian::start(&args.name)?;
    let (mut group, gate) = Group::start(&args.command, guard)?;
    let watch = |group: &Group| Watch::while_held(group.id(), guard.valid_until(), grace);
    if let Err(failure) = guardian.confirm(watch(&group), &*runtime, guard.valid_until() - grace).await {
        guardian.dismiss(&*runtime).await;
        return Err(failure);
    }
    let mut terminal = Terminal::lend_to(&group, Job::of(args.front));
    gate.open();
    steps.tell(|| format!("lock {:?}: started process {}", args.name.as_str(), group.id()));
    let mut told_at = runtime.now();
    let mut request = Request::to_leave(guard, runtime.clone());
    let loss = loop {
        let times =
            Times { due: guard.valid_until() - grace, tell_at: told_at + args.taking.ttl() / TELLINGS };
        let here = (&mut *signals, &mut children, &mut guardian, &mut request);
        match next(&mut group, guard, connection, times, here).await {
            Event::Ended => {
                let ended_by_guardian = guardian.dismiss(&*runtime).await;
                terminal.take_back();
                let code =
                    Code::of_status(group.reap()?.ok_or_else(|| Failure::machine("the command has no end"))?);
                // It may have run on while this process did not, and outlived its hold by that.
                let why = match guard.ensure_held(Duration::ZERO) {
                    Ok(()) if ended_by_guardian => {
                        "its guardian stopped the command, since leasehold did not run in time".to_owned()
                    }
                    Ok(()) => return Ok(End::Code(code)),
                    Err(cause) if ended_by_guardian => format!("{cause}; its guardian stopped the command"),
                    Err(cause) => format!("{cause}; the command had ended by itself with {}", code.get()),
                };
                return Err(Failure::new(
                    Code::LOST,
                    format!("lock {:?} is lost: {why}", args.name.as_str()),
                ));
            }
            Event::Tell => {
                told_at = runtime.now();
                guardian.mind(watch(&group)).await;
            }
            Event::Unguarded => guardian.replace(watch(&group)),
            Event::Asked(by) => {
                tell_aside(asked(args, &by, &group));
                group.signal(Signal::SIGTERM);
                // A stopped process takes its TERM when it goes on.
                group.signal(Signal::SIGCONT);
            }
            Event::Lost(loss) => break loss,
            Event::Due if runtime.now() >= guard.valid_until() - grace => break Loss::Imminent,
            Event::Due => {}
            Event::Signal(Signal::SIGTSTP) if terminal.is_suspended() => {}
            Event::Signal(signal) if signal != Signal::SIGCONT => group.signal(signal),
            event @ (Event::Signal(_) | Event::Child) => {
                let stop = if matches!(event, Event::Child) {
                    let Some(by) = group.stopped() else { continue };
                    terminal.stopped(by, &*runtime, signals).await
                } else {
                    terminal.continued(&*runtime, signals).await
                };
                if let Err(cause) = guard.ensure_held(Duration::ZERO) {
                    break Loss::Cause(cause);
                }
                match stop {
                    Stop::NeedsTerminal => terminal.lend(&group),
                    Stop::Over => group.signal(Signal::SIGCONT),
                    Stop::Meant => {}
                }
            }
        }
    };
    let message = loss.message(args, &group);
    let told = tell_aside(message);
    let kill_at = loss.kill_at(guard, grace, &*runtime);
    guardian.mind(Watch::while_ending(group.id(), kill_at, grace)).await;
    let all_gone = group.end(&*runtime, kill_at).await;
    before(&*runtime, runtime.now() + TELL, told).await;
    guardian.dismiss(&*runtime).await;
    terminal.take_back();
    if !all_gone {
        notice::tell(&format!(
            "a process of group {} cannot be killed; the lease is left to expire",
            group.id()
        ));
        return Ok(End::LostAndLeft);
    }
    steps.tell(|| "the command is gone".into());
    Ok(if matches!(loss, Loss::ServerGone) { End::LostAndLeft } else { End::Code(Code::LOST) })
}

/// Says something on another thread: whoever reads standard error may have stopped, and the command must end all the same.
fn tell_aside(message: String) -> tokio::task::JoinHandle<()> {
    tokio::task::spawn_blocking(move || notice::tell(&message))
}

fn asked(args: &RunArgs, by: &str, group: &Group) -> String {
    format!(
        "lock {:?}: {by} asks for it; sending TERM to the command (process group {})",
        args.name.as_str(),
        group.id()
    )
}

/// When what is due without being asked for.
#[derive(Clone, Copy, Debug)]
struct Times {
    due: Instant,
    tell_at: Instant,
}

/// The next event. If several are there, the first in the order of [`Event`].
async fn next(
    group: &mut Group,
    guard: &Guard,
    connection: &mut Connection,
    times: Times,
    (signals, children, guardian, request): (&mut Signals, &mut Stream, &mut Guardian, &mut Request<'_>),
) -> Event {
    let runtime = connection.runtime();
    let lost = guard.lost();
    let ended = async {
        group.ended().await;
        Event::Ended
    };
    let lost = async { Event::Lost(Loss::Cause(lost.wait().await)) };
    let gone = async {
        connection.gone().await;
        Event::Lost(Loss::ServerGone)
    };
    let due = async {
        runtime.sleep_until(times.due).await;
        Event::Due
    };
    let signal = async { Event::Signal(signals.next().await) };
    let child = async {
        children.recv().await;
        Event::Child
    };
    let tell = async {
        runtime.sleep_until(times.tell_at).await;
        Event::Tell
    };
    let unguarded = async {
        guardian.gone().await;
        Event::Unguarded
    };
    let lost = async { race(lost, gone).await.into_inner() };
    let here = async { race(signal, child).await.into_inner() };
    let asked = async { Event::Asked(request.heard().await) };
    let guarded = async { race(tell, unguarded).await.into_inner() };
    let guarded = async { race(guarded, asked).await.into_inner() };
    let here = async { race(guarded, here).await.into_inner() };
    let later = async { race(due, here).await.into_inner() };
    let not_ended = async { race(lost, later).await.into_inner() };
    race(ended, not_ended).await.into_inner()
}

impl Loss {
    /// When KILL follows TERM; in the past if there is no time for TERM.
    fn kill_at(self, guard: &Guard, grace: Duration, runtime: &dyn Runtime) -> Instant {
        match self {
            // While the hold is still valid.
            Self::Imminent => guard.valid_until() - grace / 4,
            // It is past already: this process did not run.
            Self::Cause(LossCause::Deadline) => runtime.now(),
            // The lock was given away by somebody's deed; only the token protects, and a clean end is worth its time.
            Self::Cause(_) => runtime.now() + grace,
            // A new server of --local waits until this process has ended.
            Self::ServerGone => runtime.now() + grace,
        }
    }

    fn message(self, args: &RunArgs, group: &Group) -> String {
        let name = args.name.as_str();
        let why = match self {
            Self::Imminent => "no renewal was confirmed in time; is etcd reachable?".to_owned(),
            Self::Cause(cause) => cause.to_string(),
            Self::ServerGone => "the etcd of --local has ended, and its locks with it".to_owned(),
        };
        format!("lock {name:?} is lost: {why}; stopping the command (process group {})", group.id())
    }
}
