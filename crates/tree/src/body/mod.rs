//! What the bytes of a file are: the bytes themselves, while names, attributes and streams are the business of
//! [`crate::Entry`].
//!
//! ```text
//!   Entry ---- facts: the inode that a name leads to
//!     |
//!     +------- Body ---- PlainFile   the same inode: read(2), write(2), fallocate(2)
//!                   |--- Device      persistent memory for which the inode stands: loads and stores
//!                   +--- ...         a body of another crate: a sector-atomic volume, a file in flash
//! ```
//!
//! Every body can be read, written and made durable. The rest is optional, and the methods for it say by default
//! that the body cannot do it: it may have a fixed length, no holes, no place in the kernel's page cache, and no
//! memory that a region could be mapped to.
//!
//! A method may wait for a device unless its name starts with `try_`. No method is called for a symbolic link: the
//! entry refuses that first.

mod append;
mod devdax;
mod extents;
mod holes;
mod in_flash;
mod plain_file;
mod space;

use std::fmt;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use pmem::{CommitGroup, DurabilityClass, MapError, Medium, OpenOptions};
use thiserror::Error;

pub(crate) use devdax::Device;
pub use devdax::DeviceError;
pub(crate) use plain_file::PlainFile;

use super::error::ShareError;
use super::inline::InlineIo;

/// The bytes of an open file.
pub trait Body: Send + Sync + fmt::Debug {
    /// The durability class: what [`Body::persist`] guarantees.
    fn class(&self) -> DurabilityClass;

    /// The work with the bytes that may be done on the calling thread if it is little.
    fn inline_io(&self) -> InlineIo;

    /// The end of the bytes.
    fn size(&self) -> Result<u64, ShareError>;

    /// When the bytes were last changed, since 1970, where the inode that stands for them does not know: its times do not move
    /// with bytes that lie elsewhere.
    fn last_write(&self) -> Option<Duration> {
        None
    }

    /// The bytes that the body occupies, also those behind its end. To free them is work that grows with their
    /// number.
    fn occupied(&self) -> u64 {
        self.size().unwrap_or(u64::MAX)
    }

    /// Appends `len` bytes without waiting. A short count means the end of the bytes. After an error nothing is
    /// appended.
    ///
    /// # Errors
    ///
    /// [`ShareError::WouldBlock`] if [`Body::read_at`] might wait.
    fn try_read_at(&self, out: &mut Vec<u8>, len: usize, offset: u64) -> Result<usize, ShareError>;

    /// [`Body::try_read_at`] that may wait.
    fn read_at(&self, out: &mut Vec<u8>, len: usize, offset: u64) -> Result<usize, ShareError>;

    /// Writes all of `bytes` without waiting. After an error other than [`ShareError::WouldBlock`] a part may be
    /// written.
    ///
    /// # Errors
    ///
    /// [`ShareError::WouldBlock`] if [`Body::write_at`] might wait: nothing is written.
    fn try_write_at(&self, bytes: &[u8], offset: u64) -> Result<(), ShareError>;

    /// Writes all of `bytes`; may wait. Placed and visible. A body may promise more.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), ShareError>;

    /// Makes durable what was written; may wait. A body of class [`DurabilityClass::Volatile`] makes nothing
    /// durable, and succeeds.
    ///
    /// # Durability
    ///
    /// After `Ok`, every write that returned before this call survives a crash, as the class says. After an error
    /// it is unknown which bytes are durable, and every later call fails.
    ///
    /// # Errors
    ///
    /// [`ShareError::MediaPoisoned`] once a flush of the file has failed.
    fn persist(&self, flushes: &dyn Flushes) -> Result<(), ShareError>;

    /// Notes that bytes may be lost although no flush has failed: no later [`Body::persist`] succeeds.
    fn poison(&self, flushes: &dyn Flushes);

    /// Whether [`Body::resize`] can succeed.
    fn is_resizable(&self) -> bool {
        false
    }

    /// Moves the end of the bytes.
    fn resize(&self, _size: u64) -> Result<(), ShareError> {
        Err(ShareError::Unsupported)
    }

    /// Reserves the room of a range without moving the end of the bytes, so that writes there need none.
    fn reserve(&self, _offset: u64, _len: u64) -> Result<(), ShareError> {
        Ok(())
    }

    /// Whether ranges that are zeroed give their room back, so that the file counts as sparse for good.
    fn is_sparse(&self) -> bool {
        false
    }

    /// Zeroes bytes without moving their end; frees their room if the file `is_sparse`.
    fn zero(&self, _span: Span, _is_sparse: bool) -> Result<(), ShareError> {
        Err(ShareError::Unsupported)
    }

    /// Discards bytes: what is read there afterwards is not specified. The range keeps its room unless the file
    /// `is_sparse`.
    fn trim(&self, _span: Span, _is_sparse: bool) -> Result<(), ShareError> {
        Err(ShareError::Unsupported)
    }

    /// The parts of `span` that have room, at most `count_max`; and whether there are more.
    fn allocated(&self, span: Span, count_max: usize) -> Result<(Vec<Span>, bool), ShareError> {
        Ok(span.whole(self.size()?, count_max))
    }

    /// The descriptor by which the kernel copies and clones ranges between files, if the bytes are a file's.
    fn kernel_file(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Says that the kernel changes the bytes, through [`Body::kernel_file`], as long as the answer is held.
    ///
    /// # Errors
    ///
    /// [`ShareError::Unsupported`] if the newest bytes are not the kernel's any more.
    fn change_by_kernel(&self) -> Result<Option<flash::Changing>, ShareError> {
        Ok(None)
    }

    /// Whether ranges can share room with other files of the same file system.
    fn clones(&self) -> bool {
        false
    }

    /// The way to map ranges of the bytes as memory.
    ///
    /// # Errors
    ///
    /// The reason for which no range of this body is ever mapped: clients read and write it by messages.
    fn mappable(&self) -> Result<&dyn Mappable, MapRefusal>;
}

/// A body whose bytes can be placed and persisted by one-sided operations.
pub trait Mappable {
    /// Opens a medium for a range that was [reserved](Body::reserve). The medium has the offsets of the body.
    ///
    /// # Errors
    ///
    /// [`ShareError::MediaPoisoned`] once a flush of the file has failed: the medium's own flushes might succeed. Any other,
    /// where the file cannot be mapped.
    fn map(&self, range: Range<u64>, options: OpenOptions) -> Result<Arc<dyn Medium>, MapFailure>;

    /// [`Mappable::map`] with pages that come into memory when they are asked for, for a body whose bytes are not memory
    /// already.
    fn map_lazily(
        &self,
        range: Range<u64>,
        _pages: &flash::Share,
    ) -> Result<Arc<dyn Medium>, MapFailure> {
        self.map(range, OpenOptions::default())
    }

    /// Waits until nobody else decides how the body is mapped. Until the answer is dropped, nobody else does.
    ///
    /// # Errors
    ///
    /// The file cannot be asked which it is.
    fn decide(&self) -> Result<Option<flash::Deciding>, ShareError> {
        Ok(None)
    }

    /// Whether a region of the body is mapped lazily at present; then every other is too.
    fn is_mapped_lazily(&self) -> bool {
        self.pages().is_some()
    }

    /// What the pages of the body do, if a region is mapped lazily.
    fn pages(&self) -> Option<flash::FileStats> {
        None
    }
}

/// The flushes that all opens of one file share. The owner of the opens keeps them.
pub trait Flushes {
    /// The group of flushes of a file, which is opened at the first call.
    ///
    /// # Errors
    ///
    /// [`ShareError::HandlesExhausted`] if there is no descriptor for it.
    fn group_of(&self, file: BorrowedFd<'_>) -> Result<&CommitGroup, ShareError>;
}

/// The reason for which a body is never mapped.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum MapRefusal {
    /// Each sector is written as a whole or not at all, which stores in memory cannot promise.
    #[error("its sectors are atomic: it is written by messages only")]
    SectorAtomic,
}

/// A range could not be mapped this time.
#[derive(Debug, Error)]
pub enum MapFailure {
    /// There is no descriptor for the medium, or bytes of the file may be lost.
    #[error(transparent)]
    Handle(#[from] ShareError),
    /// The kernel cannot map the file.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The kernel cannot open the file for pages in flash.
    #[error("the file cannot be opened for lazy mapping: {0}")]
    Lazy(#[from] std::io::Error),
}

/// Bytes from `start` up to `end`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Span {
    /// The first byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
}

impl Span {
    /// The span as the one part of a body of `len` bytes that has no holes.
    pub(crate) fn whole(self, len: u64, count_max: usize) -> (Vec<Self>, bool) {
        let end = self.end.min(len);
        let part = (self.start < end).then_some(Self { end, ..self });
        let is_more = part.is_some() && count_max == 0;
        (part.into_iter().take(count_max).collect(), is_more)
    }
}
