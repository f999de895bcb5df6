//! `leasehold serve`: an embedded etcd in the foreground.

use std::io::Write;
use std::path::{Path, PathBuf};

use futures_util::future::{Either, join_all};
use leasehold::Embedded;
use leasehold::etcd::EmbeddedOptions;
use leasehold::mvcc::StoreOptions;
use leasehold::runtime::SystemRuntime;
use leasehold_server::{Address, Server};
use tokio_util::sync::CancellationToken;

use crate::args::ServeArgs;
use crate::exit::{Code, Failure};
use crate::floor::Floor;
use crate::local::daemon;
use crate::notice;
use crate::signals::Signals;
use leasehold::runtime::race;

pub(crate) async fn serve(args: &ServeArgs) -> Result<Code, Failure> {
    if let Some(folder) = &args.local_daemon {
        return daemon::serve(folder).await;
    }
    let mut signals = Signals::catch()?;
    let mut floor = Floor::reserve(&state_dir(args.state_dir.as_deref())?.join("revision-floor"))?;
    let etcd = embedded(&floor)?;
    let mut servers = Vec::new();
    for (setting, address) in addresses(args) {
        let server = Server::bind(address, etcd.clone()).await;
        servers.push(server.map_err(|error| Failure::machine(format!("{setting}: {error}")))?);
    }
    warn_if_open(&servers);
    say(&servers)?;
    let stop = CancellationToken::new();
    let served = join_all(servers.into_iter().map(|server| server.serve(stop.clone().cancelled_owned())));
    let ended = async {
        let ended = race(signals.end(), floor.keep(&etcd)).await;
        stop.cancel();
        ended
    };
    // Both run to their end: what is under way is answered before the program goes.
    match futures_util::future::join(served, ended).await.1 {
        Either::Left(_signal) => Ok(Code::SUCCESS),
        Either::Right(failure) => Err(failure),
    }
}

/// An etcd that begins above every revision that was given out before it.
pub(crate) fn embedded(floor: &Floor) -> Result<Embedded, Failure> {
    let failed = |error| Failure::of_library("the embedded etcd", &error);
    let defaults = EmbeddedOptions::default();
    let store = StoreOptions { first_revision: floor.first(), ..defaults.store };
    Ok(Embedded::new(SystemRuntime::shared().map_err(failed)?, EmbeddedOptions { store }))
}

/// Where to listen, each with the setting that says so.
fn addresses(args: &ServeArgs) -> Vec<(String, Address)> {
    let mut addresses = Vec::new();
    if let Some(listen) = args.listen {
        addresses.push((format!("--listen {listen}"), Address::from(listen)));
    }
    if let Some(socket) = &args.socket {
        addresses.push((format!("--socket {}", socket.display()), Address::from(socket.as_path())));
    }
    if addresses.is_empty() {
        addresses.push(("--listen 127.0.0.1:2379 (the default)".into(), Address::loopback(2379)));
    }
    addresses
}

/// Prints one address a line: what `--endpoints` takes, with the port that the system chose.
fn say(servers: &[Server]) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    for server in servers {
        writeln!(stdout, "{}", server.address())
            .map_err(|error| Failure::machine(format!("cannot print the address: {error}")))?;
    }
    stdout.flush().map_err(|error| Failure::machine(format!("cannot print the address: {error}")))
}

fn warn_if_open(servers: &[Server]) {
    for server in servers {
        if let Address::Tcp(address) = server.address()
            && !address.ip().is_loopback()
        {
            notice::tell(&format!(
                "warning: --listen {address} can be reached from other machines, without TLS and without a password: \
                 whoever reaches it can take and break every lock"
            ));
        }
    }
}

/// The folder for the floor, made if it is not there.
fn state_dir(given: Option<&Path>) -> Result<PathBuf, Failure> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = given
        .map(Path::to_path_buf)
        .or_else(|| variable("XDG_STATE_HOME").map(|state| state.join("leasehold")))
        .or_else(|| variable("HOME").map(|home| home.join(".local/state/leasehold")))
        .ok_or_else(|| {
            Failure::usage("--state-dir: neither XDG_STATE_HOME nor HOME is set; name a folder")
        })?;
    std::fs::create_dir_all(&folder)
        .map_err(|error| Failure::machine(format!("--state-dir {}: {error}", folder.display())))?;
    Ok(folder)
}
