//! The memory that both ends of a connection map: six words and the bytes of two rings.
//!
//! ```text
//!   0x00000   tail of ring 0: bytes that the dialler has put in       written by the dialler
//!   0x00080   head of ring 0: bytes that the acceptor has taken       written by the acceptor
//!   0x00100   tail of ring 1                                          written by the acceptor
//!   0x00180   head of ring 1                                          written by the dialler
//!   0x00200   bell of the dialler: what it wants to be rung for       written by the dialler
//!   0x00280   bell of the acceptor                                    written by the acceptor
//!   0x01000   bytes of ring 0, from dialler to acceptor
//!   0x41000   bytes of ring 1, from acceptor to dialler
//!   0x81000   end
//! ```
//!
//! Words are of 64 bits, in the order of the host, two cache lines apart.
//!
//! # Safety rules of this module
//!
//! The peer is another process, and may write any byte at any time. So no `&[u8]` or `&mut [u8]` into the
//! memory may ever exist: bytes go in and out by copy, through a raw pointer, and mean nothing before they are
//! copied out and checked. The one view allowed is an atomic cell, which the language defines as shared
//! and mutable, and it lives for a single operation. Every method checks its bounds, whatever the caller
//! checked before.
//!
//! Memory that is cut short under its mapping ends the process with SIGBUS, and so does a page that the host
//! has to add and cannot: where `vm.overcommit_memory` is 2, that can be the next access after the peer has
//! punched a hole. So an end reads and writes the memory only after two steps, of which the peer can undo neither:
//!
//! ```text
//!   acceptor                              dialler
//!   makes it; size can no more change
//!                      --- memory --->    maps it; from now on nobody maps it anew to write, or punches
//!                                         a hole (F_SEAL_FUTURE_WRITE); has the host add all pages
//!   looks for the seals and the pages,    <--- is mapped ---
//!   maps the pages
//! ```
//!
//! The dialler adds the pages, so the dialler pays for them (cgroups charge whoever does), however long it keeps them.
//!
//! The host adds pages by MADV_POPULATE_WRITE, which reports an error where an access ends the process.
//!
//! Spec: memfd_create(2), fcntl(2) (F_ADD_SEALS, F_SEAL_FUTURE_WRITE), madvise(2) (MADV_POPULATE_WRITE).
#![allow(unsafe_code)]

use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{Advice, MmapOptions, MmapRaw};
use rustix::fs::{
    MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io::Errno;

/// See the module.
#[derive(Debug)]
pub(super) struct Segment {
    map: MmapRaw,
}

/// Which of the two rings, by the way its bytes go.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Ring {
    ToAcceptor,
    ToDialler,
}

/// Which end of the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Side {
    Dialler,
    Acceptor,
}

/// A word at the front of the segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Word {
    Tail(Ring),
    Head(Ring),
    Bell(Side),
}

impl Word {
    const fn offset(self) -> usize {
        let place = match self {
            Self::Tail(Ring::ToAcceptor) => 0,
            Self::Head(Ring::ToAcceptor) => 1,
            Self::Tail(Ring::ToDialler) => 2,
            Self::Head(Ring::ToDialler) => 3,
            Self::Bell(Side::Dialler) => 4,
            Self::Bell(Side::Acceptor) => 5,
        };
        place * WORD_APART
    }
}

impl Segment {
    /// New memory, all zero, and what the peer maps it by. This end waits for the peer and
    /// [`Segment::settle`] before it uses the memory.
    pub(super) fn create() -> Result<(Self, OwnedFd), Errno> {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create("landfast-rdma-shm", flags)?;
        ftruncate(&fd, FILE_LEN)?;
        fcntl_add_seals(&fd, SIZE_SEALS)?;
        Ok((Self::map(&fd)?, fd))
    }

    /// Maps what a peer has sent, and seals it.
    ///
    /// # Errors
    /// The descriptor is not such memory, or the memory could be cut short; the host does not map or seal it, or
    /// has no pages for it.
    pub(super) fn adopt(fd: &OwnedFd) -> Result<Self, Errno> {
        // The host refuses for whatever is not memory.
        if !fcntl_get_seals(fd)?.contains(SIZE_SEALS) {
            return Err(Errno::PERM);
        }
        if u64::try_from(fstat(fd)?.st_size) != Ok(FILE_LEN) {
            return Err(Errno::MSGSIZE);
        }
        let segment = Self::map(fd)?;
        fcntl_add_seals(fd, LAST_SEALS)?;
        segment.settle(fd)?;
        Ok(segment)
    }

    /// Has the host add all pages to this end's mapping too. The dialler has had the host add them to the memory: whoever
    /// adds a page pays for it, as long as anybody keeps it, and a dialler may keep the memory longer than its connection.
    ///
    /// # Errors
    /// The memory is not sealed, or not all of its pages are there; the host has no room for the mapping.
    pub(super) fn settle_accepted(&self, fd: &OwnedFd) -> Result<(), Errno> {
        let pages = u64::try_from(fstat(fd)?.st_blocks).unwrap_or(0).saturating_mul(BLOCK_LEN);
        if pages < FILE_LEN {
            return Err(Errno::PERM);
        }
        self.settle(fd)
    }

    /// Has the host add all pages, which stay from now on.
    ///
    /// # Errors
    /// The memory is not sealed; the host has no pages for it.
    fn settle(&self, fd: &OwnedFd) -> Result<(), Errno> {
        if !fcntl_get_seals(fd)?.contains(SIZE_SEALS | LAST_SEALS) {
            return Err(Errno::PERM);
        }
        let populated = self.map.advise(Advice::PopulateWrite);
        populated.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))
    }

    fn map(fd: &OwnedFd) -> Result<Self, Errno> {
        let mapped = MmapOptions::new().len(SEGMENT_LEN).map_raw(fd);
        let map = mapped.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::NOMEM))?;
        Ok(Self { map })
    }

    /// What a word says now. Bytes that its writer put in before it are there to be copied.
    pub(super) fn load(&self, word: Word) -> u64 {
        self.on(word, |cell| cell.load(Ordering::Acquire))
    }

    /// Says something in a word of ours, after everything that was done before.
    pub(super) fn store(&self, word: Word, value: u64) {
        self.on(word, |cell| cell.store(value, Ordering::Release));
    }

    fn on<T>(&self, word: Word, act: impl FnOnce(&AtomicU64) -> T) -> T {
        const { assert!(Word::Bell(Side::Acceptor).offset() + 8 <= WORDS_LEN) };
        // SAFETY: all words lie below WORDS_LEN, and the segment is longer.
        let cell = unsafe { self.map.as_mut_ptr().add(word.offset()) };
        // SAFETY: aligned, as the mapping begins with a page and words are WORD_APART apart; mapped as long
        // as self lives, and reached by nothing but atomic cells in this process.
        act(unsafe { AtomicU64::from_ptr(cell.cast()) })
    }

    /// Copies bytes into a ring, from `at` on.
    ///
    /// # Panics
    ///
    /// As [`Segment::copy_out`]: if they leave the ring.
    pub(super) fn copy_in(&self, ring: Ring, at: usize, bytes: &[u8]) {
        let place = within(ring, at, bytes.len());
        // SAFETY: within() returns a range inside the segment.
        let target = unsafe { self.map.as_mut_ptr().add(place.start) };
        // SAFETY: bytes.len() bytes are mapped and writable there, and no reference points into them: `bytes`
        // is elsewhere.
        unsafe { target.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Copies bytes out of a ring, from `at` on.
    pub(super) fn copy_out(&self, ring: Ring, at: usize, out: &mut [u8]) {
        let place = within(ring, at, out.len());
        // SAFETY: within() returns a range inside the segment.
        let source = unsafe { self.map.as_ptr().add(place.start) };
        // SAFETY: out.len() bytes are mapped and readable there, and no reference points into them: `out` is
        // elsewhere. Whatever the peer writes meanwhile, any bytes are valid.
        unsafe { source.copy_to_nonoverlapping(out.as_mut_ptr(), out.len()) };
    }
}

/// Where in the segment a part of a ring lies.
fn within(ring: Ring, at: usize, len: usize) -> Range<usize> {
    let end = at.checked_add(len).filter(|end| *end <= RING_LEN);
    let end = end.expect("callers stay inside the ring: the ring is cut in two where it wraps");
    let first = match ring {
        Ring::ToAcceptor => WORDS_LEN,
        Ring::ToDialler => WORDS_LEN + RING_LEN,
    };
    first + at..first + end
}

/// Bytes of a ring: what one queue pair hands over in a round, and still half of a small second-level
/// cache. A power of two, so that positions may wrap.
pub(super) const RING_LEN: usize = 256 * 1024;
const _: () = assert!(RING_LEN.is_power_of_two());
/// A page for the words.
const WORDS_LEN: usize = 4096;
/// Processors fetch lines in pairs.
const WORD_APART: usize = 128;
const SEGMENT_LEN: usize = WORDS_LEN + 2 * RING_LEN;
const FILE_LEN: u64 = 0x81000;
const _: () = assert!(SEGMENT_LEN == 0x81000);
/// stat(2): a file's length on its medium is counted in these.
const BLOCK_LEN: u64 = 512;
/// From the beginning: the memory keeps its size.
const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// When both ends have mapped the memory: nobody punches a hole into it.
const LAST_SEALS: SealFlags = SealFlags::FUTURE_WRITE.union(SealFlags::SEAL);

#[cfg(test)]
mod tests {
    use memmap2::UncheckedAdvice;
    use rustix::fs::{FallocateFlags, fallocate};

    use super::*;

    #[test]
    fn both_ends_map_the_same_bytes() {
        let (ours, fd) = Segment::create().unwrap();
        let theirs = Segment::adopt(&fd).unwrap();
        ours.copy_in(Ring::ToDialler, RING_LEN - 3, b"end");
        ours.store(Word::Tail(Ring::ToDialler), 7);
        let mut out = [0; 3];
        theirs.copy_out(Ring::ToDialler, RING_LEN - 3, &mut out);
        assert_eq!((&out, theirs.load(Word::Tail(Ring::ToDialler))), (b"end", 7));
        theirs.copy_out(Ring::ToAcceptor, RING_LEN - 3, &mut out);
        assert_eq!((out, theirs.load(Word::Tail(Ring::ToAcceptor))), ([0; 3], 0));
    }

    #[test]
    fn words_and_rings_do_not_overlap() {
        let (rings, sides) = ([Ring::ToAcceptor, Ring::ToDialler], [Side::Dialler, Side::Acceptor]);
        let mut places: Vec<_> = rings
            .iter()
            .flat_map(|ring| [Word::Tail(*ring), Word::Head(*ring)])
            .chain(sides.map(Word::Bell))
            .map(|word| word.offset()..word.offset() + 8)
            .chain(rings.map(|ring| within(ring, 0, RING_LEN)))
            .collect();
        places.sort_by_key(|place| place.start);
        assert!(places.is_sorted_by(|one, next| one.end <= next.start), "{places:x?}");
        assert_eq!(places.last().unwrap().end, SEGMENT_LEN);
    }

    #[test]
    fn no_copy_leaves_its_ring() {
        for (at, len) in [(RING_LEN, 1), (RING_LEN - 1, 2), (usize::MAX, 1)] {
            let left = std::panic::catch_unwind(|| within(Ring::ToAcceptor, at, len));
            assert!(left.is_err(), "{len} bytes at {at}");
        }
    }

    #[test]
    fn memory_that_could_be_cut_short_is_not_mapped() {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let unsealed = memfd_create("test", flags).unwrap();
        ftruncate(&unsealed, FILE_LEN).unwrap();
        assert_eq!(Segment::adopt(&unsealed).unwrap_err(), Errno::PERM);
        ftruncate(&unsealed, FILE_LEN - 1).unwrap();
        fcntl_add_seals(&unsealed, SIZE_SEALS).unwrap();
        assert_eq!(Segment::adopt(&unsealed).unwrap_err(), Errno::MSGSIZE);
        let file = OwnedFd::from(tempfile::tempfile().unwrap());
        ftruncate(&file, FILE_LEN).unwrap();
        Segment::adopt(&file).unwrap_err();
    }

    #[test]
    fn nobody_can_cut_the_memory_short() {
        let (_segment, fd) = Segment::create().unwrap();
        assert_eq!(ftruncate(&fd, 4096), Err(Errno::PERM));
    }

    #[test]
    fn nobody_can_punch_a_hole_into_memory_that_is_in_use() {
        let (ours, fd) = Segment::create().unwrap();
        let theirs = Segment::adopt(&fd).unwrap();
        ours.settle_accepted(&fd).unwrap();
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        assert_eq!(fallocate(&fd, punch, 0, 4096), Err(Errno::PERM));
        // The mapping that may still be written is no way either.
        theirs.map.advise(Advice::WillNeed).unwrap();
        // SAFETY: the kernel refuses; if it did not, the bytes would be zero, as they are.
        let removed = unsafe { theirs.map.unchecked_advise(UncheckedAdvice::Remove) };
        assert_eq!(removed.unwrap_err().raw_os_error(), Some(Errno::PERM.raw_os_error()));
        assert_eq!(fcntl_add_seals(&fd, SealFlags::WRITE), Err(Errno::PERM));
    }

    #[test]
    fn an_acceptor_adds_no_page_of_memory_that_its_dialler_may_keep() {
        let (ours, fd) = Segment::create().unwrap();
        let _theirs = Segment::map(&fd).unwrap();
        fcntl_add_seals(&fd, LAST_SEALS).unwrap();
        assert_eq!(ours.settle_accepted(&fd), Err(Errno::PERM));
        assert_eq!(fstat(&fd).unwrap().st_blocks, 0, "nobody pays for what nobody has touched");
    }

    #[test]
    fn all_pages_are_there_before_the_memory_is_used() {
        let (ours, fd) = Segment::create().unwrap();
        assert_eq!(ours.settle(&fd), Err(Errno::PERM), "a peer could still punch holes");
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        fallocate(&fd, punch, 0, FILE_LEN).unwrap();
        Segment::adopt(&fd).unwrap();
        ours.settle_accepted(&fd).unwrap();
        let pages = u64::try_from(fstat(&fd).unwrap().st_blocks).unwrap() * 512;
        assert_eq!(pages, FILE_LEN);
    }
}
