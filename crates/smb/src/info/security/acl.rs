//! Access lists and their entries.
//!
//! ```text
//!  0     1   2      4       6   8            0      1       2      4      8
//!  +-----+---+------+-------+---+------      +------+-------+------+------+------
//!  | 2   | 0 | size | count | 0 | ACEs       | type | flags | size | mask | SID
//!  +-----+---+------+-------+---+------      +------+-------+------+------+------
//! ```
//!
//! Spec: MS-DTYP §2.4.4, §2.4.5.

use super::Sid;
use crate::create::AccessMask;
use crate::open_set::open_set;
use crate::parse_error::{Field, ParseError};
use crate::wire::{self, Reader};

open_set! {
    /// What an entry does.
    pub struct AceKind(u8) {
        /// Grants.
        ALLOWED = 0,
        /// Refuses.
        DENIED = 1,
        /// Audits.
        AUDIT = 2,
    }
}

/// One entry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Ace {
    /// A plain one: kinds 0 to 2.
    Basic {
        /// What it does.
        kind: AceKind,
        /// Inheritance flags.
        flags: u8,
        /// Rights.
        mask: AccessMask,
        /// Whom.
        sid: Sid,
    },
    /// Object, callback and other kinds: kept as they are.
    Opaque {
        /// Its kind.
        kind: AceKind,
        /// Inheritance flags.
        flags: u8,
        /// What follows the four-byte header.
        body: Vec<u8>,
    },
}

impl Ace {
    /// Grants `mask` to `sid` on this object alone.
    pub fn allow(mask: AccessMask, sid: Sid) -> Self {
        Self::Basic { kind: AceKind::ALLOWED, flags: 0, mask, sid }
    }

    /// Reads the entries of an ACL at the front of `bytes`.
    pub(super) fn parse_acl(bytes: &[u8]) -> Result<Vec<Self>, ParseError> {
        let mut reader = Reader::new(bytes);
        reader.u16()?;
        let size = usize::from(reader.u16()?);
        let count = usize::from(reader.u16()?);
        wire::limit(Field::Acl, count, ACES_MAX)?;
        let outside = ParseError::PeerTruncated { need: size, got: bytes.len() };
        let mut rest = bytes.get(ACL_HEADER_LEN..size).ok_or(outside)?;
        let mut aces = Vec::new();
        for _ in 0..count {
            let ace;
            (ace, rest) = Self::parse_one(rest)?;
            aces.push(ace);
        }
        Ok(aces)
    }

    fn parse_one(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut reader = Reader::new(bytes);
        let (kind, flags) = (AceKind(reader.u8()?), reader.u8()?);
        let size = usize::from(reader.u16()?);
        if size < ACE_HEADER_LEN || size > bytes.len() {
            return Err(ParseError::PeerTruncated { need: size, got: bytes.len() });
        }
        let (body, rest) = reader.rest().split_at(size - ACE_HEADER_LEN);
        let ace = if kind <= AceKind::AUDIT {
            let mut reader = Reader::new(body);
            let mask = AccessMask::from_bits_retain(reader.u32()?);
            let (sid, _) = Sid::parse(reader.rest())?;
            Self::Basic { kind, flags, mask, sid }
        } else {
            Self::Opaque { kind, flags, body: body.to_vec() }
        };
        Ok((ace, rest))
    }

    /// Appends an ACL.
    pub(super) fn emit_acl(aces: &[Self], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[ACL_REVISION, 0, 0, 0]);
        out.extend_from_slice(&wire::length16(aces.len()).to_le_bytes());
        out.extend_from_slice(&[0; 2]);
        for ace in aces {
            ace.emit(out);
        }
        let size = wire::length16(out.len() - start);
        wire::patch_u16(out, start + 2, size);
    }

    fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        match self {
            Self::Basic { kind, flags, mask, sid } => {
                out.extend_from_slice(&[kind.0, *flags, 0, 0]);
                out.extend_from_slice(&mask.bits().to_le_bytes());
                sid.emit(out);
            }
            Self::Opaque { kind, flags, body } => {
                out.extend_from_slice(&[kind.0, *flags, 0, 0]);
                out.extend_from_slice(body);
            }
        }
        let size = wire::length16(out.len() - start);
        wire::patch_u16(out, start + 2, size);
    }
}

/// Entries of one list; 64 KiB hold fewer than this of the smallest.
pub const ACES_MAX: usize = 4096;

const ACL_REVISION: u8 = 2;
const ACL_HEADER_LEN: usize = 8;
const ACE_HEADER_LEN: usize = 4;
