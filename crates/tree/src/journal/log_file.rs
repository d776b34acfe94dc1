//! The file of a log: opened by name, locked against other servers, and rewritten as a new file beside
//! it.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

/// The path of the new file of a rewrite.
pub(super) fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(SUFFIX);
    name.into()
}

/// Opens the file of this name and locks it: another file may have taken its place before that.
pub(super) fn open_locked(path: &Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    for _ in 0..REPLACED_MAX {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(flags).open(path)?;
        lock(&file)?;
        let (locked, named) = (file.metadata()?, std::fs::symlink_metadata(path));
        if named.is_ok_and(|named| (named.dev(), named.ino()) == (locked.dev(), locked.ino())) {
            return Ok(file);
        }
    }
    Err(in_use())
}

/// Locks a file until it is closed, by the end of the process at the latest. A file system without locks
/// goes unguarded.
pub(super) fn lock(file: &File) -> io::Result<()> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => Err(in_use()),
        Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) | Ok(()) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn in_use() -> io::Error {
    let text = "another server, or another share, keeps its opens there";
    io::Error::new(io::ErrorKind::ResourceBusy, text)
}

/// Makes the name of the file durable.
pub(super) fn sync_directory_of(path: &Path) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

/// The suffix of the new file of a rewrite.
pub(super) const SUFFIX: &str = "new";
/// How often another file may take the place of the log before it is locked.
const REPLACED_MAX: usize = 16;
