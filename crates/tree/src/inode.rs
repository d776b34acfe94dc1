//! The inode behind an open descriptor or an entry of a directory: its identity, its kind, the facts that the kernel
//! reports.

use std::os::fd::{AsFd, AsRawFd as _};

use rustix::fs::{AtFlags, FileType, Statx, StatxFlags};
use rustix::path::Arg;

use super::error::ShareError;

/// Names an inode for as long as it is open.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FileKey {
    /// Device number, major and minor.
    pub device: u64,
    /// Inode number; the 64-bit FileId of MS-FSCC.
    pub inode: u64,
}

/// The name by which this process can open an open file again.
pub(super) fn proc_name(fd: impl AsFd) -> String {
    format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())
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

/// The facts to ask for.
pub(super) const WANTED: StatxFlags =
    StatxFlags::BASIC_STATS.union(StatxFlags::BTIME).union(UNIQUE_MOUNT);
/// STATX_MNT_ID_UNIQUE, which rustix does not name yet. Older kernels ignore it.
pub(super) const UNIQUE_MOUNT: StatxFlags = StatxFlags::from_bits_retain(0x4000);
