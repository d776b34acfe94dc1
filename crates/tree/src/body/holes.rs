//! Blocks of a regular file: reserved, zeroed, given back, listed.
//!
//! Linux keeps a hole wherever no byte was written; SMB has holes only in files marked sparse. So a
//! file without the mark is presented as fully allocated, and zeroing it keeps its blocks.
//!
//! Spec: MS-FSA §2.1.5.9 (controls); fallocate(2), lseek(2).

use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use super::plain_file::PlainFile;
use super::{Body as _, Span, space};
use crate::error::ShareError;

impl PlainFile {
    /// Reserves the blocks of a range inside the file without moving its end. Blocks that exist
    /// stay unchanged; new ones make the kernel move the file's times.
    pub(super) fn reserve_blocks(&self, offset: u64, len: u64) -> Result<(), ShareError> {
        if len == 0 || self.has_blocks(offset, len) {
            return Ok(());
        }
        if space::is_lacking(&*self.fd, offset..offset.saturating_add(len)) {
            return Err(ShareError::DiskFull);
        }
        match self.allocate(FallocateFlags::KEEP_SIZE, offset, len) {
            // A file system that cannot reserve space promises none: a write may still fail.
            Err(Errno::OPNOTSUPP) => Ok(()),
            other => Ok(other?),
        }
    }

    // Whether no hole begins before the end of the range.
    fn has_blocks(&self, offset: u64, len: u64) -> bool {
        let Some(end) = offset.checked_add(len) else { return false };
        self.seek(SeekFrom::Hole(offset)).is_ok_and(|hole| hole >= end)
    }

    pub(super) fn zero_blocks(&self, span: Span, is_sparse: bool) -> Result<(), ShareError> {
        let end = span.end.min(self.size()?);
        if span.start >= end {
            return Ok(());
        }
        let (start, len) = (span.start, end - span.start);
        let punch = || self.punch(start, len);
        if is_sparse {
            return match punch() {
                Err(ShareError::Unsupported) => self.write_zeros(start, end),
                other => other,
            };
        }
        let keep = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        match self.allocate(keep, start, len).map_err(ShareError::from) {
            // tmpfs: punches a hole and fills it at once.
            Err(ShareError::Unsupported) => {
                match punch().and_then(|()| self.reserve_blocks(start, len)) {
                    Err(ShareError::Unsupported) => self.write_zeros(start, end),
                    other => other,
                }
            }
            other => other,
        }
    }

    /// Gives blocks back to the device, which may erase them. A file that is not sparse gets other blocks at once.
    pub(super) fn trim_blocks(&self, span: Span, is_sparse: bool) -> Result<(), ShareError> {
        let end = span.end.min(self.size()?);
        // Only whole pages: other bytes of a partial page stay.
        let (start, end) = (span.start.next_multiple_of(TRIM_UNIT), end / TRIM_UNIT * TRIM_UNIT);
        if start >= end {
            return Ok(());
        }
        match self.punch(start, end - start) {
            // Nothing was promised of the bytes, so they may stay as they are.
            Err(ShareError::Unsupported) => return Ok(()),
            other => other?,
        }
        if is_sparse { Ok(()) } else { self.reserve_blocks(start, end - start) }
    }

    pub(super) fn written_blocks(
        &self,
        span: Span,
        count_max: usize,
    ) -> Result<(Vec<Span>, bool), ShareError> {
        let end = span.end.min(self.size()?);
        let mut found = Vec::new();
        let mut at = span.start;
        while at < end {
            let start = match self.seek(SeekFrom::Data(at)) {
                // Only a hole up to the end of the file.
                Err(Errno::NXIO) => break,
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
        Ok((found, false))
    }

    fn punch(&self, start: u64, len: u64) -> Result<(), ShareError> {
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(self.allocate(how, start, len)?)
    }

    fn allocate(&self, how: FallocateFlags, offset: u64, len: u64) -> Result<(), Errno> {
        loop {
            match rustix::fs::fallocate(&*self.fd, how, offset, len) {
                Err(Errno::INTR) => {}
                other => return other,
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
    fn seek(&self, to: SeekFrom) -> Result<u64, Errno> {
        rustix::fs::seek(&*self.fd, to)
    }
}

/// Blocks of every file system in use are at least this long.
const TRIM_UNIT: u64 = 4096;
const ZEROS: usize = 64 * 1024;
