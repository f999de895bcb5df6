//! `leasehold`: runs a command under a distributed lock, holds one by itself, or serves an embedded etcd.
//!
//! | file | holds |
//! |---|---|
//! | `args`, `duration`, `exit` | what is typed, and what comes back: options, durations, exit codes |
//! | `access`, `site` | which etcd, as whom, and by what certificates |
//! | `connect`, `local` | the session on it, and the etcd that starts by itself |
//! | `acquire`, `waiting` | getting the lock; telling whom the wait is for |
//! | `run`, `lock` | running a command under it; holding it |
//! | `child`, `signals`, `terminal` | the command's process group, what is forwarded to it, who owns the terminal |
//! | `front` | what the shell stops at a terminal, while the lock is kept |
//! | `guardian`, `gate` | who ends the command if this process cannot, and what keeps it from beginning unguarded |
//! | `visit` | etcd asked without a session |
//! | `ls`, `show` | who holds which lock, and who waits |
//! | `breaking` | a lock taken from whoever has it |
//! | `sight`, `table`, `moment` | how that is told |
//! | `serve`, `floor` | the embedded etcd in the foreground, and the revisions it must not give out twice |

#![allow(
    clippy::disallowed_methods,
    reason = "a program and not the library: nothing here is replayed, and the processes it minds are outside any simulation"
)]

#[cfg(not(unix))]
compile_error!("leasehold minds process groups and signals, which only Unix has");

mod access;
mod acquire;
mod args;
mod breaking;
mod child;
mod connect;
mod duration;
mod exit;
mod floor;
mod front;
mod gate;
mod guardian;
mod local;
mod lock;
mod ls;
mod moment;
mod notice;
mod request;
mod run;
mod serve;
mod show;
mod sight;
mod signals;
mod site;
mod table;
mod terminal;
mod visit;
mod waiting;

use std::process::ExitCode;

use args::{Command, Parsed};
use exit::{Code, Failure};

fn main() -> ExitCode {
    let outcome = match args::parse(std::env::args_os()) {
        Parsed::Command(command) => execute(&command),
        Parsed::Told(code) => Ok(code),
        Parsed::Failure(failure) => Err(failure),
    };
    let code = outcome.unwrap_or_else(|failure| {
        notice::failure(&failure);
        failure.code
    });
    // At once: the library's threads, and one that reads standard input, need not be waited for.
    std::process::exit(i32::from(code.get()));
}

fn execute(command: &Command) -> Result<Code, Failure> {
    // Beside the command, or about to be it: neither needs anything of what follows.
    match command {
        Command::Guardian(args) => return guardian::stand(&args.lock, args.order.as_deref()),
        Command::AtGate(args) => return gate::pass(args.way, &args.command),
        _ => {}
    }
    // One thread, the main one: the few things that happen here happen one after the other, and start-up is short.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::machine(format!("cannot start: {error}")))?;
    let outcome = runtime.block_on(async {
        match command {
            Command::Run(args) => run::run(args).await.map_err(|failure| args.taking.access.advise(failure)),
            Command::Lock(args) => {
                lock::lock(args).await.map_err(|failure| args.taking.access.advise(failure))
            }
            Command::Ls(args) => ls::ls(args).await.map_err(|failure| args.access.advise(failure)),
            Command::Show(args) => show::show(args).await.map_err(|failure| args.access.advise(failure)),
            Command::Break(args) => {
                breaking::break_lock(args).await.map_err(|failure| args.access.advise(failure))
            }
            Command::Serve(args) => serve::serve(args).await,
            Command::Guardian(_) | Command::AtGate(_) => Ok(Code::SUCCESS),
        }
    });
    // Not waiting for a thread that may be stuck in telling something to nobody.
    runtime.shutdown_background();
    outcome
}
