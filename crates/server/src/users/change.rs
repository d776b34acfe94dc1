//! Changes of a users file: one at a time, atomic, and with the same result whoever makes them.
//!
//! ```text
//!  lock the file --> read --> FILE.new: its owner and mode, the new text, fsync --> rename --> the directory's fsync
//! ```
//!
//! The lock is `flock` on the file itself, which no other user can open. Once the lock is held the name must
//! still denote the locked file: an earlier change may have put another file in its place, which is locked
//! then.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use basics::create_anew;
use smb::auth::NtHash;
use zeroize::Zeroizing;

use super::{UsersFileError, check_length, edit, text_of};

/// Sets the password of a user, or removes the user. A link to the file is followed.
pub(super) fn change(path: &Path, user: &str, hash: Option<&NtHash>) -> Result<(), UsersFileError> {
    let locked = Locked::take(path, hash.is_some())?;
    let (_, text) = text_of(&locked.path, &locked.file)?;
    let text = edit(&text, user, hash)?;
    check_length(&locked.path, u64::try_from(text.len()).unwrap_or(u64::MAX))?;
    locked.replace(&text).map_err(failed_write(&locked.path))
}

/// The file, locked against other changes until this is dropped.
struct Locked {
    /// The path of the file, not that of a link to it.
    path: PathBuf,
    file: File,
}

impl Locked {
    /// `made`: if there is no file, an empty one is made.
    fn take(path: &Path, made: bool) -> Result<Self, UsersFileError> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let failed = |source| UsersFileError::ConfigRead { path: path.to_owned(), source };
            let real = match fs::canonicalize(path) {
                Ok(real) => real,
                Err(error) if error.kind() == ErrorKind::NotFound && made && !is_link(path) => {
                    make(path).map_err(failed_write(path))?;
                    continue;
                }
                Err(error) => return Err(failed(error)),
            };
            if !fs::metadata(&real).map_err(failed)?.is_file() {
                return Err(failed(io::Error::from(ErrorKind::InvalidInput)));
            }
            let file = File::open(&real).map_err(failed)?;
            match file.try_lock() {
                Ok(()) if is_at(&file, &real).map_err(failed)? => {
                    return Ok(Self { path: real, file });
                }
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => std::thread::sleep(PAUSE),
                Err(TryLockError::Error(error)) => return Err(failed(error)),
            }
        }
        Err(UsersFileError::ConfigBusy(path.to_owned()))
    }

    // Durable before the new file takes its place. A new file that is left behind would hold
    // secrets.
    fn replace(&self, text: &Zeroizing<String>) -> io::Result<()> {
        let mut beside = self.path.clone().into_os_string();
        beside.push(".new");
        let beside = Path::new(&beside);
        let directory = directory_of(&self.path)?;
        let file = create_anew(beside)?;
        let placed = self.fill(file, text).and_then(|()| fs::rename(beside, &self.path));
        if placed.is_err() {
            let _ = fs::remove_file(beside);
        }
        placed?;
        directory.sync_all()
    }

    // The owner before the text: a server that runs as the owner must be able to read the file.
    fn fill(&self, mut file: File, text: &str) -> io::Result<()> {
        let (old, new) = (self.file.metadata()?, file.metadata()?);
        if old.uid() != new.uid() {
            fchown(&file, Some(old.uid()), None)?;
        }
        if old.gid() != new.gid() {
            // The group has no rights on the file; a process that is not root may be in another
            // group now.
            let _ = fchown(&file, None, Some(old.gid()));
        }
        file.write_all(text.as_bytes())?;
        file.set_permissions(fs::Permissions::from_mode(old.mode() & 0o600))?;
        file.sync_all()
    }
}

// Another process may make the file first, which is no error.
fn make(path: &Path) -> io::Result<()> {
    let directory = directory_of(path)?;
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Ok(_) => directory.sync_all(),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

// Opened before the file is changed: a user who may write to the directory may not always read it.
fn directory_of(path: &Path) -> io::Result<File> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    File::open(directory.unwrap_or_else(|| Path::new(".")))
}

fn is_link(path: &Path) -> bool {
    path.symlink_metadata().is_ok_and(|found| found.is_symlink())
}

fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let held = file.metadata()?;
    match fs::symlink_metadata(path) {
        Ok(there) => Ok((held.dev(), held.ino()) == (there.dev(), there.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn failed_write(path: &Path) -> impl Fn(io::Error) -> UsersFileError {
    move |source| UsersFileError::ConfigWrite { path: path.to_owned(), source }
}

// A change takes milliseconds; a hundred may wait for one another.
const PATIENCE: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(5);
