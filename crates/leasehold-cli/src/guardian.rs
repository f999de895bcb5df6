//! Who ends the command if this process cannot: a second process, started before the command and gone soon after it.
//!
//! It knows the command's group and until when the lock is held for sure, is told anew as the lease is renewed, and sees
//! this process's death as the end of the line it is told by. It is this same program, so that nothing else need be
//! there; it has a session of its own, so that neither the terminal nor whoever ends this process's group reaches it.
//!
//! It answers each line. If it does not, or has died, it is replaced, a few times.

mod duty;
mod order;

use std::process::Stdio;
use std::time::Duration;

use leasehold::LockName;
use leasehold::runtime::{Instant, Runtime, before};
use nix::unistd::Pid;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::exit::Failure;
use crate::notice;
pub(crate) use duty::stand;
use order::Order;
pub(crate) use order::Watch;

/// This program, even if its file was replaced or removed since it was started.
pub(crate) const THIS_PROGRAM: &str = "/proc/self/exe";

/// What the guardian says to a line.
const ANSWER: u8 = b'.';
/// What it says when it has told the group to end of its own accord.
const ACTED: u8 = b'!';

/// How many guardians there may be for one command, one after the other.
const MOST: u8 = 4;

/// How many lines a guardian may leave unanswered before it is taken for dead.
const PATIENCE: u8 = 3;

/// How long a guardian may take to leave before it is made to.
const LEAVE: Duration = Duration::from_millis(500);

/// The guardian of one command.
#[derive(Debug)]
pub(crate) struct Guardian {
    lock: LockName,
    post: Option<Post>,
    posted: u8,
    acted: bool,
}

/// A guardian process, and the line to it.
#[derive(Debug)]
struct Post {
    process: Child,
    line: ChildStdin,
    answers: ChildStdout,
    /// How many lines it has not answered yet.
    unanswered: u8,
}

impl Guardian {
    /// Starts one. It minds nothing yet.
    pub(crate) fn start(lock: &LockName) -> Result<Self, Failure> {
        let post = Post::start(lock, None).map_err(|error| cannot(lock, &error.to_string()))?;
        Ok(Self { lock: lock.clone(), post: Some(post), posted: 1, acted: false })
    }

    /// Tells it what to mind and hears that it does, by `until` at the latest.
    pub(crate) async fn confirm(
        &mut self,
        watch: Watch,
        runtime: &dyn Runtime,
        until: Instant,
    ) -> Result<(), Failure> {
        self.mind(watch).await;
        loop {
            let Some(post) = &mut self.post else { return Err(cannot(&self.lock, "each has ended at once")) };
            match before(runtime, until, post.word()).await {
                Some(Some(_)) => return Ok(()),
                Some(None) => self.replace(watch),
                None => return Err(cannot(&self.lock, "it did not answer before the hold ends")),
            }
        }
    }

    /// Tells it the times that hold from now on. One that has not answered for long is replaced.
    pub(crate) async fn mind(&mut self, watch: Watch) {
        if self.post.as_ref().is_some_and(|post| post.unanswered >= PATIENCE) {
            self.replace(watch);
            return;
        }
        if let Some(post) = &mut self.post
            && !post.say(Order::Mind(watch)).await
        {
            self.replace(watch);
        }
    }

    /// Ends when the guardian has died; never, if none is left.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    pub(crate) async fn gone(&mut self) {
        let Some(post) = &mut self.post else { return std::future::pending().await };
        while let Some(word) = post.word().await {
            self.acted |= word == ACTED;
        }
    }

    /// Puts another in its place, which knows what to mind from its start, or says that there is none.
    pub(crate) fn replace(&mut self, watch: Watch) {
        if let Some(mut post) = self.post.take() {
            let _ = post.process.start_kill();
        }
        let why = if self.posted < MOST {
            self.posted += 1;
            match Post::start(&self.lock, Some(watch)) {
                Ok(post) => {
                    self.post = Some(post);
                    return;
                }
                Err(error) => error.to_string(),
            }
        } else {
            format!("{MOST} have ended or did not answer")
        };
        notice::tell(&format!(
            "lock {:?}: it has no guardian any more ({why}): if leasehold is killed or stopped now, the command runs on \
             without the lock",
            self.lock.as_str()
        ));
    }

    /// Lets it go, and says whether it had told the group to end of its own accord. When this returns it sends no signal
    /// any more: the group's number may be given out again.
    pub(crate) async fn dismiss(&mut self, runtime: &dyn Runtime) -> bool {
        let Some(mut post) = self.post.take() else { return self.acted };
        let _ = post.say(Order::Over).await;
        let left = async {
            while let Some(word) = post.word().await {
                self.acted |= word == ACTED;
            }
        };
        if before(runtime, runtime.now() + LEAVE, left).await.is_none() {
            let _ = post.process.kill().await;
        }
        self.acted
    }
}

impl Post {
    fn start(lock: &LockName, watch: Option<Watch>) -> std::io::Result<Self> {
        let mut guardian = std::process::Command::new(THIS_PROGRAM);
        std::os::unix::process::CommandExt::arg0(&mut guardian, "leasehold");
        guardian.arg("guardian").args(watch.map(|watch| format!("--order={}", Order::Mind(watch))));
        guardian
            .args(["--", lock.as_str()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // It needs none, and its secrets need not lie about in one more place.
            .env_clear();
        let mut process = Command::from(guardian).spawn()?;
        match (process.stdin.take(), process.stdout.take()) {
            (Some(line), Some(answers)) => {
                Ok(Self { process, line, answers, unanswered: u8::from(watch.is_some()) })
            }
            _ => Err(std::io::Error::other("it has no line to it")),
        }
    }

    /// Says something; a line is short, and the one before was answered, so there is room for it. Says whether there is
    /// somebody to hear it.
    async fn say(&mut self, order: Order) -> bool {
        self.unanswered += 1;
        self.line.write_all(order.to_string().as_bytes()).await.is_ok()
    }

    /// The next thing it says; `None` once it has ended.
    ///
    /// # Cancel safety
    /// Nothing is lost by dropping it.
    async fn word(&mut self) -> Option<u8> {
        let mut word = [0];
        match self.answers.read(&mut word).await {
            Ok(1) => {
                self.unanswered = self.unanswered.saturating_sub(u8::from(word[0] == ANSWER));
                Some(word[0])
            }
            _ => None,
        }
    }
}

fn cannot(lock: &LockName, why: &str) -> Failure {
    Failure::machine(format!(
        "lock {:?}: released, since no guardian could be had for the command: {why}",
        lock.as_str()
    ))
}

impl Watch {
    /// What a guardian has to know of a group whose hold ends at `valid_until`: leasehold's own TERM comes `grace` before
    /// that and its KILL a quarter of `grace` before; the guardian's come a little after each.
    pub(crate) fn while_held(group: Pid, valid_until: Instant, grace: Duration) -> Self {
        Self { group, term_at: valid_until - grace * 3 / 4, kill_at: valid_until - grace / 8, grace }
    }

    /// Of a group that leasehold is ending itself, and will kill at `kill_at`.
    pub(crate) fn while_ending(group: Pid, kill_at: Instant, grace: Duration) -> Self {
        let late = kill_at + grace / 8;
        Self { group, term_at: late, kill_at: late, grace }
    }
}
