//! WRITE_UNDER_LEASE: writes bytes while the open holds its lease as it did when a region was mapped, and not otherwise.
//!
//! ```text
//!  input, 24 bytes and the data
//!  0         2      4       8             16       20      22         24
//!  +---------+------+-------+-------------+--------+-------+----------+------
//!  | version | size | flags | file offset | length | epoch | reserved | data
//!  +---------+------+-------+-------------+--------+-------+----------+------
//!  no output
//! ```
//!
//! A break of a lease is not signed, and may be on its way for long, as may a write: so it is the server that knows, when it
//! writes, whether the bytes may come to lie over those of another client.
//!
//! # Durability
//! As of SMB2 WRITE: visible, and durable with a FLUSH behind it.
//!
//! Spec: docs/push-mode.md, "WRITE_UNDER_LEASE".

use super::layout::{self, put_u16, put_u32, put_u64};
use crate::parse_error::{Field, ParseError};
use crate::wire;

/// Bytes that are written again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WriteUnderLease<'a> {
    /// Where they begin in the file.
    pub file_offset: u64,
    /// The epoch of the lease when the region was mapped.
    pub epoch: u16,
    /// They.
    pub data: &'a [u8],
}

impl<'a> WriteUnderLease<'a> {
    /// Reads the input.
    ///
    /// # Errors
    /// Malformed, or another version.
    pub fn parse(input: &'a [u8]) -> Result<Self, ParseError> {
        let mut reader = layout::open(input, FIXED_LEN)?;
        reader.u32()?;
        let (file_offset, length, epoch) = (reader.u64()?, reader.u32()?, reader.u16()?);
        let size = usize::from(u16::from_le_bytes([input[2], input[3]]));
        let offset = u32::try_from(size).expect("a u16 fits");
        let data = wire::buffer(input, size, offset, length, Field::Data)?;
        Ok(Self { file_offset, epoch, data })
    }

    /// Appends the input. Of more than 4 GiB, which no message holds, it tells no length.
    pub fn emit(&self, out: &mut Vec<u8>) {
        layout::begin(out, FIXED_LEN);
        put_u32(out, 0);
        put_u64(out, self.file_offset);
        put_u32(out, u32::try_from(self.data.len()).unwrap_or(0));
        put_u16(out, self.epoch);
        put_u16(out, 0);
        out.extend_from_slice(self.data);
    }

    /// Bytes of the input that are not data.
    pub const OVERHEAD: usize = FIXED_LEN as usize;
}

const FIXED_LEN: u16 = 24;
