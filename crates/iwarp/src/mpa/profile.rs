//! The profile: an announcement of extended operations at the front of the ULP's private data.
//!
//! ```text
//!  0         4        5        6         8             12          14       15          15 + n
//!  +---------+--------+--------+---------+-------------+-----------+--------+-----------+------
//!  | "LFMP"  | layout | length | flags   | fpdu_max    | ULP bytes | n      | hash ids  | ULP
//!  +---------+--------+--------+---------+-------------+-----------+--------+-----------+------
//! ```
//!
//! `layout` names the encoding of the operations that no RFC defines; 1 is
//! draft-talpey-rdma-commit-01. No other data begins with the magic: a ULP's own data may stand alone in
//! the field, and the data of push mode begin with `LFPC` and `LFPR`. `length` is the offset of the ULP's
//! own data and `ULP bytes` its length, because some adapters append bytes of their own to private data.
//!
//! Two ends that announce different layouts have no extended operations in common.
//!
//! Spec: this file. Big-endian. RFC 6581 §9 and the limits of adapters leave 196 bytes.

use core::fmt;

use bitflags::bitflags;
use zerocopy::byteorder::big_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    magic: [u8; 4],
    layout: u8,
    length: u8,
    flags: U16,
    fpdu_max: U32,
    ulp_len: U16,
    hash_count: u8,
}

const _: () = assert!(size_of::<Header>() == HEADER_LEN);

/// The abilities of one end beyond the RFCs. They count only if both ends announced a profile.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Profile {
    /// Operations and frame sizes on offer.
    pub flags: ProfileFlags,
    /// Largest frame this end takes, in bytes from length field through CRC; counts only with
    /// [`ProfileFlags::LARGE_FPDU`].
    pub fpdu_max: u32,
    hash_ids: [HashId; HASH_IDS_MAX],
    hash_count: u8,
}

bitflags! {
    /// The offers of a profile. Unknown bits survive.
    #[derive(Clone, Copy, Debug, Eq, PartialEq)]
    pub struct ProfileFlags: u16 {
        /// The end answers Flush Requests.
        const FLUSH = 0x0001;
        /// The end answers Verify Requests.
        const VERIFY = 0x0002;
        /// The end answers Atomic Write Requests.
        const ATOMIC_WRITE = 0x0004;
        /// The end takes frames longer than a TCP segment, up to `fpdu_max`.
        const LARGE_FPDU = 0x0008;
        const _ = !0;
    }
}

/// A hash algorithm of a Verify. Unknown values survive.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub struct HashId(pub u8);

impl HashId {
    /// CRC-32C, four bytes, big-endian.
    pub const CRC32C: Self = Self(1);
    /// SHA-256, 32 bytes.
    pub const SHA256: Self = Self(2);
}

impl fmt::Display for HashId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hash {:#04x}", self.0)
    }
}

impl Profile {
    /// A profile with these offers.
    ///
    /// # Errors
    ///
    /// More than [`HASH_IDS_MAX`] hash ids are refused.
    pub fn new(
        flags: ProfileFlags,
        fpdu_max: u32,
        hash_ids: &[HashId],
    ) -> Result<Self, ProfileError> {
        let mut ids = [HashId::default(); HASH_IDS_MAX];
        let room = ids.get_mut(..hash_ids.len());
        let Some(room) = room else {
            return Err(ProfileError::ConfigHashIds { got: hash_ids.len() });
        };
        room.copy_from_slice(hash_ids);
        let hash_count = u8::try_from(hash_ids.len()).expect("at most HASH_IDS_MAX");
        Ok(Self { flags, fpdu_max, hash_ids: ids, hash_count })
    }

    /// The algorithms this end can verify with, in order of preference.
    pub fn hash_ids(&self) -> &[HashId] {
        &self.hash_ids[..usize::from(self.hash_count)]
    }

    /// Splits private data into the leading profile, if there is one, and the ULP's data.
    ///
    /// # Errors
    ///
    /// Data that begins with our magic and is garbled behind it is refused.
    pub fn parse(private_data: &[u8]) -> Result<(Option<Self>, &[u8]), ProfileError> {
        let Some(header) = Header::ref_from_prefix(private_data).ok().map(|(header, _)| header)
        else {
            return Ok((None, private_data));
        };
        if header.magic != MAGIC {
            return Ok((None, private_data));
        }
        let garbled = ProfileError::PeerGarbled { len: private_data.len() };
        let start = usize::from(header.length);
        let end = start + usize::from(header.ulp_len.get());
        let ulp = private_data.get(start..end).ok_or(garbled)?;
        // The fields up to here never move, whatever the layout of the operations.
        if header.layout != LAYOUT {
            return Ok((None, ulp));
        }
        let ids = HEADER_LEN..HEADER_LEN + usize::from(header.hash_count);
        if ids.end > start {
            return Err(garbled);
        }
        Ok((Some(Self::of_wire(header, &private_data[ids])), ulp))
    }

    /// Appends the profile and the ULP's data to `out`.
    ///
    /// # Errors
    ///
    /// More than [`PRIVATE_DATA_SIZE_MAX`] bytes together are refused, and `out` is as it was.
    pub fn emit(&self, ulp: &[u8], out: &mut Vec<u8>) -> Result<(), ProfileError> {
        let length = HEADER_LEN + self.hash_ids().len();
        if length + ulp.len() > PRIVATE_DATA_SIZE_MAX {
            return Err(ProfileError::ConfigTooLong { got: length + ulp.len() });
        }
        let header = Header {
            magic: MAGIC,
            layout: LAYOUT,
            length: u8::try_from(length).expect("within PRIVATE_DATA_SIZE_MAX"),
            flags: U16::new(self.flags.bits()),
            fpdu_max: U32::new(self.fpdu_max),
            ulp_len: U16::new(u16::try_from(ulp.len()).expect("within PRIVATE_DATA_SIZE_MAX")),
            hash_count: self.hash_count,
        };
        out.extend_from_slice(header.as_bytes());
        out.extend(self.hash_ids().iter().map(|id| id.0));
        out.extend_from_slice(ulp);
        Ok(())
    }

    /// Hash ids beyond [`HASH_IDS_MAX`] are dropped: they are the peer's least preferred.
    fn of_wire(header: &Header, ids: &[u8]) -> Self {
        let mut hash_ids = [HashId::default(); HASH_IDS_MAX];
        let mut hash_count = 0;
        for (slot, id) in hash_ids.iter_mut().zip(ids) {
            *slot = HashId(*id);
            hash_count += 1;
        }
        Self {
            flags: ProfileFlags::from_bits_retain(header.flags.get()),
            fpdu_max: header.fpdu_max.get(),
            hash_ids,
            hash_count,
        }
    }
}

/// Why a profile cannot be written or read.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ProfileError {
    /// Too many hash ids were configured.
    #[error("{got} hash ids were configured, {HASH_IDS_MAX} is the most")]
    ConfigHashIds {
        /// Number of hash ids.
        got: usize,
    },
    /// Profile and ULP data together are too long for some adapters.
    #[error("private data would take {got} bytes, {PRIVATE_DATA_SIZE_MAX} is the most")]
    ConfigTooLong {
        /// Bytes of both together.
        got: usize,
    },
    /// The magic is there, and the lengths behind it contradict each other.
    #[error("peer sent a garbled profile in {len} bytes of private data")]
    PeerGarbled {
        /// Bytes of private data.
        len: usize,
    },
}

/// Most hash ids in a profile.
pub const HASH_IDS_MAX: usize = 8;
/// Most private data we send next to a profile: some adapters take 256 bytes with all headers.
pub const PRIVATE_DATA_SIZE_MAX: usize = 196;
const HEADER_LEN: usize = 15;
const MAGIC: [u8; 4] = *b"LFMP";
const LAYOUT: u8 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn profile() -> Profile {
        let flags = ProfileFlags::FLUSH | ProfileFlags::LARGE_FPDU;
        Profile::new(flags, 0x1_0000, &[HashId::CRC32C, HashId::SHA256]).unwrap()
    }

    // Typed from the byte map above.
    const GOLDEN: &[u8] = b"LFMP\x01\x11\x00\x09\x00\x01\x00\x00\x00\x03\x02\x01\x02ulp";

    #[test]
    fn golden_bytes_parse_and_emit_and_bytes_behind_them_are_dropped() {
        let mut out = Vec::new();
        profile().emit(b"ulp", &mut out).unwrap();
        assert_eq!(out, GOLDEN);
        out.extend_from_slice(&[0xee; 4]);
        assert_eq!(Profile::parse(&out), Ok((Some(profile()), &b"ulp"[..])));
    }

    #[test]
    fn private_data_without_the_magic_belongs_to_the_ulp() {
        for data in [&b""[..], b"LFMP", b"0123456789abcdefghijkl"] {
            assert_eq!(Profile::parse(data), Ok((None, data)));
        }
    }

    #[test]
    fn a_push_mode_reply_without_a_profile_belongs_to_the_ulp() {
        // docs/push-mode.md, "Push connection": accepted as number 7. A server whose RDMA is the
        // adapter's sends no profile.
        let reply = b"LFPR\x01\0\x18\0\0\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\0";
        assert_eq!(Profile::parse(reply), Ok((None, &reply[..])));
    }

    #[test]
    fn a_profile_of_another_layout_is_dropped_and_the_ulps_data_kept() {
        let mut bytes = GOLDEN.to_vec();
        bytes[4] = 2;
        assert_eq!(Profile::parse(&bytes), Ok((None, &b"ulp"[..])));
    }

    #[test]
    fn lengths_that_contradict_each_other_are_refused() {
        let garbled = Err(ProfileError::PeerGarbled { len: GOLDEN.len() });
        for (at, value) in [(5, 0xff), (12, 0xff), (13, 0x04), (14, 3)] {
            let mut bytes = GOLDEN.to_vec();
            bytes[at] = value;
            assert_eq!(Profile::parse(&bytes), garbled, "byte {at}");
        }
    }

    #[test]
    fn a_profile_beyond_its_size_limits_is_refused_when_emitted() {
        let mut out = Vec::new();
        let most = PRIVATE_DATA_SIZE_MAX - HEADER_LEN - 2;
        assert_eq!(profile().emit(&vec![0; most], &mut out), Ok(()));
        assert_eq!(out.len(), PRIVATE_DATA_SIZE_MAX);
        let refused = Err(ProfileError::ConfigTooLong { got: 197 });
        assert_eq!(profile().emit(&vec![0; most + 1], &mut out), refused);
        assert_eq!(out.len(), PRIVATE_DATA_SIZE_MAX, "nothing was appended");
        let refused = Err(ProfileError::ConfigHashIds { got: 9 });
        assert_eq!(Profile::new(ProfileFlags::empty(), 0, &[HashId(0); 9]), refused);
    }
}
