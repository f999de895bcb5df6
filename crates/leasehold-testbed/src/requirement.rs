//! Which real parts a test run must have, which it had, and which it did without.
//!
//! A part that is not on this machine makes a test print that it was left out, and pass. If the part is named in
//! `LEASEHOLD_REQUIRE` (a list such as `etcd35,etcd37,etcdctl`, or `all`), the test fails instead, so that a run meant
//! to prove something cannot quietly prove nothing. With `LEASEHOLD_REPORT` set to a file, each process notes there
//! what it used and what it missed; `leasehold-testbed-report FILE` sums that up in one line.

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::Mutex;

use crate::etcd::Version;
use crate::etcdctl;

/// A real program that tests use if it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// An etcd 3.5 server.
    Etcd35,
    /// An etcd 3.7 server.
    Etcd37,
    /// The command etcdctl, of version 3.5.
    Etcdctl,
    /// The command etcdctl, of version 3.4.
    Etcdctl34,
    /// Python, of version 3.
    Python,
}

/// A part that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Available {
    /// Which part.
    pub part: Part,
    /// Its program.
    pub path: PathBuf,
}

impl Part {
    /// Every part there is a word for.
    pub const ALL: [Self; 5] = [Self::Etcd35, Self::Etcd37, Self::Etcdctl, Self::Etcdctl34, Self::Python];

    /// Its word in `LEASEHOLD_REQUIRE` and in the report.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Etcd35 => "etcd35",
            Self::Etcd37 => "etcd37",
            Self::Etcdctl => "etcdctl",
            Self::Etcdctl34 => "etcdctl34",
            Self::Python => "python",
        }
    }

    /// The part, if it is on this machine. If not, the caller's test should return at once: this has already said so.
    ///
    /// # Panics
    /// If it is not there although `LEASEHOLD_REQUIRE` names it, or if that variable names something unknown.
    #[must_use = "a missing part means the test must return"]
    pub fn require(self) -> Option<Available> {
        let found = self.locate();
        let demanded = std::env::var("LEASEHOLD_REQUIRE").unwrap_or_default();
        match judge(self, found, &demanded) {
            Verdict::Use(path) => {
                record("used", self);
                Some(Available { part: self, path })
            }
            Verdict::LeaveOut(why) => {
                record("missing", self);
                // Written past the test harness's capture: a test that was left out must be seen to be.
                let _ = writeln!(std::io::stderr(), "left out: no {} here ({why})", self.name());
                None
            }
            Verdict::Fail(why) => panic!("{why}"),
        }
    }

    fn locate(self) -> Result<PathBuf, String> {
        match self {
            Self::Etcd35 => Version::V35.binary(),
            Self::Etcd37 => Version::V37.binary(),
            Self::Etcdctl => etcdctl::locate("3.5"),
            Self::Etcdctl34 => etcdctl::locate("3.4"),
            Self::Python => on_path("python3"),
        }
    }
}

fn on_path(program: &str) -> Result<PathBuf, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut places = std::env::split_paths(&path).map(|folder| folder.join(program));
    places.find(|place| place.is_file()).ok_or_else(|| format!("no {program} on the path"))
}

enum Verdict {
    Use(PathBuf),
    LeaveOut(String),
    Fail(String),
}

fn judge(part: Part, found: Result<PathBuf, String>, demanded: &str) -> Verdict {
    let words = || demanded.split([',', ' ']).filter(|word| !word.is_empty());
    if let Some(unknown) =
        words().find(|word| *word != "all" && Part::ALL.iter().all(|part| part.name() != *word))
    {
        let known: Vec<_> = Part::ALL.iter().map(|part| part.name()).collect();
        let known = known.join(", ");
        return Verdict::Fail(format!("LEASEHOLD_REQUIRE names {unknown:?}; known are all, {known}"));
    }
    match found {
        Ok(path) => Verdict::Use(path),
        Err(why) if words().any(|word| word == "all" || word == part.name()) => Verdict::Fail(format!(
            "{} is required by LEASEHOLD_REQUIRE={demanded} and not here: {why}",
            part.name()
        )),
        Err(why) => Verdict::LeaveOut(why),
    }
}

/// Notes once per process and part, in one write, so that many processes can share the file.
fn record(word: &'static str, part: Part) {
    static SEEN: Mutex<BTreeSet<Part>> = Mutex::new(BTreeSet::new());
    let first = SEEN.lock().is_ok_and(|mut seen| seen.insert(part));
    let Some(file) = std::env::var_os("LEASEHOLD_REPORT").filter(|_| first) else { return };
    let line = format!("{word} {}\n", part.name());
    let written = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&file)
        .and_then(|mut f| f.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!("cannot note {line:?} in the report {}: {error}", file.display());
    }
}

/// One line about a whole run, from the lines its processes wrote.
pub fn summary(report: &str) -> String {
    let parts = |word: &str| -> BTreeSet<&str> {
        report.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' ')).collect()
    };
    let list = |parts: BTreeSet<&str>| match parts.is_empty() {
        true => "none".to_owned(),
        false => parts.into_iter().collect::<Vec<_>>().join(", "),
    };
    format!("real parts used: {}; left out: {}", list(parts("used")), list(parts("missing")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing() -> Result<PathBuf, String> {
        Err("not installed".into())
    }

    #[test]
    fn a_missing_part_fails_only_where_it_is_required() {
        assert!(matches!(judge(Part::Etcdctl, missing(), ""), Verdict::LeaveOut(_)));
        assert!(matches!(judge(Part::Etcdctl, missing(), "etcd35,etcdctl34"), Verdict::LeaveOut(_)));
        for demanded in ["etcdctl", "etcd35, etcdctl", "all"] {
            let Verdict::Fail(why) = judge(Part::Etcdctl, missing(), demanded) else { panic!("{demanded}") };
            assert!(why.contains("etcdctl is required") && why.contains("not installed"), "{why}");
        }
    }

    #[test]
    fn a_misspelt_requirement_fails_even_where_the_part_is_there() {
        let Verdict::Fail(why) = judge(Part::Etcd35, Ok("/bin/etcd".into()), "etcd3.5") else {
            panic!("passed")
        };
        assert!(why.contains("\"etcd3.5\""), "{why}");
    }

    #[test]
    fn the_summary_names_each_part_once() {
        let report = "used etcd37\nmissing etcdctl\nused etcd35\nused etcd37\n";
        assert_eq!(summary(report), "real parts used: etcd35, etcd37; left out: etcdctl");
        assert_eq!(summary(""), "real parts used: none; left out: none");
    }
}
