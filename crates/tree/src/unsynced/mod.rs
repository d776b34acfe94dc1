//! Directories whose names may be newer than the names that survive a crash.
//!
//! ```text
//!  create, rename, link, remove          flush or map of a file
//!  ----------------------------          ----------------------
//!   begin: noted, in progress             from its directory up to the share's top:
//!  the system call                         noted, or not seen yet?  fsync(2) the directory
//!   end: no longer in progress              settled, unless it changed meanwhile
//! ```
//!
//! fsync(2) of a file promises nothing for its name: the directory has to be synced as well. The server does
//! that when it matters, before it reports a file as durable, and once per change, not per flush. A directory
//! that was not synced since the start has to be synced too: an earlier server may have changed it. If
//! nothing changed a flush costs one look at a counter. One table serves all shares of a server, by inode,
//! because they may overlap.
//!
//! A directory whose sync has failed is poisoned: the kernel may show its pages clean from then on, so a second,
//! successful fsync proves nothing. Every request for a name below it gets the error for as long as the server runs, or
//! until the directory is made again: its inode is kept open, so that no other gets its number, as far as `pmem::Poisoned`
//! has room.
//! The kernel reports a failed write-back to the first caller only, so every sync of a file or a directory goes through its
//! [`CommitGroup`]: syncs of one inode never overlap, and none after a failed one succeeds.
//!
//! Spec: open(2), fsync(2); POSIX leaves it to the file system whether it syncs more than was
//! asked.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use basics::ordered::{Mutex, MutexGuard};
use pmem::{CommitGroup, Inode, Noted, Poisoned};
use rustix::io::Errno;
use tracing::error;

use super::error::ShareError;
use super::inode::FileKey;
use crate::lock_order as order;

/// See the module.
#[derive(Debug)]
pub(super) struct Unsynced {
    table: Mutex<Table, order::Undurable>,
    /// Moves with every change that may make a name less durable than it was.
    generation: AtomicU64,
    synced: AtomicU64,
}

#[derive(Debug, Default)]
struct Table {
    noted: HashMap<FileKey, Mark>,
    /// Synced since the start, and not changed since.
    settled: HashSet<FileKey>,
    /// Directories whose sync failed, some with a handle that keeps the inode.
    poisoned: Poisoned<File>,
    /// How often notes were dropped.
    forgotten: u64,
    /// Finished changes, of all directories: no two notes ever have the same count.
    changes: u64,
}

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Mark {
    /// Changes that have begun and not ended.
    under_way: usize,
    /// [`Table::changes`] at the end of the last change; zero before.
    last_change: u64,
}

impl Default for Unsynced {
    fn default() -> Self {
        // Zero is the value of a handle whose name was never checked.
        let generation = AtomicU64::new(1);
        Self { table: Mutex::default(), generation, synced: AtomicU64::new(0) }
    }
}

impl Table {
    // Directories whose notes are dropped must be synced again, like directories never seen.
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
    /// Marks the names in a directory as changing, until the returned value is dropped.
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

    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    fn move_on(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    /// Syncs a directory if necessary.
    pub(super) fn settle(
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
    pub(super) fn sync_anew(
        &self,
        inode: FileKey,
        open: impl FnOnce() -> Result<File, ShareError>,
    ) -> Result<(), ShareError> {
        if self.is_poisoned(inode) {
            return Err(ShareError::MediaIo(Errno::IO));
        }
        self.sync_or_poison(inode, open()?, sync_in_group)
    }

    // No failed sync is retried into success: the first failure is the answer to everybody from
    // then on.
    pub(super) fn sync_or_poison(
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

    pub(super) fn is_poisoned(&self, inode: FileKey) -> bool {
        self.lock().poisoned.contains(inode_of(inode))
    }

    fn lock(&self) -> MutexGuard<'_, Table, order::Undurable> {
        self.table.lock()
    }
}

fn inode_of(FileKey { device, inode }: FileKey) -> Inode {
    (device, inode)
}

/// A change of a directory's names in progress.
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

/// [`sync_in_group`] of a file.
pub(super) fn persist_file(file: OwnedFd) -> Result<(), ShareError> {
    sync_in_group(&file.into())
}

/// Makes a file durable with its attributes, or a directory with its names, in the group of its other syncs. Blocks.
///
/// # Durability
///
/// As [`CommitGroup::persist_whole`].
///
/// # Errors
///
/// A sync of it fails, or failed earlier: [`ShareError::MediaIo`] from then on.
pub(super) fn sync_in_group(file: &File) -> Result<(), ShareError> {
    let group = CommitGroup::of(file).map_err(|_| ShareError::HandlesExhausted)?;
    group.persist_whole().map_err(|_| ShareError::MediaIo(Errno::IO))
}

/// Noted directories, and settled ones remembered: some hundred KiB each.
const PLACES_MAX: usize = 4096;
#[cfg(test)]
mod tests;
