//! What a member keeps: its label, the dirty maps of the other members, its ring of records.
//!
//! docs/replica-format.md has the byte map. A record is sound by itself; whether it is one of the order, [`crate::ring`]
//! decides when it scans.

mod label;
mod record;
mod seal;
mod sequence;

use log::Lsn;
use thiserror::Error;

pub(crate) use self::label::{CAPACITY_MIN, LABEL_LEN};
pub use self::label::{Contents, Geometry, Label, Position};
pub use self::record::{
    Encoding, Extent, Kind, PAYLOAD_MAX, RECORD_ALIGN, RECORD_HEADER_LEN, Record, TAG_LEN,
    VOLUME_LEN_MAX, VOLUMES_MAX, header_sum, payload_sum,
};
pub(crate) use self::record::{NUMBER_MAX, payload_sum_with};
pub use self::seal::RecordKeys;
pub use self::sequence::{Indexed, check_sequence};
pub(crate) use self::sequence::{is_of_its_epoch, open_payload};

/// Why bytes are not what they should be.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum FormatError {
    /// There is no record of the group, or it is damaged.
    #[error("the checksum of the record is wrong")]
    RecordChecksum,
    /// A later version of this program may know the kind.
    #[error("a record of kind {0} is unknown")]
    RecordKind(u8),
    /// A later version of this program may know the encoding.
    #[error("a record of encoding {0} is unknown")]
    RecordEncoding(u8),
    /// The checksum is right and the numbers are not.
    #[error("the record holds numbers that no record has")]
    RecordNumbers,
    /// A record does not lie where it says.
    #[error("the record at {at} says that it lies at {says}")]
    RecordAddress {
        /// Where it lies.
        at: Lsn,
        /// What it says.
        says: Lsn,
    },
    /// A record does not follow the one before it.
    #[error("the record at {0} was made behind another record")]
    RecordChain(Lsn),
    /// A record is of another epoch.
    #[error("the record at {0} is of another epoch")]
    RecordEpoch(Lsn),
    /// A payload is damaged.
    #[error("the checksum of the payload of the record at {0} is wrong")]
    PayloadChecksum(Lsn),
    /// A record is not sealed with the key of its epoch, or was changed.
    #[error("the record at {0} was not sealed with the group's secret, or was changed")]
    RecordSeal(Lsn),
    /// Bytes end within a record.
    #[error("the record at {0} is cut")]
    RecordCut(Lsn),
    /// There is no label of a member of a group.
    #[error("there is no label of a member of a group")]
    NoLabel,
    /// The label is damaged, or was being stored in a crash.
    #[error("the label is damaged")]
    LabelChecksum,
    /// Another version of this program made it.
    #[error("the label has format version {found}, this program knows {known}")]
    LabelVersion {
        /// The version of the label.
        found: u32,
        /// The version that this program writes.
        known: u32,
    },
    /// The checksum is right and the numbers are not.
    #[error("the label holds numbers that no label has")]
    LabelNumbers,
}

/// CRC-32C, which every CPU this runs on computes in hardware.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    u32::try_from(digest.finalize()).expect("a CRC-32C has 32 bits")
}
