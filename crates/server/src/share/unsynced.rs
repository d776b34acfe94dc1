//! Directories whose names may be newer than what survives a crash.
//!
//! ```text
//!  create, rename, link, remove          flush or map of a file
//!  ----------------------------          ----------------------
//!  begin: noted, under way               from its directory up to the share's top:
//!  the system call                         noted?  fsync(2) the directory
//!  end: no longer under way                forget it, unless it changed meanwhile
//! ```
//!
//! fsync(2) of a file promises nothing for its name: the directory has to be synced as well. That is
//! done when it matters, before somebody is told that the file is durable, and once per change,
//! not per flush. Where nothing changed a flush pays for one lock. One table serves all shares of
//! a server, by inode, because they may overlap.
//!
//! Spec: open(2), fsync(2); POSIX leaves it to the file system whether more is done than is asked.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pmem::DurabilityClass;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::entry::Entry;
use super::error::ShareError;
use super::metadata::{FileKey, identify, identify_at};
use super::{Share, attributes};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Unsynced {
    table: Mutex<HashMap<Place, Mark>>,
    synced: AtomicU64,
}

/// What has to be synced.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Place {
    Directory(FileKey),
    /// More directories than the table holds: the whole file system, to be sure.
    Everything,
}

#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// Changes that have begun and not ended.
    under_way: usize,
    /// Changes that have ended.
    changes: u64,
}

impl Unsynced {
    /// Names in a directory are about to change; until the returned value is dropped.
    pub(super) fn begin(&self, directory: FileKey) -> Changing<'_> {
        let mut table = self.lock();
        let mut place = Place::Directory(directory);
        if table.len() >= PLACES_MAX && !table.contains_key(&place) {
            place = Place::Everything;
        }
        table.entry(place).or_default().under_way += 1;
        Changing { unsynced: self, place }
    }

    /// Directories that were synced since the start.
    pub(super) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Relaxed)
    }

    fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Syncs a place if it is noted. On error it stays noted.
    fn settle(
        &self,
        place: Place,
        sync: impl FnOnce() -> Result<(), ShareError>,
    ) -> Result<(), ShareError> {
        let Some(seen) = self.lock().get(&place).copied() else { return Ok(()) };
        sync()?;
        self.synced.fetch_add(1, Ordering::Relaxed);
        let mut table = self.lock();
        let unchanged = |mark: &Mark| mark.under_way == 0 && mark.changes == seen.changes;
        if seen.under_way == 0 && table.get(&place).is_some_and(unchanged) {
            table.remove(&place);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Place, Mark>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A change of a directory's names under way.
#[derive(Debug)]
pub(super) struct Changing<'a> {
    unsynced: &'a Unsynced,
    place: Place,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        if let Some(mark) = self.unsynced.lock().get_mut(&self.place) {
            mark.under_way -= 1;
            mark.changes += 1;
        }
    }
}

impl Share {
    /// Notes that names in `directory` change until the returned value is dropped; nothing where
    /// nothing survives a crash anyway.
    pub(super) fn changing(&self, directory: &OwnedFd) -> Result<Option<Changing<'_>>, ShareError> {
        if self.class == DurabilityClass::Volatile {
            return Ok(None);
        }
        let (key, _) = identify(directory)?;
        Ok(Some(self.unsynced.begin(key)))
    }

    /// Makes the name of an open file or directory durable, up to the share's top. Blocks, where
    /// names on that way changed through this server.
    ///
    /// # Durability
    ///
    /// After `Ok`, a crash leaves the file reachable by the name it has now, if creating and
    /// renaming on the way to it were done through this server before the call.
    ///
    /// # Errors
    ///
    /// A directory cannot be synced; it is tried again at the next call.
    pub fn persist_name(&self, entry: &Entry) -> Result<(), ShareError> {
        if self.class == DurabilityClass::Volatile || self.unsynced.is_empty() {
            return Ok(());
        }
        let everything = || sync_everything(entry, &self.root);
        self.unsynced.settle(Place::Everything, everything)?;
        if entry.key() == self.root_key {
            return Ok(());
        }
        match directory_of(entry) {
            Ok(directory) => self.persist_upwards(directory),
            Err(_) if entry.metadata()?.links == 0 => Ok(()),
            // Moved just now, or by a name that cannot be followed.
            Err(_) => everything(),
        }
    }

    // By "..", not by path: a symbolic link on the path would lead around a directory.
    fn persist_upwards(&self, mut directory: OwnedFd) -> Result<(), ShareError> {
        let mut below = None;
        for _ in 0..DEPTH_MAX {
            let (key, _) = identify(&directory)?;
            self.unsynced.settle(Place::Directory(key), || sync_directory(&directory))?;
            // The top of the share, or of everything, for what was moved out of it.
            if key == self.root_key || below == Some(key) {
                break;
            }
            below = Some(key);
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            directory = rustix::fs::openat(&directory, "..", flags, Mode::empty())?;
        }
        Ok(())
    }

    /// Directories synced since the start, by all shares of the server.
    pub(crate) fn directories_synced(&self) -> u64 {
        self.unsynced.synced()
    }
}

// The directory an open file's name is in. The kernel knows the name by which it was opened, also
// after renames and behind symbolic links; a request's path may be out of date.
fn directory_of(entry: &Entry) -> Result<OwnedFd, ShareError> {
    let name = rustix::fs::readlink(attributes::proc_name(entry.as_fd()), Vec::new())?;
    let name = Path::new(OsStr::from_bytes(name.as_bytes()));
    let (Some(directory), Some(leaf)) = (name.parent(), name.file_name()) else {
        return Err(ShareError::NotFound);
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    match identify_at(&directory, leaf)? {
        (key, _) if key == entry.key() => Ok(directory),
        _ => Err(ShareError::NotFound),
    }
}

// A handle of O_PATH, such as that of a device's node, syncs nothing; the share's top then stands for it.
fn sync_everything(entry: &Entry, root: &OwnedFd) -> Result<(), ShareError> {
    match rustix::fs::syncfs(entry.as_fd()) {
        Err(Errno::BADF) => {}
        other => return Ok(other?),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = rustix::fs::open(attributes::proc_name(root), flags, Mode::empty())?;
    Ok(rustix::fs::syncfs(&readable)?)
}

// An O_PATH handle syncs nothing; its /proc name opens the same directory.
fn sync_directory(directory: impl AsFd) -> Result<(), ShareError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let readable = rustix::fs::open(attributes::proc_name(directory), flags, Mode::empty())?;
    Ok(rustix::fs::fsync(&readable)?)
}

/// Directories noted one by one: some hundred KiB.
const PLACES_MAX: usize = 4096;
/// Deeper than any path of 32,767 characters that PATH_MAX lets through.
const DEPTH_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn key(inode: u64) -> FileKey {
        FileKey { device: 1, inode }
    }

    fn called(flag: &Cell<bool>) -> Result<(), ShareError> {
        flag.set(true);
        Ok(())
    }

    fn syncs(unsynced: &Unsynced, inode: u64) -> bool {
        let synced = Cell::new(false);
        let place = Place::Directory(key(inode));
        unsynced.settle(place, || called(&synced)).unwrap();
        synced.get()
    }

    #[test]
    fn a_change_is_synced_once() {
        let unsynced = Unsynced::default();
        drop(unsynced.begin(key(1)));
        assert!(!syncs(&unsynced, 2));
        assert!(syncs(&unsynced, 1));
        assert!(!syncs(&unsynced, 1));
        assert!(unsynced.is_empty());
    }

    #[test]
    fn a_change_that_ends_during_or_after_the_sync_is_synced_again() {
        let unsynced = Unsynced::default();
        let early = unsynced.begin(key(1));
        assert!(syncs(&unsynced, 1));
        drop(early);
        let place = Place::Directory(key(1));
        let meanwhile = || {
            drop(unsynced.begin(key(1)));
            Ok(())
        };
        unsynced.settle(place, meanwhile).unwrap();
        assert!(syncs(&unsynced, 1));
        assert!(unsynced.is_empty());
    }

    #[test]
    fn a_sync_that_fails_is_owed_still() {
        let unsynced = Unsynced::default();
        drop(unsynced.begin(key(1)));
        let failed = unsynced.settle(Place::Directory(key(1)), || Err(ShareError::DiskFull));
        assert_eq!(failed, Err(ShareError::DiskFull));
        assert!(syncs(&unsynced, 1));
    }

    #[test]
    fn a_full_table_owes_everything() {
        let unsynced = Unsynced::default();
        for inode in 0..=u64::try_from(PLACES_MAX).unwrap() {
            drop(unsynced.begin(key(inode)));
        }
        assert_eq!(unsynced.lock().len(), PLACES_MAX + 1);
        let synced = Cell::new(false);
        unsynced.settle(Place::Everything, || called(&synced)).unwrap();
        assert!(synced.get());
    }
}
