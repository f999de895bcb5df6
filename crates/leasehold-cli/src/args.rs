//! What is typed: subcommands and options, parsed into types.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand};
use leasehold::{LockName, Ttl};

use crate::access::{Access, SECRET};
use crate::duration::Span;
use crate::exit::{Code, Failure, TABLE};

/// Takes distributed locks held by etcd leases: the same locks as `etcdctl lock` and Go's concurrency package.
#[derive(Debug, Parser)]
#[command(
    name = "leasehold",
    version,
    after_help = TABLE,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    max_term_width = 100
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Runs a command while a lock is held, and ends with the command's exit code.
    Run(RunArgs),
    /// Takes a lock, prints its key and its token, and holds it until INT or TERM.
    Lock(LockArgs),
    /// Lists the locks that are held: by whom, since when, and how many wait.
    Ls(LsArgs),
    /// Shows one lock: who holds it, who waits, and what else lies among its keys.
    Show(ShowArgs),
    /// Takes a lock from whoever holds it: gives the holder time to go, then removes its entry.
    Break(BreakArgs),
    /// Serves an embedded etcd, in memory, until INT or TERM.
    Serve(ServeArgs),
    /// Ends the command of a `leasehold run` that cannot.
    #[command(hide = true)]
    Guardian(GuardianArgs),
    /// Becomes the command of a `leasehold run` when told to.
    #[command(hide = true)]
    AtGate(AtGateArgs),
}

const RUN_HELP: &str = "\
The command gets, whatever it inherits:
  ETCD_LOCK_KEY     the key that stands for the lock in etcd
  ETCD_LOCK_REV     the revision at which the lock was granted
  LEASEHOLD_TOKEN   the fencing token: higher than that of every earlier holder

The command runs in a process group of its own, with standard input, output and error passed on. INT, TERM, HUP, QUIT, \
USR1, USR2 and WINCH are forwarded to the group, but for those that were ignored when leasehold started. The lock is held \
until the command itself ends; what it leaves running in the background is not waited for. At a terminal the stop key \
stops the command, and the lock is held on until the job is continued.

If the lock is lost, the whole group gets TERM at once and KILL after --grace. If it is only about to be lost, because \
etcd does not answer, TERM is sent --grace before the hold ends and KILL a quarter of --grace before it ends.

If leasehold itself is killed by KILL, a guardian process sends TERM to the group at once, and KILL after --grace, in any \
case before the hold ends. If leasehold is stopped and not continued, the guardian sends TERM three quarters of --grace \
before the hold ends, and KILL an eighth before it. What has left the group by then, as setsid does, is not reached, and \
nothing is if the guardian is killed at the same moment: let the resource check LEASEHOLD_TOKEN.";

#[derive(Debug, Args)]
#[command(after_help = TABLE, after_long_help = [RUN_HELP, "\n\n", TABLE].concat())]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) taking: Taking,

    /// How long the command has between TERM and the end of the hold [default: an eighth of the TTL, 2s at most]
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) grace: Option<Span>,

    /// The process that the shell minds.
    #[arg(long, value_name = "PID", hide = true)]
    pub(crate) front: Option<i32>,

    /// The lock: 1 to 512 bytes without control characters
    #[arg(value_name = "NAME", value_parser = lock_name())]
    pub(crate) name: LockName,

    /// The command and its arguments
    #[arg(value_name = "CMD", required = true, num_args = 1.., trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

impl RunArgs {
    /// Between TERM and the end of the hold.
    pub(crate) fn grace(&self) -> Duration {
        self.grace.map_or_else(|| (self.taking.ttl() / 8).min(Duration::from_secs(2)), |grace| grace.0)
    }

    fn check(&self) -> Result<(), Failure> {
        // A quarter leaves room for two renewals to fail before the command is told to stop.
        let most = self.taking.ttl() / 4;
        match self.grace {
            Some(grace) if grace.0 > most => Err(Failure::usage(format!(
                "--grace {grace} is more than a quarter of --ttl {}; give at most {}, or a longer --ttl",
                Span(self.taking.ttl()),
                Span(most)
            ))),
            _ => Ok(()),
        }
    }
}

#[derive(Debug, Args)]
#[command(after_help = TABLE)]
pub(crate) struct LockArgs {
    #[command(flatten)]
    pub(crate) taking: Taking,

    /// Release the lock when standard input ends, too: with the terminal, connection or parent that held it open
    #[arg(long)]
    pub(crate) until_eof: bool,

    /// The lock: 1 to 512 bytes without control characters
    #[arg(value_name = "NAME", value_parser = lock_name())]
    pub(crate) name: LockName,
}

const LS_HELP: &str = "\
A lock is listed if somebody holds it, whatever client took it: leasehold, etcdctl, Go's concurrency package, etcd's own lock \
service. etcd keeps nothing of a lock that nobody holds. SINCE is when the holder began to wait for it, on its own machine's \
clock; LEASE is how long the lock outlives its holder, and begins anew at each renewal.";

#[derive(Debug, Args)]
#[command(after_help = TABLE, after_long_help = [LS_HELP, "\n\n", TABLE].concat())]
pub(crate) struct LsArgs {
    #[command(flatten)]
    pub(crate) access: Access,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Only the locks whose names begin with this
    #[arg(value_name = "PREFIX", default_value = "")]
    pub(crate) prefix: String,
}

#[derive(Debug, Args)]
#[command(after_help = TABLE)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    pub(crate) access: Access,

    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// The lock: 1 to 512 bytes without control characters
    #[arg(value_name = "NAME", value_parser = lock_name())]
    pub(crate) name: LockName,
}

const BREAK_HELP: &str = "\
It says who holds the lock, on which machine and as which process, and asks it to end: `leasehold run` sends its command TERM \
then, `leasehold lock` releases. etcdctl and clients of Go's package cannot be asked like this: ask whoever runs them. If the \
holder goes within --wait, that is all. If not, its entry is removed, exactly the one that was seen and no other's, and the next in the queue has \
the lock at once.

A holder that still lives is not stopped by that. `leasehold run` and `leasehold lock` learn of it at once and end, with code \
123; etcdctl and clients of Go's package do not notice. Only the fencing token protects what they write on.

On standard output stands what was freed: `gone KEY` if the holder went by itself, `broken KEY` if not, and nothing if nobody \
held the lock; each is a success.";

#[derive(Debug, Args)]
#[command(after_help = TABLE, after_long_help = [BREAK_HELP, "\n\n", TABLE].concat())]
pub(crate) struct BreakArgs {
    #[command(flatten)]
    pub(crate) access: Access,

    /// How long the holder has to go by itself; 0s for not at all
    #[arg(short, long, value_name = "DURATION", default_value_t = Span::seconds(10), allow_hyphen_values = true)]
    pub(crate) wait: Span,

    /// Do not ask for confirmation
    #[arg(long)]
    pub(crate) force: bool,

    /// Revoke the holder's lease, too: all its other locks on the same lease go along
    #[arg(long)]
    pub(crate) revoke_lease: bool,

    /// Break also what is no lock's entry by its form: a key of another kind that stands first, or else the key NAME itself, the
    /// lock of a DistributedLock
    #[arg(long)]
    pub(crate) foreign: bool,

    /// The lock: 1 to 512 bytes without control characters
    #[arg(value_name = "NAME", value_parser = lock_name())]
    pub(crate) name: LockName,
}

/// Which etcd, and how a lock is taken there.
#[derive(Debug, Args)]
pub(crate) struct Taking {
    #[command(flatten)]
    pub(crate) access: Access,

    /// How long the lock outlives a holder that dies: 2s to 300s
    #[arg(long, value_name = "DURATION", default_value = "15s", value_parser = ttl, allow_hyphen_values = true)]
    pub(crate) ttl: Ttl,

    /// Wait so long at most for the lock; without it, for ever
    #[arg(short, long, value_name = "DURATION", allow_hyphen_values = true)]
    pub(crate) wait: Option<Span>,

    /// Do not wait for the lock at all
    #[arg(short, long, conflicts_with = "wait")]
    pub(crate) nonblock: bool,

    /// The exit code for a lock that is not acquired (flock has 1)
    #[arg(short = 'E', long, value_name = "N", default_value_t = Code::NOT_ACQUIRED.get(), allow_hyphen_values = true)]
    pub(crate) conflict_exit_code: u8,

    /// Tell on standard error what happens
    #[arg(long)]
    pub(crate) verbose: bool,
}

impl Taking {
    pub(crate) fn ttl(&self) -> Duration {
        Duration::from_secs(self.ttl.as_secs().unsigned_abs())
    }
}

const SERVE_HELP: &str = "\
It is an etcd of one member: leasehold, etcdctl and every etcd client can use it. Its data is in memory and ends with it; \
only the next revision is kept, so that no fencing token ever comes twice. It has no TLS and asks nobody for a password.

After it ends, its locks are gone: whoever held one learns that within a third of its TTL. Leave that long before \
starting it again, or let the resource check the token.";

#[derive(Debug, Args)]
#[command(after_help = TABLE, after_long_help = [SERVE_HELP, "\n\n", TABLE].concat())]
pub(crate) struct ServeArgs {
    /// The address to listen on; port 0 takes a free one [default: 127.0.0.1:2379, unless --socket is given]
    #[arg(long, value_name = "ADDRESS", value_parser = listen)]
    pub(crate) listen: Option<SocketAddr>,

    /// A Unix socket to listen on, for this user alone
    #[arg(long, value_name = "PATH")]
    pub(crate) socket: Option<PathBuf>,

    /// Where the next revision is kept [default: $XDG_STATE_HOME/leasehold or ~/.local/state/leasehold]
    #[arg(long, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,

    /// Serve `--local` commands from this folder, in the background.
    #[arg(long, value_name = "DIR", hide = true, conflicts_with_all = ["listen", "socket", "state_dir"])]
    pub(crate) local_daemon: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct GuardianArgs {
    #[arg(long, value_name = "LINE")]
    pub(crate) order: Option<String>,

    #[arg(value_name = "NAME")]
    pub(crate) lock: LockName,
}

#[derive(Debug, Args)]
pub(crate) struct AtGateArgs {
    #[arg(long, value_name = "NUMBER")]
    pub(crate) way: i32,

    #[arg(value_name = "CMD", required = true, num_args = 1.., trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) command: Vec<OsString>,
}

fn lock_name() -> impl TypedValueParser<Value = LockName> {
    OsStringValueParser::new().try_map(|name| {
        let name = name
            .into_string()
            .map_err(|name| format!("the lock name {name:?} is not usable: it is not UTF-8"))?;
        LockName::new(name).map_err(|error| error.to_string())
    })
}

fn ttl(text: &str) -> Result<Ttl, String> {
    let Span(ttl) = text.parse()?;
    Ttl::new(ttl).map_err(|error| error.to_string())
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    let named = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    named.as_deref().unwrap_or(text).parse().map_err(|_| {
        format!("{text:?} is no address and port; write 127.0.0.1:2379, [::1]:2379, or 0.0.0.0:2379 for all interfaces")
    })
}

/// What came of reading the arguments.
#[derive(Debug)]
pub(crate) enum Parsed {
    Command(Box<Command>),
    /// Help or the version was asked for, and printed.
    Told(Code),
    Failure(Failure),
}

pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Parsed {
    let args: Vec<OsString> = args.into_iter().collect();
    let error = match Cli::try_parse_from(&args) {
        Ok(Cli { command }) => {
            let checked = match &command {
                Command::Run(args) => args.check(),
                _ => Ok(()),
            };
            return checked.map_or_else(Parsed::Failure, |()| Parsed::Command(Box::new(command)));
        }
        Err(error) => error,
    };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = write!(std::io::stdout(), "{}", error.render());
            Parsed::Told(Code::SUCCESS)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = write!(std::io::stderr(), "{}", error.render());
            Parsed::Told(Code::USAGE)
        }
        ErrorKind::InvalidUtf8 => {
            let shown = shown(&args);
            let typed = shown.filter(|arg| arg.to_str().is_none()).map(|arg| format!("{arg:?}"));
            let typed = typed.collect::<Vec<_>>().join(" ");
            Parsed::Failure(Failure::usage(format!("an option's value is not UTF-8, among {typed}")))
        }
        _ => Parsed::Failure(Failure::usage(one_line(&error))),
    }
}

/// The arguments that may be shown: not those that may be a password.
fn shown(args: &[OsString]) -> impl Iterator<Item = &OsString> {
    let is_secret = |at: usize, arg: &OsString| {
        let before = at.checked_sub(1).and_then(|before| args.get(before));
        SECRET.iter().any(|option| {
            let along = arg.as_encoded_bytes().strip_prefix(option.as_bytes());
            along.is_some_and(|rest| rest.starts_with(b"=")) || before.is_some_and(|before| before == option)
        })
    };
    args.iter().enumerate().filter(move |(at, arg)| !is_secret(*at, arg)).map(|(_, arg)| arg)
}

/// clap's many lines as one. What was typed comes only in quotes and escaped, since it may hold anything.
fn one_line(error: &clap::Error) -> String {
    let argument = match error.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(name)) => name.clone(),
        Some(ContextValue::Strings(names)) => names.join(" "),
        _ => String::new(),
    };
    // Our own parsers say all that is to be said.
    if let (ErrorKind::ValueValidation, Some(cause)) = (error.kind(), std::error::Error::source(error)) {
        return format!("{argument}: {cause}");
    }
    let rendered = error.render().to_string();
    let told = rendered.strip_prefix("error: ").unwrap_or(&rendered);
    let mut line = String::new();
    for part in told.lines().map(str::trim).take_while(|part| !part.is_empty()) {
        let blank = if line.is_empty() { "" } else { " " };
        let _ = write!(line, "{blank}{part}");
    }
    let _ = write!(line, "; see leasehold --help");
    line
}

/// What others are told is holding or waiting.
pub(crate) fn program_name(command: Option<&OsStr>) -> String {
    let file = command.and_then(|command| std::path::Path::new(command).file_name());
    match file {
        Some(file) => format!("leasehold run {}", file.to_string_lossy()),
        None => "leasehold lock".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &[&str]) -> Parsed {
        parse(std::iter::once("leasehold").chain(line.iter().copied()).map(OsString::from))
    }

    fn run(line: &[&str]) -> RunArgs {
        match parsed(line) {
            Parsed::Command(command) => match *command {
                Command::Run(args) => args,
                other => panic!("{line:?}: {other:?}"),
            },
            other => panic!("{line:?}: {other:?}"),
        }
    }

    #[test]
    fn the_commands_options_are_the_commands_with_and_without_two_dashes() {
        for line in [
            &["run", "-n", "demo", "sh", "-n", "--ttl", "--", "x"][..],
            &["run", "-n", "demo", "--", "sh", "-n", "--ttl", "--", "x"],
        ] {
            let args = run(line);
            assert_eq!(args.name.as_str(), "demo");
            assert_eq!(args.command, ["sh", "-n", "--ttl", "--", "x"], "{line:?}");
            assert!(args.taking.nonblock);
        }
    }

    #[test]
    fn an_option_between_the_name_and_the_command_is_ours() {
        let args = run(&["run", "demo", "--ttl", "20s", "--", "true"]);
        assert_eq!((args.taking.ttl.as_secs(), args.command.len()), (20, 1));
    }

    #[test]
    fn the_grace_is_a_part_of_the_ttl() {
        assert_eq!(run(&["run", "x", "true"]).grace(), Duration::from_millis(1875));
        assert_eq!(run(&["run", "--ttl", "60s", "x", "true"]).grace(), Duration::from_secs(2));
        assert_eq!(
            run(&["run", "--ttl", "60s", "--grace", "15s", "x", "true"]).grace(),
            Duration::from_secs(15)
        );
        assert!(matches!(parsed(&["run", "--grace", "4s", "x", "true"]), Parsed::Failure(_)));
    }

    #[test]
    fn a_refusal_is_one_line_that_names_the_setting() {
        for (line, wanted) in [
            (&["run", "", "true"][..], "lock name"),
            (&["run", "a\nb", "true"], "control character"),
            (&["run", "--ttl", "5", "x", "true"], "--ttl"),
            (&["run", "--ttl", "1s", "x", "true"], "from 2 s to 300 s"),
            (&["run", "-w", "\n", "x", "true"], "--wait"),
            (&["run", "-E", "256", "x", "true"], "--conflict-exit-code"),
            (&["run", "--connect-timeout", "0s", "x", "true"], "--connect-timeout"),
            (&["run", "x"], "<CMD>"),
            (&["run", "-n", "-w", "5s", "x", "true"], "--wait"),
            (&["run", "--local", "--endpoints", "a:1", "x", "true"], "--local"),
            (&["serve", "--listen", "2379"], "127.0.0.1:2379"),
            (&["frob"], "frob"),
        ] {
            let Parsed::Failure(failure) = parsed(line) else { panic!("{line:?} was taken") };
            assert_eq!(failure.code, Code::USAGE);
            assert!(failure.message.contains(wanted), "{line:?}: {}", failure.message);
            assert!(!failure.message.contains('\n'), "{line:?}: {}", failure.message);
        }
    }
}
