//! IOCTL: control codes with an input and an output buffer.
//!
//! ```text
//!  request                                                        112   116     120
//!  64   66  68     72         88      92      96      100  104  108    |       |
//!  +----+---+------+----------+-------+-------+-------+----+----+------+-------+----+------
//!  | 57 | 0 | code | file id  | input | input | max   | output  | max  | flags | 0  | input
//!  |    |   |      |          | offset| count | input | o, count| outp.|       |    |
//!  +----+---+------+----------+-------+-------+-------+---------+------+-------+----+------
//!  response                                          104     108  112
//!  64   66  68     72         88      92      96     100     |    |
//!  +----+---+------+----------+-------+-------+------+-------+----+----+----------------
//!  | 49 | 0 | code | file id  | input | input | output       | 0  | 0  | input, output
//!  |    |   |      |          | offset| count | offset, count|    |    |
//!  +----+---+------+----------+-------+-------+--------------+----+----+----------------
//! ```
//!
//! Spec: MS-SMB2 §2.2.31 and §2.2.32; MS-FSCC §2.3.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::header::{FileId, Header, WireFileId};
use crate::open_set::open_set;
use crate::parse_error::{Field, ParseError};
use crate::wire;

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct WireRequest {
    structure_size: U16,
    reserved: U16,
    code: U32,
    file_id: WireFileId,
    input_offset: U32,
    input_count: U32,
    input_response_max: U32,
    output_offset: U32,
    output_count: U32,
    output_response_max: U32,
    flags: U32,
    reserved2: U32,
}

const _: () = assert!(size_of::<WireRequest>() == 56);

/// Asks for a control operation.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IoctlRequest<'a> {
    /// Which.
    pub code: ControlCode,
    /// On which open; [`FileId::RELATED`] (all ones) when the code needs none.
    pub file_id: FileId,
    /// Input.
    pub input: &'a [u8],
    /// Most input bytes the client takes back.
    pub input_response_max: u32,
    /// Most output bytes the client takes.
    pub output_response_max: u32,
    /// A file system control; other IOCTLs are refused by every server.
    pub is_fsctl: bool,
}

impl<'a> IoctlRequest<'a> {
    /// Reads a request.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(pdu: &'a [u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<WireRequest>(pdu, 57)?;
        let (offset, count) = (wire.input_offset.get(), wire.input_count.get());
        Ok(Self {
            code: ControlCode(wire.code.get()),
            file_id: wire.file_id.into(),
            input: wire::pdu_buffer::<WireRequest>(pdu, offset, count, Field::Input)?,
            input_response_max: wire.input_response_max.get(),
            output_response_max: wire.output_response_max.get(),
            is_fsctl: wire.flags.get() & IS_FSCTL != 0,
        })
    }

    /// Appends the body behind a header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let input_offset = if self.input.is_empty() { 0 } else { REQUEST_BUFFER };
        wire::put(
            out,
            &WireRequest {
                structure_size: U16::new(57),
                reserved: U16::new(0),
                code: U32::new(self.code.0),
                file_id: self.file_id.into(),
                input_offset: U32::new(input_offset),
                input_count: U32::new(wire::length32(self.input.len())),
                input_response_max: U32::new(self.input_response_max),
                output_offset: U32::new(0),
                output_count: U32::new(0),
                output_response_max: U32::new(self.output_response_max),
                flags: U32::new(if self.is_fsctl { IS_FSCTL } else { 0 }),
                reserved2: U32::new(0),
            },
        );
        wire::put_variable(out, self.input);
    }
}

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct WireResponse {
    structure_size: U16,
    reserved: U16,
    code: U32,
    file_id: WireFileId,
    input_offset: U32,
    input_count: U32,
    output_offset: U32,
    output_count: U32,
    flags: U32,
    reserved2: U32,
}

const _: () = assert!(size_of::<WireResponse>() == 48);

/// What a control operation returned. The input comes back empty.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct IoctlResponse<'a> {
    /// Which.
    pub code: ControlCode,
    /// On which open.
    pub file_id: FileId,
    /// Output.
    pub output: &'a [u8],
}

impl<'a> IoctlResponse<'a> {
    /// Reads a response.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(pdu: &'a [u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<WireResponse>(pdu, 49)?;
        let (offset, count) = (wire.output_offset.get(), wire.output_count.get());
        Ok(Self {
            code: ControlCode(wire.code.get()),
            file_id: wire.file_id.into(),
            output: wire::pdu_buffer::<WireResponse>(pdu, offset, count, Field::Output)?,
        })
    }

    /// Appends the body behind a header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        Self::emit_with(out, self.code, self.file_id, |out| out.extend_from_slice(self.output));
    }

    /// Appends the body; `fill` appends the output straight behind it.
    pub fn emit_with(
        out: &mut Vec<u8>,
        code: ControlCode,
        file_id: FileId,
        fill: impl FnOnce(&mut Vec<u8>),
    ) {
        let body = out.len();
        wire::put(
            out,
            &WireResponse {
                structure_size: U16::new(49),
                reserved: U16::new(0),
                code: U32::new(code.0),
                file_id: file_id.into(),
                input_offset: U32::new(RESPONSE_BUFFER),
                input_count: U32::new(0),
                output_offset: U32::new(RESPONSE_BUFFER),
                output_count: U32::new(0),
                flags: U32::new(0),
                reserved2: U32::new(0),
            },
        );
        let start = out.len();
        fill(out);
        let count = wire::length32(out.len() - start);
        wire::patch_u32(out, body + OUTPUT_COUNT, count);
    }
}

open_set! {
    /// A control code; our own are in [`crate::push`].
    pub struct ControlCode(u32) {
        /// DFS referrals.
        DFS_GET_REFERRALS = 0x0006_0194,
        /// DFS referrals, extended.
        DFS_GET_REFERRALS_EX = 0x0006_01b0,
        /// State of a pipe.
        PIPE_PEEK = 0x0011_400c,
        /// Waits for a pipe.
        PIPE_WAIT = 0x0011_0018,
        /// Writes to and reads from a pipe at once.
        PIPE_TRANSCEIVE = 0x0011_c017,
        /// Server-side copy.
        SRV_COPYCHUNK = 0x0014_40f2,
        /// Server-side copy to a file opened for writing only.
        SRV_COPYCHUNK_WRITE = 0x0014_80f2,
        /// Previous versions.
        SRV_ENUMERATE_SNAPSHOTS = 0x0014_4064,
        /// The key of a copy source.
        SRV_REQUEST_RESUME_KEY = 0x0014_0078,
        /// BranchCache hashes.
        SRV_READ_HASH = 0x0014_41bb,
        /// Resilient handles.
        LMR_REQUEST_RESILIENCY = 0x0014_01d4,
        /// The server's interfaces, for multichannel.
        QUERY_NETWORK_INTERFACE_INFO = 0x0014_01fc,
        /// Checks that negotiation was not tampered with.
        VALIDATE_NEGOTIATE_INFO = 0x0014_0204,
        /// Sets a reparse point.
        SET_REPARSE_POINT = 0x0009_00a4,
        /// Reads a reparse point.
        GET_REPARSE_POINT = 0x0009_00a8,
        /// Removes a reparse point.
        DELETE_REPARSE_POINT = 0x0009_00ac,
        /// Makes a file sparse.
        SET_SPARSE = 0x0009_00c4,
        /// Punches a hole.
        SET_ZERO_DATA = 0x0009_80c8,
        /// Lists what is not a hole.
        QUERY_ALLOCATED_RANGES = 0x0009_40cf,
        /// Reads compression.
        GET_COMPRESSION = 0x0009_003c,
        /// Sets compression.
        SET_COMPRESSION = 0x0009_c040,
        /// Reads or creates an object id.
        CREATE_OR_GET_OBJECT_ID = 0x0009_00c0,
        /// Reads an object id.
        GET_OBJECT_ID = 0x0009_009c,
        /// Clones a range.
        DUPLICATE_EXTENTS_TO_FILE = 0x0009_8344,
        /// Clones a range, extended.
        DUPLICATE_EXTENTS_TO_FILE_EX = 0x0009_83e8,
        /// Trims ranges of a file.
        FILE_LEVEL_TRIM = 0x0009_8208,
        /// Reads integrity settings.
        GET_INTEGRITY_INFORMATION = 0x0009_027c,
        /// Sets integrity settings.
        SET_INTEGRITY_INFORMATION = 0x0009_c280,
        /// Reads the file's regions of valid data.
        QUERY_FILE_REGIONS = 0x0009_0284,
        /// Is the volume mounted?
        IS_VOLUME_MOUNTED = 0x0009_0028,
        /// Is the path name valid?
        IS_PATHNAME_VALID = 0x0009_002c,
        /// Offload data transfer, read side.
        OFFLOAD_READ = 0x0009_4264,
        /// Offload data transfer, write side.
        OFFLOAD_WRITE = 0x0009_8268,
    }
}

const IS_FSCTL: u32 = 1;
// The 64-byte header and the fixed part.
const REQUEST_BUFFER: u32 = 120;
const RESPONSE_BUFFER: u32 = 112;
const OUTPUT_COUNT: usize = 36;

const _: () = assert!(Header::LEN + size_of::<WireRequest>() == 120);
const _: () = assert!(Header::LEN + size_of::<WireResponse>() == 112);
