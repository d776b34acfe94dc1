//! Decides which work is done on the calling thread, for which others wait: a reactor of the runtime, an
//! engine.
//!
//! ```text
//!   waits for nothing, by its file system?      no --> blocking pool
//!                 | yes
//!   little work, by the request?                no --> blocking pool
//!                 | yes
//!          calling thread
//! ```
//!
//! Work on memory waits for nothing, but it is not free: the kernel needs some 100 ms to clear a GiB that is
//! reserved, or to free the pages of one that is cut off. This module decides what is little from facts known
//! before the work begins; work of unknown size (names of a directory, names below one) stops when it gets long,
//! or is never done on the calling thread.
//!
//! Measured (Linux 6.18): tmpfs reads and writes never wait but refuse RWF_NOWAIT with EOPNOTSUPP,
//! ext4 reads honour RWF_NOWAIT, ext4 buffered writes refuse it.

use std::os::fd::BorrowedFd;

use rustix::fs::{FsWord, Stat};

use super::limits::IO_INLINE_MAX;

/// The work that may be done on the calling thread.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum InlineIo {
    /// Memory lies behind everything: reads, writes and flushes never wait (tmpfs). All little
    /// work.
    Everything,
    /// Data that the kernel has in memory, of a file system on a disk of this machine: facts of
    /// open files, names it has looked up before (RESOLVE_CACHED), and reads as below.
    Cached,
    /// Reads of cached pages; the kernel reports when it would wait (RWF_NOWAIT). This is all for
    /// file systems on a network, and for unknown ones.
    CachedReads,
}

impl InlineIo {
    /// The work that a file system of this magic number allows.
    pub(super) fn of(magic: FsWord) -> Self {
        match magic {
            TMPFS => Self::Everything,
            BCACHEFS | BTRFS | EXT | F2FS | OVERLAYFS | XFS | ZFS => Self::Cached,
            _ => Self::CachedReads,
        }
    }

    /// Whether the kernel has the metadata of every open file in memory.
    pub fn has_open_files_at_hand(self) -> bool {
        self != Self::CachedReads
    }

    /// The same, but nothing if the work `is_much`.
    pub fn unless(self, is_much: bool) -> Self {
        if is_much { Self::CachedReads } else { self }
    }
}

/// Whether it is much work to touch so many bytes.
pub fn is_much(bytes: u64) -> bool {
    bytes > IO_INLINE_MAX as u64
}

/// Bytes that a file occupies, those behind its end included.
pub(super) fn occupied(file: BorrowedFd<'_>) -> u64 {
    rustix::fs::fstat(file).map_or(u64::MAX, |stat| bytes_of(&stat))
}

/// Bytes that a file with these facts occupies.
pub(super) fn bytes_of(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)
}

// Linux uapi/linux/magic.h, and OpenZFS.
pub(super) const BCACHEFS: FsWord = 0xca45_1a4e;
pub(super) const BTRFS: FsWord = 0x9123_683e;
pub(super) const EXT: FsWord = 0xef53;
const F2FS: FsWord = 0xf2f5_2010;
const OVERLAYFS: FsWord = 0x794c_7630;
pub(super) const TMPFS: FsWord = 0x0102_1994;
const XFS: FsWord = 0x5846_5342;
pub(super) const ZFS: FsWord = 0x2fc1_2fc1;
