//! The facts that a client can query about a file: times, sizes, attributes, identity.
//!
//! Times are FILETIME (100 ns since 1601-01-01 UTC); sizes are bytes.
//!
//! Spec: MS-FSCC §2.4 (file information classes), §2.1.1 (time).

use std::os::fd::AsFd;

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags, StatxTimestamp};
use rustix::path::Arg;

use super::attributes::{self, DosAttributes, NotedChange, Stored};
use super::error::ShareError;
use super::mounts::UNIQUE_MOUNT;

/// Names an inode for as long as it is open.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FileKey {
    /// Device number, major and minor.
    pub device: u64,
    /// Inode number; the 64-bit FileId of MS-FSCC.
    pub inode: u64,
}

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

    /// Reads the metadata of a node, open or an anchor, that stands for a device of `size` bytes.
    pub(super) fn of_device(fd: impl AsFd, size: u64) -> Result<Self, ShareError> {
        let stat = rustix::fs::statx(&fd, "", AtFlags::EMPTY_PATH, WANTED)?;
        let node = Self::from_parts(&stat, Stored::default(), false);
        Ok(Self { size, allocation: size, ..node })
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

/// All needed facts of an open handle or O_PATH anchor.
pub(super) fn stat(fd: impl AsFd) -> Result<Statx, ShareError> {
    Ok(rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, WANTED)?)
}

/// The time when the inode was made, in seconds and nanoseconds of the Unix epoch; none if the file system does
/// not keep it.
pub(super) fn birth(fd: impl AsFd) -> Result<Option<(i64, u32)>, ShareError> {
    let stat = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::BTIME)?;
    let is_known = stat.stx_mask & StatxFlags::BTIME.bits() != 0;
    Ok(is_known.then_some((stat.stx_btime.tv_sec, stat.stx_btime.tv_nsec)))
}

/// The inode and the kind of an open handle or O_PATH anchor.
pub(super) fn identify(fd: impl AsFd) -> Result<(FileKey, FileType), ShareError> {
    let stat = rustix::fs::statx(fd, "", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)?;
    Ok((key(&stat), kind(&stat)))
}

/// The inode behind a directory entry, not following a symbolic link.
pub(super) fn identify_at(
    dir: impl AsFd,
    name: impl Arg,
) -> Result<(FileKey, FileType), ShareError> {
    let stat = rustix::fs::statx(dir, name, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS)?;
    Ok((key(&stat), kind(&stat)))
}

pub(super) fn key(stat: &Statx) -> FileKey {
    let device = (u64::from(stat.stx_dev_major) << 32) | u64::from(stat.stx_dev_minor);
    FileKey { device, inode: stat.stx_ino }
}

pub(super) fn kind(stat: &Statx) -> FileType {
    FileType::from_raw_mode(stat.stx_mode.into())
}

fn to_file_time(time: StatxTimestamp) -> u64 {
    file_time_of(time.tv_sec, time.tv_nsec)
}

/// The FILETIME of seconds and nanoseconds of the Unix epoch.
pub(super) fn file_time_of(seconds: i64, nanoseconds: u32) -> u64 {
    // Times before 1601 or after 60056 are clamped: no client can use them.
    let ticks = (i128::from(seconds) + UNIX_EPOCH_SECONDS) * TICKS_PER_SECOND
        + i128::from(nanoseconds / 100);
    u64::try_from(ticks.max(0)).unwrap_or(u64::MAX).min(i64::MAX.unsigned_abs())
}

/// The inverse: seconds and nanoseconds of the Unix epoch.
pub(super) fn from_file_time(ticks: u64) -> rustix::fs::Timespec {
    let ticks = i128::from(ticks);
    let seconds = ticks.div_euclid(TICKS_PER_SECOND) - UNIX_EPOCH_SECONDS;
    let nanoseconds = ticks.rem_euclid(TICKS_PER_SECOND) * 100;
    rustix::fs::Timespec {
        tv_sec: i64::try_from(seconds).expect("a u64 of 100 ns is under 2^41 seconds"),
        tv_nsec: i64::try_from(nanoseconds).expect("below one thousand million"),
    }
}

const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(UNIQUE_MOUNT);
// From 1601-01-01 to 1970-01-01.
const UNIX_EPOCH_SECONDS: i128 = 11_644_473_600;
const TICKS_PER_SECOND: i128 = 10_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_and_windows_time_meet_at_the_known_epoch() {
        let mut stat: StatxTimestamp =
            rustix::fs::statx(rustix::fs::CWD, "/", AtFlags::empty(), StatxFlags::BASIC_STATS)
                .unwrap()
                .stx_mtime;
        stat.tv_sec = 0;
        stat.tv_nsec = 0;
        // 116444736000000000: the constant in every converter.
        assert_eq!(to_file_time(stat), 116_444_736_000_000_000);
        let back = from_file_time(116_444_736_000_000_001);
        assert_eq!((back.tv_sec, back.tv_nsec), (0, 100));
    }
}
