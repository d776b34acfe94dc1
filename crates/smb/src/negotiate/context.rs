//! Negotiate contexts, the extension point of 3.1.1.
//!
//! ```text
//!  0      2             4          8
//!  +------+-------------+----------+---------------+-----
//!  | type | data length | reserved | data          | pad to 8, except behind the last
//!  +------+-------------+----------+---------------+-----
//!
//!  1 preauth integrity: count u16, salt length u16, hash algorithms, salt
//!  2 encryption:        count u16, ciphers
//!  3 compression:       count u16, padding u16, flags u32, algorithms
//!  5 netname:           UTF-16LE
//!  6 transport:         flags u32
//!  7 RDMA transform:    count u16, reserved u16, reserved u32, ids
//!  8 signing:           count u16, algorithms
//!  0x100 POSIX:         16-byte version GUID
//! ```
//!
//! A type we do not know is kept as opaque bytes: MS-SMB2 §3.3.5.4 has it ignored, however many there are, and
//! every cifs.ko sends one.
//!
//! Spec: MS-SMB2 §2.2.3.1 and §2.2.4.1.

use super::{CipherId, CompressionId, HashId, RdmaTransformId, SigningId};
use crate::dtyp::{Guid, Name};
use crate::parse_error::{Field, ParseError};
use crate::wire::{self, Reader};

/// One context. In a response the lists hold the one algorithm chosen.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum NegotiateContext<'a> {
    /// Preauthentication integrity; mandatory in 3.1.1.
    PreauthIntegrity {
        /// Hash algorithms.
        hashes: Vec<HashId>,
        /// Random bytes of the sender.
        salt: &'a [u8],
    },
    /// Ciphers, best first.
    Encryption(Vec<CipherId>),
    /// Compression algorithms.
    Compression {
        /// 1: chained compression.
        flags: u32,
        /// Algorithms.
        algorithms: Vec<CompressionId>,
    },
    /// The server name the client dialled.
    Netname(Name),
    /// 1: accepts transport-level security instead of encryption.
    Transport(u32),
    /// Protection of server-driven RDMA.
    RdmaTransform(Vec<RdmaTransformId>),
    /// Signing algorithms, best first.
    Signing(Vec<SigningId>),
    /// The SMB3 POSIX extensions, by their version GUID.
    Posix(Guid),
    /// Anything else.
    Unknown {
        /// Its type.
        kind: u16,
        /// Its bytes.
        data: &'a [u8],
    },
}

impl<'a> NegotiateContext<'a> {
    /// The GUID of the POSIX extensions: 93AD2550-9CB4-11E7-B423-83DE968BCD7C as bytes on the wire.
    pub const POSIX_VERSION: Guid = Guid([
        0x93, 0xad, 0x25, 0x50, 0x9c, 0xb4, 0x11, 0xe7, 0xb4, 0x23, 0x83, 0xde, 0x96, 0x8b, 0xcd,
        0x7c,
    ]);

    /// Reads `count` contexts that begin at `offset` of `pdu`.
    pub(super) fn parse_list(
        pdu: &'a [u8],
        fixed: usize,
        offset: u32,
        count: u16,
    ) -> Result<Vec<Self>, ParseError> {
        let count = usize::from(count);
        wire::limit(Field::Context, count, CONTEXTS_MAX)?;
        if count == 0 {
            return Ok(Vec::new());
        }
        if !offset.is_multiple_of(8) {
            return Err(ParseError::PeerAlignment { field: Field::Context, offset, align: 8 });
        }
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let outside =
            ParseError::PeerOffset { field: Field::Context, offset, length: 8, got: pdu.len() };
        if start < fixed {
            return Err(outside);
        }
        let mut rest = pdu.get(start..).ok_or(outside)?;
        // No more than the bytes there are can hold.
        let mut contexts = Vec::with_capacity(count.min(rest.len().div_ceil(HEADER_LEN)));
        for _ in 0..count {
            let mut reader = Reader::new(rest);
            let kind = reader.u16()?;
            let len = usize::from(reader.u16()?);
            reader.u32()?;
            contexts.push(Self::parse_one(kind, reader.bytes(len)?)?);
            let taken = (HEADER_LEN + len).next_multiple_of(8);
            rest = rest.get(taken..).unwrap_or_default();
        }
        Ok(contexts)
    }

    fn parse_one(kind: u16, data: &'a [u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(data);
        Ok(match kind {
            PREAUTH_INTEGRITY => {
                let count = reader.u16()?;
                let salt_len = usize::from(reader.u16()?);
                wire::limit(Field::Salt, salt_len, SALT_MAX)?;
                let hashes = list(&mut reader, count, Field::HashAlgorithms, HashId)?;
                Self::PreauthIntegrity { hashes, salt: reader.bytes(salt_len)? }
            }
            ENCRYPTION => {
                let count = reader.u16()?;
                Self::Encryption(list(&mut reader, count, Field::Ciphers, CipherId)?)
            }
            COMPRESSION => {
                let count = reader.u16()?;
                reader.u16()?;
                let flags = reader.u32()?;
                let field = Field::Compression;
                let algorithms = list(&mut reader, count, field, CompressionId)?;
                Self::Compression { flags, algorithms }
            }
            NETNAME => Self::Netname(Name::parse(data)?),
            TRANSPORT => Self::Transport(reader.u32()?),
            RDMA_TRANSFORM => {
                let count = reader.u16()?;
                reader.bytes(6)?;
                Self::RdmaTransform(list(
                    &mut reader,
                    count,
                    Field::RdmaTransforms,
                    RdmaTransformId,
                )?)
            }
            SIGNING => {
                let count = reader.u16()?;
                let field = Field::SigningAlgorithms;
                Self::Signing(list(&mut reader, count, field, SigningId)?)
            }
            // Older Samba clients send the GUID alone, others may append: the first 16 decide.
            POSIX => Self::Posix(Guid(reader.array()?)),
            kind => Self::Unknown { kind, data },
        })
    }

    /// Appends `contexts`, each 8-aligned counting from `pdu_start`.
    pub(super) fn emit_list(contexts: &[Self], out: &mut Vec<u8>, pdu_start: usize) {
        for context in contexts {
            wire::pad(out, pdu_start, 8);
            let start = out.len();
            out.extend_from_slice(&context.kind().to_le_bytes());
            out.extend_from_slice(&[0; 6]);
            context.emit_data(out);
            let len = wire::length16(out.len() - start - HEADER_LEN);
            wire::patch_u16(out, start + 2, len);
        }
    }

    /// The type on the wire.
    pub fn kind(&self) -> u16 {
        match self {
            Self::PreauthIntegrity { .. } => PREAUTH_INTEGRITY,
            Self::Encryption(_) => ENCRYPTION,
            Self::Compression { .. } => COMPRESSION,
            Self::Netname(_) => NETNAME,
            Self::Transport(_) => TRANSPORT,
            Self::RdmaTransform(_) => RDMA_TRANSFORM,
            Self::Signing(_) => SIGNING,
            Self::Posix(_) => POSIX,
            Self::Unknown { kind, .. } => *kind,
        }
    }

    fn emit_data(&self, out: &mut Vec<u8>) {
        match self {
            Self::PreauthIntegrity { hashes, salt } => {
                put_u16(out, wire::length16(hashes.len()));
                put_u16(out, wire::length16(salt.len()));
                hashes.iter().for_each(|hash| put_u16(out, hash.0));
                out.extend_from_slice(salt);
            }
            Self::Encryption(ciphers) => {
                put_u16(out, wire::length16(ciphers.len()));
                ciphers.iter().for_each(|cipher| put_u16(out, cipher.0));
            }
            Self::Compression { flags, algorithms } => {
                put_u16(out, wire::length16(algorithms.len()));
                put_u16(out, 0);
                out.extend_from_slice(&flags.to_le_bytes());
                algorithms.iter().for_each(|algorithm| put_u16(out, algorithm.0));
            }
            Self::Netname(name) => {
                name.emit(out);
            }
            Self::Transport(flags) => out.extend_from_slice(&flags.to_le_bytes()),
            Self::RdmaTransform(ids) => {
                put_u16(out, wire::length16(ids.len()));
                out.extend_from_slice(&[0; 6]);
                ids.iter().for_each(|id| put_u16(out, id.0));
            }
            Self::Signing(algorithms) => {
                put_u16(out, wire::length16(algorithms.len()));
                algorithms.iter().for_each(|algorithm| put_u16(out, algorithm.0));
            }
            Self::Posix(version) => out.extend_from_slice(&version.0),
            Self::Unknown { data, .. } => out.extend_from_slice(data),
        }
    }
}

fn list<T>(
    reader: &mut Reader<'_>,
    count: u16,
    field: Field,
    wrap: impl Fn(u16) -> T,
) -> Result<Vec<T>, ParseError> {
    wire::limit(field, usize::from(count), ALGORITHMS_MAX)?;
    (0..count).map(|_| reader.u16().map(&wrap)).collect()
}

fn put_u16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Contexts of one message: as many as the largest frame before a logon, 64 KiB, has room for. Ten are
/// defined; the rest is room for others' own.
pub const CONTEXTS_MAX: usize = 8_192;
/// Algorithms of one context.
pub const ALGORITHMS_MAX: usize = 64;
/// Bytes of salt; everyone sends 32.
pub const SALT_MAX: usize = 1024;

const HEADER_LEN: usize = 8;
const PREAUTH_INTEGRITY: u16 = 0x0001;
const ENCRYPTION: u16 = 0x0002;
const COMPRESSION: u16 = 0x0003;
const NETNAME: u16 = 0x0005;
const TRANSPORT: u16 = 0x0006;
const RDMA_TRANSFORM: u16 = 0x0007;
const SIGNING: u16 = 0x0008;
const POSIX: u16 = 0x0100;
