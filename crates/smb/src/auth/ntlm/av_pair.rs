//! Attribute and value pairs: the target info of a challenge and of its answer.
//!
//! ```text
//!  +--------+--------+-----------+-- ... --+--------+--------+
//!  | id (2) | len (2)| value     |         | 0      | 0      |
//!  +--------+--------+-----------+-- ... --+--------+--------+
//! ```
//!
//! Spec: MS-NLMP §2.2.2.1.

use std::fmt;

use thiserror::Error;

/// What a pair is about. Unknown ids survive.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct AvId(pub u16);

impl AvId {
    /// Ends the list.
    pub const END: Self = Self(0);
    /// The server's NetBIOS name.
    pub const NB_COMPUTER: Self = Self(1);
    /// Its domain's NetBIOS name.
    pub const NB_DOMAIN: Self = Self(2);
    /// Its DNS name.
    pub const DNS_COMPUTER: Self = Self(3);
    /// Its domain's DNS name.
    pub const DNS_DOMAIN: Self = Self(4);
    /// Four bytes of flags.
    pub const FLAGS: Self = Self(6);
    /// The server's time, eight bytes.
    pub const TIMESTAMP: Self = Self(7);
    /// The name by which the client calls the server.
    pub const TARGET_NAME: Self = Self(9);
    /// What the exchange is bound to; zeros: nothing.
    pub const CHANNEL_BINDINGS: Self = Self(10);
}

impl fmt::Debug for AvId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AvId({:#06x})", self.0)
    }
}

/// A list whose every pair was checked.
#[derive(Clone, Copy, Debug)]
pub struct AvPairs<'a>(&'a [u8]);

impl<'a> AvPairs<'a> {
    /// Reads a list up to its end mark; bytes behind it are padding.
    ///
    /// # Errors
    /// A pair leaves the list, or no end mark comes.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, AvError> {
        let mut at = 0;
        loop {
            let (id, value) = pair_at(bytes, at).ok_or(AvError::PeerTruncated { at })?;
            if id == AvId::END {
                return Ok(Self(&bytes[..at]));
            }
            at += HEADER + value.len();
        }
    }

    /// The value of the first pair of that id.
    pub fn find(&self, wanted: AvId) -> Option<&'a [u8]> {
        self.iter().find_map(|(id, value)| (id == wanted).then_some(value))
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (AvId, &'a [u8])> {
        let bytes = self.0;
        let mut at = 0;
        std::iter::from_fn(move || {
            let pair = pair_at(bytes, at)?;
            at += HEADER + pair.1.len();
            Some(pair)
        })
    }

    /// Says whether the sender put a MIC into its AUTHENTICATE message.
    pub fn announces_mic(&self) -> bool {
        let flags = self.find(AvId::FLAGS).and_then(|value| value.first());
        flags.is_some_and(|low| low & FLAG_MIC != 0)
    }
}

fn pair_at(bytes: &[u8], at: usize) -> Option<(AvId, &[u8])> {
    let header = bytes.get(at..)?.first_chunk::<HEADER>()?;
    let [id_low, id_high, len_low, len_high] = *header;
    let len = usize::from(u16::from_le_bytes([len_low, len_high]));
    let value = bytes[at + HEADER..].get(..len)?;
    Some((AvId(u16::from_le_bytes([id_low, id_high])), value))
}

/// Appends a pair. Its value is shorter than 64 KiB: names are cut, and what comes from a list fitted it.
pub(super) fn put(out: &mut Vec<u8>, id: AvId, value: &[u8]) {
    let len = u16::try_from(value.len()).expect("a value of a list fits one");
    out.extend(id.0.to_le_bytes());
    out.extend(len.to_le_bytes());
    out.extend(value);
}

/// Why a target info is malformed.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
#[non_exhaustive]
pub enum AvError {
    /// A pair leaves the list, or the end mark is missing.
    #[error("pair at {at} leaves the list")]
    PeerTruncated {
        /// Where that pair begins.
        at: usize,
    },
}

const HEADER: usize = 4;
pub(super) const FLAG_MIC: u8 = 0x02;

#[cfg(test)]
mod tests {
    use super::*;

    // MS-NLMP §4.2.4.1.3: the pairs of the example, domain then server.
    const PAIRS: &[u8] = b"\x02\0\x0c\0D\0o\0m\0a\0i\0n\0\x01\0\x0c\0S\0e\0r\0v\0e\0r\0\0\0\0\0";

    #[test]
    fn pairs_are_found_by_id() {
        let pairs = AvPairs::parse(PAIRS).unwrap();
        assert_eq!(pairs.find(AvId::NB_COMPUTER), Some(&b"S\0e\0r\0v\0e\0r\0"[..]));
        assert_eq!(pairs.find(AvId::TIMESTAMP), None);
        assert!(!pairs.announces_mic());
        assert!(AvPairs::parse(b"\x06\0\x04\0\x02\0\0\0\0\0\0\0").unwrap().announces_mic());
    }

    #[test]
    fn a_list_without_end_or_with_a_long_pair_is_refused() {
        for len in 0..PAIRS.len() {
            assert!(AvPairs::parse(&PAIRS[..len]).is_err(), "{len}");
        }
        let error = AvError::PeerTruncated { at: 0 };
        assert_eq!(AvPairs::parse(b"\x02\0\xff\xff").unwrap_err(), error);
    }
}
