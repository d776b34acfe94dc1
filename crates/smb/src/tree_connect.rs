//! TREE_CONNECT: entering a share.
//!
//! ```text
//!  request                                  response
//!  64  66      68       70       72         64   66     67  68      72             76      80
//!  +---+-------+--------+--------+-----     +----+------+---+-------+--------------+-------+
//!  | 9 | flags | path   | path   | path     | 16 | type | 0 | flags | capabilities | access|
//!  |   |       | offset | length |          |    |      |   |       |              |       |
//!  +---+-------+--------+--------+-----     +----+------+---+-------+--------------+-------+
//! ```
//!
//! With EXTENSION_PRESENT a 16-byte extension and tree connect contexts stand between the fixed
//! part and the path. PathOffset still counts from the header, so the path is found without
//! reading them; nothing we serve needs them.
//!
//! Spec: MS-SMB2 §2.2.9 and §2.2.10.

use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::create::AccessMask;
use crate::dtyp::Name;
use crate::open_set::open_set;
use crate::parse_error::{Field, ParseError};
use crate::wire;

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct WireRequest {
    structure_size: U16,
    flags: U16,
    path_offset: U16,
    path_length: U16,
}

/// Asks for a share by its full path.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TreeConnectRequest {
    /// 1 cluster reconnect, 2 redirect to owner. Whether an extension stood in the message is not
    /// kept, as the extension is not.
    pub flags: u16,
    /// `\\\\server\\share`.
    pub path: Name,
}

impl TreeConnectRequest {
    /// Reads a request.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(pdu: &[u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<WireRequest>(pdu, 9)?;
        let path = wire::pdu_buffer::<WireRequest>(
            pdu,
            wire.path_offset.get(),
            wire.path_length.get(),
            Field::Name,
        )?;
        Ok(Self { flags: wire.flags.get() & !EXTENSION_PRESENT, path: Name::parse(path)? })
    }

    /// Appends the body behind a header. Never with an extension.
    pub fn emit(&self, out: &mut Vec<u8>) {
        wire::put(
            out,
            &WireRequest {
                structure_size: U16::new(9),
                flags: U16::new(self.flags & !EXTENSION_PRESENT),
                path_offset: U16::new(72),
                path_length: U16::new(wire::length16(self.path.wire_len())),
            },
        );
        self.path.emit(out);
    }

    /// The share: what stands behind the last backslash.
    pub fn share(&self) -> &str {
        self.path.rsplit('\\').next().unwrap_or_default()
    }
}

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct WireResponse {
    structure_size: U16,
    share_type: u8,
    reserved: u8,
    flags: U32,
    capabilities: U32,
    maximal_access: U32,
}

const _: () = assert!(size_of::<WireResponse>() == 16);

/// What was entered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct TreeConnectResponse {
    /// Disk, pipe or printer.
    pub share_type: ShareType,
    /// Properties.
    pub flags: ShareFlags,
    /// What the share can do.
    pub capabilities: ShareCapabilities,
    /// The most this user may ever be granted here.
    pub maximal_access: AccessMask,
}

impl TreeConnectResponse {
    /// Reads a response.
    ///
    /// # Errors
    /// Malformed.
    pub fn parse(pdu: &[u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<WireResponse>(pdu, 16)?;
        Ok(Self {
            share_type: ShareType(wire.share_type),
            flags: ShareFlags::from_bits_retain(wire.flags.get()),
            capabilities: ShareCapabilities::from_bits_retain(wire.capabilities.get()),
            maximal_access: AccessMask::from_bits_retain(wire.maximal_access.get()),
        })
    }

    /// Appends the body behind a header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        wire::put(
            out,
            &WireResponse {
                structure_size: U16::new(16),
                share_type: self.share_type.0,
                reserved: 0,
                flags: U32::new(self.flags.bits()),
                capabilities: U32::new(self.capabilities.bits()),
                maximal_access: U32::new(self.maximal_access.bits()),
            },
        );
    }
}

open_set! {
    /// Kind of a share.
    pub struct ShareType(u8) {
        /// Files.
        DISK = 1,
        /// Named pipes (`IPC$`).
        PIPE = 2,
        /// A printer.
        PRINT = 3,
    }
}

bitflags::bitflags! {
    /// Properties of a share.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct ShareFlags: u32 {
        /// Offline caching only of what the user chooses is 0; this chooses by itself.
        const AUTO_CACHING = 0x0000_0010;
        /// Caches programs and documents.
        const VDO_CACHING = 0x0000_0020;
        /// Caches nothing offline.
        const NO_CACHING = 0x0000_0030;
        /// In a DFS tree.
        const DFS = 0x0000_0001;
        /// Root of a DFS tree.
        const DFS_ROOT = 0x0000_0002;
        /// Exclusive opens are refused.
        const RESTRICT_EXCLUSIVE_OPENS = 0x0000_0100;
        /// Open files may be deleted.
        const FORCE_SHARED_DELETE = 0x0000_0200;
        /// Directories may be cached.
        const ALLOW_NAMESPACE_CACHING = 0x0000_0400;
        /// Lists only what the user may see.
        const ACCESS_BASED_ENUMERATION = 0x0000_0800;
        /// Only level II oplocks.
        const FORCE_LEVEL_2_OPLOCK = 0x0000_1000;
        /// Messages of this tree are to be encrypted.
        const ENCRYPT_DATA = 0x0000_8000;
        /// Data may be compressed.
        const COMPRESS_DATA = 0x0010_0000;
        const _ = !0;
    }

    /// What a share can do.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct ShareCapabilities: u32 {
        /// In a DFS tree.
        const DFS = 0x0000_0008;
        /// Opens survive a server failure.
        const CONTINUOUS_AVAILABILITY = 0x0000_0010;
        /// On several cluster nodes.
        const SCALEOUT = 0x0000_0020;
        /// On one cluster node at a time.
        const CLUSTER = 0x0000_0040;
        /// Its owner can change.
        const ASYMMETRIC = 0x0000_0080;
        /// A tree connect may be redirected.
        const REDIRECT_TO_OWNER = 0x0000_0100;
        const _ = !0;
    }
}

const EXTENSION_PRESENT: u16 = 4;
