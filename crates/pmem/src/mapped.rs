//! A file as memory: persistent memory through MAP_SYNC or devdax, or tmpfs.
//!
//! ```text
//!   chunks     |            |            |            |
//!   reserved           |=========================|
//!   fetched for x      |=x==|                               as much of the chunk as is reserved
//!   fetched for y   |y|                                     the page alone
//! ```
//!
//! A fetch of a page of a sparse file allocates a block for the page. A reserved page has its block
//! already; the page beside it may have none, and a full file system has no block to give.

use std::fs::File;
use std::ops::Range;

use rustix::io::Errno;

use crate::lines::Memory;
use crate::mapping::Mapping;
use crate::presence::{CHUNK, Presence, Touch};
use crate::{AtomicOp, DirectMemory, MapError, MediumError, arch};

/// The first bytes of a file, mapped shared.
#[derive(Debug)]
pub(crate) struct MappedFile {
    mapping: Mapping,
    presence: Presence,
    /// The range that may be fetched beyond the requested pages: whole pages.
    reserved: Range<usize>,
    /// The file, kept to read its length when a page cannot be fetched.
    file: File,
    /// Whether a page that nobody has written takes memory of the file system when it is read: tmpfs. Elsewhere it
    /// takes a block when it is written.
    is_filled_to_read: bool,
}

impl MappedFile {
    /// `reserved` is the range for which the file system has blocks, as far as the caller knows.
    pub(crate) fn new(
        file: File,
        mapping: Mapping,
        reserved: Range<usize>,
        is_filled_to_read: bool,
    ) -> Result<Self, MapError> {
        let presence = Presence::absent(mapping.len())?;
        let reserved = whole_pages(reserved, mapping.len());
        Ok(Self { mapping, presence, reserved, file, is_filled_to_read })
    }

    /// Fetches these pages and no others.
    fn fetch(&self, pages: &Range<usize>, touch: Touch) -> Result<(), MediumError> {
        let (first, len) = (pages.start, pages.end - pages.start);
        match self.mapping.populate(first, len, touch == Touch::Write) {
            Ok(()) => self.mapping.health(first, len),
            Err(Errno::FAULT) => Err(self.why_no_page(pages, touch)),
            Err(errno) => Err(errno.into()),
        }
    }

    fn is_reserved(&self, offset: usize, len: usize) -> bool {
        self.reserved.start <= offset && offset + len <= self.reserved.end
    }

    /// The kernel reports a page beyond the end of the file, a full file system and a block that the medium has lost
    /// alike.
    fn why_no_page(&self, pages: &Range<usize>, touch: Touch) -> MediumError {
        let (first, len) = (pages.start, pages.end - pages.start);
        match rustix::fs::fstat(&self.file) {
            Ok(stat) if usize::try_from(stat.st_size).is_ok_and(|size| size < pages.end) => {
                MediumError::Truncated
            }
            Ok(_) if self.is_filled_to_read => Errno::NOSPC.into(),
            // A page that can be read, and not written, lacks its block.
            Ok(_) if touch == Touch::Write && self.mapping.populate(first, len, false).is_ok() => {
                Errno::NOSPC.into()
            }
            Ok(_) => Errno::IO.into(),
            Err(errno) => errno.into(),
        }
    }
}

impl Memory for MappedFile {
    fn len(&self) -> usize {
        self.mapping.len()
    }

    fn direct(&self) -> Option<DirectMemory> {
        Some(self.mapping.direct())
    }

    fn is_present(&self, offset: usize, len: usize, touch: Touch) -> bool {
        self.is_reserved(offset, len) && self.presence.covers(offset, len, touch)
    }

    /// Fetches whole chunks as far as they are reserved, so that the next access nearby finds them.
    fn populate(&self, offset: usize, len: usize, touch: Touch) -> Result<(), MediumError> {
        let asked = whole_pages(offset..offset + len, self.mapping.len());
        if !self.is_reserved(offset, len) {
            return self.fetch(&asked, touch);
        }
        let first = (offset & !(CHUNK - 1)).max(self.reserved.start);
        // Up to isize::MAX, so the next multiple exists.
        let end = (offset + len).next_multiple_of(CHUNK).min(self.reserved.end);
        match self.fetch(&(first..end), touch) {
            Ok(()) => {
                self.presence.note(first, end - first, touch);
                Ok(())
            }
            // The file system has fewer blocks than the caller said, or some are lost; the requested pages may still
            // have theirs.
            Err(MediumError::MediaIo(_)) => self.fetch(&asked, touch),
            failed => failed,
        }
    }

    fn health(&self, offset: usize, len: usize) -> Result<(), MediumError> {
        self.mapping.health(offset, len)
    }

    fn load(&self, offset: usize, out: &mut [u8]) {
        self.mapping.window().load(offset, out);
    }

    fn store(&self, offset: usize, bytes: &[u8]) {
        self.mapping.window().store(offset, bytes);
    }

    fn stream(&self, offset: usize, bytes: &[u8]) {
        self.mapping.window().stream(offset, bytes);
    }

    fn write_back(&self, offset: usize, len: usize) {
        self.mapping.window().write_back(offset, len);
    }

    fn drain(&self) {
        arch::drain();
    }

    fn atomic(&self, offset: usize, op: AtomicOp) -> u64 {
        self.mapping.window().atomic(offset, op)
    }
}

/// The pages that hold a range, up to the end of the mapping.
fn whole_pages(range: Range<usize>, end: usize) -> Range<usize> {
    let page = rustix::param::page_size();
    let last = range.end.checked_next_multiple_of(page).unwrap_or(end);
    range.start & !(page - 1)..last.min(end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::MapHow;

    /// Two pages of a file, as of a file system that `is_filled_to_read` or is not.
    fn mapped(is_filled_to_read: bool) -> MappedFile {
        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.set_len(8192).unwrap();
        let how = MapHow { writable: true, synchronous: false, unit: 4096 };
        let mapping = Mapping::of_file(&file, 8192, how).unwrap();
        MappedFile::new(file, mapping, 0..8192, is_filled_to_read).unwrap()
    }

    #[test]
    #[cfg_attr(miri, ignore = "real files")]
    fn a_page_that_can_be_read_and_not_written_lacks_its_block() {
        let (no_room, broken) = (Errno::NOSPC.into(), MediumError::from(Errno::IO));
        let second = 4096..8192;
        // A file system that fills pages to read them: without room for either use.
        for touch in [Touch::Read, Touch::Write] {
            assert_eq!(mapped(true).why_no_page(&second, touch), no_room);
        }
        // Any other: this page can be read.
        assert_eq!(mapped(false).why_no_page(&second, Touch::Write), no_room);
        assert_eq!(mapped(false).why_no_page(&second, Touch::Read), broken);
        let cut = mapped(false);
        cut.file.set_len(8191).unwrap();
        assert_eq!(cut.why_no_page(&second, Touch::Write), MediumError::Truncated);
        assert_eq!(cut.why_no_page(&(0..4096), Touch::Read), broken, "this one has all its bytes");
    }
}
