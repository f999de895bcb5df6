//! `leasehold break`: a lock is taken from whoever has it. The holder is given time to go by itself; then its entry is
//! removed, and nothing else.

use std::io::{BufRead, IsTerminal, Write};
use std::sync::Arc;

use futures_util::future::Either;
use leasehold::etcd::Etcd;
use leasehold::eviction::{self, Asked, Evicted};
use leasehold::mvcc::Code as Answer;
use leasehold::runtime::{before, race};
use leasehold::survey::{self, Form, Life, Standing, View};
use leasehold::{Entry, LeaseId};
use tokio::sync::oneshot;

use crate::args::BreakArgs;
use crate::exit::{Code, Failure};
use crate::notice;
use crate::sight::{self, Lives};
use crate::table;
use crate::visit::Visit;

pub(crate) async fn break_lock(args: &BreakArgs) -> Result<Code, Failure> {
    let what = format!("lock {:?}", args.name.as_str());
    if !args.force && !can_be_asked() {
        return Err(Failure::usage(format!(
            "{what}: there is no terminal to ask at whether to break it; say --force to do so without"
        )));
    }
    let mut visit = Visit::open(&args.access, what).await?;
    let etcd = visit.etcd();
    let view = visit.ask(survey::lock(&*etcd, &args.name)).await?;
    let Some(holder) = to_be_broken(args, &view)? else { return Ok(Code::SUCCESS) };
    let mut case = Case { args, visit, etcd, holder };
    case.announce().await?;
    if case.goes_by_itself().await? || case.is_confirmed().await? == Confirmed::GoneMeanwhile {
        case.tell_freed("gone", "it has gone by itself").await?;
        return Ok(Code::SUCCESS);
    }
    case.force().await?;
    Ok(Code::SUCCESS)
}

/// Whether there is somebody to confirm it.
fn can_be_asked() -> bool {
    std::io::stdin().is_terminal() && std::io::stderr().is_terminal()
}

/// What stands first, if it may be broken.
fn to_be_broken(args: &BreakArgs, view: &View) -> Result<Option<Standing>, Failure> {
    let name = args.name.as_str();
    match (view.queue.first(), &view.plain) {
        (Some(first), _) if first.form == Form::Foreign && !args.foreign => Err(Failure::usage(format!(
            "lock {name:?}: what stands first is the key {}, which is no lock's entry by its form and may be anything; say \
             --foreign to delete it all the same",
            first.entry.key
        ))),
        (Some(first), _) => Ok(Some(first.clone())),
        (None, Some(plain)) if args.foreign => Ok(Some(plain.clone())),
        (None, plain) => {
            notice::tell(&format!("lock {name:?}: nobody holds it"));
            if let Some(plain) = plain {
                notice::tell(&format!(
                    "lock {name:?}: the key {name} itself is there, with {}; if it is a lock of that one key \
                     (DistributedLock), say --foreign to break that",
                    sight::program(plain)
                ));
            }
            Ok(None)
        }
    }
}

/// Who asks, for the holder's people to read.
fn asker() -> String {
    let user =
        std::env::var("USER").or_else(|_| std::env::var("LOGNAME")).unwrap_or_else(|_| "somebody".into());
    let host = nix::unistd::gethostname().unwrap_or_default();
    format!("{user} on {} (leasehold break, pid {})", host.to_string_lossy(), std::process::id())
}

/// What came of the question whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Confirmed {
    Yes,
    GoneMeanwhile,
}

/// One lock to be broken, and who has it.
struct Case<'a> {
    args: &'a BreakArgs,
    visit: Visit,
    etcd: Arc<dyn Etcd>,
    holder: Standing,
}

impl Case<'_> {
    fn entry(&self) -> &Entry {
        &self.holder.entry
    }

    fn tell(&self, message: &str) {
        notice::tell(&format!("lock {:?}: {message}", self.args.name.as_str()));
    }

    /// Says who has it and where: whoever reads this can ask the holder to go.
    async fn announce(&mut self) -> Result<(), Failure> {
        let etcd = self.etcd.clone();
        let life = self.visit.ask(survey::life(&*etcd, self.entry().lease)).await?;
        let lives = Lives::from([(self.entry().lease, life)]);
        let life = match sight::life(&self.holder, &lives) {
            Life::Left { left, .. } => {
                format!(", whose lease ends in {} s unless it is renewed", left.as_secs())
            }
            Life::Overdue(by) => {
                format!(", whose lease is past its end by {} s without being ended by etcd", by.as_secs())
            }
            _ => String::new(),
        };
        let since = match &self.holder.entry.who {
            Some(_) => format!(", since {}", sight::since(&self.holder)),
            None => String::new(),
        };
        self.tell(&format!("held by {}{since}{life}", self.who()));
        Ok(())
    }

    fn who(&self) -> String {
        match (&self.holder.entry.who, self.holder.form) {
            (None, Form::Plain) => {
                format!("the key {} with {}", self.entry().key, sight::program(&self.holder))
            }
            (None, Form::Foreign) => {
                format!("the key {}, which is no lock's entry by its form", self.entry().key)
            }
            _ => self.holder.entry.to_string(),
        }
    }

    /// Gives the holder time to go. Says whether it has.
    async fn goes_by_itself(&mut self) -> Result<bool, Failure> {
        let wait = self.args.wait;
        if wait.0.is_zero() {
            return Ok(false);
        }
        let (etcd, entry) = (self.etcd.clone(), self.entry().clone());
        let asked = self.visit.ask(eviction::ask(&*etcd, &entry, &asker())).await?;
        match asked {
            Asked::Told => {
                self.tell(&format!("asked it to end; if it does not within {wait}, its hold is broken"))
            }
            Asked::Deaf => self.tell(&format!(
                "it cannot be asked from here: ask whoever runs it; if it does not end within {wait}, its hold is broken"
            )),
            Asked::WasGone => return Ok(true),
        }
        let runtime = etcd.runtime();
        let gone = async {
            let gone = before(&*runtime, runtime.now() + wait.0, eviction::gone(&*etcd, &entry)).await;
            gone.transpose().map(|gone| gone.is_some())
        };
        self.visit.ask(gone).await
    }

    /// Asks whether to go on, unless that was said before; and goes on listening whether there is still a need.
    async fn is_confirmed(&mut self) -> Result<Confirmed, Failure> {
        if self.args.force {
            return Ok(Confirmed::Yes);
        }
        let along = match self.others_on_its_lease().await? {
            0 => String::new(),
            others => format!(" {others} more keys on its lease go along."),
        };
        let question = format!(
            "leasehold: lock {:?}: break it?{along} Its holder may be at work, and be so on. [y/N] ",
            self.args.name.as_str()
        );
        let (etcd, entry) = (self.etcd.clone(), self.entry().clone());
        let asked = async { Ok(race(answer(question), eviction::gone(&*etcd, &entry)).await) };
        match self.visit.ask(asked).await? {
            Either::Left(answer) if answer => Ok(Confirmed::Yes),
            Either::Left(_) => Err(Failure::new(
                Code::NOT_ACQUIRED,
                format!("lock {:?}: left as it is", self.args.name.as_str()),
            )),
            Either::Right(gone) => {
                let _ = writeln!(std::io::stderr());
                self.visit.ask(async { gone }).await.map(|()| Confirmed::GoneMeanwhile)
            }
        }
    }

    /// How many keys besides the entry go with its lease, if that is to be revoked.
    async fn others_on_its_lease(&mut self) -> Result<usize, Failure> {
        let lease = self.entry().lease;
        if !self.args.revoke_lease || lease.is_none() {
            return Ok(0);
        }
        let etcd = self.etcd.clone();
        let asked = self.visit.ask(async { etcd.lease_time_to_live(lease, true).await }).await?;
        Ok(asked.keys.iter().filter(|key| **key != self.entry().key).count())
    }

    async fn force(&mut self) -> Result<(), Failure> {
        let (etcd, entry) = (self.etcd.clone(), self.entry().clone());
        match self.visit.ask(eviction::evict(&*etcd, &entry)).await? {
            Evicted::Removed => self.tell_freed("broken", "broken").await?,
            // Its lease may be the client's next hold's: nothing more is done to it.
            Evicted::WasGone => return self.tell_freed("gone", "it has gone by itself").await,
        }
        if self.args.revoke_lease {
            self.revoke(entry.lease).await?;
        }
        Ok(())
    }

    async fn revoke(&mut self, lease: LeaseId) -> Result<(), Failure> {
        if lease.is_none() {
            return Ok(());
        }
        let etcd = self.etcd.clone();
        let revoked = async {
            match etcd.lease_revoke(lease).await {
                Err(error) if error.refusal().is_some_and(|no| no.code == Answer::NotFound) => Ok(()),
                answer => answer.map(drop),
            }
        };
        self.visit.ask(revoked).await.map_err(|mut failure| {
            failure.message += &format!("; the lock is broken, and lease {lease} may not be revoked");
            failure
        })?;
        self.tell(&format!("lease {lease} is revoked"));
        table::print(&format!("revoked {lease}\n"))
    }

    /// Says what was freed: a word and the key for programs, and for people whose turn it is now.
    async fn tell_freed(&mut self, word: &str, how: &str) -> Result<(), Failure> {
        table::print(&format!("{word} {}\n", self.entry().key))?;
        let etcd = self.etcd.clone();
        let next = match self.visit.ask(survey::lock(&*etcd, &self.args.name)).await {
            Ok(view) => match view.queue.first() {
                Some(next) => format!("now it is held by {}", next.entry),
                None => "nobody waits for it".into(),
            },
            // It is done; this was only for the sake of telling.
            Err(_) => "etcd does not tell whose turn it is now".into(),
        };
        self.tell(&format!("{how}; {next}"));
        Ok(())
    }
}

/// Asks at the terminal.
///
/// # Cancel safety
/// Dropped, it leaves a thread behind that reads a line and throws it away.
async fn answer(question: String) -> bool {
    let (tell, told) = oneshot::channel();
    let ask = move || {
        let mut stderr = std::io::stderr();
        let _ = stderr.write_all(question.as_bytes()).and_then(|()| stderr.flush());
        let mut line = String::new();
        let read = std::io::stdin().lock().read_line(&mut line);
        let _ = tell.send(read.is_ok() && matches!(line.trim(), "y" | "Y" | "yes"));
    };
    std::thread::spawn(ask);
    told.await.unwrap_or(false)
}
