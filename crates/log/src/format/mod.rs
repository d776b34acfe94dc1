//! What a log is on its memory: docs/tail-log.md has the byte map.
//!
//! ```text
//!      0 | label, even sequence |  4096 | label, odd sequence |  8192 | ring of records ...
//! ```

pub(crate) mod label;
pub(crate) mod record;

pub use label::LabelError;
pub(crate) use label::{Label, SLOT_LEN};
pub(crate) use record::{ALIGNMENT, HEADER_LEN, Header, Kind};

/// Where the ring begins in a member's memory.
pub(crate) const RING_START: u64 = 2 * SLOT_LEN;
/// What names one log in the checksums of its records, so that records of another log on the same memory are none.
pub(crate) type LogId = [u8; 16];

/// CRC-32C, which every CPU this runs on computes in hardware.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    u32::try_from(digest.finalize()).expect("a CRC-32C has 32 bits")
}
