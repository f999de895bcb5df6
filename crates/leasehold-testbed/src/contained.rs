//! A child process that cannot outlive its test.
//!
//! A small shell stands between the test and the child. It starts the child, then reads from a pipe whose other end
//! only the test process holds. When that end closes, because the test asked for it or because the test process is
//! gone in whatever way, the shell kills the child and removes its scratch folder. This needs no parent-death signal,
//! which safe Rust cannot ask for, and it works when the test process is killed with `SIGKILL`.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::process::{Pid, Signal, kill_process};

/// `$1`: a folder to remove at the end, or nothing. `$2`: a file for the child's output, or nothing. Then the child.
/// The inner shell says its process id and becomes the child, so the id is the first line on standard output.
const SHIM: &str = r#"
scratch=$1; log=$2; shift 2
if [ -n "$log" ]; then
    sh -c 'echo $$; exec "$@" >>"$0" 2>&1' "$log" "$@" &
else
    sh -c 'echo $$; exec "$@"' sh "$@" &
fi
child=$!
exec >/dev/null
last=$(cat)
kill -KILL "$child" 2>/dev/null
wait "$child" 2>/dev/null
if [ -n "$scratch" ] && [ "$last" != keep ]; then rm -rf "$scratch"; fi
"#;

/// What to run, and where its output goes.
#[derive(Clone, Debug)]
pub struct Program {
    path: PathBuf,
    args: Vec<OsString>,
    envs: Vec<(OsString, OsString)>,
    unset: Vec<OsString>,
    log: Option<PathBuf>,
    scratch: Option<PathBuf>,
}

impl Program {
    /// The program at `path`, without arguments. Its output can be read with [`Contained::lines`].
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            args: Vec::new(),
            envs: Vec::new(),
            unset: Vec::new(),
            log: None,
            scratch: None,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args(mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        self.args.extend(args.into_iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Sets a variable of its environment.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.envs.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Takes a variable out of its environment.
    #[must_use]
    pub fn without_env(mut self, name: impl AsRef<OsStr>) -> Self {
        self.unset.push(name.as_ref().to_owned());
        self
    }

    /// Appends everything it prints to this file.
    #[must_use]
    pub fn log(mut self, file: impl Into<PathBuf>) -> Self {
        self.log = Some(file.into());
        self
    }

    /// Removes this folder if the test process dies first.
    #[must_use]
    pub fn scratch(mut self, folder: impl Into<PathBuf>) -> Self {
        self.scratch = Some(folder.into());
        self
    }

    /// Starts it.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(&self) -> Contained {
        let absent = OsStr::new("");
        let mut shim = Command::new("sh");
        for name in &self.unset {
            shim.env_remove(name);
        }
        let mut shim = shim
            .arg("-c")
            .arg(SHIM)
            .arg("leasehold-testbed-shim")
            .arg(self.scratch.as_ref().filter(|_| !kept()).map_or(absent, |path| path.as_os_str()))
            .arg(self.log.as_ref().map_or(absent, |path| path.as_os_str()))
            .arg(&self.path)
            .args(&self.args)
            .envs(self.envs.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // A group of its own, so that an interrupt at the terminal ends the test first and the child through it.
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot start sh for {}: {error}", self.path.display()));
        let leash = shim.stdin.take();
        let mut output = BufReader::new(shim.stdout.take().expect("standard output is a pipe"));
        let mut first = String::new();
        output.read_line(&mut first).expect("the shim prints the process id");
        let pid = first.trim().parse().ok().and_then(Pid::from_raw);
        let pid = pid.unwrap_or_else(|| panic!("{} gave {first:?} for its process id", self.path.display()));
        Contained { shim, leash, output: Some(output), pid }
    }
}

/// A running child process. Dropping this kills it.
pub struct Contained {
    shim: Child,
    leash: Option<ChildStdin>,
    output: Option<BufReader<ChildStdout>>,
    pid: Pid,
}

impl Contained {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Whether it still runs; a frozen one does.
    pub fn is_alive(&self) -> bool {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid()));
        // The state stands behind the program's name, which is in parentheses and may hold anything.
        stat.is_ok_and(|stat| {
            !matches!(stat.rsplit(") ").next().and_then(|rest| rest.chars().next()), Some('Z' | 'X'))
        })
    }

    /// Stops it where it stands, as a long pause would.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets a frozen one go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Asks it to end in good order.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// What it prints, line by line, until it ends. Only once, and only without a log.
    pub fn lines(&mut self) -> std::io::Lines<BufReader<ChildStdout>> {
        self.output.take().expect("the output is read once only").lines()
    }

    /// Kills it and waits until it is gone.
    pub fn kill(mut self) {
        self.end();
    }

    fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal)
            .unwrap_or_else(|error| panic!("cannot send {signal:?} to process {}: {error}", self.pid()));
    }

    fn end(&mut self) {
        let Some(mut leash) = self.leash.take() else { return };
        // The scratch folder is the owner's to remove from here on. If the shim is gone, so is the child's keeper.
        let _ = leash.write_all(b"keep\n");
        drop(leash);
        let _ = self.shim.wait();
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        self.end();
    }
}

impl fmt::Debug for Contained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Contained").field("pid", &self.pid()).finish_non_exhaustive()
    }
}

/// A folder that is there for as long as this value, or for ever if `LEASEHOLD_KEEP` is set.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A new empty folder with `name` in its name.
    pub fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let parent = std::env::temp_dir();
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = parent.join(format!("leasehold-{name}-{}-{count}", std::process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Self(path),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => panic!("cannot make the folder {}: {error}", path.display()),
            }
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !kept() {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// Whether folders are to be kept for people to look at.
fn kept() -> bool {
    std::env::var_os("LEASEHOLD_KEEP").is_some()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn soon(what: &str, mut true_now: impl FnMut() -> bool) {
        let start = Instant::now();
        while !true_now() {
            assert!(start.elapsed() < Duration::from_secs(20), "never happened: {what}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn runs(pid: u32) -> bool {
        Path::new(&format!("/proc/{pid}")).exists()
    }

    #[test]
    fn a_killed_child_is_gone_when_kill_returns() {
        let child = Program::new("sleep").args(["1000"]).start();
        let pid = child.pid();
        assert!(child.is_alive() && runs(pid));
        child.freeze();
        child.kill();
        assert!(!runs(pid));
    }

    #[test]
    fn a_child_that_ends_by_itself_is_seen_to_have_ended_and_its_output_ends() {
        let mut child = Program::new("echo").args(["one two"]).start();
        let lines: Vec<_> = child.lines().map(Result::unwrap).collect();
        assert_eq!(lines, ["one two"]);
        soon("the child is seen to be gone", || !child.is_alive());
    }

    #[test]
    fn a_child_and_its_folder_are_gone_after_its_test_process_was_killed() {
        let scratch = Scratch::new("orphan");
        let folder = scratch.path().join("inner");
        fs::create_dir(&folder).unwrap();
        // This shell stands for a test process: it holds the only writing end of the shim's pipe, and is killed.
        let script =
            r#"mkfifo "$1/leash"; sh -c "$2" shim "$1" "" sleep 1000 <"$1/leash" & exec 9>"$1/leash"; wait"#;
        let mut parent = Command::new("sh")
            .args(["-c", script, "parent"])
            .arg(&folder)
            .arg(SHIM)
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut first = String::new();
        BufReader::new(parent.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let pid: u32 = first.trim().parse().unwrap();
        assert!(runs(pid));
        parent.kill().unwrap();
        parent.wait().unwrap();
        soon("the child is killed", || !runs(pid));
        soon("the folder is removed", || !folder.exists());
    }
}
