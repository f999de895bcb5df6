//! etcd's own command, to see that both sides understand the other's locks.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::contained::{Contained, Program};
use crate::requirement::Part;

/// An etcdctl of a certain version, with the endpoints it is to use.
#[derive(Clone, Debug)]
pub struct Etcdctl {
    path: PathBuf,
    endpoints: String,
}

impl Etcdctl {
    /// etcdctl 3.5 for these endpoints. `None` if it is not on this machine: then that has been said, and the test
    /// must return.
    #[must_use = "a missing etcdctl means the test must return"]
    pub fn find(endpoints: &[String]) -> Option<Self> {
        Self::find_part(Part::Etcdctl, endpoints)
    }

    /// The same for [`Part::Etcdctl`] or [`Part::Etcdctl34`].
    #[must_use = "a missing etcdctl means the test must return"]
    pub fn find_part(part: Part, endpoints: &[String]) -> Option<Self> {
        let available = part.require()?;
        Some(Self { path: available.path, endpoints: endpoints.join(",") })
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn output(&self, args: &[&str]) -> Output {
        let mut command = Command::new(&self.path);
        for name in settings() {
            command.env_remove(name);
        }
        command.env("ETCDCTL_API", "3").env("ETCDCTL_ENDPOINTS", &self.endpoints).args(args);
        command.output().unwrap_or_else(|error| panic!("cannot run {}: {error}", self.path.display()))
    }

    /// Runs it to its end, and gives what it printed.
    ///
    /// # Panics
    /// If it fails, with what it said.
    pub fn run(&self, args: &[&str]) -> String {
        let output = self.output(args);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "etcdctl {}: {}: {said}", args.join(" "), output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Starts it, for a call that does not end by itself, such as `lock NAME`.
    pub fn start(&self, args: &[&str]) -> Contained {
        let program = settings().fold(Program::new(&self.path), Program::without_env).args(args);
        program.env("ETCDCTL_API", "3").env("ETCDCTL_ENDPOINTS", &self.endpoints).start()
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The settings of the person who runs the tests, which must not leak in.
fn settings() -> impl Iterator<Item = OsString> {
    std::env::vars_os().map(|(name, _)| name).filter(|name| name.to_string_lossy().starts_with("ETCDCTL_"))
}

/// Looks in the variable for this version, in the folder where `.ci/fetch-etcdctl` puts it, and on the path.
pub(crate) fn locate(version: &str) -> Result<PathBuf, String> {
    let variable = format!("LEASEHOLD_ETCDCTL{}", version.replace('.', ""));
    if let Some(named) = std::env::var_os(&variable) {
        let path = PathBuf::from(named);
        return match version_of(&path) {
            Some(found) if found == version => Ok(path),
            Some(found) => Err(format!("{variable} names {}, which is of version {found}", path.display())),
            None => Err(format!("{variable} names {}, which is no etcdctl", path.display())),
        };
    }
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cached = workspace.join("target/testbed").join(format!("etcdctl-{version}"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = std::env::split_paths(&path).map(|folder| folder.join("etcdctl"));
    std::iter::once(cached)
        .chain(on_path)
        .find(|path| path.exists() && version_of(path).as_deref() == Some(version))
        .ok_or_else(|| {
            format!("no etcdctl {version}; `.ci/fetch-etcdctl {version}` fetches it, {variable} names one")
        })
}

/// The first two numbers of the version that the program at `path` states.
fn version_of(path: &Path) -> Option<String> {
    let output = Command::new(path).env("ETCDCTL_API", "3").arg("version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.lines().find_map(|line| line.strip_prefix("etcdctl version: "))?;
    let mut numbers = version.split('.');
    Some(format!("{}.{}", numbers.next()?, numbers.next()?))
}
