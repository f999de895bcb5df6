//! Real etcd servers, started for a test and gone with it.

mod options;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::authority::Identity;
use crate::contained::{Contained, Program, Scratch};
use crate::etcdctl::Etcdctl;
use crate::gateway::Gateway;
use crate::ports::Port;
pub use options::{Options, Secure, Version};

/// How long a server may take until it serves.
const START: Duration = Duration::from_secs(60);

/// A server. It dies with this value, or with the test process, however that ends; its data and log go too, unless
/// `LEASEHOLD_KEEP` is set. If the test panics, the end of the log is shown.
///
/// All calls block the calling thread, and panic with the log if etcd does not do its part.
pub struct RealEtcd {
    version: Version,
    options: Options,
    name: String,
    client: Port,
    secure: Port,
    peer: Port,
    /// The value of `--initial-cluster`.
    cluster: String,
    process: Mutex<Option<Contained>>,
    scratch: Scratch,
}

impl RealEtcd {
    /// A server of its own cluster, healthy. `None` if this version is not on this machine: then that has been said,
    /// and the test must return.
    #[must_use = "a missing etcd means the test must return"]
    pub fn start(version: Version, options: Options) -> Option<Self> {
        version.part().require()?;
        // A port may be taken by a stranger between the choice and its use: choose again.
        for _ in 0..10 {
            let mut server = Self::prepare(version, options.clone(), "m0");
            server.cluster = server.peer_entry();
            server.launch();
            if server.healthy_or_clash().is_ok() {
                return Some(server);
            }
        }
        panic!("etcd found its ports taken ten times");
    }

    /// Ports and a folder, for a member that is to be started once all members are known.
    pub(crate) fn prepare(version: Version, options: Options, name: &str) -> Self {
        let scratch = Scratch::new("etcd");
        let (client, secure, peer) = (Port::reserve(), Port::reserve(), Port::reserve());
        let (cluster, process) = (String::new(), Mutex::new(None));
        Self { version, options, name: name.to_owned(), client, secure, peer, cluster, process, scratch }
    }

    pub(crate) fn peer_entry(&self) -> String {
        format!("{}=http://127.0.0.1:{}", self.name, self.peer.number())
    }

    pub(crate) fn join(&mut self, cluster: &str) {
        cluster.clone_into(&mut self.cluster);
    }

    /// Its version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Its address for clients.
    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.client.number())
    }

    /// The same as the list that clients take.
    pub fn endpoints(&self) -> Vec<String> {
        vec![self.endpoint()]
    }

    /// Its address for clients on secure connections, if it was asked for them.
    pub fn secure_endpoint(&self) -> Option<String> {
        self.options.secure.as_ref().map(|_| format!("https://127.0.0.1:{}", self.secure.number()))
    }

    /// Shows another certificate from the next connection on, also after a restart. Both parts are in one file that is
    /// put in place whole: an etcd that finds half a file ends.
    pub fn show(&self, identity: &Identity) {
        let (path, draft) = (self.identity_path(), self.scratch.path().join("server.pem.new"));
        fs::write(&draft, [&*identity.certificate, &*identity.key].concat())
            .and_then(|()| fs::rename(&draft, &path))
            .unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    }

    fn identity_path(&self) -> PathBuf {
        self.scratch.path().join("server.pem")
    }

    /// Its Unix socket for clients, if it was asked for one.
    pub fn unix_socket(&self) -> Option<PathBuf> {
        self.options.unix_socket.then(|| self.scratch.path().join("client.sock"))
    }

    /// Its JSON face.
    pub fn gateway(&self) -> Gateway {
        Gateway::new(&self.endpoint())
    }

    /// What it has logged so far.
    pub fn log(&self) -> String {
        fs::read(self.log_path()).map(|log| String::from_utf8_lossy(&log).into_owned()).unwrap_or_default()
    }

    /// Its process id, if it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process().as_ref().map(Contained::pid)
    }

    /// Kills it, as a power cut would, and waits until it is gone. Its data stays.
    pub fn kill(&self) {
        // Taken out first, so that no lock is held meanwhile.
        let process = self.process().take();
        if let Some(process) = process {
            process.kill();
        }
    }

    /// Kills it if it runs, starts it on the same data and address, and waits until it serves.
    pub fn restart(&self) {
        self.launch();
        self.wait_healthy();
    }

    /// Kills it if it runs and starts it on the same data and address, without waiting.
    pub fn launch(&self) {
        self.kill();
        *self.process() = Some(self.program().start());
    }

    /// As [`RealEtcd::restart`], but with an empty store: same address, same cluster id, revisions from 1 on.
    /// Only for a server that is its own cluster; members of a larger one would not take it back.
    pub fn wipe_and_restart(&self) {
        self.kill();
        remove(&self.data_path());
        self.restart();
    }

    /// A copy of its data as it is now. It is restarted for that, if it runs.
    pub fn backup(&self) -> Backup {
        let ran = self.pid().is_some();
        self.kill();
        let backup = Backup(Scratch::new("backup"));
        copy(&self.data_path(), &backup.0.path().join("data"));
        if ran {
            self.restart();
        }
        backup
    }

    /// As [`RealEtcd::restart`], but with the data of a backup: revisions go back to what they were.
    pub fn restore_and_restart(&self, backup: &Backup) {
        self.kill();
        remove(&self.data_path());
        copy(&backup.0.path().join("data"), &self.data_path());
        self.restart();
    }

    /// Kills it, and puts what `etcdctl snapshot restore` makes of a snapshot in the place of its data, as an operator does
    /// after a disaster: the members of a cluster one by one, which are launched together then. Of 3.5 alone.
    ///
    /// # Panics
    /// If etcdctl fails.
    pub fn restore_snapshot(&self, etcdctl: &Etcdctl, snapshot: &Path) {
        self.kill();
        remove(&self.data_path());
        let (data, snapshot) = (self.data_path(), snapshot.display().to_string());
        etcdctl.run(&[
            "snapshot",
            "restore",
            &snapshot,
            &format!("--name={}", self.name),
            &format!("--data-dir={}", data.display()),
            &format!("--initial-cluster={}", self.cluster),
            &format!("--initial-cluster-token={}", self.cluster),
            &format!("--initial-advertise-peer-urls=http://127.0.0.1:{}", self.peer.number()),
        ]);
    }

    /// Stops it where it stands: connections stay open, and nothing is answered.
    pub fn freeze(&self) {
        self.process().as_ref().expect("a server that runs").freeze();
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        self.process().as_ref().expect("a server that runs").thaw();
    }

    /// Waits until it serves linearizable reads.
    pub fn wait_healthy(&self) {
        let start = Instant::now();
        // On a restart a stranger's hold on the port is over sooner or later.
        while let Err(Clash) = self.healthy_or_clash() {
            assert!(start.elapsed() < START, "etcd cannot have its ports back{}", self.log_tail());
            std::thread::sleep(Duration::from_millis(100));
            self.launch();
        }
    }

    pub(crate) fn healthy_or_clash(&self) -> Result<(), Clash> {
        let (start, gateway) = (Instant::now(), self.gateway());
        loop {
            let alive = self.process().as_ref().is_some_and(Contained::is_alive);
            if !alive {
                let tail = self.log_tail();
                return if tail.contains("address already in use") {
                    Err(Clash)
                } else {
                    panic!("etcd ended{tail}")
                };
            }
            if gateway.is_healthy() {
                return Ok(());
            }
            assert!(start.elapsed() < START, "etcd is not healthy after {START:?}{}", self.log_tail());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn program(&self) -> Program {
        let binary = self.version.binary().unwrap_or_else(|why| panic!("{why}"));
        let options = &self.options;
        let (client, peer) = (self.endpoint(), format!("http://127.0.0.1:{}", self.peer.number()));
        let mut listen = client.clone();
        if let Some(socket) = self.unix_socket() {
            let _ = fs::remove_file(&socket);
            listen = format!("{listen},unix://{}", socket.display());
        }
        let mut secure = Vec::new();
        if let (Some(Secure { identity, clients }), Some(endpoint)) =
            (&options.secure, self.secure_endpoint())
        {
            if !self.identity_path().exists() {
                self.show(identity);
            }
            listen = format!("{listen},{endpoint}");
            secure.push(format!("--cert-file={}", self.identity_path().display()));
            secure.push(format!("--key-file={}", self.identity_path().display()));
            if let Some(authority) = clients {
                let file = self.scratch.path().join("clients.pem");
                fs::write(&file, authority)
                    .unwrap_or_else(|error| panic!("cannot write {}: {error}", file.display()));
                secure.push(format!("--trusted-ca-file={}", file.display()));
                secure.push("--client-cert-auth".into());
            }
        }
        let mut args = vec![
            format!("--name={}", self.name),
            format!("--data-dir={}", self.data_path().display()),
            format!("--listen-client-urls={listen}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster={}", self.cluster),
            format!("--initial-cluster-token={}", self.cluster),
        ];
        if !options.fsync {
            args.push("--unsafe-no-fsync".into());
        }
        if let Some(heartbeat) = options.heartbeat {
            args.push(format!("--heartbeat-interval={}", heartbeat.as_millis()));
        }
        if let Some(election) = options.election {
            args.push(format!("--election-timeout={}", election.as_millis()));
        }
        if let Some(bytes) = options.quota_bytes {
            args.push(format!("--quota-backend-bytes={bytes}"));
        }
        args.extend(secure);
        args.extend(options.args.iter().cloned());
        Program::new(binary).args(args).log(self.log_path()).scratch(self.scratch.path())
    }

    fn process(&self) -> MutexGuard<'_, Option<Contained>> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn data_path(&self) -> PathBuf {
        self.scratch.path().join("data")
    }

    fn log_path(&self) -> PathBuf {
        self.scratch.path().join("etcd.log")
    }

    fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        let tail = lines[lines.len().saturating_sub(30)..].join("\n");
        format!("; the end of the log of {} at {}:\n{tail}", self.name, self.endpoint())
    }
}

impl Drop for RealEtcd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the test failed{}", self.log_tail());
        }
        self.kill();
    }
}

impl fmt::Debug for RealEtcd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RealEtcd")
            .field("version", &self.version)
            .field("endpoint", &self.endpoint())
            .field("pid", &self.pid())
            .finish_non_exhaustive()
    }
}

/// A copy of a server's data, there for as long as this value.
#[derive(Debug)]
pub struct Backup(Scratch);

/// Somebody else has the port.
#[derive(Debug)]
pub(crate) struct Clash;

fn remove(folder: &Path) {
    fs::remove_dir_all(folder).unwrap_or_else(|error| panic!("cannot remove {}: {error}", folder.display()));
}

fn copy(from: &Path, to: &Path) {
    let result = (|| -> std::io::Result<()> {
        fs::create_dir_all(to)?;
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let target = to.join(entry.file_name());
            if entry.file_type()?.is_dir() {
                copy(&entry.path(), &target);
            } else {
                fs::copy(entry.path(), target)?;
            }
        }
        Ok(())
    })();
    result.unwrap_or_else(|error| panic!("cannot copy {} to {}: {error}", from.display(), to.display()));
}
