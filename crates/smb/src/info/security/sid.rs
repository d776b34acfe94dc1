//! Security identifiers.
//!
//! ```text
//!  0     1       2                   8
//!  +-----+-------+-------------------+----------------------------
//!  | 1   | count | authority (6, BE) | count sub-authorities (LE)
//!  +-----+-------+-------------------+----------------------------
//! ```
//!
//! Spec: MS-DTYP §2.4.2.2.

use std::fmt;

use crate::parse_error::{Field, ParseError};
use crate::wire::{self, Reader};

/// Who.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub struct Sid {
    authority: [u8; 6],
    sub_authorities: Vec<u32>,
}

impl Sid {
    /// Bytes before the sub-authorities.
    pub const FIXED_LEN: usize = 8;

    /// Takes an authority below 256 and sub-authorities; `None` with more than
    /// [`SUB_AUTHORITIES_MAX`].
    pub fn new(authority: u8, sub_authorities: &[u32]) -> Option<Self> {
        if sub_authorities.len() > SUB_AUTHORITIES_MAX {
            return None;
        }
        let authority = [0, 0, 0, 0, 0, authority];
        Some(Self { authority, sub_authorities: sub_authorities.to_vec() })
    }

    /// S-1-1-0: everyone.
    pub fn everyone() -> Self {
        Self { authority: [0, 0, 0, 0, 0, 1], sub_authorities: vec![0] }
    }

    /// S-1-22-1-uid: a Unix user nobody mapped, the way Samba writes it.
    pub fn unix_user(uid: u32) -> Self {
        Self { authority: SAMBA_UNIX, sub_authorities: vec![1, uid] }
    }

    /// S-1-22-2-gid: a Unix group.
    pub fn unix_group(gid: u32) -> Self {
        Self { authority: SAMBA_UNIX, sub_authorities: vec![2, gid] }
    }

    /// S-1-5-88-3-mode: permission bits, as NFS servers of Windows and Linux clients write them.
    pub fn unix_mode(mode: u32) -> Self {
        Self { authority: NT, sub_authorities: vec![UNIX, UNIX_MODE, mode] }
    }

    /// The Unix user it stands for: S-1-22-1-uid or S-1-5-88-1-uid.
    pub fn to_unix_user(&self) -> Option<u32> {
        self.to_unix(1)
    }

    /// The Unix group it stands for: S-1-22-2-gid or S-1-5-88-2-gid.
    pub fn to_unix_group(&self) -> Option<u32> {
        self.to_unix(2)
    }

    /// The permission bits it stands for.
    pub fn to_unix_mode(&self) -> Option<u32> {
        match *self.sub_authorities {
            [UNIX, UNIX_MODE, mode] if self.authority == NT => Some(mode),
            _ => None,
        }
    }

    fn to_unix(&self, kind: u32) -> Option<u32> {
        match *self.sub_authorities {
            [its, id] if self.authority == SAMBA_UNIX && its == kind => Some(id),
            [UNIX, its, id] if self.authority == NT && its == kind => Some(id),
            _ => None,
        }
    }

    /// Without its last sub-authority, which comes apart: the domain, and the number in it. `None` if it
    /// has none.
    pub fn split(&self) -> Option<(Self, u32)> {
        let (last, before) = self.sub_authorities.split_last()?;
        Some((Self { authority: self.authority, sub_authorities: before.to_vec() }, *last))
    }

    /// Its member of that number, as a domain.
    pub fn join(&self, number: u32) -> Option<Self> {
        let sub_authorities: Vec<u32> =
            self.sub_authorities.iter().copied().chain([number]).collect();
        let authority = self.authority;
        (sub_authorities.len() <= SUB_AUTHORITIES_MAX)
            .then_some(Self { authority, sub_authorities })
    }

    /// Splits `bytes` into a SID and the rest.
    ///
    /// # Errors
    /// Malformed, another revision, or too many sub-authorities.
    pub fn parse(bytes: &[u8]) -> Result<(Self, &[u8]), ParseError> {
        let mut reader = Reader::new(bytes);
        let revision = reader.u8()?;
        if revision != REVISION {
            let value = u64::from(revision);
            return Err(ParseError::PeerValue { field: Field::Sid, value });
        }
        let count = usize::from(reader.u8()?);
        wire::limit(Field::Sid, count, SUB_AUTHORITIES_MAX)?;
        let authority = reader.array()?;
        let sub_authorities = (0..count).map(|_| reader.u32()).collect::<Result<_, _>>()?;
        Ok((Self { authority, sub_authorities }, reader.rest()))
    }

    /// Appends the SID.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let count = u8::try_from(self.sub_authorities.len()).expect("at most 15");
        out.extend_from_slice(&[REVISION, count]);
        out.extend_from_slice(&self.authority);
        for sub_authority in &self.sub_authorities {
            out.extend_from_slice(&sub_authority.to_le_bytes());
        }
    }

    /// Bytes on the wire.
    pub fn wire_len(&self) -> usize {
        Self::FIXED_LEN + 4 * self.sub_authorities.len()
    }
}

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.authority;
        let authority = u64::from_be_bytes([0, 0, a, b, c, d, e, g]);
        // MS-DTYP §2.4.2.1: authorities of 2^32 and more print as hex.
        if authority >> 32 == 0 {
            write!(f, "S-1-{authority}")?;
        } else {
            write!(f, "S-1-{authority:#x}")?;
        }
        self.sub_authorities.iter().try_for_each(|sub| write!(f, "-{sub}"))
    }
}

/// Sub-authorities of one SID.
pub const SUB_AUTHORITIES_MAX: usize = 15;

const REVISION: u8 = 1;
const NT: [u8; 6] = [0, 0, 0, 0, 0, 5];
const SAMBA_UNIX: [u8; 6] = [0, 0, 0, 0, 0, 22];
/// Sub-authority of what Unix knows of a file, below S-1-5.
const UNIX: u32 = 88;
const UNIX_MODE: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unix_identities_are_read_in_both_spellings() {
        assert_eq!(Sid::unix_user(1000).to_unix_user(), Some(1000));
        assert_eq!(Sid::unix_group(50).to_unix_group(), Some(50));
        assert_eq!(Sid::new(5, &[88, 1, 7]).unwrap().to_unix_user(), Some(7));
        assert_eq!(Sid::new(5, &[88, 2, 8]).unwrap().to_unix_group(), Some(8));
        assert_eq!(Sid::unix_mode(0o640).to_string(), "S-1-5-88-3-416");
        assert_eq!(Sid::unix_mode(0o640).to_unix_mode(), Some(0o640));
        for other in [Sid::unix_group(1), Sid::everyone(), Sid::unix_mode(1)] {
            assert_eq!(other.to_unix_user(), None, "{other}");
        }
        assert_eq!(Sid::new(22, &[88, 3, 1]).unwrap().to_unix_mode(), None);
    }
}
