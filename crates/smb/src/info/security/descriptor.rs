//! The self-relative security descriptor.
//!
//! ```text
//!  0   1   2         4       8       12     16     20
//!  +---+---+---------+-------+-------+------+------+---------------------------
//!  | 1 | 0 | control | owner | group | SACL | DACL | what the offsets point to
//!  +---+---+---------+-------+-------+------+------+---------------------------
//! ```
//!
//! An offset of zero means absent. The SACL is skipped: auditing is not ours.
//!
//! Spec: MS-DTYP §2.4.6.

use super::{Ace, Sid};
use crate::parse_error::{Field, ParseError};
use crate::wire::{self, Reader};

/// Owner, group and access list; what was not asked for is absent.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SecurityDescriptor {
    /// Inheritance and protection bits. SELF_RELATIVE and DACL_PRESENT are derived when emitted.
    pub control: Control,
    /// Owner.
    pub owner: Option<Sid>,
    /// Group.
    pub group: Option<Sid>,
    /// Access list.
    pub dacl: Dacl,
}

/// The three states of an access list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Dacl {
    /// Not part of this descriptor.
    Absent,
    /// There is none: everyone may do everything.
    Null,
    /// These entries; none of them means nobody may do anything.
    Aces(Vec<Ace>),
}

impl SecurityDescriptor {
    /// Reads a descriptor.
    ///
    /// # Errors
    /// Malformed, another revision, or not self-relative.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let mut reader = Reader::new(bytes);
        let revision = reader.u8()?;
        reader.u8()?;
        let control = Control::from_bits_retain(reader.u16()?);
        if revision != REVISION || !control.contains(Control::SELF_RELATIVE) {
            let value = u64::from(control.bits());
            return Err(ParseError::PeerValue { field: Field::SecurityDescriptor, value });
        }
        let (owner, group) = (reader.u32()?, reader.u32()?);
        reader.u32()?;
        let dacl = reader.u32()?;
        let sid = |offset| {
            part(bytes, offset)?.map(|bytes| Sid::parse(bytes).map(|(sid, _)| sid)).transpose()
        };
        let dacl = match (control.contains(Control::DACL_PRESENT), part(bytes, dacl)?) {
            (false, _) => Dacl::Absent,
            (true, None) => Dacl::Null,
            (true, Some(bytes)) => Dacl::Aces(Ace::parse_acl(bytes)?),
        };
        Ok(Self { control, owner: sid(owner)?, group: sid(group)?, dacl })
    }

    /// Appends the descriptor.
    ///
    /// # Panics
    /// When the access list is over 64 KiB.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let mut control = self.control | Control::SELF_RELATIVE;
        control.set(Control::DACL_PRESENT, self.dacl != Dacl::Absent);
        control.remove(Control::SACL_PRESENT);
        out.extend_from_slice(&[REVISION, 0]);
        out.extend_from_slice(&control.bits().to_le_bytes());
        out.extend_from_slice(&[0; 16]);
        let patch = |out: &mut Vec<u8>, at: usize| {
            let offset = wire::length32(out.len() - start);
            wire::patch_u32(out, start + at, offset);
        };
        if let Some(owner) = &self.owner {
            patch(out, OWNER);
            owner.emit(out);
        }
        if let Some(group) = &self.group {
            patch(out, GROUP);
            group.emit(out);
        }
        if let Dacl::Aces(aces) = &self.dacl {
            patch(out, DACL);
            Ace::emit_acl(aces, out);
        }
    }
}

fn part(bytes: &[u8], offset: u32) -> Result<Option<&[u8]>, ParseError> {
    if offset == 0 {
        return Ok(None);
    }
    let got = bytes.len();
    let field = Field::SecurityDescriptor;
    let outside = ParseError::PeerOffset { field, offset, length: 0, got };
    let start = usize::try_from(offset).map_err(|_| outside)?;
    if start < FIXED_LEN {
        return Err(outside);
    }
    bytes.get(start..).map(Some).ok_or(outside)
}

bitflags::bitflags! {
    /// Control bits.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct Control: u16 {
        /// The owner is a default.
        const OWNER_DEFAULTED = 0x0001;
        /// The group is a default.
        const GROUP_DEFAULTED = 0x0002;
        /// There is an access list.
        const DACL_PRESENT = 0x0004;
        /// It is a default.
        const DACL_DEFAULTED = 0x0008;
        /// There is an audit list.
        const SACL_PRESENT = 0x0010;
        /// The access list shall be inherited.
        const DACL_AUTO_INHERIT_REQ = 0x0100;
        /// The access list was inherited.
        const DACL_AUTO_INHERITED = 0x0400;
        /// The access list does not inherit.
        const DACL_PROTECTED = 0x1000;
        /// Offsets, not pointers.
        const SELF_RELATIVE = 0x8000;
        const _ = !0;
    }
}

const REVISION: u8 = 1;
const FIXED_LEN: usize = 20;
const OWNER: usize = 4;
const GROUP: usize = 8;
const DACL: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::create::AccessMask;

    // Typed from MS-DTYP: owner S-1-22-1-0, no group, one entry: everyone, full control.
    const GOLDEN: &[u8] = b"\x01\0\x04\x80\x14\0\0\0\0\0\0\0\0\0\0\0\x24\0\0\0\
        \x01\x02\0\0\0\0\0\x16\x01\0\0\0\0\0\0\0\
        \x02\0\x1c\0\x01\0\0\0\0\0\x14\0\xff\x01\x1f\0\x01\x01\0\0\0\0\0\x01\0\0\0\0";

    #[test]
    fn owner_and_one_entry_lie_where_the_specification_puts_them() {
        let descriptor = SecurityDescriptor {
            control: Control::SELF_RELATIVE | Control::DACL_PRESENT,
            owner: Some(Sid::unix_user(0)),
            group: None,
            dacl: Dacl::Aces(vec![Ace::allow(AccessMask::FILE_ALL, Sid::everyone())]),
        };
        let mut out = Vec::new();
        descriptor.emit(&mut out);
        assert_eq!(out, GOLDEN);
        assert_eq!(SecurityDescriptor::parse(GOLDEN), Ok(descriptor));
        assert_eq!(Sid::unix_user(0).to_string(), "S-1-22-1-0");
    }

    #[test]
    fn every_truncation_is_refused() {
        for len in 0..GOLDEN.len() {
            assert!(SecurityDescriptor::parse(&GOLDEN[..len]).is_err(), "{len}");
        }
    }
}
