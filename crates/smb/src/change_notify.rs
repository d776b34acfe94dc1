//! CHANGE_NOTIFY: waiting for changes of a directory. The response is [`crate::OutputResponse`]
//! with [`NotifyEntry`] records.
//!
//! ```text
//!  request                                                record
//!  64   66      68          72         88       92  96   0      4        8        12
//!  +----+-------+-----------+----------+--------+---+    +------+--------+--------+-------
//!  | 32 | flags | output max| file id  | filter | 0 |    | next | action | length | name
//!  +----+-------+-----------+----------+--------+---+    +------+--------+--------+-------
//! ```
//!
//! Spec: MS-SMB2 §2.2.35; MS-FSCC §2.7.1.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::dtyp::Name;
use crate::header::{FileId, WireFileId};
use crate::open_set::open_set;
use crate::parse_error::ParseError;
use crate::wire;

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    structure_size: U16,
    flags: U16,
    output_length_max: U32,
    file_id: WireFileId,
    completion_filter: U32,
    reserved: U32,
}

const _: () = assert!(size_of::<Wire>() == 32);

/// Waits for a change.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ChangeNotifyRequest {
    /// Below the directory too.
    pub watch_tree: bool,
    /// Most bytes of the answer.
    pub output_length_max: u32,
    /// Which open.
    pub file_id: FileId,
    /// Which changes (FILE_NOTIFY_CHANGE_*).
    pub completion_filter: u32,
}

impl ChangeNotifyRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(pdu: &[u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<Wire>(pdu, 32)?;
        Ok(Self {
            watch_tree: wire.flags.get() & WATCH_TREE != 0,
            output_length_max: wire.output_length_max.get(),
            file_id: wire.file_id.into(),
            completion_filter: wire.completion_filter.get(),
        })
    }

    /// Appends the body behind a header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        wire::put(
            out,
            &Wire {
                structure_size: U16::new(32),
                flags: U16::new(if self.watch_tree { WATCH_TREE } else { 0 }),
                output_length_max: U32::new(self.output_length_max),
                file_id: self.file_id.into(),
                completion_filter: U32::new(self.completion_filter),
                reserved: U32::new(0),
            },
        );
    }
}

/// One change.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NotifyEntry {
    /// What happened.
    pub action: NotifyAction,
    /// To which name, relative to the directory.
    pub name: Name,
}

impl NotifyEntry {
    /// Appends records, chained and 4-aligned.
    pub fn emit_list(entries: &[Self], out: &mut Vec<u8>) {
        let start = out.len();
        let mut previous = None;
        for entry in entries {
            wire::pad(out, start, 4);
            let at = out.len();
            if let Some(previous) = previous.replace(at) {
                wire::patch_u32(out, previous, wire::length32(at - previous));
            }
            out.extend_from_slice(&[0; 4]);
            out.extend_from_slice(&entry.action.0.to_le_bytes());
            out.extend_from_slice(&wire::length32(entry.name.wire_len()).to_le_bytes());
            entry.name.emit(out);
        }
    }
}

open_set! {
    /// What happened to a name.
    pub struct NotifyAction(u32) {
        /// It appeared.
        ADDED = 1,
        /// It vanished.
        REMOVED = 2,
        /// Its data or metadata changed.
        MODIFIED = 3,
        /// It was renamed; this is the old name.
        RENAMED_OLD_NAME = 4,
        /// It was renamed; this is the new name.
        RENAMED_NEW_NAME = 5,
        /// A stream appeared.
        ADDED_STREAM = 6,
        /// A stream vanished.
        REMOVED_STREAM = 7,
        /// A stream changed.
        MODIFIED_STREAM = 8,
    }
}

const WATCH_TREE: u16 = 1;
