//! Marker PDU aligned framing: start-up, frames on a byte stream, their CRC and markers.
//!
//! Spec: RFC 5044; RFC 6581 for revision 2 of the start-up.

mod agreement;
mod crc;
mod fpdu;
mod marker;
mod mulpdu;
mod profile;

pub use agreement::{Agreement, ReadyKind, Revision, Role};
pub use crc::crc32c;
pub(crate) use fpdu::{CRC_LEN, LENGTH_LEN, seal};
pub use fpdu::{FPDU_SIZE_MAX, Fpdu, FpduError, ULPDU_SIZE_MAX, fpdu_size};
pub(crate) use marker::{
    MARKER_LEN, SPACING as MARKER_SPACING, insert as insert_markers, markers_in,
};
pub use mulpdu::{MULPDU_FLOOR, mulpdu_of_emss, mulpdu_of_fpdu};
pub use profile::{
    HASH_IDS_MAX, HashId, PRIVATE_DATA_SIZE_MAX, Profile, ProfileError, ProfileFlags,
};
