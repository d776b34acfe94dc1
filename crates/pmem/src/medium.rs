//! The trait of the crate: bytes with a durability class.
//!
//! ```text
//!              place                reader looks            persist
//!   (nothing) -------> placed ... ----------> visible ... ---------> durable
//! ```
//!
//! *Placed* bytes have arrived, *visible* bytes are seen by any reader, *durable* bytes survive a
//! loss of power. A [`Medium`] places and makes visible in one step; only `persist` makes durable.
//!
//! Spec: ours. The vocabulary is that of draft-talpey-rdma-commit §2 and libpmem2 `map.h`.

use std::fmt;
use std::ptr::NonNull;

use crate::{AtomicOp, Fetcher};

/// Bytes with a durability class, shared by all threads and devices that reach them.
///
/// Bytes go in and out by copy; no method hands out a reference into the memory. Any method may
/// be called from any thread at any time. Where two callers place the same range at once, each
/// aligned 8-byte word holds the word of either caller, whole.
///
/// The `try_` forms never wait for a device, a page fault or another thread and never allocate:
/// they return [`MediumError::WouldBlock`] and have done nothing. The plain forms may wait.
pub trait Medium: Send + Sync + fmt::Debug {
    /// The durability class: the guarantee of a successful persist on this medium.
    fn class(&self) -> DurabilityClass;

    /// The unit in which stores become durable.
    fn store_granularity(&self) -> StoreGranularity;

    /// Length in bytes, fixed when the medium was opened. A medium of a part of a file has the offsets of the file: it
    /// ends where the part ends, and refuses what lies before the part.
    fn len(&self) -> u64;

    /// Whether the medium holds no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether persist succeeds although no byte of the medium survives a loss of power.
    ///
    /// Only ever true for [`DurabilityClass::Volatile`] media opened with
    /// [`crate::OpenOptions::emulate_persistence`].
    fn is_emulated(&self) -> bool {
        false
    }

    /// The device and file that the plain forms may wait for; `None` if they wait for no device.
    fn backing(&self) -> Option<Backing> {
        None
    }

    /// Whether placed bytes reach the file behind the medium later than their placement, so that the file's times do
    /// not tell when they came.
    fn is_written_later(&self) -> bool {
        false
    }

    /// Places `bytes` at `offset`. On return the bytes are visible to every reader, not durable.
    ///
    /// # Errors
    ///
    /// [`MediumError::WouldBlock`] when the range is not known to be present. After
    /// [`MediumError::Truncated`] any part of `bytes` may have been placed.
    fn try_place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError>;

    /// [`Medium::try_place`] for a part of a larger placement, which more parts follow.
    ///
    /// The medium may leave the drain to the next `try_place`, `place`, `persist` or `atomic` **of
    /// the same thread** on any medium; until that call returns, the bytes may become visible later
    /// than anything else that the thread stores, and no persist covers them. A thread that gives up
    /// in the middle, or hands the rest to another thread, first calls `try_place` with no bytes.
    /// The form pays for the small frames of foreign peers: 1408 bytes of persistent memory cost
    /// 62 ns instead of 239 ns (`lines.rs` says where that was measured).
    ///
    /// # Errors
    ///
    /// As [`Medium::try_place`].
    fn try_place_part(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError> {
        self.try_place(offset, bytes)
    }

    /// Copies the bytes at `offset` into `out`.
    ///
    /// # Errors
    ///
    /// [`MediumError::WouldBlock`] when the range is not known to be present. After any error
    /// the contents of `out` mean nothing.
    fn try_read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError>;

    /// What a thread that reads without waiting needs so that [`Medium::try_fetch`] can bring bytes; `None` where a thread
    /// that may wait has to bring them. One serves all media of its kind.
    fn new_fetcher(&self) -> Option<Box<dyn Fetcher>> {
        None
    }

    /// Begins to bring to memory bytes that [`Medium::try_read`] did not find, without waiting. `true`: `tag` is among those
    /// that [`Fetcher::collect`] tells, once for each such answer, and then `try_read` may find the bytes, or the first of
    /// them. `None` as the tag: nobody waits. `false`: a thread that may wait has to read.
    fn try_fetch(
        &self,
        _fetcher: &mut dyn Fetcher,
        _offset: u64,
        _len: u64,
        _tag: Option<u64>,
    ) -> bool {
        false
    }

    /// [`Medium::persist`], if it need not wait.
    ///
    /// # Durability
    ///
    /// As [`Medium::persist`].
    ///
    /// # Errors
    ///
    /// As [`Medium::persist`], and [`MediumError::WouldBlock`].
    fn try_persist(&self, offset: u64, len: u64) -> Result<(), MediumError>;

    /// Applies `op` to the aligned word at `offset` and returns the word's previous value.
    ///
    /// On return the new word is visible, not durable. Words are native-endian. The operation is
    /// atomic against other atomic operations through this crate in this process and, where the
    /// medium is memory, against every other access.
    ///
    /// # Errors
    ///
    /// [`MediumError::Misaligned`] unless `offset` is a multiple of 8;
    /// [`MediumError::WouldBlock`] when the word is not known to be present.
    fn try_atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError>;

    /// The memory of the medium in this process, for devices that access it directly.
    ///
    /// Returns `None` if the medium has no such memory. A caller whose device writes into the memory
    /// makes those bytes durable with [`Medium::persist_foreign`], because the medium does not see
    /// the writes.
    fn direct(&self) -> Option<DirectMemory> {
        None
    }

    /// [`Medium::persist`] that also covers bytes from a device that writes into [`Medium::direct`]
    /// memory. The cost may grow with the length.
    ///
    /// # Durability
    ///
    /// As [`Medium::persist`], and also for bytes that were visible in the memory before the call.
    ///
    /// # Errors
    ///
    /// As [`Medium::persist`].
    fn persist_foreign(&self, offset: u64, len: u64) -> Result<(), MediumError> {
        self.persist(offset, len)
    }

    /// [`Medium::try_place`] that waits where `try_place` returns [`MediumError::WouldBlock`].
    ///
    /// # Errors
    ///
    /// Never [`MediumError::WouldBlock`]. After any other error but
    /// [`MediumError::OutOfBounds`] and [`MediumError::ReadOnly`], any part of `bytes` may have
    /// been placed.
    fn place(&self, offset: u64, bytes: &[u8]) -> Result<(), MediumError>;

    /// [`Medium::try_read`] that waits where `try_read` returns [`MediumError::WouldBlock`].
    ///
    /// # Errors
    ///
    /// Never [`MediumError::WouldBlock`].
    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), MediumError>;

    /// The part of a persist that concerns the range alone: brings what was placed in it to the file, so that the next
    /// persist of any range of the same file makes it durable too.
    ///
    /// Callers that wait for one flush of a file so learn each of the errors of its own range. Most media have nothing to
    /// bring: their placements are in the file.
    ///
    /// # Errors
    ///
    /// As [`Medium::persist`], for bytes of the range.
    fn write_back(&self, _offset: u64, _len: u64) -> Result<(), MediumError> {
        Ok(())
    }

    /// Makes everything placed in the range so far durable: flush, then drain.
    ///
    /// # Durability
    ///
    /// *Before* the call returns, any aligned 8-byte word ([`StoreGranularity::CacheLine`]) or 512-byte
    /// sector ([`StoreGranularity::Page`]) placed since the last persist may or may not survive a
    /// crash, independently of the others. *After* `Ok`, every byte of the range survives as
    /// placed by any `place` or `atomic` that returned before this call began, on whatever thread,
    /// unless other bytes were placed over it. Bytes outside the range may become durable as well.
    /// After an error the medium promises nothing.
    ///
    /// # Errors
    ///
    /// [`MediumError::VolatileRefused`] where nothing can be durable; [`MediumError::Poisoned`]
    /// for good once any flush of the file has failed.
    fn persist(&self, offset: u64, len: u64) -> Result<(), MediumError>;

    /// [`Medium::try_atomic`] that waits where `try_atomic` returns [`MediumError::WouldBlock`].
    ///
    /// # Errors
    ///
    /// As [`Medium::try_atomic`], but never [`MediumError::WouldBlock`].
    fn atomic(&self, offset: u64, op: AtomicOp) -> Result<u64, MediumError>;

    /// Makes the range present, so that the `try_` forms succeed on it.
    ///
    /// A medium that cannot keep a range present (storage) asks for read-ahead. Presence concerns
    /// latency only: the operating system may evict pages again, and an access then faults.
    ///
    /// # Errors
    ///
    /// [`MediumError::OutOfBounds`], or the error of the fetch.
    fn prepare(&self, offset: u64, len: u64) -> Result<(), MediumError>;
}

/// The memory of a medium, from some offset to its end: mapped as long as the medium lives, and written by
/// others at any time, so that no Rust reference may ever point into it.
#[derive(Clone, Copy, Debug)]
pub struct DirectMemory {
    start: NonNull<u8>,
    offset: usize,
    len: usize,
}

impl DirectMemory {
    /// Only the media of this crate can keep the promise of the type.
    pub(crate) fn new(start: NonNull<u8>, offset: usize, len: usize) -> Self {
        Self { start, offset, len }
    }

    /// The first byte.
    pub fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Where the first byte lies in the medium.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Length in bytes, from the first byte on.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the memory holds no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// The device and the file that a caller may wait for. A caller that waits for a file may wait for
/// the whole device of the file.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Backing {
    /// The device, as `st_dev` names it.
    pub device: u64,
    /// The file on it, as `st_ino` names it.
    pub file: u64,
}

/// The guarantee of a successful persist.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum DurabilityClass {
    /// Persistent memory reached by CPU stores: durable after a cache write-back and a fence.
    Pmem,
    /// A file on a disk file system: durable after `fdatasync`.
    Storage,
    /// Memory that loses its bytes with the power: persist is refused, or emulated on request.
    Volatile,
}

impl DurabilityClass {
    /// Whether a medium of this class guarantees what `promised` does.
    pub fn keeps(self, promised: Self) -> bool {
        use DurabilityClass::{Pmem, Storage, Volatile};
        match promised {
            Volatile => true,
            Storage => matches!(self, Pmem | Storage),
            Pmem => self == Pmem,
        }
    }
}

impl fmt::Display for DurabilityClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Pmem => "pmem",
            Self::Storage => "storage",
            Self::Volatile => "volatile",
        })
    }
}

/// The unit in which stores become durable.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum StoreGranularity {
    /// No unit: memory whose caches survive a loss of power, or memory that is never durable.
    Byte,
    /// Cache lines of 64 bytes.
    CacheLine,
    /// Pages of 4096 bytes, written back by the operating system.
    Page,
}

impl StoreGranularity {
    /// The unit in bytes.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Byte => 1,
            Self::CacheLine => 64,
            Self::Page => 4096,
        }
    }
}

/// Why an operation on a [`Medium`] did not happen, or cannot be relied on.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MediumError {
    /// Nobody's fault: the blocking form of the call, on a worker, will succeed.
    #[error("not possible without waiting")]
    WouldBlock,
    /// The caller's fault: the range does not lie inside the medium. Nothing happened.
    #[error("{len} bytes at {offset} do not fit a medium of {limit}")]
    OutOfBounds {
        /// Where the range begins.
        offset: u64,
        /// How long it is.
        len: u64,
        /// How long the medium is.
        limit: u64,
    },
    /// The caller's fault: an atomic operation off an 8-byte boundary. Nothing happened.
    #[error("atomic operation at {offset}, which is not a multiple of 8")]
    Misaligned {
        /// Where the word was to begin.
        offset: u64,
    },
    /// The caller's fault: the file was opened for reading only. Nothing happened.
    #[error("the file was opened for reading only")]
    ReadOnly,
    /// Another process made the file shorter than the medium. A mapping stays broken for good.
    #[error("the file shrank below the medium")]
    Truncated,
    /// An earlier flush of this file failed, so it is unknown which bytes are durable.
    #[error("an earlier flush of this file failed")]
    Poisoned,
    /// The operating system or the device refused; the number is its `errno`. Where memory has failed (EHWPOISON) the
    /// accesses that touch it fail from then on, and no others; ENXIO where too much of a mapping has failed.
    #[error("media error: {}", std::io::Error::from_raw_os_error(*.0))]
    MediaIo(i32),
    /// The caller asked for persistence on volatile memory.
    #[error("the medium is volatile and persistence is not emulated")]
    VolatileRefused,
}

impl From<rustix::io::Errno> for MediumError {
    fn from(errno: rustix::io::Errno) -> Self {
        Self::MediaIo(errno.raw_os_error())
    }
}

/// The one bounds check of the crate: `offset + len <= limit`, without arithmetic that wraps.
pub(crate) fn check_bounds(offset: u64, len: u64, limit: u64) -> Result<(), MediumError> {
    if offset <= limit && len <= limit - offset {
        return Ok(());
    }
    Err(MediumError::OutOfBounds { offset, len, limit })
}

/// Bounds and alignment of an atomic word.
pub(crate) fn check_word(offset: u64, limit: u64) -> Result<(), MediumError> {
    if !offset.is_multiple_of(AtomicOp::LEN) {
        return Err(MediumError::Misaligned { offset });
    }
    check_bounds(offset, AtomicOp::LEN, limit)
}

/// The length of a buffer as a 64-bit number, as wire formats and files count.
pub(crate) fn length_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("no supported machine has more than 64 address bits")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bare::Bare;

    #[test]
    fn a_medium_that_only_has_what_it_must_waits_for_nothing_and_keeps_every_byte() {
        let bare = Bare::new(16);
        assert!(!bare.is_empty() && Bare::new(0).is_empty());
        assert!(!bare.is_emulated() && !bare.is_written_later());
        assert_eq!((bare.backing(), bare.direct().is_none()), (None, true));
        bare.try_place_part(3, &[1, 2]).unwrap();
        assert_eq!(bare.bytes.lock().unwrap()[3..5], [1, 2]);
        bare.persist_foreign(3, 2).unwrap();
        assert_eq!(*bare.persisted.lock().unwrap(), [(3, 2)]);
    }

    #[derive(Debug)]
    struct Nothing(std::fs::File);

    impl Fetcher for Nothing {
        fn as_any(&mut self) -> &mut dyn std::any::Any {
            self
        }

        fn submit(&mut self) -> bool {
            true
        }

        fn has_ended(&mut self) -> bool {
            false
        }

        fn collect(&mut self, _each: &mut dyn FnMut(u64, bool)) {}

        fn descriptor(&self) -> std::os::fd::BorrowedFd<'_> {
            std::os::fd::AsFd::as_fd(&self.0)
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "a real file")]
    fn a_medium_without_a_fetcher_leaves_reads_to_threads_that_may_wait() {
        let bare = Bare::new(16);
        assert!(bare.new_fetcher().is_none());
        let mut fetcher = Nothing(std::fs::File::open("/dev/null").unwrap());
        assert!(!bare.try_fetch(&mut fetcher, 0, 16, Some(1)));
    }

    #[test]
    fn memory_for_devices_has_the_length_that_it_was_made_with() {
        let mut bytes = [0_u8; 8];
        let start = NonNull::from(&mut bytes).cast();
        let memory = DirectMemory::new(start, 0, bytes.len());
        assert_eq!((memory.start(), memory.len(), memory.is_empty()), (start, 8, false));
        assert!(DirectMemory::new(start, 0, 0).is_empty());
        let anonymous = crate::anonymous(4096).unwrap();
        assert_eq!(anonymous.direct().map(|memory| memory.len()), Some(4096));
    }

    #[test]
    fn a_class_keeps_what_it_promises_and_what_weaker_classes_do() {
        use DurabilityClass::{Pmem, Storage, Volatile};
        let classes = [Volatile, Storage, Pmem];
        for (strength, class) in classes.into_iter().enumerate() {
            for (promise, promised) in classes.into_iter().enumerate() {
                assert_eq!(class.keeps(promised), strength >= promise, "{class} {promised}");
            }
        }
    }

    #[test]
    fn stores_become_durable_by_the_byte_the_line_or_the_page() {
        let all = [StoreGranularity::Byte, StoreGranularity::CacheLine, StoreGranularity::Page];
        assert_eq!(all.map(StoreGranularity::bytes), [1, 64, 4096]);
    }

    #[test]
    fn a_range_that_wraps_or_passes_the_end_is_refused() {
        for (offset, len) in [(0, 9), (9, 0), (8, 1), (u64::MAX, 1), (1, u64::MAX)] {
            let refused = MediumError::OutOfBounds { offset, len, limit: 8 };
            assert_eq!(check_bounds(offset, len, 8), Err(refused));
        }
        for (offset, len) in [(0, 8), (8, 0), (3, 5)] {
            assert_eq!(check_bounds(offset, len, 8), Ok(()));
        }
    }

    #[test]
    fn an_atomic_word_must_be_aligned_and_inside_the_medium() {
        assert_eq!(check_word(4, 64), Err(MediumError::Misaligned { offset: 4 }));
        assert_eq!(check_word(56, 64), Ok(()));
        let refused = MediumError::OutOfBounds { offset: 56, len: 8, limit: 60 };
        assert_eq!(check_word(56, 60), Err(refused));
    }

    #[test]
    fn classes_print_as_the_operator_writes_them() {
        let classes = [DurabilityClass::Pmem, DurabilityClass::Storage, DurabilityClass::Volatile];
        assert_eq!(classes.map(|class| class.to_string()), ["pmem", "storage", "volatile"]);
    }

    #[test]
    fn direct_memory_has_its_place_in_the_medium() {
        let memory = DirectMemory::new(NonNull::dangling(), 5, 7);
        assert_eq!((memory.offset(), memory.len(), memory.is_empty()), (5, 7, false));
        assert!(DirectMemory::new(NonNull::dangling(), 5, 0).is_empty());
    }
}
