//! Who of several processes of this machine owns the log of a database.
//!
//! The owner holds a lock on `DB-landfast`. Who wants the log holds a lock on `DB-landfast-want`, and waits for the
//! first; the owner looks at the second between its transactions. The kernel gives the locks of a dead process back.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// The two lock files of a database.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    owner: PathBuf,
    want: PathBuf,
    mode: u32,
}

impl Hold {
    /// The lock files of the database at `path`, with the mode of the database.
    pub(crate) fn beside(path: &Path) -> Self {
        let beside = |end: &str| {
            let mut name = path.as_os_str().to_owned();
            name.push(end);
            PathBuf::from(name)
        };
        let mode = std::fs::metadata(path).map_or(0o600, |data| data.permissions().mode() & 0o777);
        Self { owner: beside("-landfast"), want: beside("-landfast-want"), mode }
    }

    /// The file that the owner locks, which also says which log belongs to the database.
    pub(crate) fn side(&self) -> &Path {
        &self.owner
    }

    /// Opens a file beside the database with the mode of the database.
    pub(crate) fn open(&self, path: &Path) -> io::Result<File> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(self.mode).open(path)
    }

    /// Becomes the owner; `None` if another process did not give the log up in time.
    pub(crate) fn take(&self) -> io::Result<Option<File>> {
        let file = self.open(&self.owner)?;
        if try_lock(&file)? {
            return Ok(Some(file));
        }
        let begin = Instant::now();
        let want = self.open(&self.want)?;
        let mut is_first = false;
        while begin.elapsed() < TAKE_MAX {
            is_first = is_first || try_lock(&want)?;
            if is_first && try_lock(&file)? {
                return Ok(Some(file));
            }
            thread::sleep(PAUSE);
        }
        Ok(None)
    }

    /// Whether another process wants the log.
    pub(crate) fn is_wanted(&self) -> bool {
        match self.open(&self.want) {
            Ok(file) => !try_lock(&file).unwrap_or(true),
            Err(_) => false,
        }
    }
}

fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Longest wait for another process; SQLite's busy handler may ask again.
const TAKE_MAX: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_micros(200);
/// How often the owner looks whether another process wants the log.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(1);
