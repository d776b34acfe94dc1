//! The file with a service's keys.
//!
//! ```text
//!  0     2
//!  +-----+----------+---------+----------+---------+--
//!  | 5 2 | size i32 | entry   | size i32 | entry   |  ...    all big-endian; a negative size: a hole
//!  +-----+----------+---------+----------+---------+--
//!  entry: count u16 | realm | components, count of them | name type u32 | time u32 | version u8 |
//!         encryption type u16 | key | [version u32, if four bytes are left and it is not 0]
//!  realm, component, key: length u16 | bytes
//! ```
//!
//! Spec: "The Kerberos keytab binary file format", the manual of MIT Kerberos.

use thiserror::Error;

use super::encryption::{EncryptionType, Key};
use super::names::{COMPONENTS_MAX, Principal};

/// The keys of services.
#[derive(Clone, Debug, Default)]
pub struct Keytab {
    /// As they stand in the file; encryption types that are not spoken here among them.
    pub entries: Vec<KeytabEntry>,
}

/// One key of one service.
#[derive(Clone, Debug)]
pub struct KeytabEntry {
    /// Whose.
    pub principal: Principal,
    /// Which of its keys.
    pub version: u32,
    /// What it encrypts with.
    pub encryption: EncryptionType,
    /// Only the low eight bits of the version were written.
    pub(super) is_version_short: bool,
    /// None if its encryption is not spoken here.
    pub(super) key: Option<Key>,
}

impl Keytab {
    /// Reads a keytab.
    ///
    /// # Errors
    /// It is none, or one cut short.
    pub fn parse(bytes: &[u8]) -> Result<Self, KeytabError> {
        let mut rest = match bytes.split_first_chunk::<2>() {
            Some(([5, 2], rest)) => rest,
            Some(([5, 1], _)) => return Err(KeytabError::ConfigOld),
            _ => return Err(KeytabError::ConfigMagic),
        };
        let mut entries = Vec::new();
        while !rest.is_empty() {
            let at = bytes.len() - rest.len();
            let cut = KeytabError::ConfigEntry(at);
            let (size, after) = rest.split_first_chunk::<4>().ok_or(cut)?;
            let size = i32::from_be_bytes(*size);
            let len = usize::try_from(size.unsigned_abs()).map_err(|_| cut)?;
            // Some writers leave zeros where the file once was longer.
            if size == 0 {
                break;
            }
            let (entry, after) = after.split_at_checked(len).ok_or(cut)?;
            if size > 0 {
                if entries.len() == ENTRIES_MAX {
                    return Err(KeytabError::ConfigTooMany);
                }
                entries.push(KeytabEntry::parse(entry).ok_or(cut)?);
            }
            rest = after;
        }
        Ok(Self { entries })
    }

    /// Whether any of its keys can open a ticket here.
    pub fn is_usable(&self) -> bool {
        self.entries.iter().any(|entry| entry.key.is_some())
    }
}

impl KeytabEntry {
    fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        let count = usize::from(fields.u16()?);
        if count == 0 || count > COMPONENTS_MAX {
            return None;
        }
        let realm = fields.text()?;
        let components = (0..count).map(|_| fields.text()).collect::<Option<Vec<_>>>()?;
        let _name_type = fields.u32()?;
        let _written = fields.u32()?;
        let short = u32::from(fields.array::<1>()?[0]);
        let encryption = EncryptionType(i32::from(fields.u16()?));
        let key = fields.counted()?;
        let long = fields.u32().filter(|version| *version != 0);
        Some(Self {
            principal: Principal { components, realm },
            version: long.unwrap_or(short),
            encryption,
            is_version_short: long.is_none(),
            key: Key::new(encryption, key),
        })
    }

    /// Whether it is the key that a ticket is encrypted with; a ticket need not say which one that is.
    pub(super) fn has_version(&self, asked: Option<u32>) -> bool {
        let full = |version: u32| if self.is_version_short { version & 0xff } else { version };
        asked.is_none_or(|version| full(version) == self.version)
    }
}

struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn array<const LEN: usize>(&mut self) -> Option<[u8; LEN]> {
        let (front, rest) = self.0.split_first_chunk::<LEN>()?;
        self.0 = rest;
        Some(*front)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn counted(&mut self) -> Option<&'a [u8]> {
        let len = usize::from(self.u16()?);
        let (front, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(front)
    }

    fn text(&mut self) -> Option<String> {
        std::str::from_utf8(self.counted()?).ok().map(str::to_owned)
    }
}

/// Why bytes are no keytab.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum KeytabError {
    /// It does not begin as one.
    #[error("it is no keytab")]
    ConfigMagic,
    /// The format before version 2, whose byte order nobody knows.
    #[error("it is a keytab of version 1: write it anew with a Kerberos of this century")]
    ConfigOld,
    /// An entry is cut short or holds no key.
    #[error("the entry at byte {0} of the keytab is damaged")]
    ConfigEntry(usize),
    /// More keys than a service has.
    #[error("the keytab has more than {ENTRIES_MAX} keys")]
    ConfigTooMany,
}

/// A few services with a few keys each, many times over.
const ENTRIES_MAX: usize = 1024;
