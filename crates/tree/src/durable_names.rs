//! Makes names durable: of an open file, up to the top of its share; in a directory; of a stream at its file.
//!
//! What has to be done for it, and what has been done already, is in [`super::unsynced`].

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use pmem::DurabilityClass;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use super::Share;
use super::entry::Entry;
use super::error::ShareError;
use super::inode::{self, FileKey, identify, identify_at, proc_name};
use super::unsynced::{Changing, sync_in_group};

impl Share {
    /// Marks the names in `directory` as changing until the returned value is dropped; nothing on a
    /// file system whose names do not survive a crash.
    pub(super) fn changing(&self, directory: &OwnedFd) -> Result<Option<Changing<'_>>, ShareError> {
        let stat = inode::stat(directory)?;
        let file_system = self.mounts.of_stat(directory, &stat)?;
        let forgets = file_system.class == DurabilityClass::Volatile;
        Ok((!forgets).then(|| self.unsynced.begin(inode::key(&stat))))
    }

    /// Makes the name of an open file or directory durable, up to the share's top; for a stream its own
    /// name and its file's. Blocks if names on that path changed through this server or were not checked
    /// since it started.
    ///
    /// # Durability
    ///
    /// After `Ok`, the file is reachable after a crash by its present name, if this server or an
    /// earlier one did every creation and rename on the way to it.
    ///
    /// # Errors
    ///
    /// A directory cannot be synced, now or at an earlier time: [`ShareError::MediaIo`] from then
    /// on.
    pub fn persist_name(&self, entry: &Entry) -> Result<(), ShareError> {
        if entry.class() == DurabilityClass::Volatile {
            return Ok(());
        }
        // Before any other step: a change in between is checked again.
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

    /// Whether the name was made durable and nothing has changed since that could affect it: a look at a
    /// counter.
    pub fn is_name_durable(&self, entry: &Entry) -> bool {
        let generation = self.unsynced.generation();
        entry.class() == DurabilityClass::Volatile
            || entry.name_is_durable_since(generation)
            || entry.key() == self.root_key
    }

    /// Makes the names in a directory durable. Blocks.
    ///
    /// # Durability
    ///
    /// After `Ok`, entries made or removed before the call, by any program, survive a crash.
    ///
    /// # Errors
    ///
    /// As [`Share::persist_name`].
    pub fn persist_entries(&self, directory: &Entry) -> Result<(), ShareError> {
        self.unsynced.sync_anew(directory.key(), || readable(directory.as_fd(), OFlags::DIRECTORY))
    }

    /// Makes the binding of a stream to its file durable; no effect for other objects. Blocks.
    ///
    /// # Errors
    ///
    /// The file cannot be synced, now or at an earlier time, by any request: [`ShareError::MediaIo`] from
    /// then on.
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

    // By "..", not by path: a symbolic link on the path would bypass a directory.
    fn persist_upwards(&self, mut directory: OwnedFd) -> Result<(), ShareError> {
        let mut below = None;
        for _ in 0..DEPTH_MAX {
            let (key, _) = identify(&directory)?;
            let open = || readable(&directory, OFlags::DIRECTORY);
            self.unsynced.settle(key, open, sync_in_group)?;
            // The top of the share, or the root directory, for a file that was moved out of the
            // share.
            if key == self.root_key || below == Some(key) {
                break;
            }
            below = Some(key);
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            directory = rustix::fs::openat(&directory, "..", flags, Mode::empty())?;
        }
        Ok(())
    }

    // A handle of O_PATH, such as that of a device's node, syncs nothing; the share's top is used instead.
    fn readable(&self, fd: impl AsFd) -> Result<File, ShareError> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        if flags.contains(OFlags::PATH) {
            return readable(&self.root, OFlags::DIRECTORY);
        }
        Ok(rustix::io::fcntl_dupfd_cloexec(fd, 0)?.into())
    }

    /// Directories synced since the start, by all shares of the server.
    pub fn directories_synced(&self) -> u64 {
        self.unsynced.synced()
    }
}

// The directory of an open file's name. The kernel knows the name by which the file was opened,
// also after renames and behind symbolic links; the path of a request may be out of date.
fn directory_of(fd: impl AsFd, file: FileKey) -> Result<OwnedFd, ShareError> {
    let name = rustix::fs::readlink(proc_name(fd), Vec::new())?;
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

// An O_PATH handle syncs nothing; opening its /proc name opens the same inode.
fn readable(fd: impl AsFd, kind: OFlags) -> Result<File, ShareError> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | kind;
    Ok(rustix::fs::open(proc_name(fd), flags, Mode::empty())?.into())
}

/// Deeper than any path of 32,767 characters that PATH_MAX lets through.
const DEPTH_MAX: usize = 4096;
