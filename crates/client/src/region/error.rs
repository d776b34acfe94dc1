//! Why an operation on a region failed.

use thiserror::Error;

use crate::error::ClientError;

/// An operation on a region failed. What was acknowledged before stays durable.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RegionError {
    /// The range reaches beyond the region.
    #[error("{len} bytes at {offset} do not fit a region of {limit}")]
    OutOfRange {
        /// Where the range begins.
        offset: u64,
        /// How long it is.
        len: u64,
        /// How long the region is.
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
        /// How many there are.
        len: usize,
        /// How many fit.
        max: usize,
    },
    /// As many operations as the settings allow are submitted: finish one.
    #[error("too many operations outstanding: finish one first")]
    QueueFull,
    /// No operation is submitted.
    #[error("no operation is outstanding")]
    NothingOutstanding,
    /// Push had ended and SMB, the way that was left, failed too.
    #[error("the server failed: {0}")]
    Server(#[from] ClientError),
    /// An earlier failure, or the loss of the lease, left writes unconfirmed; nothing may follow
    /// them. [`super::Region::lost`] says which. Open the file anew.
    #[error("an earlier failure broke the region")]
    Broken,
}
