//! The etcd of `--local`: one for each user, started by whoever needs it first, gone when nobody does.
//!
//! In the user's folder stand its socket and three files that are locked (`flock`), each for one purpose:
//!
//! | file | locked shared | locked alone |
//! |---|---|---|
//! | `users.lock` | by each command, for as long as it runs | by a server that begins, or that leaves |
//! | `alive.lock` | by a thread of each command, which so learns that the server ended | by the server, all its life |
//! | `etcd.sock.lock` | | by the server, see `leasehold_server::Server::bind` |
//!
//! A server leaves only when no command runs, so none is left without its etcd. One that crashed is followed by another
//! only when every command that may hold a lock of it has ended, and they end at once: its locks went with its memory,
//! and two must not hold one.

pub(crate) mod daemon;
mod folder;

use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::Duration;

use leasehold::etcd::Endpoint;
use leasehold::runtime::{Instant, Runtime};
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use tokio::io::AsyncReadExt;
use tokio::process::Command;
use tokio::sync::oneshot;

use crate::exit::{Code, Failure};
use folder::Folder;
use leasehold::runtime::before;

/// How often a lock is tried that somebody is about to give back.
const TRY: Duration = Duration::from_millis(2);

/// What a server says on its standard output when it can be used.
const READY: &str = "ready";

/// A command's right to the user's etcd, which does not leave as long as this lives.
#[derive(Debug)]
pub(crate) struct Membership {
    _user: Flock<File>,
    gone: oneshot::Receiver<()>,
}

impl Membership {
    /// Ends when the server has ended.
    pub(crate) async fn server_gone(&mut self) {
        // An error means that the watching thread could not watch; then the library's own bounds must do.
        if (&mut self.gone).await.is_err() {
            futures_util::future::pending().await
        }
    }
}

/// Joins the user's etcd, and starts it if need be.
pub(crate) async fn join(
    runtime: &dyn Runtime,
    until: Instant,
    what: &str,
) -> Result<(Endpoint, Membership), Failure> {
    let folder = Folder::of_user()?;
    let endpoint = folder.endpoint()?;
    loop {
        let user = loop {
            match folder.lock("users.lock", FlockArg::LockSharedNonblock)? {
                Some(user) => break user,
                None if runtime.now() >= until => {
                    return Err(late(&folder, what, "it neither begins nor leaves"));
                }
                None => runtime.sleep_until(runtime.now() + TRY).await,
            }
        };
        // Whoever can connect while holding this lock has a server that stays.
        if UnixStream::connect(folder.socket()).is_ok() {
            if is_alive(&folder)? {
                let gone = watch(&folder)?;
                return Ok((endpoint, Membership { _user: user, gone }));
            }
            drop(user);
            if runtime.now() >= until {
                let socket = folder.socket();
                let how = format!("something else listens at {}; end that, or remove it", socket.display());
                return Err(late(&folder, what, &how));
            }
            runtime.sleep_until(runtime.now() + TRY * 10).await;
            continue;
        }
        drop(user);
        start(&folder, runtime, until, what).await?;
    }
}

/// Whether there is a server. A socket that takes connections is not enough: one that has just been killed may still do so,
/// and so may something that is no server of ours.
fn is_alive(folder: &Folder) -> Result<bool, Failure> {
    Ok(folder.lock("alive.lock", FlockArg::LockSharedNonblock)?.is_none())
}

/// Starts a server, or waits for one that another command is starting.
async fn start(folder: &Folder, runtime: &dyn Runtime, until: Instant, what: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::machine(format!("{what}: cannot start the etcd of --local: {error}"))
    };
    let log = folder.log().map_err(failed)?;
    let mut server = std::process::Command::new(std::env::current_exe().map_err(failed)?);
    server
        .arg("serve")
        .arg("--local-daemon")
        .arg(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        // What is this command's own business, its secrets above all, is none of a server's that outlives it.
        .env_clear()
        .envs(std::env::var_os(daemon::IDLE).map(|idle| (daemon::IDLE, idle)));
    let mut server = Command::from(server).spawn().map_err(failed)?;
    let mut said = String::new();
    if let Some(mut stdout) = server.stdout.take() {
        // It closes its output once it has said what there is to say.
        match before(runtime, until, stdout.read_to_string(&mut said)).await {
            None => return Err(late(folder, what, "it did not start")),
            Some(Err(error)) => return Err(failed(error)),
            Some(Ok(_)) => {}
        }
    }
    match said.trim() {
        READY => Ok(()),
        "" => Err(late(folder, what, "it ended without a word")),
        refusal => {
            let refusal = format!("{what}: the etcd of --local: {refusal}");
            // It ends right after these words, and its code says whose fault it was.
            let ended = before(runtime, until, server.wait()).await.and_then(Result::ok);
            let code = ended.map_or(Code::UNREACHABLE, Code::of_status);
            let is_known = [Code::USAGE, Code::MACHINE].contains(&code);
            Err(Failure::new(if is_known { code } else { Code::UNREACHABLE }, refusal))
        }
    }
}

fn late(folder: &Folder, what: &str, how: &str) -> Failure {
    let message = format!(
        "{what}: the etcd of --local cannot be used within --connect-timeout: {how}; see {}",
        folder.log_path().display()
    );
    Failure::new(Code::UNREACHABLE, message)
}

/// Has a thread wait for the server's end: the lock that it has all its life is free then, however it ended.
fn watch(folder: &Folder) -> Result<oneshot::Receiver<()>, Failure> {
    let mut alive = folder.open("alive.lock")?;
    let (tell, gone) = oneshot::channel();
    let wait = move || {
        loop {
            match Flock::lock(alive, FlockArg::LockShared) {
                Ok(_) => return tell.send(()),
                Err((file, Errno::EINTR)) => alive = file,
                Err(_) => return Ok(()),
            }
        }
    };
    std::thread::Builder::new()
        .name("local-etcd-gone".into())
        .stack_size(64 << 10)
        .spawn(wait)
        .map_err(|error| Failure::machine(format!("cannot watch the etcd of --local: {error}")))?;
    Ok(gone)
}
