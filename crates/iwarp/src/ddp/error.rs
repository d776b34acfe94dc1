//! Why bytes are not a DDP segment.
//!
//! Spec: RFC 5041 §7.

/// A segment header that cannot be used. All of these are the peer's doing.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum DdpError {
    /// Fewer bytes than the header of its model.
    #[error("peer sent a segment of {got} bytes, its header alone takes {need}")]
    PeerTruncated {
        /// Bytes a header takes.
        need: usize,
        /// Bytes received.
        got: usize,
    },
    /// The T bit names the other model.
    #[error("peer sent a segment of the other model")]
    PeerModel,
    /// A DDP version that this crate does not implement.
    #[error("peer speaks DDP version {0}, only 1 is supported")]
    PeerVersion(u8),
}
