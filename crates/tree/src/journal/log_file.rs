//! The file of a log: opened by name, locked against other servers, and rewritten as a new file beside
//! it.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, CWD, FlockOperation, OFlags, accessat};
use rustix::io::Errno;
use rustix::process::geteuid;

/// Looks whether a log could be opened and rewritten under this name, and returns the file's place, the same for all paths
/// that lead to it. Makes, locks and changes nothing.
pub(super) fn look(path: &Path) -> io::Result<PathBuf> {
    // An open of a pipe would not wait for a writer.
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
    let mut options = OpenOptions::new();
    match options.read(true).write(true).custom_flags(flags).open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        opened => {
            let file = opened?;
            let is_log = file.metadata()?.is_file() && starts_as_log(file)?;
            is_log.then_some(()).ok_or_else(not_a_log)?;
        }
    }
    let directory = directory_of(path);
    for name in [path, &beside(path)] {
        takes_file(name)?;
    }
    // A rewrite removes what an earlier one has left under that name, and syncs the directory.
    if std::fs::symlink_metadata(beside(path)).is_ok_and(|found| found.is_dir()) {
        return Err(Errno::ISDIR.into());
    }
    File::open(directory)?;
    let name = path.file_name().ok_or(io::ErrorKind::IsADirectory)?;
    Ok(directory.canonicalize()?.join(name))
}

/// Whether a file, which nobody has read from, is empty or begins as a log does.
fn starts_as_log(file: File) -> io::Result<bool> {
    let mut first = Vec::new();
    file.take(MAGIC.len() as u64).read_to_end(&mut first)?;
    Ok(first.is_empty() || first == MAGIC)
}

/// The error for a file that holds something else.
pub(super) fn not_a_log() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not a log of opens")
}

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
        // A device that is empty would be replaced by a file.
        file.metadata()?.is_file().then_some(()).ok_or_else(not_a_log)?;
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

pub(super) fn in_use() -> io::Error {
    let text = "another server, or another share, keeps its opens there";
    io::Error::new(io::ErrorKind::ResourceBusy, text)
}

/// Makes the name of the file durable.
pub(super) fn sync_directory_of(path: &Path) -> io::Result<()> {
    File::open(directory_of(path))?.sync_all()
}

fn directory_of(path: &Path) -> &Path {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    directory.unwrap_or_else(|| Path::new("."))
}

/// Looks whether this process may make a file of this name, in place of the one that is there, and makes none.
///
/// # Errors
/// The directory is not there, takes no file, or keeps that of another user (the sticky bit).
pub fn takes_file(path: &Path) -> io::Result<()> {
    let directory = directory_of(path);
    let above = directory.metadata()?;
    if !above.is_dir() {
        return Err(Errno::NOTDIR.into());
    }
    accessat(CWD, directory, Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)?;
    let user = geteuid();
    let keeps = |found: Metadata| ![found.uid(), above.uid()].contains(&user.as_raw());
    let is_kept = above.mode() & STICKY != 0
        && !user.is_root()
        && std::fs::symlink_metadata(path).is_ok_and(keeps);
    if is_kept { Err(Errno::PERM.into()) } else { Ok(()) }
}

/// The bit of a directory whose files only their owners, its owner and root replace.
const STICKY: u32 = 0o1000;
/// The suffix of the new file of a rewrite.
pub(super) const SUFFIX: &str = "new";
/// How often another file may take the place of the log before it is locked.
const REPLACED_MAX: usize = 16;
/// How a log begins.
pub(super) const MAGIC: &[u8] = b"LFOPENS1";
