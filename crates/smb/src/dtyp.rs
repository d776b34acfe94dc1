//! Small types that many messages share: GUIDs, times and names.
//!
//! ```text
//!  0                4       6       8                                   16
//!  +----------------+-------+-------+-----------------------------------+
//!  | data1 (LE)     | data2 | data3 | data4, bytes as printed           |   GUID
//!  +----------------+-------+-------+-----------------------------------+
//! ```
//!
//! Spec: MS-DTYP §2.3.3 (FILETIME), §2.3.4.2 (GUID), MS-SMB2 §2.2.13 (names are UTF-16LE).

use std::fmt;
use std::ops::Deref;

use crate::parse_error::{Field, ParseError};

/// Sixteen bytes as they lie on the wire; prints in the customary mixed-endian form.
#[derive(Clone, Copy, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Guid(pub [u8; 16]);

impl Guid {
    /// Nobody.
    pub const ZERO: Self = Self([0; 16]);
}

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, at) in [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15].iter().enumerate()
        {
            if matches!(index, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{:02x}", self.0[*at])?;
        }
        Ok(())
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// 100-nanosecond intervals since 1601-01-01 UTC. Zero means "not given" in most places, and
/// all ones or all ones but the last bit are commands of SET_INFO (keep, and stop keeping).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FileTime(pub u64);

impl FileTime {
    /// Not given.
    pub const ZERO: Self = Self(0);
    /// In SET_INFO: later operations on this handle no longer update the time.
    pub const FREEZE: Self = Self(u64::MAX);
    /// In SET_INFO: they do again.
    pub const THAW: Self = Self(u64::MAX - 1);

    /// From nanoseconds since 1970; times before 1601 become 1601, nothing overflows.
    pub fn from_unix_ns(ns: i128) -> Self {
        let ticks = ns.div_euclid(100) + UNIX_EPOCH_TICKS;
        // The two topmost values have another meaning, see above.
        Self(u64::try_from(ticks.max(0)).unwrap_or(u64::MAX).min(TICKS_MAX))
    }

    /// Nanoseconds since 1970.
    pub fn to_unix_ns(self) -> i128 {
        (i128::from(self.0) - UNIX_EPOCH_TICKS) * 100
    }
}

/// A name of at most [`NAME_UNITS_MAX`] UTF-16 units, so that every message can carry it.
#[derive(Clone, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Name(String);

impl Name {
    /// Takes a name.
    ///
    /// # Errors
    /// It is longer than any message can carry.
    pub fn new(name: impl Into<String>) -> Result<Self, NameTooLong> {
        let name = name.into();
        let units = name.encode_utf16().count();
        if units > NAME_UNITS_MAX {
            return Err(NameTooLong { units });
        }
        Ok(Self(name))
    }

    /// Reads UTF-16LE.
    ///
    /// # Errors
    /// An odd number of bytes, half a surrogate pair, or too long. Windows allows unpaired
    /// surrogates in names; the file systems below us cannot hold them.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let field = Field::Name;
        if bytes.len() > NAME_BYTES_MAX {
            return Err(ParseError::PeerTooMany { field, got: bytes.len(), max: NAME_BYTES_MAX });
        }
        let (units, odd) = bytes.as_chunks::<2>();
        if !odd.is_empty() {
            return Err(ParseError::PeerUtf16 { field });
        }
        char::decode_utf16(units.iter().copied().map(u16::from_le_bytes))
            .collect::<Result<String, _>>()
            .map(Self)
            .map_err(|_| ParseError::PeerUtf16 { field })
    }

    /// Reads UTF-16LE. What is half a surrogate pair becomes U+FFFD: Windows allows that in names, and one such
    /// name must not hide the others of a listing.
    ///
    /// # Errors
    /// An odd number of bytes, or too long.
    pub fn parse_lossy(bytes: &[u8]) -> Result<Self, ParseError> {
        Self::parse(bytes).or_else(|error| {
            let (units, odd) = bytes.as_chunks::<2>();
            if !odd.is_empty() || bytes.len() > NAME_BYTES_MAX {
                return Err(error);
            }
            let decoded = char::decode_utf16(units.iter().copied().map(u16::from_le_bytes));
            Ok(Self(decoded.map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()))
        })
    }

    /// Appends UTF-16LE without terminator and returns the number of bytes.
    pub fn emit(&self, out: &mut Vec<u8>) -> u16 {
        let start = out.len();
        out.extend(self.0.encode_utf16().flat_map(u16::to_le_bytes));
        u16::try_from(out.len() - start).expect("at most NAME_UNITS_MAX units of two bytes")
    }

    /// Bytes it takes as UTF-16LE.
    pub fn wire_len(&self) -> usize {
        2 * self.0.encode_utf16().count()
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The text, given away.
    pub fn into_string(self) -> String {
        self.0
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<&str> for Name {
    type Error = NameTooLong;

    fn try_from(name: &str) -> Result<Self, NameTooLong> {
        Self::new(name)
    }
}

/// A name no message can carry.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("name of {units} UTF-16 units, {NAME_UNITS_MAX} fit a message")]
pub struct NameTooLong {
    /// Its length.
    pub units: usize,
}

/// Longest name: what the 16-bit byte lengths of CREATE and TREE_CONNECT can say.
pub const NAME_UNITS_MAX: usize = 32_767;
const NAME_BYTES_MAX: usize = 2 * NAME_UNITS_MAX;
const UNIX_EPOCH_TICKS: i128 = 116_444_736_000_000_000;
const TICKS_MAX: u64 = i64::MAX.cast_unsigned();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guid_prints_as_windows_prints_it() {
        // MS-SMB2 §2.2.13.2.13: the AppInstanceId name, bytes and text.
        let guid = Guid([
            0x45, 0xbc, 0xa6, 0x6a, 0xef, 0xa7, 0xf7, 0x4a, 0x90, 0x08, 0xfa, 0x46, 0x2e, 0x14,
            0x4d, 0x74,
        ]);
        assert_eq!(guid.to_string(), "6aa6bc45-a7ef-4af7-9008-fa462e144d74");
    }

    #[test]
    fn times_convert_both_ways_and_saturate() {
        assert_eq!(FileTime::from_unix_ns(0).0, 116_444_736_000_000_000);
        assert_eq!(FileTime(0).to_unix_ns(), -11_644_473_600_000_000_000);
        assert_eq!(FileTime::from_unix_ns(i128::from(i64::MIN) * 100).0, 0);
        assert_eq!(FileTime::from_unix_ns(i128::MAX / 2).0, u64::MAX >> 1);
        let now = 1_763_638_391_123_456_700;
        assert_eq!(FileTime::from_unix_ns(now).to_unix_ns(), now);
    }

    #[test]
    fn names_are_utf16_and_bounded() {
        let name = Name::new("grün𝄞").unwrap();
        let mut out = Vec::new();
        assert_eq!(name.emit(&mut out), 12);
        assert_eq!(Name::parse(&out).unwrap(), name);
        assert_eq!(name.wire_len(), 12);
        assert!(Name::parse(&out[..11]).is_err(), "odd");
        assert!(Name::parse(&out[..10]).is_err(), "half a pair");
        assert_eq!(Name::new("x".repeat(32_768)), Err(NameTooLong { units: 32_768 }));
        Name::parse(&[b'x', 0].repeat(32_768)).unwrap_err();
    }
}
