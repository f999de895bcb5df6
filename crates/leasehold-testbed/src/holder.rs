//! A process that holds a lock, to be killed, frozen and outlived.
//!
//! The process is the test's own program started once more, so it is always built from what is under test. For that
//! the test file has, at its root, the line `leasehold_testbed::holder_entry!();`. The program `leasehold-holder` takes
//! the same orders on its command line.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use leasehold::{DistributedLock, FencingToken, LockName, Mutex, Session, Ttl};

use crate::backends::{block_on, connect};
use crate::contained::{Contained, Program};
use crate::witness::WitnessFile;

/// Where the orders of a holder inside a test program stand, one a line.
const ORDER: &str = "LEASEHOLD_HOLDER";
/// The test that [`holder_entry!`](crate::holder_entry) makes.
const ENTRY: &str = "leasehold_holder_entry";
/// How long a holder may take for what does not depend on other holders.
const PATIENCE: Duration = Duration::from_secs(60);

/// Lets [`Holder`]s be started from this test file. It stands at the file's root.
#[macro_export]
macro_rules! holder_entry {
    () => {
        /// The door by which this program becomes a holder process; without orders it does nothing.
        #[test]
        fn leasehold_holder_entry() {
            $crate::holder::become_holder();
        }
    };
}

/// Which lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// A [`Mutex`].
    Mutex,
    /// A [`DistributedLock`].
    Distributed,
}

/// What a holder is to do. Without more it takes the lock and holds it until it is killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Where etcd is.
    pub endpoints: Vec<String>,
    /// Which kind of lock.
    pub kind: LockKind,
    /// Its name, or its key.
    pub name: String,
    /// Who this is, in the witness file and as the token of a [`DistributedLock`].
    pub who: String,
    /// The lease's time to live, in seconds.
    pub ttl: u64,
    /// So many turns, noted in this file; then it ends.
    pub turns: Option<(u64, PathBuf)>,
    /// How long each turn lasts.
    pub turn: Duration,
}

impl Order {
    /// To hold the [`Mutex`] of this name, as `holder`, with a TTL of 15 s.
    pub fn mutex(endpoints: &[String], name: impl Into<String>) -> Self {
        Self {
            endpoints: endpoints.to_vec(),
            kind: LockKind::Mutex,
            name: name.into(),
            who: "holder".into(),
            ttl: 15,
            turns: None,
            turn: Duration::from_millis(1),
        }
    }

    /// To hold the [`DistributedLock`] at this key, with the token `holder` and a TTL of 15 s.
    pub fn distributed(endpoints: &[String], key: impl Into<String>) -> Self {
        Self { kind: LockKind::Distributed, ..Self::mutex(endpoints, key) }
    }

    /// The same as somebody else. No blanks.
    #[must_use]
    pub fn who(mut self, who: impl Into<String>) -> Self {
        self.who = who.into();
        self
    }

    /// The same with a TTL of so many seconds.
    #[must_use]
    pub fn ttl(mut self, seconds: u64) -> Self {
        self.ttl = seconds;
        self
    }

    /// So many turns of `turn` each, noted in `file`; then it ends.
    #[must_use]
    pub fn turns(mut self, turns: u64, turn: Duration, file: &WitnessFile) -> Self {
        self.turns = Some((turns, file.path().to_owned()));
        self.turn = turn;
        self
    }

    fn words(&self) -> Vec<String> {
        let kind = match self.kind {
            LockKind::Mutex => "mutex",
            LockKind::Distributed => "distributed",
        };
        let words = [kind, &self.endpoints.join(","), &self.name, &self.who, &self.ttl.to_string()]
            .map(str::to_owned);
        let mut words = Vec::from(words);
        if let Some((turns, file)) = &self.turns {
            words.extend([turns.to_string(), self.turn.as_millis().to_string(), file.display().to_string()]);
        }
        words
    }

    fn from_words(words: &[String]) -> Option<Self> {
        let (kind, endpoints, name, who, ttl, rest) = match words {
            [kind, endpoints, name, who, ttl, rest @ ..] => (kind, endpoints, name, who, ttl, rest),
            _ => return None,
        };
        let kind = match kind.as_str() {
            "mutex" => LockKind::Mutex,
            "distributed" => LockKind::Distributed,
            _ => return None,
        };
        let (turns, turn) = match rest {
            [] => (None, Duration::ZERO),
            [turns, millis, file] => {
                (Some((turns.parse().ok()?, file.into())), Duration::from_millis(millis.parse().ok()?))
            }
            _ => return None,
        };
        let endpoints = endpoints.split(',').map(str::to_owned).collect();
        Some(Self {
            endpoints,
            kind,
            name: name.clone(),
            who: who.clone(),
            ttl: ttl.parse().ok()?,
            turns,
            turn,
        })
    }
}

/// A holder process. Dropping this kills it.
pub struct Holder {
    process: Contained,
    lines: Receiver<String>,
}

impl Holder {
    /// Starts one from this test program.
    ///
    /// # Panics
    /// If the test file lacks [`holder_entry!`](crate::holder_entry).
    pub fn start(order: &Order) -> Self {
        let own = std::env::current_exe().expect("a program knows where it is");
        let program = Program::new(own).args(["--exact", ENTRY, "--nocapture"]);
        Self::of(program.env(ORDER, order.words().join("\n")))
    }

    /// Starts one from the program `leasehold-holder` at this path.
    pub fn start_program(path: impl Into<PathBuf>, order: &Order) -> Self {
        Self::of(Program::new(path).args(order.words()))
    }

    fn of(program: Program) -> Self {
        let mut process = program.start();
        let (tell, lines) = channel();
        let output = process.lines();
        std::thread::spawn(move || {
            for line in output.map_while(Result::ok).filter(|line| !line.is_empty()) {
                if tell.send(line).is_err() {
                    break;
                }
            }
        });
        Self { process, lines }
    }

    /// Waits until it holds the lock, and gives its token.
    ///
    /// # Panics
    /// If it does not within a minute.
    pub fn wait_held(&self) -> FencingToken {
        let token =
            self.wait_for("held ", PATIENCE).unwrap_or_else(|why| panic!("the holder does not hold: {why}"));
        token.parse().unwrap_or_else(|error| panic!("the holder's token {token:?}: {error}"))
    }

    /// Waits until it has done its turns.
    ///
    /// # Panics
    /// If it has not `within` this time.
    pub fn wait_done(&self, within: Duration) {
        self.wait_for("done", within)
            .unwrap_or_else(|why| panic!("the holder has not done its turns: {why}"));
    }

    /// Waits until it says that its hold is lost, and gives the cause.
    ///
    /// # Panics
    /// If it does not `within` this time.
    pub fn wait_lost(&self, within: Duration) -> String {
        self.wait_for("lost ", within).unwrap_or_else(|why| panic!("the holder has not lost its hold: {why}"))
    }

    fn wait_for(&self, start: &str, within: Duration) -> Result<String, String> {
        let (end, mut said) = (Instant::now() + within, String::new());
        loop {
            match self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(line) => match line.strip_prefix(start) {
                    Some(rest) => return Ok(rest.to_owned()),
                    None => said = format!("{said}\n  {line}"),
                },
                Err(RecvTimeoutError::Timeout) => {
                    return Err(format!("not within {within:?}; it said:{said}"));
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let hint = "does the root of this test file have `leasehold_testbed::holder_entry!();`?";
                    return Err(format!("it has ended ({hint}); it said:{said}"));
                }
            }
        }
    }

    /// Kills it, and waits until it is gone.
    pub fn kill(self) {
        self.process.kill();
    }

    /// Stops it where it stands.
    pub fn freeze(&self) {
        self.process.freeze();
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.process.thaw();
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Holder").field("pid", &self.pid()).finish_non_exhaustive()
    }
}

/// Follows the orders of a [`Holder`] if this process was started by one, and then ends the process.
pub fn become_holder() {
    let Some(order) = std::env::var_os(ORDER) else { return };
    let words: Vec<_> = order.to_string_lossy().lines().map(str::to_owned).collect();
    let code = obey(&words);
    std::process::exit(if code == ExitCode::SUCCESS { 0 } else { 1 });
}

/// The main function of the program `leasehold-holder`.
pub fn main() -> ExitCode {
    obey(&std::env::args().skip(1).collect::<Vec<_>>())
}

fn obey(words: &[String]) -> ExitCode {
    let Some(order) = Order::from_words(words) else {
        say("usage: leasehold-holder mutex|distributed ENDPOINTS NAME WHO TTL [TURNS MILLISECONDS FILE]");
        return ExitCode::from(2);
    };
    match block_on(hold(order)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say(format_args!("failed {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Past the test harness, which may have begun a line of its own.
fn say(line: impl fmt::Display) {
    let mut out = std::io::stdout().lock();
    // A test that has gone reads no more; the shim ends this process in a moment.
    let _ = out.write_all(format!("\n{line}\n").as_bytes()).and_then(|()| out.flush());
}

async fn hold(order: Order) -> leasehold::Result<()> {
    let (etcd, ttl) = (connect(&order.endpoints), Ttl::seconds(order.ttl)?);
    match order.kind {
        LockKind::Mutex => {
            let session = Session::builder(etcd).ttl(ttl).program(order.who.clone()).open().await?;
            let mutex = Mutex::new(&session, LockName::new(order.name.clone())?);
            for file in rounds(&order) {
                let guard = mutex.lock().await?;
                stay(&order, file.as_ref(), guard.token(), guard.lost()).await;
                guard.release().await?;
            }
            session.close().await?;
        }
        LockKind::Distributed => {
            let lock = DistributedLock::new(etcd, order.name.clone(), order.who.clone(), ttl)?;
            for file in rounds(&order) {
                lock.lock().await?;
                let (Some(token), Some(lost)) = (lock.fencing_token(), lock.lost()) else { continue };
                stay(&order, file.as_ref(), token, lost).await;
                lock.unlock().await?;
            }
        }
    }
    say("done");
    Ok(())
}

/// The turns to take: with a file to note each in, or one without.
fn rounds(order: &Order) -> Vec<Option<WitnessFile>> {
    match &order.turns {
        Some((turns, file)) => (0..*turns).map(|_| Some(WitnessFile::new(file))).collect(),
        None => vec![None],
    }
}

/// One turn, or a hold that only its loss ends.
async fn stay(order: &Order, file: Option<&WitnessFile>, token: FencingToken, lost: leasehold::Lost) {
    say(format_args!("held {token}"));
    match file {
        Some(file) => {
            file.begin(&order.who, token);
            tokio::time::sleep(order.turn).await;
            file.end(&order.who, token);
        }
        None => say(format_args!("lost {}", lost.wait().await)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_survives_its_way_through_a_command_line() {
        let order = Order::mutex(&["127.0.0.1:1".into(), "127.0.0.1:2".into()], "a/b c").who("w").ttl(3);
        for order in [order.clone(), order.turns(4, Duration::from_millis(5), &WitnessFile::new("/tmp/f"))] {
            let back = Order::from_words(&order.words()).unwrap();
            assert_eq!(back.words(), order.words());
        }
        assert_eq!(Order::from_words(&["mutex".into()]), None);
    }
}
