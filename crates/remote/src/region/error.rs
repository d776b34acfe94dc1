//! Why an operation on a region failed.

use pmem::DurabilityClass;
use thiserror::Error;

/// An operation on a region failed. Commits acknowledged before stay durable.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegionError<E> {
    /// The range reaches beyond the region.
    #[error("{len} bytes at {offset} do not fit a region of {limit}")]
    OutOfRange {
        /// Where the range begins.
        offset: u64,
        /// The length of the range.
        len: u64,
        /// The length of the region.
        limit: u64,
    },
    /// An atomic write must lie at a multiple of 8.
    #[error("offset {offset} of an atomic write is not a multiple of 8")]
    Misaligned {
        /// The offset.
        offset: u64,
    },
    /// More bytes than one operation, or the buffer given for them, takes.
    #[error("{len} bytes, at most {max} fit here")]
    TooLong {
        /// The number of bytes.
        len: usize,
        /// The greatest number that fits.
        max: usize,
    },
    /// As many operations as the settings allow are submitted: finish one.
    #[error("too many operations outstanding: finish one first")]
    QueueFull,
    /// No operation is submitted.
    #[error("no operation is outstanding")]
    NothingOutstanding,
    /// Push mode had ended, and the operation failed over the control side too.
    #[error("the server failed: {0}")]
    Server(#[from] E),
    /// Push mode has ended, and the region with it: [`super::RemoteRegion::end_with_push`]. Nothing was done.
    #[error("push mode has ended, and the region with it")]
    PushEnded,
    /// The server makes nothing durable in such a file, or in a lower class than the caller asked for: the bytes may be in
    /// the file, and end with the machine. The region is broken, as after any commit that failed.
    #[error("no commit: the file is of class {class}, {}", advice(*class))]
    CommitRefused {
        /// The durability class of the file.
        class: DurabilityClass,
    },
    /// An earlier failure, or the loss of the lease, left writes unconfirmed, and no operation may
    /// follow them. [`super::Region::lost`] names their ranges. Open the file again.
    #[error("an earlier failure broke the region")]
    Broken,
}

fn advice(class: DurabilityClass) -> &'static str {
    match class {
        DurabilityClass::Volatile => {
            "memory that forgets its bytes with the machine: keep the file on a disk, or have its server run with \
             --emulate-persistence and take that for a commit"
        }
        DurabilityClass::Storage | DurabilityClass::Pmem => {
            "and that is less than was asked for, or its server refuses: ask for less, or keep the file elsewhere"
        }
    }
}
