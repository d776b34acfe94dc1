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

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{FileType, FsWord, Stat};

use super::binding::Binding;
use super::entry::Entry;
use super::extended;
use super::limits::{EA_NAMES_INLINE_MAX, IO_INLINE_MAX};
use super::lookup::Found;

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

impl Entry {
    /// The inline work of moving the end of file to `size`: bytes that are cut off are freed page by page.
    pub fn inline_to_resize(&self, size: u64) -> InlineIo {
        let is_cut = self.data_size().map_or(true, |now| size < now);
        self.inline_io().unless(is_cut && is_much(self.occupied()))
    }

    /// The same for [`Entry::set_allocation`].
    pub fn inline_to_allocate(&self, allocation: u64) -> InlineIo {
        self.inline_io().unless(is_much(allocation.max(self.occupied())))
    }

    /// The same for setting extended attributes with so many bytes of names together.
    pub fn inline_to_set_attributes(&self, names: usize) -> InlineIo {
        self.inline_io().unless(names > EA_NAMES_INLINE_MAX || self.has_many_attributes())
    }

    /// Whether it is much work to read all its extended attributes.
    pub fn has_many_attributes(&self) -> bool {
        extended::names_len(self.facts_fd()) > EA_NAMES_INLINE_MAX
    }

    /// Whether it is a stream or may have streams: there may be many, each of any length.
    pub fn has_streams(&self) -> bool {
        self.is_stream() || !matches!(Binding::of(self.facts_fd()), Ok(None))
    }

    /// A regular file: existing links do not affect giving it a name.
    pub fn is_plain(&self) -> bool {
        let kind =
            rustix::fs::fstat(self.as_fd()).map(|stat| FileType::from_raw_mode(stat.st_mode));
        kind == Ok(FileType::RegularFile) && !self.is_link()
    }
}

impl Found {
    /// Whether it is as empty as a new object.
    pub fn is_as_new(&self) -> bool {
        self.is_directory || self.stat.stx_size == 0
    }

    /// Whether emptying it is much work: of its bytes, its streams, its extended attributes.
    pub fn is_much_to_empty(&self) -> bool {
        let file = self.anchor.as_fd();
        is_much(occupied(file))
            || extended::names_len(file) > EA_NAMES_INLINE_MAX
            || !matches!(Binding::of(file), Ok(None))
    }
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
