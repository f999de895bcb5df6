//! What a test plays on: folders of its own, the binary with a clean environment, and processes that end with the test.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use leasehold::Remote;
use leasehold::etcd::Etcd;
use leasehold::mvcc::{KeyRange, RangeRequest};
use leasehold_testbed::{Scratch, block_on};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// No test waits longer for anything.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A process that will not hear of TERM, with a child and a grandchild of the kind. Each says its number.
pub(crate) const STUBBORN: &str = "trap '' TERM; echo $$; \
    sh -c 'trap \"\" TERM; echo $$; sh -c \"trap \\\"\\\" TERM; echo \\$\\$; while :; do sleep 0.05; done\" & \
    while :; do sleep 0.05; done' & while :; do sleep 0.05; done";

/// Folders for one test.
pub(crate) struct Stage {
    scratch: Scratch,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let scratch = Scratch::new("cli");
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o700)).unwrap();
        Self { scratch }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path().join(name)
    }

    /// The binary on this stage.
    pub(crate) fn leasehold<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = self.program(env!("CARGO_BIN_EXE_leasehold"));
        command.args(args);
        command
    }

    /// A program with nothing of the environment that could lead the binary elsewhere, and with no signal ignored
    /// from the start: a job in the background of a script ignores INT and QUIT, and its children keep that. (`env`
    /// becomes the program: the process is the same.)
    pub(crate) fn program(&self, program: &str) -> Command {
        let mut command = Command::new("env");
        command.args(["--default-signal", program]);
        for (name, _) in std::env::vars_os() {
            let name = name.to_string_lossy();
            if ["ETCDCTL_", "LEASEHOLD_", "ETCD_LOCK_", "XDG_"].iter().any(|ours| name.starts_with(ours)) {
                command.env_remove(&*name);
            }
        }
        command.env("XDG_RUNTIME_DIR", self.scratch.path());
        command.env("XDG_STATE_HOME", self.scratch.path().join("state"));
        command.env("LEASEHOLD_LOCAL_IDLE", "3s");
        command
    }

    /// Runs it to its end.
    pub(crate) fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Outcome {
        Running::start(self.leasehold(args)).outcome()
    }

    /// Starts it.
    pub(crate) fn start<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Running {
        Running::start(self.leasehold(args))
    }

    /// A shell script for a command to run under the lock.
    pub(crate) fn shell<'a>(&self, options: &[&'a str], script: &'a str) -> Vec<&'a str> {
        [&["run"][..], options, &["demo", "--", "sh", "-c", script]].concat()
    }

    /// The socket of the etcd that starts by itself.
    pub(crate) fn local_socket(&self) -> PathBuf {
        self.path("leasehold/etcd.sock")
    }

    /// A client of the etcd that starts by itself.
    pub(crate) fn local_etcd(&self) -> Remote {
        Remote::connect(format!("unix://{}", self.local_socket().display())).unwrap()
    }

    /// The keys of a lock's queue there.
    pub(crate) fn queue(&self, name: &str) -> Vec<leasehold::Key> {
        let queue = RangeRequest::range(KeyRange::prefix(format!("{name}/")));
        let range = block_on(async { self.local_etcd().range(queue).await.unwrap() });
        range.kvs.into_iter().map(|kv| kv.key).collect()
    }
}

/// `leasehold serve` on a free port.
pub(crate) struct Served {
    pub(crate) running: Running,
    pub(crate) endpoint: String,
}

impl Served {
    pub(crate) fn start(stage: &Stage) -> Self {
        let running = stage.start(["serve", "--listen", "127.0.0.1:0"]);
        let endpoint = running.line();
        Self { running, endpoint }
    }

    pub(crate) fn etcd(&self) -> Remote {
        Remote::connect(&self.endpoint).unwrap()
    }
}

/// How a process ended, and what it said.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Outcome {
    /// Its exit code.
    #[track_caller]
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or_else(|| panic!("ended by signal {:?}: {self:?}", self.status.signal()))
    }

    #[track_caller]
    pub(crate) fn ended_with(self, code: i32) -> Self {
        assert_eq!(self.code(), code, "{self:?}");
        self
    }
}

/// A process that is killed, with its group, if the test ends first.
pub(crate) struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    stderr: Arc<Mutex<String>>,
    stderr_ended: Option<thread::JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = piped.process_group(0).spawn().unwrap();
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let (send, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        let said = Arc::new(Mutex::new(String::new()));
        let saying = said.clone();
        let stderr_ended = thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                *saying.lock().unwrap() += &(line + "\n");
            }
        });
        Self { stdin: child.stdin.take(), child, lines, stderr: said, stderr_ended: Some(stderr_ended) }
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).unwrap();
    }

    /// The next line on its standard output.
    #[track_caller]
    pub(crate) fn line(&self) -> String {
        self.lines
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|error| panic!("no line came: {error}; it said {:?}", self.said()))
    }

    /// What it has said on standard error up to now.
    pub(crate) fn said(&self) -> String {
        self.stderr.lock().unwrap().clone()
    }

    pub(crate) fn write(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).unwrap();
    }

    pub(crate) fn close_stdin(&mut self) {
        self.stdin = None;
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end and for that of all who have its output.
    #[track_caller]
    pub(crate) fn outcome(mut self) -> Outcome {
        self.close_stdin();
        let status = soon("the process ends", || self.child.try_wait().unwrap());
        let stdout: Vec<String> = std::iter::from_fn(|| self.lines.recv_timeout(PATIENCE).ok()).collect();
        let stdout = stdout.into_iter().map(|line| line + "\n").collect();
        self.stderr_ended.take().unwrap().join().unwrap();
        let stderr = self.said();
        Outcome { status, stdout, stderr }
    }

    /// Waits for its end, and not for others that have its output.
    #[track_caller]
    pub(crate) fn status(&mut self) -> ExitStatus {
        soon("the process ends", || self.child.try_wait().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // A command that runs under a lock has a group of its own, and outlives a leasehold that is killed.
        let pid = self.pid();
        let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        let _ = self.child.kill();
        for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
            let _ = nix::sys::signal::killpg(Pid::from_raw(child), Signal::SIGKILL);
        }
        let _ = self.child.wait();
    }
}

/// Waits until there is an answer.
#[track_caller]
pub(crate) fn soon<T>(what: &str, mut answer: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = answer() {
            return answer;
        }
        assert!(start.elapsed() < PATIENCE, "never happened: {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

/// Whether a process runs; one that has ended and was not waited for does not.
pub(crate) fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(") ")
        .next()
        .and_then(|rest| rest.chars().next())
        .is_some_and(|state| !matches!(state, 'Z' | 'X'))
}

/// The guardians of a leasehold.
pub(crate) fn guardians(leasehold: i32) -> Vec<i32> {
    let children =
        fs::read_to_string(format!("/proc/{leasehold}/task/{leasehold}/children")).unwrap_or_default();
    let children = children.split_whitespace().filter_map(|child| child.parse().ok());
    children.filter(|child| arguments(*child).get(1).is_some_and(|arg| arg == "guardian")).collect()
}

/// The running processes that have these words in their arguments.
pub(crate) fn processes_with(words: &str) -> Vec<i32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| process.file_name().to_str()?.parse().ok())
        .filter(|pid| arguments(*pid).join(" ").contains(words) && runs(&pid.to_string()))
        .collect()
}

fn arguments(pid: i32) -> Vec<String> {
    let args = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let args = args.split(|&byte| byte == 0).map(|arg| String::from_utf8_lossy(arg).into_owned());
    args.filter(|arg| !arg.is_empty()).collect()
}

/// The processes with this folder among their arguments that serve `--local`.
pub(crate) fn daemons(folder: &Path) -> Vec<i32> {
    let wanted = folder.join("leasehold");
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|process| {
            let pid = process.file_name().to_str()?.parse().ok()?;
            let args = fs::read(process.path().join("cmdline")).ok()?;
            let mut args = args.split(|&byte| byte == 0);
            let serves = args.any(|arg| arg == b"--local-daemon")
                && args.next() == Some(wanted.as_os_str().as_encoded_bytes());
            serves.then_some(pid)
        })
        .collect()
}
