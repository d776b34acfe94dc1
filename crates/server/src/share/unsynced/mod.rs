//! Directories whose names may be newer than what survives a crash.
//!
//! ```text
//!  create, rename, link, remove          flush or map of a file
//!  ----------------------------          ----------------------
//!  begin: noted, under way               from its directory up to the share's top:
//!  the system call                         noted, or not seen yet?  fsync(2) the directory
//!  end: no longer under way                seen and forgotten, unless it changed meanwhile
//! ```
//!
//! fsync(2) of a file promises nothing for its name: the directory has to be synced as well. That is
//! done when it matters, before somebody is told that the file is durable, and once per change,
//! not per flush. A directory that was not synced since the start is owed too: the server that ran before may
//! have changed it. Where nothing changed a flush pays for one look at a counter. One table serves
//! all shares of a server, by inode, because they may overlap.
//!
//! A directory whose sync has failed is poisoned: the kernel may show its pages clean from then on, so a second,
//! successful fsync says nothing. Everybody who asks for a name below it gets the error for as long
//! as the server runs, or until the directory is made anew: its inode is kept, so that no other gets its number, as far as
//! `pmem::Poisoned` has room.
//! The kernel reports a failed write-back to the first who asks, so whoever syncs a file or a directory does so through its
//! [`CommitGroup`]: syncs of one inode never overlap, and none after a failed one succeeds.
//!
//! Spec: open(2), fsync(2); POSIX leaves it to the file system whether more is done than is asked.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pmem::{CommitGroup, DurabilityClass, Inode, Noted, Poisoned};
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;
use tracing::error;

use super::entry::Entry;
use super::error::ShareError;
use super::metadata::{self, FileKey, identify, identify_at};
use super::{Share, attributes};

/// See the module.
#[derive(Debug)]
pub(super) struct Unsynced {
    table: Mutex<Table>,
    /// Moves with everything that may make a name less durable than it was.
    generation: AtomicU64,
    synced: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    noted: HashMap<FileKey, Mark>,
    /// Synced since the start, and not changed since then.
    settled: HashSet<FileKey>,
    /// Synced in vain, some with a handle that keeps the inode.
    poisoned: Poisoned<File>,
    /// How often notes were thrown away.
    forgotten: u64,
    /// Changes that have ended, of all directories: no two notes ever show the same.
    changes: u64,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Mark {
    /// Changes that have begun and not ended.
    under_way: usize,
    /// [`Table::changes`] as the last change ended; zero before.
    last_change: u64,
}

impl Default for Unsynced {
    fn default() -> Self {
        // Zero is what a handle says of whose name nobody has asked.
        let generation = AtomicU64::new(1);
        Self { table: Mutex::default(), generation, synced: AtomicU64::new(0) }
    }
}

impl Table {
    // Notes that are thrown away are owed all the same, as what was never seen.
    fn make_room(&mut self) {
        if self.noted.len() >= PLACES_MAX {
            self.noted.retain(|_, mark| mark.under_way > 0);
            self.settled.clear();
            self.forgotten += 1;
        }
    }

    fn is_owed(&self, directory: FileKey) -> bool {
        self.noted.contains_key(&directory) || !self.settled.contains(&directory)
    }

    fn settle(&mut self, directory: FileKey) {
        self.noted.remove(&directory);
        if self.settled.len() >= PLACES_MAX {
            self.settled.clear();
        }
        self.settled.insert(directory);
    }
}

impl Unsynced {
    /// Names in a directory are about to change; until the returned value is dropped.
    pub(super) fn begin(&self, directory: FileKey) -> Changing<'_> {
        let mut table = self.lock();
        if !table.noted.contains_key(&directory) {
            table.make_room();
        }
        table.noted.entry(directory).or_default().under_way += 1;
        self.move_on();
        Changing { unsynced: self, directory }
    }

    /// Directories that were synced since the start.
    pub(super) fn synced(&self) -> u64 {
        self.synced.load(Ordering::Relaxed)
    }

    fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn move_on(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Syncs a directory if that is owed.
    fn settle(
        &self,
        directory: FileKey,
        open: impl FnOnce() -> Result<File, ShareError>,
        sync: impl FnOnce(&File) -> Result<(), ShareError>,
    ) -> Result<(), ShareError> {
        let (seen, forgotten) = {
            let table = self.lock();
            if table.poisoned.contains(inode_of(directory)) {
                return Err(ShareError::MediaIo(Errno::IO));
            }
            if !table.is_owed(directory) {
                return Ok(());
            }
            (table.noted.get(&directory).copied().unwrap_or_default(), table.forgotten)
        };
        self.sync_or_poison(directory, open()?, sync)?;
        self.synced.fetch_add(1, Ordering::Relaxed);
        let mut table = self.lock();
        let now = table.noted.get(&directory).copied().unwrap_or_default();
        if seen.under_way == 0 && now == seen && table.forgotten == forgotten {
            table.settle(directory);
        }
        Ok(())
    }

    // Syncs an inode, whatever is known of it.
    fn sync_anew(
        &self,
        inode: FileKey,
        open: impl FnOnce() -> Result<File, ShareError>,
    ) -> Result<(), ShareError> {
        if self.is_poisoned(inode) {
            return Err(ShareError::MediaIo(Errno::IO));
        }
        self.sync_or_poison(inode, open()?, sync_in_group)
    }

    // Nothing is tried again into success: the first failure is everybody's answer from then on.
    fn sync_or_poison(
        &self,
        inode: FileKey,
        file: File,
        sync: impl FnOnce(&File) -> Result<(), ShareError>,
    ) -> Result<(), ShareError> {
        let outcome = sync(&file);
        if let Err(ShareError::MediaIo(errno)) = outcome {
            error!(?inode, %errno, "a sync has failed, and is not tried again");
            let noted = self.lock().poisoned.note(inode_of(inode), file);
            if let Noted::FileSystem(..) = noted {
                error!(
                    ?inode,
                    "too many syncs have failed: none on its file system succeeds any more"
                );
            }
            self.move_on();
        }
        outcome
    }

    fn is_poisoned(&self, inode: FileKey) -> bool {
        self.lock().poisoned.contains(inode_of(inode))
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn inode_of(FileKey { device, inode }: FileKey) -> Inode {
    (device, inode)
}

/// A change of a directory's names under way.
#[derive(Debug)]
pub(super) struct Changing<'a> {
    unsynced: &'a Unsynced,
    directory: FileKey,
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let mut table = self.unsynced.lock();
        table.changes += 1;
        let last_change = table.changes;
        if let Some(mark) = table.noted.get_mut(&self.directory) {
            mark.under_way -= 1;
            mark.last_change = last_change;
        }
        drop(table);
        self.unsynced.move_on();
    }
}

impl Share {
    /// Notes that names in `directory` change until the returned value is dropped; nothing where
    /// nothing survives a crash anyway.
    pub(super) fn changing(&self, directory: &OwnedFd) -> Result<Option<Changing<'_>>, ShareError> {
        let stat = metadata::stat(directory)?;
        let file_system = self.mounts.of_stat(directory, &stat)?;
        let forgets = file_system.class == DurabilityClass::Volatile;
        Ok((!forgets).then(|| self.unsynced.begin(metadata::key(&stat))))
    }

    /// Makes the name of an open file or directory durable, up to the share's top; of a stream its own and
    /// its file's. Blocks, where names on that way changed through this server or were not asked
    /// for since it started.
    ///
    /// # Durability
    ///
    /// After `Ok`, a crash leaves the file reachable by the name it has now, if creating and
    /// renaming on the way to it were done through this server or one before it.
    ///
    /// # Errors
    ///
    /// A directory cannot be synced, now or once before: [`ShareError::MediaIo`] from then on.
    pub fn persist_name(&self, entry: &Entry) -> Result<(), ShareError> {
        if entry.class() == DurabilityClass::Volatile {
            return Ok(());
        }
        // Before anything is looked at: what changes meanwhile is asked for again.
        let generation = self.unsynced.generation();
        if entry.name_is_durable_since(generation) || entry.key() == self.root_key {
            return Ok(());
        }
        match entry.link() {
            Some(link) => self.persist_name_of(link, identify(link)?.0)?,
            None => self.persist_name_of(entry.as_fd(), entry.key())?,
        }
        if let Some(base) = entry.base() {
            self.persist_name_of(base.file.as_fd(), base.key)?;
        }
        entry.note_durable_name(generation);
        Ok(())
    }

    /// Whether the name was made durable and nothing has moved since that could change it: a look at a counter.
    pub(crate) fn is_name_durable(&self, entry: &Entry) -> bool {
        let generation = self.unsynced.generation();
        entry.class() == DurabilityClass::Volatile
            || entry.name_is_durable_since(generation)
            || entry.key() == self.root_key
    }

    /// Makes the names in a directory durable. Blocks.
    ///
    /// # Durability
    ///
    /// After `Ok`, entries made or removed before the call, by anyone, survive a crash.
    ///
    /// # Errors
    ///
    /// As [`Share::persist_name`].
    pub fn persist_entries(&self, directory: &Entry) -> Result<(), ShareError> {
        self.unsynced.sync_anew(directory.key(), || readable(directory.as_fd(), OFlags::DIRECTORY))
    }

    /// Makes durable what binds a stream to its file; of what is no stream there is nothing. Blocks.
    ///
    /// # Errors
    ///
    /// The file cannot be synced, now or once before, whoever asked: [`ShareError::MediaIo`] from then on.
    pub fn persist_binding(&self, entry: &Entry) -> Result<(), ShareError> {
        let Some(base) = entry.base() else { return Ok(()) };
        if identify(&base.file)?.1 == FileType::Directory {
            return self.unsynced.sync_anew(base.key, || readable(&base.file, OFlags::DIRECTORY));
        }
        sync_in_group(&readable(&base.file, OFlags::empty())?)
    }

    pub(super) fn persist_name_of(&self, fd: impl AsFd, key: FileKey) -> Result<(), ShareError> {
        if self.unsynced.is_poisoned(key) {
            return Err(ShareError::MediaIo(Errno::IO));
        }
        match directory_of(&fd, key) {
            Ok(directory) => self.persist_upwards(directory),
            Err(_) if rustix::fs::fstat(&fd)?.st_nlink == 0 => Ok(()),
            // Moved just now, or by a name that cannot be followed.
            Err(_) => {
                let (kept, synced) = (rustix::io::fcntl_dupfd_cloexec(&fd, 0)?, self.readable(fd)?);
                let sync = || rustix::fs::syncfs(&synced);
                let sync = |_: &File| rustix::io::retry_on_intr(sync).map_err(ShareError::MediaIo);
                self.unsynced.sync_or_poison(key, kept.into(), sync)
            }
        }
    }

    // By "..", not by path: a symbolic link on the path would lead around a directory.
    fn persist_upwards(&self, mut directory: OwnedFd) -> Result<(), ShareError> {
        let mut below = None;
        for _ in 0..DEPTH_MAX {
            let (key, _) = identify(&directory)?;
            let open = || readable(&directory, OFlags::DIRECTORY);
            self.unsynced.settle(key, open, sync_in_group)?;
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

    // A handle of O_PATH, such as that of a device's node, syncs nothing; the share's top then stands for it.
    fn readable(&self, fd: impl AsFd) -> Result<File, ShareError> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        if flags.contains(OFlags::PATH) {
            return readable(&self.root, OFlags::DIRECTORY);
        }
        Ok(rustix::io::fcntl_dupfd_cloexec(fd, 0)?.into())
    }

    /// Directories synced since the start, by all shares of the server.
    pub(crate) fn directories_synced(&self) -> u64 {
        self.unsynced.synced()
    }
}

/// [`sync_in_group`] of a file.
pub(super) fn persist_file(file: OwnedFd) -> Result<(), ShareError> {
    sync_in_group(&file.into())
}

/// Makes a file durable with its attributes, or a directory with its names, by the group of those who sync it. Blocks.
///
/// # Durability
///
/// As [`CommitGroup::persist_whole`].
///
/// # Errors
///
/// A sync of it fails, or did once: [`ShareError::MediaIo`] from then on.
fn sync_in_group(file: &File) -> Result<(), ShareError> {
    let group = CommitGroup::of(file).map_err(|_| ShareError::HandlesExhausted)?;
    group.persist_whole().map_err(|_| ShareError::MediaIo(Errno::IO))
}

// The directory an open file's name is in. The kernel knows the name by which it was opened, also
// after renames and behind symbolic links; a request's path may be out of date.
fn directory_of(fd: impl AsFd, file: FileKey) -> Result<OwnedFd, ShareError> {
    let name = rustix::fs::readlink(attributes::proc_name(fd), Vec::new())?;
    let name = Path::new(OsStr::from_bytes(name.as_bytes()));
    let (Some(directory), Some(leaf)) = (name.parent(), name.file_name()) else {
        return Err(ShareError::NotFound);
    };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, Mode::empty())?;
    match identify_at(&directory, leaf)? {
        (key, _) if key == file => Ok(directory),
        _ => Err(ShareError::NotFound),
    }
}

// An O_PATH handle syncs nothing; its /proc name opens the same inode.
fn readable(fd: impl AsFd, kind: OFlags) -> Result<File, ShareError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | kind;
    Ok(rustix::fs::open(attributes::proc_name(fd), flags, Mode::empty())?.into())
}

/// Directories noted, and settled ones remembered: some hundred KiB each.
const PLACES_MAX: usize = 4096;
/// Deeper than any path of 32,767 characters that PATH_MAX lets through.
const DEPTH_MAX: usize = 4096;

#[cfg(test)]
mod tests;
