//! A file as memory: persistent memory through MAP_SYNC or devdax, or tmpfs.
//!
//! ```text
//!   file     0                    base                           end
//!                                  |==============================|      mapped: what was asked for, in whole units
//!   chunks                         |            |            |    |
//!   fetched for x                               |=====x======|
//! ```
//!
//! Offsets are those of the file. Nothing before the range is mapped: a range at the end of a sparse file takes address
//! space for itself alone. A fetch of a page of a sparse file allocates a block for the page, so no page beside the range
//! is fetched: it may have none, and a full file system has no block to give.

use std::fs::File;
use std::ops::Range;

use rustix::io::Errno;

use crate::lines::Memory;
use crate::mapping::Mapping;
use crate::presence::{CHUNK, Presence, Touch};
use crate::{AtomicOp, DirectMemory, MapError, MediumError, arch};

/// A range of a file, mapped shared.
#[derive(Debug)]
pub(crate) struct MappedFile {
    mapping: Mapping,
    presence: Presence,
    /// Where the mapping begins in the file.
    base: usize,
    /// The file, kept to read its length when a page cannot be fetched.
    file: File,
    /// Whether a page that nobody has written takes memory of the file system when it is read: tmpfs. Elsewhere it
    /// takes a block when it is written.
    is_filled_to_read: bool,
}

impl MappedFile {
    /// A mapping of the file from `base` on.
    pub(crate) fn new(
        file: File,
        mapping: Mapping,
        base: usize,
        is_filled_to_read: bool,
    ) -> Result<Self, MapError> {
        let presence = Presence::absent(mapping.len())?;
        Ok(Self { mapping, presence, base, file, is_filled_to_read })
    }

    // The place of an offset of the file, which lies in the mapping, in it.
    fn at(&self, offset: usize) -> usize {
        offset - self.base
    }

    /// Fetches these pages of the mapping and no others.
    fn fetch(&self, pages: &Range<usize>, touch: Touch) -> Result<(), MediumError> {
        let (first, len) = (pages.start, pages.end - pages.start);
        match self.mapping.populate(first, len, touch == Touch::Write) {
            Ok(()) => self.mapping.health(first, len),
            Err(Errno::FAULT) => Err(self.why_no_page(pages, touch)),
            Err(errno) => Err(errno.into()),
        }
    }

    /// The kernel reports a page beyond the end of the file, a full file system and a block that the medium has lost
    /// alike.
    fn why_no_page(&self, pages: &Range<usize>, touch: Touch) -> MediumError {
        let (first, len) = (pages.start, pages.end - pages.start);
        match rustix::fs::fstat(&self.file) {
            Ok(stat)
                if usize::try_from(stat.st_size).is_ok_and(|size| size < self.base + pages.end) =>
            {
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
        self.base + self.mapping.len()
    }

    fn start(&self) -> usize {
        self.base
    }

    fn direct(&self) -> Option<DirectMemory> {
        Some(self.mapping.direct(self.base))
    }

    fn is_present(&self, offset: usize, len: usize, touch: Touch) -> bool {
        self.presence.covers(self.at(offset), len, touch)
    }

    /// Fetches whole chunks as far as they are mapped, so that the next access nearby finds them.
    fn populate(&self, offset: usize, len: usize, touch: Touch) -> Result<(), MediumError> {
        let at = self.at(offset);
        let first = at & !(CHUNK - 1);
        // Up to isize::MAX, so the next multiple exists.
        let end = (at + len).next_multiple_of(CHUNK).min(self.mapping.len());
        match self.fetch(&(first..end), touch) {
            Ok(()) => {
                self.presence.note(first, end - first, touch);
                Ok(())
            }
            // The file system has no blocks for the pages beside the requested ones, or some are lost; the requested pages
            // may still have theirs.
            Err(MediumError::MediaIo(_)) => {
                self.fetch(&whole_pages(at..at + len, self.mapping.len()), touch)
            }
            failed => failed,
        }
    }

    fn health(&self, offset: usize, len: usize) -> Result<(), MediumError> {
        self.mapping.health(self.at(offset), len)
    }

    fn load(&self, offset: usize, out: &mut [u8]) {
        self.mapping.window().load(self.at(offset), out);
    }

    fn store(&self, offset: usize, bytes: &[u8]) {
        self.mapping.window().store(self.at(offset), bytes);
    }

    fn stream(&self, offset: usize, bytes: &[u8]) {
        self.mapping.window().stream(self.at(offset), bytes);
    }

    fn write_back(&self, offset: usize, len: usize) {
        self.mapping.window().write_back(self.at(offset), len);
    }

    fn drain(&self) {
        arch::drain();
    }

    fn atomic(&self, offset: usize, op: AtomicOp) -> u64 {
        self.mapping.window().atomic(self.at(offset), op)
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
        let mapping = Mapping::of_file(&file, (0, 8192), how).unwrap();
        MappedFile::new(file, mapping, 0, is_filled_to_read).unwrap()
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
