//! WRITE: a fixed-offset view of the request; the data is borrowed where it lies.
//!
//! ```text
//!  request                                                                  108
//!  64   66      68       72       80        96        100       104        |   108    112
//!  +----+-------+--------+--------+---------+---------+---------+----------+---+------+--------
//!  | 49 | data  | length | offset | file id | channel | remain. | channel  | flags    | data or
//!  |    | offset|        |        |         |         | bytes   | info o, l|          | info
//!  +----+-------+--------+--------+---------+---------+---------+----------+----------+--------
//!  response
//!  64   66  68      72          76               80
//!  +----+---+-------+-----------+----------------+
//!  | 17 | 0 | count | remaining | channel info 0 |
//!  +----+---+-------+-----------+----------------+
//! ```
//!
//! Spec: MS-SMB2 §2.2.21 and §2.2.22.

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
    data_offset: U16,
    length: U32,
    offset: U64,
    file_id: WireFileId,
    channel: U32,
    remaining_bytes: U32,
    channel_info_offset: U16,
    channel_info_length: U16,
    flags: U32,
}

const _: () = assert!(size_of::<WireRequest>() == 48);

/// Writes bytes to a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WriteRequest<'a> {
    /// To where.
    pub offset: u64,
    /// Which open.
    pub file_id: FileId,
    /// How the data comes.
    pub channel: Channel,
    /// By RDMA: all the bytes. Otherwise a hint of how many follow.
    pub remaining_bytes: u32,
    /// How to write.
    pub flags: WriteFlags,
    /// The bytes; empty when they come by RDMA.
    pub data: &'a [u8],
    /// Descriptors of the client's memory, as bytes.
    pub channel_info: &'a [u8],
}

impl<'a> WriteRequest<'a> {
    /// Where [`WriteRequest::emit`] and [`WriteRequest::emit_header`] put the data, counted from
    /// the SMB2 header.
    pub const DATA_OFFSET: u16 = 112;

    /// Reads a request at fixed offsets, without allocating or copying.
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
        let (offset, length) = (wire.data_offset.get(), wire.length.get());
        Ok(Self {
            offset: wire.offset.get(),
            file_id: wire.file_id.into(),
            channel,
            remaining_bytes: wire.remaining_bytes.get(),
            flags: WriteFlags::from_bits_retain(wire.flags.get()),
            data: wire::pdu_buffer::<WireRequest>(pdu, offset, length, Field::Data)?,
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

    /// Appends the body behind a header: the data, or the channel info when there is one.
    ///
    /// # Panics
    /// When the channel info is over 64 KiB.
    pub fn emit(&self, out: &mut Vec<u8>) {
        self.emit_header(out, wire::length32(self.data.len()));
        // Behind a fixed part of 48 bytes there is always one more, Samba insists on it.
        wire::put_variable(
            out,
            if self.channel_info.is_empty() { self.data } else { self.channel_info },
        );
        if !self.channel_info.is_empty() {
            out.extend_from_slice(self.data);
        }
    }

    /// Appends the fixed part of a request whose `length` bytes of data the caller sends next.
    pub fn emit_header(&self, out: &mut Vec<u8>, length: u32) {
        let info_length = wire::length16(self.channel_info.len());
        let info_offset = if info_length == 0 { 0 } else { Self::DATA_OFFSET };
        let data_offset = if length == 0 { 0 } else { Self::DATA_OFFSET + info_length };
        wire::put(
            out,
            &WireRequest {
                structure_size: U16::new(49),
                data_offset: U16::new(data_offset),
                length: U32::new(length),
                offset: U64::new(self.offset),
                file_id: self.file_id.into(),
                channel: U32::new(self.channel.0),
                remaining_bytes: U32::new(self.remaining_bytes),
                channel_info_offset: U16::new(info_offset),
                channel_info_length: U16::new(info_length),
                flags: U32::new(self.flags.bits()),
            },
        );
    }
}

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct WireResponse {
    structure_size: U16,
    reserved: U16,
    count: U32,
    remaining: U32,
    channel_info: U32,
}

const _: () = assert!(size_of::<WireResponse>() == 16);

/// How much was written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WriteResponse {
    /// Bytes written.
    pub count: u32,
}

impl WriteResponse {
    /// Reads a response.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(pdu: &[u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<WireResponse>(pdu, 17)?;
        Ok(Self { count: wire.count.get() })
    }

    /// Appends the body behind a header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        wire::put(
            out,
            &WireResponse {
                structure_size: U16::new(17),
                reserved: U16::new(0),
                count: U32::new(self.count),
                remaining: U32::new(0),
                channel_info: U32::new(0),
            },
        );
    }
}

bitflags::bitflags! {
    /// How to write.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct WriteFlags: u32 {
        /// Durable before the answer (2.1).
        const WRITE_THROUGH = 0x0000_0001;
        /// Past the server's cache (3.0.2).
        const UNBUFFERED = 0x0000_0002;
        const _ = !0;
    }
}
