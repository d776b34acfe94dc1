//! Rename, Link and their Ex forms, in the layout SMB2 uses on every client (64-bit handle).
//!
//! ```text
//!  0         1          8       16       20            0       4   8       16       20
//!  +---------+----------+-------+--------+------       +-------+---+-------+--------+------
//!  | replace | reserved | root  | length | name        | flags | 0 | root  | length | name
//!  +---------+----------+-------+--------+------       +-------+---+-------+--------+------
//!  Rename, Link                                        RenameEx, LinkEx
//! ```
//!
//! Spec: MS-FSCC §2.4: FileRenameInformation and FileLinkInformation, for SMB2, and the Ex form.

use super::name::read_name;
use crate::dtyp::Name;
use crate::parse_error::{Field, ParseError};
use crate::wire::{self, Reader};

/// A new name for a file, or one more.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rename {
    /// How.
    pub flags: RenameFlags,
    /// New path below the share.
    pub name: Name,
}

impl Rename {
    /// Reads Rename or Link.
    ///
    /// # Errors
    /// Malformed, or relative to a directory handle, which SMB2 has no use for.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(bytes);
        let replace = reader.u8()? != 0;
        reader.bytes(7)?;
        let flags = if replace { RenameFlags::REPLACE_IF_EXISTS } else { RenameFlags::empty() };
        Self::parse_rest(&mut reader, flags)
    }

    /// Reads RenameEx or LinkEx.
    ///
    /// # Errors
    /// As [`Rename::parse`].
    pub fn parse_ex(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(bytes);
        let flags = RenameFlags::from_bits_retain(reader.u32()?);
        reader.u32()?;
        Self::parse_rest(&mut reader, flags)
    }

    fn parse_rest(reader: &mut Reader<'_>, flags: RenameFlags) -> Result<Self, ParseError> {
        let root = reader.u64()?;
        // MS-FSCC §2.4, FileRenameInformation: RootDirectory MUST be zero for network operations.
        if root != 0 {
            return Err(ParseError::PeerValue { field: Field::Reserved, value: root });
        }
        let length = reader.u32()?;
        Ok(Self { flags, name: read_name(reader, length)? })
    }

    /// Appends Rename or Link; of the flags only REPLACE_IF_EXISTS can be said.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let replace = self.flags.contains(RenameFlags::REPLACE_IF_EXISTS);
        out.extend_from_slice(&[u8::from(replace), 0, 0, 0, 0, 0, 0, 0]);
        self.emit_rest(out);
    }

    /// Appends RenameEx or LinkEx.
    pub fn emit_ex(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.flags.bits().to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        self.emit_rest(out);
    }

    fn emit_rest(&self, out: &mut Vec<u8>) {
        let length = wire::length32(self.name.wire_len());
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&length.to_le_bytes());
        self.name.emit(out);
        // Windows wants at least the 24 bytes of its own structure.
        let short = MINIMUM.saturating_sub(20 + self.name.wire_len());
        out.resize(out.len() + short, 0);
    }
}

bitflags::bitflags! {
    /// How to rename or link.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct RenameFlags: u32 {
        /// A file of that name goes.
        const REPLACE_IF_EXISTS = 0x01;
        /// Even while it is open.
        const POSIX_SEMANTICS = 0x02;
        /// Inherits no pin state.
        const SUPPRESS_PIN_STATE_INHERITANCE = 0x04;
        /// Keeps its storage reserve.
        const SUPPRESS_STORAGE_RESERVE_INHERITANCE = 0x08;
        /// Does not grow the reserve.
        const NO_INCREASE_AVAILABLE_SPACE = 0x10;
        /// Does not shrink it.
        const NO_DECREASE_AVAILABLE_SPACE = 0x20;
        /// Read-only files too.
        const IGNORE_READONLY_ATTRIBUTE = 0x40;
        const _ = !0;
    }
}

const MINIMUM: usize = 24;
