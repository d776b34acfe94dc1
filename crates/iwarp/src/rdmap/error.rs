//! Why a message's RDMAP part cannot be used.
//!
//! Spec: RFC 5040 §7.

/// An RDMAP header that is invalid in every state of the stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RdmapError {
    /// An RDMAP version that this crate does not implement; 0 is the RDMA Consortium's.
    #[error("peer speaks RDMAP version {0}, only 1 is supported")]
    PeerVersion(u8),
    /// The message is shorter or longer than its kind demands.
    #[error("peer sent a header of {got} bytes where {need} are defined")]
    PeerLength {
        /// Bytes the header takes.
        need: usize,
        /// Bytes received.
        got: usize,
    },
    /// An atomic operation code without a meaning.
    #[error("peer asked for atomic operation {0:#x}, which is not defined")]
    PeerAtomicOperation(u8),
    /// An Atomic Write of anything but eight bytes.
    #[error("peer asked for an atomic write of {0} bytes, only 8 are defined")]
    PeerAtomicWriteLength(u32),
    /// A hash longer than any algorithm yields.
    #[error("peer sent a hash of {got} bytes, {limit} is the most")]
    PeerHashLength {
        /// The longest hash that is accepted, in bytes.
        limit: usize,
        /// Bytes received.
        got: usize,
    },
}
