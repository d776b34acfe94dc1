//! The facts that a client can query about a file: times, sizes, attributes, identity.
//!
//! Times are FILETIME (100 ns since 1601-01-01 UTC); sizes are bytes.
//!
//! Spec: MS-FSCC §2.4 (file information classes), §2.1.1 (time).

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags};

use super::attributes::{self, DosAttributes, NotedChange, Stored};
use super::body::Body;
use super::error::ShareError;
use super::file_time::{file_time_of, to_file_time};
use super::inode::{FileKey, WANTED, key, kind, stat};

/// A snapshot of one inode.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Metadata {
    /// The inode.
    pub key: FileKey,
    /// A directory, else a regular file.
    pub is_directory: bool,
    /// End of file, in bytes; 0 for directories.
    pub size: u64,
    /// Bytes reserved on the medium; 0 for directories.
    pub allocation: u64,
    /// Names this inode has.
    pub links: u32,
    /// The attributes that clients see.
    pub attributes: DosAttributes,
    /// Creation time.
    pub creation: u64,
    /// Last read.
    pub access: u64,
    /// Last write.
    pub write: u64,
    /// Last change of anything.
    pub change: u64,
    /// Facts that only POSIX clients see.
    pub posix: PosixFacts,
}

/// Facts of an inode that only POSIX clients see.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct PosixFacts {
    /// Permission bits.
    pub permissions: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// A symbolic link, else what [`Metadata::is_directory`] says.
    pub is_link: bool,
}

impl Metadata {
    /// Reads the metadata of an open file or directory.
    pub(super) fn of(fd: impl AsFd) -> Result<Self, ShareError> {
        let stat = stat(&fd)?;
        Self::with(&stat, || attributes::load(fd))
    }

    /// The metadata behind an O_PATH handle that was just asked for `stat`.
    pub(super) fn of_anchor(anchor: impl AsFd, stat: &Statx) -> Result<Self, ShareError> {
        Self::with(stat, || attributes::load_anchor(anchor))
    }

    fn with(stat: &Statx, stored: impl FnOnce() -> Stored) -> Result<Self, ShareError> {
        match kind(stat) {
            FileType::RegularFile => Ok(Self::from_parts(stat, stored(), false)),
            FileType::Directory => Ok(Self::from_parts(stat, stored(), true)),
            FileType::Symlink => Ok(Self::of_link(stat)),
            _ => Err(ShareError::SpecialFile),
        }
    }

    /// Reads the metadata of a node, open or an anchor, that stands for a body.
    pub(super) fn of_device(fd: impl AsFd, body: &dyn Body) -> Result<Self, ShareError> {
        let stat = rustix::fs::statx(&fd, "", AtFlags::EMPTY_PATH, WANTED)?;
        body.size()?;
        Ok(Self::from_parts(&stat, Stored::default(), false).of_body(body))
    }

    /// The metadata of an inode that stands for a body.
    pub(super) fn of_body(self, body: &dyn Body) -> Self {
        let size = body.size().unwrap_or(self.size);
        let sparse =
            if body.is_sparse() { DosAttributes::SPARSE } else { DosAttributes::default() };
        let attributes = DosAttributes::ARCHIVE.union(sparse);
        // A backup, and a copy that looks whether its source has changed, go by these.
        let written = body.last_write().map_or(0, |since| {
            file_time_of(i64::try_from(since.as_secs()).unwrap_or(i64::MAX), since.subsec_nanos())
        });
        let (write, change) = (self.write.max(written), self.change.max(written));
        Self { size, allocation: body.occupied().min(size), attributes, write, change, ..self }
    }

    /// Reads the metadata of an entry of an open directory; `None` for a symbolic link, which the
    /// caller has to resolve inside the share.
    pub(super) fn at(dir: impl AsFd, name: &str) -> Result<Option<Self>, ShareError> {
        let stat = rustix::fs::statx(&dir, name, AtFlags::SYMLINK_NOFOLLOW, WANTED)?;
        match kind(&stat) {
            FileType::RegularFile => {
                Ok(Some(Self::from_parts(&stat, attributes::load_at(dir, name), false)))
            }
            FileType::Directory => {
                Ok(Some(Self::from_parts(&stat, attributes::load_at(dir, name), true)))
            }
            FileType::Symlink => Ok(None),
            _ => Err(ShareError::SpecialFile),
        }
    }

    /// Reads the metadata of an entry of an open directory, for a symbolic link its own.
    pub(super) fn at_itself(dir: impl AsFd, name: &str) -> Result<Self, ShareError> {
        if let Some(other) = Self::at(&dir, name)? {
            return Ok(other);
        }
        let stat = rustix::fs::statx(&dir, name, AtFlags::SYMLINK_NOFOLLOW, WANTED)?;
        match kind(&stat) {
            FileType::Symlink => Ok(Self::of_link(&stat)),
            // Another object took its place meanwhile.
            _ => Err(ShareError::NotFound),
        }
    }

    fn of_link(stat: &Statx) -> Self {
        let mut link = Self::from_parts(stat, Stored::default(), false);
        link.attributes = DosAttributes::REPARSE_POINT;
        link.posix.is_link = true;
        link
    }

    fn from_parts(stat: &Statx, stored: Stored, is_directory: bool) -> Self {
        let birth = if stat.stx_mask & StatxFlags::BTIME.bits() != 0 {
            stat.stx_btime
        } else {
            stat.stx_mtime
        };
        Self {
            key: key(stat),
            is_directory,
            size: if is_directory { 0 } else { stat.stx_size },
            allocation: if is_directory { 0 } else { stat.stx_blocks.saturating_mul(512) },
            links: stat.stx_nlink,
            attributes: stored.effective(is_directory),
            creation: stored.creation.unwrap_or_else(|| to_file_time(birth)),
            access: to_file_time(stat.stx_atime),
            write: to_file_time(stat.stx_mtime),
            change: NotedChange::effective(stored.change, to_file_time(stat.stx_ctime)),
            posix: PosixFacts {
                permissions: u32::from(stat.stx_mode) & 0o7777,
                uid: stat.stx_uid,
                gid: stat.stx_gid,
                is_link: false,
            },
        }
    }
}
