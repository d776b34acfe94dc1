//! Why a client is given up.

use super::limits::{OPTION_LEN_MAX, OPTIONS_MAX, PAYLOAD_MAX};

/// Why a client is given up: it broke the protocol in a way that leaves nothing to answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PeerError {
    /// The client set flags that the server has not offered.
    #[error("client flags {flags:#x} were not offered")]
    PeerFlags {
        /// All flags it set.
        flags: u32,
    },
    /// Eight or four bytes that begin every message are others.
    #[error("a message begins with {magic:#x}")]
    PeerMagic {
        /// What it begins with.
        magic: u64,
    },
    /// An option is longer than any that this server knows.
    #[error("option {option} has {len} bytes, {OPTION_LEN_MAX} at most")]
    PeerOptionTooLong {
        /// Its number.
        option: u32,
        /// Its length.
        len: u32,
    },
    /// The client negotiates without end.
    #[error("more than {OPTIONS_MAX} options")]
    PeerTooManyOptions,
    /// The old form of choosing an export has no answer but yes.
    #[error("the export that the client names cannot be given")]
    PeerNoExport,
    /// A write has more bytes than the server has announced that it takes.
    #[error("a write of {len} bytes, {PAYLOAD_MAX} at most")]
    PeerPayloadTooLong {
        /// Bytes of the write.
        len: u32,
    },
    /// Bytes followed the request for TLS in the clear: somebody may have put them there.
    #[error("bytes in the clear after the request for TLS")]
    PeerClearBytes,
}
