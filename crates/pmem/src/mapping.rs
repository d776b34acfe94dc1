//! Owns a piece of address space: maps it, fetches its pages, unmaps it.
//!
//! # Safety rules of this module
//!
//! A [`Mapping`] is made by mmap at an address of the kernel's choice and unmapped when dropped,
//! and in between its pages stay accessible: a page that the file behind it loses is replaced by
//! the guard. Nothing but [`Window`] reaches the bytes.
//!
//! Spec: mmap(2) (MAP_SYNC needs MAP_SHARED_VALIDATE), madvise(2) (MADV_POPULATE_*, Linux 5.14).
#![allow(unsafe_code)]

use std::fs::File;
use std::hint::black_box;
use std::ptr::NonNull;

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::guard::{Watch, WatchError};
use crate::window::Window;
use crate::{DirectMemory, MediumError};

/// Mapped memory, zeroed or of a file.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    /// The length that the caller asked for; the mapping itself is whole pages and never empty.
    len: usize,
    mapped_len: usize,
    /// The watch on faults; `None` for anonymous memory, which no truncation can take away.
    watch: Option<Watch>,
}

// SAFETY: the memory belongs to the process, not to a thread, and Window's accesses race safely.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed private memory. Constant time for any length: the kernel fills pages on first use.
    pub(crate) fn anonymous(len: usize) -> Result<Self, MappingError> {
        let mapped_len = whole_units(len, rustix::param::page_size())?;
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address the kernel chooses disturbs nobody.
        let start = unsafe {
            rustix::mm::mmap_anonymous(std::ptr::null_mut(), mapped_len, protection, flags)
        };
        let start = NonNull::new(start?.cast()).ok_or(MappingError::Map(Errno::FAULT))?;
        Ok(Self { start, len, mapped_len, watch: None })
    }

    /// `len` bytes of a file from `from` on, a multiple of the unit, shared with everyone who maps them. Constant time.
    pub(crate) fn of_file(
        file: &File,
        (from, len): (u64, usize),
        how: MapHow,
    ) -> Result<Self, MappingError> {
        let mapped_len = whole_units(len, how.unit)?;
        let mut protection = ProtFlags::READ;
        protection.set(ProtFlags::WRITE, how.writable);
        let flags = match how.synchronous {
            true => MapFlags::SHARED_VALIDATE | MapFlags::SYNC,
            false => MapFlags::SHARED,
        };
        // SAFETY: a new mapping at an address the kernel chooses disturbs nobody.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), mapped_len, protection, flags, file, from)
        };
        let start = NonNull::new(start?.cast()).ok_or(MappingError::Map(Errno::FAULT))?;
        let mut mapping = Self { start, len, mapped_len, watch: None };
        // SAFETY: the range is ours, drop() ends the watch before it unmaps, and only Window
        // reaches the bytes.
        mapping.watch = Some(unsafe { Watch::new(start, mapped_len) }?);
        Ok(mapping)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The bytes that were asked for.
    #[inline]
    pub(crate) fn window(&self) -> Window<'_> {
        // SAFETY: mapped for len bytes and more as long as self lives; a read-only mapping is
        // never written to, which LineMedium checks.
        unsafe { Window::new(self.start, self.len) }
    }

    /// The bytes that were asked for, for devices: those of a medium from `offset` on.
    pub(crate) fn direct(&self, offset: usize) -> DirectMemory {
        DirectMemory::new(self.start, offset, self.len)
    }

    /// The fault that accesses to the range through [`Mapping::window`] have met so far, as an error.
    #[inline]
    pub(crate) fn health(&self, offset: usize, len: usize) -> Result<(), MediumError> {
        let Some(watch) = &self.watch else { return Ok(()) };
        assert!(offset <= self.len && len <= self.len - offset, "range outside the mapping");
        // SAFETY: offset <= self.len.
        let start = unsafe { self.start.add(offset) };
        watch.health(start, len)
    }

    /// Fetches the pages that hold the range, for reading or for writing too.
    pub(crate) fn populate(&self, offset: usize, len: usize, write: bool) -> Result<(), Errno> {
        assert!(offset <= self.len && len <= self.len - offset, "range outside the mapping");
        let page = rustix::param::page_size();
        let first = offset & !(page - 1);
        let advice = if write { Advice::LinuxPopulateWrite } else { Advice::LinuxPopulateRead };
        // SAFETY: first <= offset <= self.len.
        let start = unsafe { self.start.add(first) };
        // The mapping is whole pages, so the last one may be taken whole; the kernel rounds up.
        // SAFETY: populating changes no byte, and the range lies in our mapping.
        match unsafe { rustix::mm::madvise(start.as_ptr().cast(), offset + len - first, advice) } {
            Err(Errno::INVAL) => {
                self.touch(first, offset + len, page, write);
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Faults pages in one by one, for kernels before 5.14 and memory that cannot be populated.
    fn touch(&self, first: usize, end: usize, page: usize, write: bool) {
        for offset in (first..end).step_by(page) {
            // The compiler would leave out a write of nothing, and a read of what nobody uses.
            if write {
                self.window().set_bits(offset, black_box(0));
            } else {
                black_box(self.window().byte(offset));
            }
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // The watch ends before the kernel can give the addresses to another mapping.
        self.watch = None;
        // SAFETY: we own the mapping, and every Window borrowed from self is gone.
        let outcome = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.mapped_len) };
        debug_assert_eq!(outcome, Ok(()), "unmapping what we mapped");
    }
}

/// How a file is mapped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapHow {
    /// Whether stores are allowed.
    pub(crate) writable: bool,
    /// MAP_SYNC: a page is only ever writable once the file system has its block on the medium.
    pub(crate) synchronous: bool,
    /// A mapping begins at a multiple of this, and its length is rounded up to one: the page size, or the alignment of a
    /// devdax device.
    pub(crate) unit: usize,
}

/// Why there is no mapping.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum MappingError {
    /// The length does not fit the address space.
    TooLong,
    /// The kernel refused the mapping.
    Map(Errno),
    /// The guard cannot watch the mapping.
    Watch(WatchError),
}

impl From<Errno> for MappingError {
    fn from(errno: Errno) -> Self {
        Self::Map(errno)
    }
}

impl From<WatchError> for MappingError {
    fn from(error: WatchError) -> Self {
        Self::Watch(error)
    }
}

fn whole_units(len: usize, unit: usize) -> Result<usize, MappingError> {
    len.max(1)
        .checked_next_multiple_of(unit)
        .filter(|len| isize::try_from(*len).is_ok())
        .ok_or(MappingError::TooLong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "madvise")]
    fn anonymous_memory_is_zero_and_of_any_length() {
        for len in [0, 1, 4096, 4097, 1 << 40] {
            let mapping = Mapping::anonymous(len).unwrap();
            assert_eq!(mapping.len(), len);
            if let Some(last) = len.checked_sub(1) {
                assert_eq!(mapping.window().byte(last), 0);
                mapping.populate(last, 1, true).unwrap();
            }
        }
    }

    #[test]
    fn a_length_beyond_the_address_space_is_refused() {
        for len in [usize::MAX, isize::MAX.unsigned_abs()] {
            assert_eq!(Mapping::anonymous(len).unwrap_err(), MappingError::TooLong);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "lazily reserved mappings")]
    fn a_mapping_that_is_dropped_gives_its_addresses_back() {
        // A process has 128 TiB of them.
        for _ in 0..200 {
            Mapping::anonymous(1 << 40).unwrap();
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "real files")]
    fn pages_are_touched_for_reading_or_for_writing() {
        use std::os::unix::fs::MetadataExt;

        let file = tempfile::tempfile_in("/dev/shm").unwrap();
        file.set_len(4 * 4096).unwrap();
        let how = MapHow { writable: true, synchronous: false, unit: 4096 };
        let mapping = Mapping::of_file(&file, (0, 4 * 4096), how).unwrap();
        let taken = || file.metadata().unwrap().blocks() / 8;
        mapping.touch(4096, 3 * 4096, 4096, true);
        assert_eq!(taken(), 2, "a page of tmpfs is there from its first touch on");
        mapping.touch(0, 4096, 4096, false);
        assert_eq!(taken(), 3);
    }
}
