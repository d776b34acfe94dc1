//! Marker PDU aligned framing: start-up, frames on a byte stream, their CRC and markers.
//!
//! Spec: RFC 5044; RFC 6581 for revision 2 of the start-up.

mod agreement;
mod crc;
mod dial;
mod enhanced;
mod error;
mod fpdu;
mod initiator;
mod marker;
mod mulpdu;
mod profile;
mod responder;
mod start_config;
mod start_frame;

pub use agreement::{Agreement, ReadyKind, Revision, Role};
pub use crc::crc32c;
pub use dial::{Attempt, Dial};
pub use enhanced::{EnhancedRepr, ReadySet};
pub use error::{DEPTH_MAX, MpaError, PRIVATE_DATA_FIELD_MAX};
pub(crate) use fpdu::{CRC_LEN, LENGTH_LEN, seal};
pub use fpdu::{FPDU_SIZE_MAX, Fpdu, FpduError, ULPDU_SIZE_MAX, fpdu_size};
pub use initiator::Initiator;
pub(crate) use marker::{
    MARKER_LEN, SPACING as MARKER_SPACING, insert as insert_markers, markers_in,
};
pub use mulpdu::{MULPDU_FLOOR, mulpdu_of_emss, mulpdu_of_fpdu};
pub use profile::{
    HASH_IDS_MAX, HashId, PRIVATE_DATA_SIZE_MAX, Profile, ProfileError, ProfileFlags,
};
pub use responder::{Request, Responder};
pub use start_config::StartConfig;
pub use start_frame::{StartError, StartFlags, StartKind, StartRepr};
