//! `leasehold lock`: a lock held by itself, for as long as this program runs.

use std::io::{Read, Write};

use futures_util::future::{Either, pending};
use tokio::sync::oneshot;

use crate::acquire::acquire;
use crate::args::{LockArgs, program_name};
use crate::connect::Connection;
use crate::exit::{Code, Failure};
use crate::notice::{self, Steps};
use crate::request::Request;
use crate::signals::Signals;
use leasehold::runtime::race;

pub(crate) async fn lock(args: &LockArgs) -> Result<Code, Failure> {
    let steps = Steps::new(args.taking.verbose);
    let mut signals = Signals::catch()?;
    let mut connection =
        Connection::open(&args.taking, &args.name, program_name(None), &mut signals, steps).await?;
    let guard = match acquire(&mut connection, &args.name, &args.taking, &mut signals, steps).await {
        Ok(guard) => guard,
        Err(failure) => {
            connection.close(steps).await;
            return Err(failure);
        }
    };
    let outcome = match say(&guard) {
        Ok(()) => {
            let (lost, eof) = (guard.lost(), end_of_input(args.until_eof));
            let mut request = Request::to_leave(&guard, connection.runtime());
            let asked = race(request.heard(), race(signals.end(), eof));
            let taken = race(lost.wait(), connection.gone());
            let name = args.name.as_str();
            match race(taken, asked).await {
                Either::Left(Either::Left(cause)) => {
                    Err(Failure::new(Code::LOST, format!("lock {name:?} is lost: {cause}")))
                }
                Either::Left(Either::Right(())) => {
                    connection.leave_to_expire();
                    let why = "the etcd of --local has ended, and its locks with it";
                    return Err(Failure::new(Code::LOST, format!("lock {name:?} is lost: {why}")));
                }
                Either::Right(Either::Left(by)) => {
                    notice::tell(&format!("lock {name:?}: {by} asks for it; releasing it"));
                    Ok(Code::SUCCESS)
                }
                Either::Right(Either::Right(_)) => Ok(Code::SUCCESS),
            }
        }
        Err(failure) => Err(failure),
    };
    connection.close(steps).await;
    outcome
}

/// Prints the key, as etcdctl does, and the token.
fn say(guard: &leasehold::Guard) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let told = writeln!(stdout, "{}\n{}", guard.key(), guard.token()).and_then(|()| stdout.flush());
    told.map_err(|error| {
        Failure::machine(format!(
            "lock {:?}: released, since its key cannot be printed: {error}",
            guard.name().as_str()
        ))
    })
}

/// Ends when standard input does, if that is wished; what comes on it is read and forgotten.
async fn end_of_input(wished: bool) {
    if !wished {
        return pending().await;
    }
    let (done, ended) = oneshot::channel();
    // A thread, since standard input may be a file, which cannot be waited for.
    std::thread::spawn(move || {
        let mut chunk = [0; 4096];
        let mut stdin = std::io::stdin().lock();
        while !matches!(stdin.read(&mut chunk), Ok(0) | Err(_)) {}
        let _ = done.send(());
    });
    let _ = ended.await;
}
