//! What a member keeps: its label, its ring of records.

mod label;
mod record;

pub use self::label::{Contents, Label, Position};
pub use self::record::{
    Encoding, Extent, Kind, PAYLOAD_MAX, RECORD_ALIGN, RECORD_HEADER_LEN, Record, VOLUMES_MAX,
};
