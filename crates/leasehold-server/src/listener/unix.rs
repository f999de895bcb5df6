//! A socket in the file system, of which there is one living owner at most.
//!
//! The file of a socket outlives the server that made it, and nothing about it says whether anybody still listens. To
//! try, and to remove it if nobody answers, is a race: of two that start at once, the second removes the socket which
//! the first has just bound, and there are two servers, each giving away the same locks. So whoever listens holds a
//! file lock beside the socket, which the system takes back when the process ends, however it ends.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tokio::net::{UnixListener, UnixStream};

#[derive(Debug)]
pub(super) struct Bound {
    listener: UnixListener,
    file: SocketFile,
    lock: File,
}

impl Bound {
    pub(super) async fn bind(path: &Path) -> io::Result<Self> {
        let lock = lock(path)?;
        match fs::symlink_metadata(path) {
            // Only what can be a dead server's is removed, never somebody's file.
            Ok(found) if !found.file_type().is_socket() => {
                return Err(io::Error::new(
                    ErrorKind::AlreadyExists,
                    "the path is taken by something that is no socket",
                ));
            }
            // A server that knows nothing of the lock would be robbed of its clients.
            Ok(_) if UnixStream::connect(path).await.is_ok() => return Err(in_use()),
            Ok(_) => fs::remove_file(path)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(path)?;
        let file = SocketFile(path.into());
        fs::set_permissions(path, Permissions::from_mode(0o600))?;
        Ok(Self { listener, file, lock })
    }

    pub(super) async fn accept(&self) -> io::Result<UnixStream> {
        Ok(self.listener.accept().await?.0)
    }

    /// Stops listening and takes the socket away; the answer is the lock.
    pub(super) fn close(self) -> File {
        let Self { listener, file, lock } = self;
        drop(file);
        drop(listener);
        lock
    }
}

/// Removes the socket when dropped, which the field order puts before the lock's end.
#[derive(Debug)]
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::debug!(%error, path = %self.0.display(), "the socket's file stays behind");
        }
    }
}

/// Locks the file beside the socket. The file itself stays for ever: to remove it would let two lock "it" at once, one
/// the old file and one the new.
fn lock(path: &Path) -> io::Result<File> {
    let mut beside = OsString::from(path);
    beside.push(".lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(beside)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(in_use()),
        Err(error) => Err(error.into()),
    }
}

fn in_use() -> io::Error {
    io::Error::new(ErrorKind::AddrInUse, "another server listens there")
}
