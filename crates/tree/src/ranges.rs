//! Ranges of an open file: holes, zeros, copies and clones.
//!
//! Linux keeps a hole wherever no byte was written; SMB has holes only in files marked sparse. So a
//! file without the mark is presented as fully allocated, and zeroing it keeps its blocks.
//!
//! Spec: MS-FSA §2.1.5.9 (controls); fallocate(2), lseek(2), copy_file_range(2).

use std::os::fd::AsFd;

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use super::attributes;
use super::entry::Entry;
use super::error::ShareError;
use super::rights::MaySet;

/// Bytes from `start` up to `end`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Span {
    /// The first byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Entry {
    /// Whether the file is marked sparse.
    pub fn is_sparse(&self) -> bool {
        attributes::load(self.as_fd()).sparse
    }

    /// Marks the file sparse, or fills its holes and removes the mark.
    pub fn set_sparse(&self, _leave: impl MaySet, sparse: bool) -> Result<(), ShareError> {
        self.not_on_devices()?;
        if attributes::try_load(self.as_fd())?.sparse == sparse {
            return Ok(());
        }
        if !sparse {
            self.reserve(0, self.data_size()?)?;
        }
        let is_directory = self.is_directory();
        attributes::change(self.as_fd(), self.key(), is_directory, |stored| stored.sparse = sparse)
    }

    /// Zeroes bytes without moving the end of the file; a sparse file frees their blocks.
    pub fn zero(&self, span: Span) -> Result<(), ShareError> {
        self.not_on_devices()?;
        let end = span.end.min(self.data_size()?);
        if span.start >= end {
            return Ok(());
        }
        self.modify(|| self.zero_within(span.start, end))
    }

    fn zero_within(&self, start: u64, end: u64) -> Result<(), ShareError> {
        let len = end - start;
        let punch = || {
            let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            self.allocate(how, start, len)
        };
        if self.is_sparse() {
            return match punch() {
                Err(ShareError::Unsupported) => self.write_zeros(start, end),
                other => other,
            };
        }
        let keep = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        match self.allocate(keep, start, len) {
            // tmpfs: punches a hole and fills it at once.
            Err(ShareError::Unsupported) => match punch().and_then(|()| self.reserve(start, len)) {
                Err(ShareError::Unsupported) => self.write_zeros(start, end),
                other => other,
            },
            other => other,
        }
    }

    /// Discards bytes: their blocks go back to the device, which may erase them. A file that is not
    /// sparse gets other blocks at once.
    pub fn trim(&self, span: Span) -> Result<(), ShareError> {
        self.not_on_devices()?;
        let end = span.end.min(self.data_size()?);
        // Only whole pages: other bytes of a partial page stay.
        let (start, end) = (span.start.next_multiple_of(TRIM_UNIT), end / TRIM_UNIT * TRIM_UNIT);
        if start >= end {
            return Ok(());
        }
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match self.modify(|| self.allocate(how, start, end - start)) {
            // Nothing was promised of the bytes, so they may stay as they are.
            Err(ShareError::Unsupported) => return Ok(()),
            other => other?,
        }
        if self.is_sparse() { Ok(()) } else { self.reserve(start, end - start) }
    }

    /// The allocated parts of `span`, at most `count_max`; and whether there are more.
    pub fn allocated(&self, span: Span, count_max: usize) -> Result<(Vec<Span>, bool), ShareError> {
        let end = span.end.min(self.data_size()?);
        let mut found = Vec::new();
        let mut at = span.start;
        if !self.is_sparse() && at < end {
            found.push(Span { start: at, end });
            at = end;
        }
        while at < end {
            let start = match self.seek(SeekFrom::Data(at)) {
                // Only a hole up to the end of the file.
                Err(ShareError::SpecialFile) => break,
                other => other?.max(at),
            };
            if start >= end {
                break;
            }
            if found.len() == count_max {
                return Ok((found, true));
            }
            let hole = self.seek(SeekFrom::Hole(start))?.min(end);
            found.push(Span { start, end: hole });
            at = hole.max(start + 1);
        }
        let is_more = found.len() > count_max;
        found.truncate(count_max);
        Ok((found, is_more))
    }

    /// Copies `len` bytes from another open file, or from another place in this one, within the machine.
    /// If the ranges overlap, the bytes before the copy count. At most [`COPY_MAX`].
    pub fn copy_from(
        &self,
        source: &Self,
        source_offset: u64,
        offset: u64,
        len: usize,
    ) -> Result<(), ShareError> {
        if len > COPY_MAX {
            return Err(ShareError::PeerInvalid);
        }
        if source.key() != self.key() {
            match self.modify(|| self.copy_in_kernel(source, source_offset, offset, len)) {
                // The files are on different file systems, or on one that cannot copy: through
                // memory.
                Err(
                    ShareError::CrossDevice | ShareError::Unsupported | ShareError::PeerInvalid,
                ) => {}
                other => return other,
            }
        }
        let mut bytes = Vec::new();
        if source.read_at(&mut bytes, len, source_offset)? < len {
            return Err(ShareError::PeerInvalid);
        }
        self.write_at(&bytes, offset)
    }

    /// Lets a range share the blocks of another, if the file system can; all of it, or nothing that
    /// a reader could distinguish from the state before.
    pub fn clone_from(
        &self,
        source: &Self,
        source_offset: u64,
        offset: u64,
        len: u64,
    ) -> Result<(), ShareError> {
        self.modify(|| {
            let mut done = 0;
            // copy_file_range(2) clones if it can (btrfs, XFS), some GiB at a time.
            while done < len {
                let step = usize::try_from((len - done).min(CLONE_STEP)).expect("a GiB fits usize");
                self.copy_in_kernel(source, source_offset + done, offset + done, step)?;
                done += step as u64;
            }
            Ok(())
        })
    }

    fn copy_in_kernel(
        &self,
        source: &Self,
        source_offset: u64,
        offset: u64,
        len: usize,
    ) -> Result<(), ShareError> {
        // The kernel does not copy from or to a device.
        self.not_on_devices()?;
        source.not_on_devices()?;
        let (mut from, mut to) = (source_offset, offset);
        let mut rest = len;
        while rest > 0 {
            let copied = rustix::fs::copy_file_range(
                source.bytes_fd()?,
                Some(&mut from),
                self.bytes_fd()?,
                Some(&mut to),
                rest,
            );
            match copied {
                Ok(0) => return Err(ShareError::PeerInvalid),
                Ok(copied) => rest -= copied,
                Err(Errno::INTR) => {}
                Err(Errno::XDEV) => return Err(ShareError::CrossDevice),
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn allocate(&self, how: FallocateFlags, offset: u64, len: u64) -> Result<(), ShareError> {
        loop {
            match rustix::fs::fallocate(self.bytes_fd()?, how, offset, len) {
                Err(Errno::INTR) => {}
                other => return Ok(other?),
            }
        }
    }

    fn write_zeros(&self, start: u64, end: u64) -> Result<(), ShareError> {
        let zeros = vec![0; ZEROS];
        let mut at = start;
        while at < end {
            let step = usize::try_from((end - at).min(ZEROS as u64)).expect("at most the buffer");
            self.write_at(&zeros[..step], at)?;
            at += step as u64;
        }
        Ok(())
    }

    // No other code uses the position that this moves.
    fn seek(&self, to: SeekFrom) -> Result<u64, ShareError> {
        Ok(rustix::fs::seek(self.as_fd().as_fd(), to)?)
    }
}

/// Most bytes of one copy.
pub const COPY_MAX: usize = 1 << 20;
/// Blocks of every file system in use are at least this long.
const TRIM_UNIT: u64 = 4096;
const CLONE_STEP: u64 = 1 << 30;
const ZEROS: usize = 64 * 1024;
