//! The file systems below one share, and their abilities.
//!
//! ```text
//!   share/            tmpfs: volatile, waits for nothing
//!    f
//!     disk/           ext4, mounted: durable, waits for a device
//!      g
//! ```
//!
//! A share is a tree of names, and any file system may be mounted in it at any time. The durability of a
//! write, the work that waits for nothing, shared blocks and xattrs are therefore facts of the file system of
//! a file, never of the share's top. Facts that take a probe are determined once per mount.
//!
//! Spec: statx(2) STATX_MNT_ID_UNIQUE, statfs(2).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use basics::ordered::RwLock;
use pmem::DurabilityClass;
use rustix::fs::{Mode, OFlags, Statx};

use super::error::ShareError;
use super::inline::InlineIo;
use super::inode::{self, UNIQUE_MOUNT, proc_name};
use super::probe;
use crate::lock_order as order;

/// The abilities of a file system.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct FileSystem {
    /// The durability class of a write.
    pub(super) class: DurabilityClass,
    /// The work that may be done on the calling thread.
    pub(super) inline: InlineIo,
    /// Files can share their blocks.
    pub(super) clones: bool,
    /// Files can have xattrs of the `user` namespace.
    pub(super) has_xattrs: bool,
}

impl FileSystem {
    // Probes with files that never have a name, in a directory of the file system.
    fn probe(directory: &OwnedFd) -> Result<Self, ShareError> {
        let inline = InlineIo::of(rustix::fs::fstatfs(directory)?.f_type);
        let is_memory = inline == InlineIo::Everything;
        Ok(Self {
            class: if is_memory { DurabilityClass::Volatile } else { probe_class(directory) },
            inline,
            clones: !is_memory && probe::probe_clones(directory),
            has_xattrs: probe::probe_xattrs(directory),
        })
    }
}

/// The file systems seen so far.
#[derive(Debug, Default)]
pub(super) struct Mounts(RwLock<HashMap<Mount, FileSystem>, order::FileSystems>);

/// One mount. A device number alone is not enough: numbers of file systems without a device are
/// reused, and so are the numbers of mounts before Linux 6.8.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Mount {
    /// By a number that is never reused.
    Unique(u64),
    /// By its device, and the present kind of file system.
    Device { device: u64, magic: i64 },
}

impl Mount {
    fn of(fd: impl AsFd, stat: &Statx) -> Result<Self, ShareError> {
        if stat.stx_mask & UNIQUE_MOUNT.bits() != 0 {
            return Ok(Self::Unique(stat.stx_mnt_id));
        }
        let magic = rustix::fs::fstatfs(fd)?.f_type;
        Ok(Self::Device { device: inode::key(stat).device, magic })
    }
}

impl Mounts {
    /// The abilities of the file system of an open file or directory, or of an anchor. May block when the
    /// file system is first seen.
    pub(super) fn of(&self, fd: impl AsFd) -> Result<FileSystem, ShareError> {
        let stat = inode::stat(&fd)?;
        self.of_stat(fd, &stat)
    }

    /// [`Mounts::of`] for a caller that has just called `stat`.
    pub(super) fn of_stat(&self, fd: impl AsFd, stat: &Statx) -> Result<FileSystem, ShareError> {
        let mount = Mount::of(&fd, stat)?;
        if let Some(known) = self.0.read().get(&mount) {
            return Ok(*known);
        }
        let found = match directory_on(&fd, stat, mount) {
            Some(directory) => FileSystem::probe(&directory)?,
            None => weakest(fd)?,
        };
        let mut known = self.0.write();
        if known.len() >= MOUNTS_MAX {
            known.clear();
        }
        known.insert(mount, found);
        Ok(found)
    }
}

// A directory of the file system of a file: its own, unless the file itself is mounted.
fn directory_on(fd: impl AsFd, stat: &Statx, mount: Mount) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if inode::kind(stat) == rustix::fs::FileType::Directory {
        return rustix::fs::open(proc_name(fd), flags, Mode::empty()).ok();
    }
    let name = rustix::fs::readlink(proc_name(fd), Vec::new()).ok()?;
    let directory = Path::new(OsStr::from_bytes(name.as_bytes())).parent()?;
    let directory = rustix::fs::open(directory, flags, Mode::empty()).ok()?;
    let is_same = Mount::of(&directory, &inode::stat(&directory).ok()?).ok()? == mount;
    is_same.then_some(directory)
}

// Promises nothing that could not be probed.
fn weakest(fd: impl AsFd) -> Result<FileSystem, ShareError> {
    let inline = InlineIo::of(rustix::fs::fstatfs(&fd)?.f_type);
    let class = match inline {
        InlineIo::Everything => DurabilityClass::Volatile,
        InlineIo::Cached | InlineIo::CachedReads => DurabilityClass::Storage,
    };
    let has_xattrs = rustix::fs::listxattr(proc_name(fd), &mut [0; 4096]).is_ok();
    Ok(FileSystem { class, inline, clones: false, has_xattrs })
}

// Only a real mapping shows whether MAP_SYNC works here.
fn probe_class(directory: &OwnedFd) -> DurabilityClass {
    let probe = probe::nameless(directory)
        .ok_or(())
        .and_then(|fd| rustix::fs::ftruncate(&fd, 4096).map(|()| fd).map_err(drop));
    match probe {
        Ok(fd) => pmem::classify(&File::from(fd)).unwrap_or(DurabilityClass::Storage),
        // The server cannot write here: claim the weaker class that needs a flush.
        Err(()) => {
            let looked_at = rustix::io::fcntl_dupfd_cloexec(directory, 0).map(File::from);
            match looked_at.is_ok_and(|directory| pmem::is_in_memory(&directory)) {
                true => DurabilityClass::Volatile,
                false => DurabilityClass::Storage,
            }
        }
    }
}

/// Mounts remembered: more than anybody serves, and some 100 KiB.
const MOUNTS_MAX: usize = 1024;
