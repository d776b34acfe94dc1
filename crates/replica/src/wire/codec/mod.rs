//! Frames: how a [`Message`] lies on a connection.
//!
//! ```text
//!   head   0 "LR" 2 | version 1 | kind 1 | length of the body 4 | length of the payload 4
//!   body  12 fields of fixed width, in the order of the kind
//!   payload  bytes of the ring, or of a volume, which the codec does not touch
//! ```
//! Little-endian. A list is its count, then its entries. Every count, length and number is compared with its bound before
//! memory is taken for it, and each message has exactly one encoding.
//!
//! Spec: ours, docs/replica-wire.md.

mod body;
mod error;
mod field;
mod frame;
mod refusal;
#[cfg(test)]
pub(super) mod tests;

pub(super) use self::body::GREETINGS;
pub use self::error::{PAYLOAD_MAX, WireError};
pub use self::field::DIGESTS_MAX;
pub(super) use self::field::Take;
pub(super) use self::frame::append;
pub use self::frame::{BODY_MAX, HEAD_LEN, Head, decode, encode};
