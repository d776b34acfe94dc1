//! Direct data placement: the two segment headers and the names they carry.
//!
//! Spec: RFC 5041 §4.

mod error;
mod names;
mod tagged;
mod untagged;

pub use error::DdpError;
pub use names::{QueueNumber, Stag};
pub use tagged::TaggedRepr;
pub use untagged::UntaggedRepr;

/// Whether the segment follows the tagged model. Any byte is a valid question.
pub(crate) fn is_tagged(control: u8) -> bool {
    control & TAGGED != 0
}

// RFC 5041 §4.1, the DDP control field: T, L, four reserved bits, DV.
const TAGGED: u8 = 0x80;
const LAST: u8 = 0x40;
const VERSION_MASK: u8 = 0x03;
const VERSION: u8 = 0x01;
