//! The file systems that one share reaches, and what each of them can do.
//!
//! ```text
//!  share/            tmpfs: forgets, waits for nothing
//!    f
//!    disk/           ext4, mounted: remembers, waits for a device
//!      g
//! ```
//!
//! A share is a tree of names, and anything may be mounted in it at any time. How durable a write is, what may
//! be answered without waiting, whether files share blocks or have xattrs is therefore asked of the
//! file system that a file lies on, never of the share's top. What takes a probe is asked once
//! per mount.
//!
//! Spec: statx(2) STATX_MNT_ID_UNIQUE, statfs(2).

use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

use pmem::DurabilityClass;
use rustix::fs::{Mode, OFlags, Statx, StatxFlags};

use super::attributes::proc_name;
use super::error::ShareError;
use super::inline::InlineIo;
use super::{metadata, volume};

/// What a file system can do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct FileSystem {
    /// What a durable write means.
    pub(super) class: DurabilityClass,
    /// What may be answered on the calling thread.
    pub(super) inline: InlineIo,
    /// Files can share their blocks.
    pub(super) clones: bool,
    /// Files can have xattrs of the `user` namespace.
    pub(super) has_xattrs: bool,
}

impl FileSystem {
    // By files that never have a name, in a directory of the file system.
    fn probe(directory: &OwnedFd) -> Result<Self, ShareError> {
        let inline = InlineIo::of(rustix::fs::fstatfs(directory)?.f_type);
        let is_memory = inline == InlineIo::Everything;
        Ok(Self {
            class: if is_memory { DurabilityClass::Volatile } else { probe_class(directory) },
            inline,
            clones: !is_memory && volume::probe_clones(directory),
            has_xattrs: volume::probe_xattrs(directory),
        })
    }
}

/// The file systems met so far.
#[derive(Debug, Default)]
pub(super) struct Mounts(RwLock<HashMap<Mount, FileSystem>>);

/// One mount. A device number alone would not do: those of file systems without a device are given
/// again, and so are the mounts' own numbers before Linux 6.8.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
enum Mount {
    /// By a number that is never given again.
    Unique(u64),
    /// By its device, and the kind of file system there is now.
    Device { device: u64, magic: i64 },
}

impl Mount {
    fn of(fd: impl AsFd, stat: &Statx) -> Result<Self, ShareError> {
        if stat.stx_mask & UNIQUE_MOUNT.bits() != 0 {
            return Ok(Self::Unique(stat.stx_mnt_id));
        }
        let magic = rustix::fs::fstatfs(fd)?.f_type;
        Ok(Self::Device { device: metadata::key(stat).device, magic })
    }
}

impl Mounts {
    /// What the file system of an open file or directory, or of an anchor, can do. May block the first time
    /// that the file system is met.
    pub(super) fn of(&self, fd: impl AsFd) -> Result<FileSystem, ShareError> {
        let stat = metadata::stat(&fd)?;
        self.of_stat(fd, &stat)
    }

    /// [`Mounts::of`] for who has just asked for `stat`.
    pub(super) fn of_stat(&self, fd: impl AsFd, stat: &Statx) -> Result<FileSystem, ShareError> {
        let mount = Mount::of(&fd, stat)?;
        if let Some(known) = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&mount) {
            return Ok(*known);
        }
        let found = match directory_on(&fd, stat, mount) {
            Some(directory) => FileSystem::probe(&directory)?,
            None => weakest(fd)?,
        };
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOUNTS_MAX {
            known.clear();
        }
        known.insert(mount, found);
        Ok(found)
    }
}

// A directory of the file system that a file is on: its own, unless the file itself is what is mounted.
fn directory_on(fd: impl AsFd, stat: &Statx, mount: Mount) -> Option<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    if metadata::kind(stat) == rustix::fs::FileType::Directory {
        return rustix::fs::open(proc_name(fd), flags, Mode::empty()).ok();
    }
    let name = rustix::fs::readlink(proc_name(fd), Vec::new()).ok()?;
    let directory = Path::new(OsStr::from_bytes(name.as_bytes())).parent()?;
    let directory = rustix::fs::open(directory, flags, Mode::empty()).ok()?;
    let is_same = Mount::of(&directory, &metadata::stat(&directory).ok()?).ok()? == mount;
    is_same.then_some(directory)
}

// What nobody can try is not promised.
fn weakest(fd: impl AsFd) -> Result<FileSystem, ShareError> {
    let inline = InlineIo::of(rustix::fs::fstatfs(&fd)?.f_type);
    let class = match inline {
        InlineIo::Everything => DurabilityClass::Volatile,
        InlineIo::Cached | InlineIo::CachedReads => DurabilityClass::Storage,
    };
    let has_xattrs = rustix::fs::listxattr(proc_name(fd), &mut [0; 4096]).is_ok();
    Ok(FileSystem { class, inline, clones: false, has_xattrs })
}

// Only a real mapping tells whether MAP_SYNC works here.
fn probe_class(directory: &OwnedFd) -> DurabilityClass {
    let probe = volume::nameless(directory)
        .ok_or(())
        .and_then(|fd| rustix::fs::ftruncate(&fd, 4096).map(|()| fd).map_err(drop));
    match probe {
        Ok(fd) => pmem::classify(&File::from(fd)).unwrap_or(DurabilityClass::Storage),
        // Not writable for us: claim the weaker class that needs a flush.
        Err(()) => DurabilityClass::Storage,
    }
}

/// STATX_MNT_ID_UNIQUE, which rustix does not name yet. Older kernels ignore it.
pub(super) const UNIQUE_MOUNT: StatxFlags = StatxFlags::from_bits_retain(0x4000);
/// Mounts remembered: more than anybody serves, and some 100 KiB.
const MOUNTS_MAX: usize = 1024;
