//! READ: a fixed-offset view of the request, a response that is filled in place.
//!
//! ```text
//!  request                                                                       108
//!  64   66      67      68       72       80        96        100     104        |   110    112
//!  +----+-------+-------+--------+--------+---------+---------+-------+----------+---+------+---
//!  | 49 | data  | flags | length | offset | file id | minimum | chan. | remain.  | channel  | info
//!  |    | offset|       |        |        |         | count   |       | bytes    | info o, l|
//!  +----+-------+-------+--------+--------+---------+---------+-------+----------+----------+---
//!  response
//!  64   66     67  68       72          76      80
//!  +----+------+---+--------+-----------+-------+------
//!  | 17 | data | 0 | length | remaining | flags | data
//!  |    | offs.|   |        |           |       |
//!  +----+------+---+--------+-----------+-------+------
//! ```
//!
//! Spec: MS-SMB2 §2.2.19 and §2.2.20.

use smbdirect::{DescriptorError, Descriptors};
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::channel::{self, Channel};
use crate::header::{FileId, WireFileId};
use crate::parse_error::{Field, ParseError};
use crate::wire;

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct WireRequest {
    structure_size: U16,
    padding: u8,
    flags: u8,
    length: U32,
    offset: U64,
    file_id: WireFileId,
    minimum_count: U32,
    channel: U32,
    remaining_bytes: U32,
    channel_info_offset: U16,
    channel_info_length: U16,
}

const _: () = assert!(size_of::<WireRequest>() == 48);

/// Asks for bytes of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReadRequest<'a> {
    /// How to read.
    pub flags: ReadFlags,
    /// Bytes wanted.
    pub length: u32,
    /// From where.
    pub offset: u64,
    /// Which open.
    pub file_id: FileId,
    /// Fewer bytes than this are END_OF_FILE.
    pub minimum_count: u32,
    /// How the data goes back.
    pub channel: Channel,
    /// Bytes the client means to read after this.
    pub remaining_bytes: u32,
    /// Descriptors of the client's memory, as bytes.
    pub channel_info: &'a [u8],
}

impl<'a> ReadRequest<'a> {
    /// Reads a request at fixed offsets, without allocating.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(pdu: &'a [u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<WireRequest>(pdu, 49)?;
        let channel = Channel(wire.channel.get());
        let channel_info = if channel == Channel::NONE {
            &[]
        } else {
            wire::pdu_buffer::<WireRequest>(
                pdu,
                wire.channel_info_offset.get(),
                wire.channel_info_length.get(),
                Field::ChannelInfo,
            )?
        };
        Ok(Self {
            flags: ReadFlags::from_bits_retain(wire.flags),
            length: wire.length.get(),
            offset: wire.offset.get(),
            file_id: wire.file_id.into(),
            minimum_count: wire.minimum_count.get(),
            channel,
            remaining_bytes: wire.remaining_bytes.get(),
            channel_info,
        })
    }

    /// Where the client's memory is, for the channels V1 and V1_INVALIDATE; `None` for others.
    ///
    /// # Errors
    /// The channel info is no list of descriptors.
    pub fn descriptors(&self) -> Result<Option<Descriptors<'a>>, DescriptorError> {
        channel::descriptors(self.channel, self.channel_info)
    }

    /// Appends the body behind a header.
    ///
    /// # Panics
    /// When the channel info is over 64 KiB.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let info_offset = if self.channel_info.is_empty() { 0 } else { 112 };
        wire::put(
            out,
            &WireRequest {
                structure_size: U16::new(49),
                padding: ReadResponse::DATA_OFFSET,
                flags: self.flags.bits(),
                length: U32::new(self.length),
                offset: U64::new(self.offset),
                file_id: self.file_id.into(),
                minimum_count: U32::new(self.minimum_count),
                channel: U32::new(self.channel.0),
                remaining_bytes: U32::new(self.remaining_bytes),
                channel_info_offset: U16::new(info_offset),
                channel_info_length: U16::new(wire::length16(self.channel_info.len())),
            },
        );
        wire::put_variable(out, self.channel_info);
    }
}

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct WireResponse {
    structure_size: U16,
    data_offset: u8,
    reserved: u8,
    data_length: U32,
    data_remaining: U32,
    flags: U32,
}

const _: () = assert!(size_of::<WireResponse>() == 16);

/// Bytes of a file, in the message or already written to the client's memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReadResponse<'a> {
    /// The bytes; empty when they went by RDMA.
    pub data: &'a [u8],
    /// Bytes that went by RDMA.
    pub data_remaining: u32,
}

impl<'a> ReadResponse<'a> {
    /// Where the data begins, counted from the SMB2 header.
    pub const DATA_OFFSET: u8 = 80;

    /// Reads a response.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(pdu: &'a [u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<WireResponse>(pdu, 17)?;
        let data_length = wire.data_length.get();
        let data =
            wire::pdu_buffer::<WireResponse>(pdu, wire.data_offset, data_length, Field::Data)?;
        Ok(Self { data, data_remaining: wire.data_remaining.get() })
    }

    /// Appends the body behind a header. Copies the data; see [`ReadResponse::emit_with`].
    pub fn emit(&self, out: &mut Vec<u8>) {
        Self::emit_header(out, wire::length32(self.data.len()), self.data_remaining);
        out.extend_from_slice(self.data);
    }

    /// Appends the fixed part of an answer whose `data_length` bytes the caller appends next.
    pub fn emit_header(out: &mut Vec<u8>, data_length: u32, data_remaining: u32) {
        wire::put(
            out,
            &WireResponse {
                structure_size: U16::new(17),
                data_offset: Self::DATA_OFFSET,
                reserved: 0,
                data_length: U32::new(data_length),
                data_remaining: U32::new(data_remaining),
                flags: U32::new(0),
            },
        );
    }

    /// Appends an answer whose bytes `append` puts straight behind it. On an error nothing stays
    /// appended. Returns how many bytes there are.
    ///
    /// # Errors
    /// Those of `append`.
    ///
    /// # Panics
    /// When `append` makes the vector shorter, or longer by 4 GiB.
    pub fn emit_with<E>(
        out: &mut Vec<u8>,
        append: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<u32, E> {
        let body = out.len();
        Self::emit_header(out, 0, 0);
        let data = out.len();
        if let Err(error) = append(out) {
            out.truncate(body);
            return Err(error);
        }
        let len = wire::length32(out.len() - data);
        wire::patch_u32(out, body + DATA_LENGTH, len);
        Ok(len)
    }
}

bitflags::bitflags! {
    /// How to read.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct ReadFlags: u8 {
        /// Past the server's cache (3.0.2).
        const UNBUFFERED = 0x01;
        /// The answer may be compressed (3.1.1).
        const REQUEST_COMPRESSED = 0x02;
        const _ = !0;
    }
}

const DATA_LENGTH: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Command;
    use crate::header::{Header, MessageId};

    #[test]
    fn an_answer_has_what_was_appended_and_vanishes_on_failure() {
        let mut out = Vec::new();
        Header::request(Command::READ, MessageId(1)).emit(&mut out);
        let failed = ReadResponse::emit_with(&mut out, |out| {
            out.push(1);
            Err(())
        });
        assert_eq!((failed, out.len()), (Err(()), Header::LEN));
        let written = ReadResponse::emit_with(&mut out, |out| {
            out.extend_from_slice(b"abc");
            Ok::<_, ()>(())
        });
        assert_eq!(written, Ok(3));
        assert_eq!(ReadResponse::parse(&out).unwrap().data, b"abc");
    }
}
