//! The folder of the user's etcd: where it is, and that it is the user's alone.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use leasehold::etcd::Endpoint;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::unistd::geteuid;

use crate::exit::Failure;

/// The longest path of a socket that the system takes.
const LONGEST: usize = 107;

const VARIABLE: &str = "XDG_RUNTIME_DIR";

/// A folder that only its user can enter.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: PathBuf,
}

impl Folder {
    /// `$XDG_RUNTIME_DIR/leasehold`; without that variable, as in a cron job, the place it usually names, so that such
    /// a job and the same user's terminal meet; else a folder in `/tmp`.
    pub(crate) fn of_user() -> Result<Self, Failure> {
        let uid = geteuid().as_raw();
        let named = std::env::var_os(VARIABLE).filter(|named| !named.is_empty()).map(PathBuf::from);
        let usual = PathBuf::from(format!("/run/user/{uid}"));
        let path = match named {
            Some(named) if named.is_absolute() => named.join("leasehold"),
            Some(named) => {
                return Err(Failure::usage(format!(
                    "{VARIABLE}={named:?} is not an absolute path; correct or unset it"
                )));
            }
            None if fs::metadata(&usual).is_ok_and(|usual| usual.is_dir() && usual.uid() == uid) => {
                usual.join("leasehold")
            }
            None => PathBuf::from(format!("/tmp/leasehold-{uid}")),
        };
        let folder = Self { path };
        folder.check_length()?;
        match fs::DirBuilder::new().mode(0o700).create(&folder.path) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                let shown = folder.path.display();
                return Err(Failure::machine(format!(
                    "cannot make {shown} for --local: {error}; is {VARIABLE} right?"
                )));
            }
        }
        folder.check_owner(uid)?;
        Ok(folder)
    }

    /// A folder that was found and checked by the command that starts the server.
    pub(crate) fn at(path: &Path) -> Result<Self, Failure> {
        let folder = Self { path: path.into() };
        folder.check_length()?;
        folder.check_owner(geteuid().as_raw())?;
        Ok(folder)
    }

    fn check_length(&self) -> Result<(), Failure> {
        let socket = self.socket();
        let bytes = socket.as_os_str().as_bytes().len();
        if bytes > LONGEST {
            return Err(Failure::usage(format!(
                "{VARIABLE} is too long for --local: {} has {bytes} bytes, and the system takes {LONGEST} for a socket; \
                 set {VARIABLE} to a shorter path",
                socket.display()
            )));
        }
        Ok(())
    }

    /// In `/tmp` anybody may have made it first, to listen to what is not meant for them.
    fn check_owner(&self, uid: u32) -> Result<(), Failure> {
        let shown = self.path.display();
        let refused = |why: String| Failure::machine(format!("{shown} cannot be used for --local: {why}"));
        let folder = fs::symlink_metadata(&self.path).map_err(|error| refused(error.to_string()))?;
        if !folder.is_dir() {
            return Err(refused("it is not a folder; remove it".into()));
        }
        if folder.uid() != uid {
            return Err(refused(format!("it belongs to user {} and not to user {uid}", folder.uid())));
        }
        if folder.mode() & 0o077 != 0 {
            return Err(refused(format!(
                "others may enter it (mode {:o}); say chmod 700 {shown}",
                folder.mode() & 0o777
            )));
        }
        Ok(())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path.join("etcd.sock")
    }

    pub(crate) fn floor(&self) -> PathBuf {
        self.path.join("revision-floor")
    }

    /// How the library is told of the socket.
    pub(crate) fn endpoint(&self) -> Result<Endpoint, Failure> {
        let socket = self.socket();
        let text =
            socket.to_str().ok_or_else(|| Failure::usage(format!("{VARIABLE}: {socket:?} is not UTF-8")))?;
        format!("unix://{text}").parse().map_err(|error| Failure::usage(format!("{VARIABLE}: {error}")))
    }

    pub(crate) fn log_path(&self) -> PathBuf {
        self.path.join("server.log")
    }

    /// What the server has to complain of.
    pub(crate) fn log(&self) -> io::Result<File> {
        OpenOptions::new().create(true).append(true).mode(0o600).open(self.log_path())
    }

    pub(crate) fn open(&self, name: &str) -> Result<File, Failure> {
        let path = self.path.join(name);
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&path);
        file.map_err(|error| Failure::machine(format!("cannot open {} for --local: {error}", path.display())))
    }

    /// Locks one of the folder's files; `None` if somebody else has it.
    pub(crate) fn lock(&self, name: &str, how: FlockArg) -> Result<Option<Flock<File>>, Failure> {
        match Flock::lock(self.open(name)?, how) {
            Ok(lock) => Ok(Some(lock)),
            Err((_, Errno::EWOULDBLOCK | Errno::EINTR)) => Ok(None),
            Err((_, errno)) => Err(Failure::machine(format!(
                "cannot lock {} for --local: {errno}",
                self.path.join(name).display()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use leasehold_testbed::Scratch;

    use super::*;

    #[test]
    fn a_folder_that_others_may_enter_is_refused() {
        let scratch = Scratch::new("folder");
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o750)).unwrap();
        let refusal = Folder::at(scratch.path()).unwrap_err().message;
        assert!(refusal.contains("chmod 700"), "{refusal}");
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o700)).unwrap();
        assert!(Folder::at(scratch.path()).is_ok());
    }

    #[test]
    fn a_link_to_a_folder_is_refused() {
        let scratch = Scratch::new("folder");
        let link = scratch.path().join("link");
        std::os::unix::fs::symlink(scratch.path(), &link).unwrap();
        assert!(Folder::at(&link).unwrap_err().message.contains("not a folder"));
    }

    #[test]
    fn a_socket_path_that_is_too_long_is_refused_by_the_name_of_the_setting() {
        let long = Folder { path: PathBuf::from(format!("/{}", "x".repeat(LONGEST - "//etcd.sock".len()))) };
        assert!(long.check_length().is_ok());
        let longer =
            Folder { path: PathBuf::from(format!("/{}", "x".repeat(LONGEST - "//etcd.sock".len() + 1))) };
        let refusal = longer.check_length().unwrap_err().message;
        assert!(refusal.contains(VARIABLE) && refusal.contains("108 bytes"), "{refusal}");
    }
}
