//! Why bytes are no frame.

use thiserror::Error;

/// Bytes of the payload of one frame at most.
pub const PAYLOAD_MAX: u32 = 4 << 20;

/// Why bytes are no frame, or a message fits into none.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum WireError {
    /// The bytes are not the beginning of a frame.
    #[error("a frame begins with {0:02x?}")]
    PeerMagic([u8; 2]),
    /// Another version of this program sends other frames.
    #[error("a frame of version {found} came, this program knows {known}")]
    PeerVersion {
        /// The version of the frame.
        found: u8,
        /// The version that this program knows.
        known: u8,
    },
    /// The kind is unknown, or has no place here.
    #[error("a frame of kind {0} has no meaning here")]
    PeerKind(u8),
    /// A body is longer than any of its kind.
    #[error("the body of a frame of kind {kind} has {len} bytes, at most {max} are possible")]
    PeerBodyLen {
        /// The kind.
        kind: u8,
        /// The length that the head names.
        len: u32,
        /// The bound.
        max: u32,
    },
    /// The payload is longer than any.
    #[error("a payload has {len} bytes, at most {max} are possible", max = PAYLOAD_MAX)]
    PayloadLen {
        /// The length.
        len: u64,
    },
    /// The payload is not as long as the message says.
    #[error("{len} bytes of payload lie beside a message that speaks of {expected}")]
    PayloadDiffers {
        /// The length.
        len: u64,
        /// What the message says.
        expected: u64,
    },
    /// The bytes end before a field does.
    #[error("the frame ends within {0}")]
    PeerShort(&'static str),
    /// Bytes are left behind the last field.
    #[error("{count} bytes lie behind the last field of a frame of kind {kind}")]
    PeerTrailing {
        /// The kind.
        kind: u8,
        /// How many.
        count: usize,
    },
    /// A list has more entries than possible.
    #[error("{field} has {count} entries, at most {max} are possible")]
    Count {
        /// Which list.
        field: &'static str,
        /// Its entries.
        count: usize,
        /// The bound.
        max: usize,
    },
    /// A field holds what no member says.
    #[error("{0} holds a value that it cannot have")]
    Value(&'static str),
}
