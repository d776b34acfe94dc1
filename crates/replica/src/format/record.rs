//! A record: one change of one volume, and its place in the order of the group.
//!
//! ```text
//!   0 crc 4 | chain 4 | lsn 8 | epoch 4 | kind 1 | encoding 1 | volume 1 | 0 1 | stored 4 | payload crc 4 |
//!  32 offset 8 | len 8 | time 8 | committed 8 | payload ... | zeros to a multiple of 64
//! ```
//! Little-endian, both checksums CRC-32C. That of the header covers the group's id and bytes 4 to 63; that of the payload
//! covers the group's id, the LSN and the payload as it is stored, and is 0 where that is sealed ([`super::RecordKeys`]). A pad
//! that is sealed has its tag where offset and len are.
//! `chain` is the `crc` of the header before.
//!
//! Spec: ours, docs/replica-format.md.

use log::Lsn;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{FormatError, crc32c};
use crate::names::GroupId;

/// Bytes of the tag of a sealed record.
pub const TAG_LEN: u32 = 16;

#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    crc: U32,
    chain: U32,
    lsn: U64,
    epoch: U32,
    kind: u8,
    encoding: u8,
    volume: u8,
    padding: u8,
    stored: U32,
    payload_crc: U32,
    offset: U64,
    len: U64,
    time_ns: U64,
    committed: U64,
}

const _: () = assert!(size_of::<Wire>() == HEADER_LEN);

const HEADER_LEN: usize = 64;
/// Where the bytes begin that the header's checksum covers.
const COVERED: usize = 4;
/// LSNs lie below this, so that no sum of an LSN and a length wraps.
pub(crate) const NUMBER_MAX: u64 = u64::MAX / 4;
/// Bytes of the payload of [`Kind::Verify`].
const DIGEST_LEN: u32 = 16;
/// Bytes of the payload of [`Kind::Epoch`].
const NONCE_LEN: u32 = 8;
/// Bytes of the payload of [`Kind::Mark`] at most.
const MARK_LEN_MAX: u32 = 255;

/// Bytes of a record's header; the payload follows, then zeros to a multiple of [`RECORD_ALIGN`].
pub const RECORD_HEADER_LEN: u64 = 64;
/// Records begin at multiples of this.
pub const RECORD_ALIGN: u64 = 64;
/// Bytes of a payload at most. A longer write is several records.
pub const PAYLOAD_MAX: u32 = 1 << 20;
/// Bytes of a volume at most.
pub const VOLUME_LEN_MAX: u64 = 1 << 59;
/// Volumes of a group at most.
pub const VOLUMES_MAX: u8 = 16;

/// What a record does. The numbers are those of the format.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Kind {
    /// The payload is written.
    Write = 1,
    /// The range reads as zeroes afterwards, and may lose its space.
    Trim = 2,
    /// The range reads as zeroes afterwards, and keeps its space.
    Zero = 3,
    /// The payload is the digest of the range as all records before this one left it: 16 bytes.
    Verify = 4,
    /// A point with a name, which is the payload: UTF-8, 1 to 255 bytes.
    Mark = 5,
    /// The volume has `len` bytes from here on.
    Resize = 6,
    /// A source has begun an epoch: the payload is its nonce, 8 bytes.
    Epoch = 7,
    /// Nothing: fills what is left at the end of the ring. No payload is stored.
    Pad = 8,
}

impl Kind {
    fn parse(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Write,
            2 => Self::Trim,
            3 => Self::Zero,
            4 => Self::Verify,
            5 => Self::Mark,
            6 => Self::Resize,
            7 => Self::Epoch,
            8 => Self::Pad,
            _ => return None,
        })
    }
}

/// How a payload lies in the ring. The numbers are those of the format.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
#[repr(u8)]
pub enum Encoding {
    /// As it is.
    #[default]
    Plain = 0,
    /// Compressed by LZ4, a block without a frame.
    Lz4 = 1,
    /// Compressed by Zstandard.
    Zstd = 2,
    /// As it is, sealed by [`super::RecordKeys`]; the tag follows.
    Sealed = 0x80,
    /// [`Encoding::Lz4`], then sealed.
    SealedLz4 = 0x81,
    /// [`Encoding::Zstd`], then sealed.
    SealedZstd = 0x82,
}

impl Encoding {
    fn parse(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Plain,
            1 => Self::Lz4,
            2 => Self::Zstd,
            0x80 => Self::Sealed,
            0x81 => Self::SealedLz4,
            0x82 => Self::SealedZstd,
            _ => return None,
        })
    }

    /// Bytes that a payload is longer by.
    pub const fn tag_len(self) -> u32 {
        if self.is_sealed() { TAG_LEN } else { 0 }
    }

    /// Whether a payload is sealed.
    pub const fn is_sealed(self) -> bool {
        matches!(self, Self::Sealed | Self::SealedLz4 | Self::SealedZstd)
    }

    /// How it lies in the ring where it is sealed.
    #[must_use]
    pub const fn sealed(self) -> Self {
        match self {
            Self::Plain | Self::Sealed => Self::Sealed,
            Self::Lz4 | Self::SealedLz4 => Self::SealedLz4,
            Self::Zstd | Self::SealedZstd => Self::SealedZstd,
        }
    }

    /// How it is once it has been opened.
    #[must_use]
    pub const fn opened(self) -> Self {
        match self {
            Self::Plain | Self::Sealed => Self::Plain,
            Self::Lz4 | Self::SealedLz4 => Self::Lz4,
            Self::Zstd | Self::SealedZstd => Self::Zstd,
        }
    }
}

/// A record, without its payload.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Record {
    /// Its address in the order of the group; a multiple of [`RECORD_ALIGN`]. It lies in the ring at `lsn % capacity`,
    /// and does not cross the end of the ring.
    pub lsn: Lsn,
    /// [`crate::Epoch::tag`] of the epoch whose source made it.
    pub epoch: u32,
    /// Checksum of the header of the record before it; 0 where there is none.
    pub chain: u32,
    /// What it does.
    pub kind: Kind,
    /// How its payload is stored.
    pub encoding: Encoding,
    /// The volume, below [`VOLUMES_MAX`]; 0 where it concerns none.
    pub volume: u8,
    /// Bytes of payload as they lie in the ring; of [`Kind::Pad`], bytes to the end of the ring behind the header.
    pub stored: u32,
    /// Where in the volume the range begins, in bytes; of a [`Kind::Pad`] that is sealed, the first half of its tag.
    pub offset: u64,
    /// Length of the range, in bytes; of [`Kind::Write`] also that of the payload once it is decoded; of a [`Kind::Pad`]
    /// that is sealed, the second half of its tag.
    pub len: u64,
    /// When the source made it: nanoseconds since 1970. Says how old a copy is; nothing is decided by it.
    pub time_ns: u64,
    /// Everything below this was committed when the record was made.
    pub committed: Lsn,
}

impl Record {
    /// The header's bytes, with the checksum that [`payload_sum`] gave for the payload; 0 of a [`Kind::Pad`].
    ///
    /// # Panics
    ///
    /// If the numbers are those of no record: what [`Record::decode`] refused would be lost after a crash.
    pub fn encode(&self, group: &GroupId, payload_sum: u32) -> [u8; HEADER_LEN] {
        assert!(self.is_sound(), "a record that nobody could read: {self:?}");
        let mut wire = Wire {
            crc: U32::ZERO,
            chain: self.chain.into(),
            lsn: self.lsn.0.into(),
            epoch: self.epoch.into(),
            kind: self.kind as u8,
            encoding: self.encoding as u8,
            volume: self.volume,
            padding: 0,
            stored: self.stored.into(),
            payload_crc: payload_sum.into(),
            offset: self.offset.into(),
            len: self.len.into(),
            time_ns: self.time_ns.into(),
            committed: self.committed.0.into(),
        };
        wire.crc = checksum(group, &wire).into();
        zerocopy::transmute!(wire)
    }

    /// The record of a header, and the checksum that its payload has.
    ///
    /// # Errors
    ///
    /// The bytes are not a header of a record of `group`.
    pub fn decode(group: &GroupId, bytes: &[u8; HEADER_LEN]) -> Result<(Self, u32), FormatError> {
        let wire: Wire = zerocopy::transmute!(*bytes);
        if wire.crc.get() != checksum(group, &wire) {
            return Err(FormatError::RecordChecksum);
        }
        let kind = Kind::parse(wire.kind).ok_or(FormatError::RecordKind(wire.kind))?;
        let encoding = Encoding::parse(wire.encoding);
        let record = Self {
            lsn: Lsn(wire.lsn.get()),
            epoch: wire.epoch.get(),
            chain: wire.chain.get(),
            kind,
            encoding: encoding.ok_or(FormatError::RecordEncoding(wire.encoding))?,
            volume: wire.volume,
            stored: wire.stored.get(),
            offset: wire.offset.get(),
            len: wire.len.get(),
            time_ns: wire.time_ns.get(),
            committed: Lsn(wire.committed.get()),
        };
        if wire.padding != 0 || !record.is_sound() {
            return Err(FormatError::RecordNumbers);
        }
        Ok((record, wire.payload_crc.get()))
    }

    /// Whether a record may have these numbers.
    pub fn is_sound(&self) -> bool {
        let is_plain = self.encoding.opened() == Encoding::Plain;
        let (is_pad, stored) = (self.kind == Kind::Pad, self.data_len());
        let has_tag = is_pad || self.stored >= self.encoding.tag_len();
        let end = self.offset.checked_add(self.len);
        let is_in_volume = end.is_some_and(|end| end <= VOLUME_LEN_MAX);
        let of_kind = match self.kind {
            Kind::Write => {
                (1..=PAYLOAD_MAX).contains(&stored)
                    && (1..=u64::from(PAYLOAD_MAX)).contains(&self.len)
                    && (!is_plain || u64::from(stored) == self.len)
            }
            Kind::Trim | Kind::Zero => is_plain && stored == 0 && self.len > 0,
            Kind::Verify => is_plain && stored == DIGEST_LEN && self.len > 0,
            Kind::Mark => is_plain && (1..=MARK_LEN_MAX).contains(&stored),
            Kind::Resize => is_plain && stored == 0 && self.len > 0,
            Kind::Epoch => is_plain && stored == NONCE_LEN,
            Kind::Pad => is_plain && u64::from(self.stored).is_multiple_of(RECORD_ALIGN),
        };
        of_kind
            && has_tag
            && (is_in_volume || is_pad && self.encoding.is_sealed())
            && self.volume < VOLUMES_MAX
            && self.lsn.0 <= NUMBER_MAX
            && self.lsn.0.is_multiple_of(RECORD_ALIGN)
            && self.committed <= self.lsn
    }

    /// Bytes behind the header that are stored and have a checksum: none of a [`Kind::Pad`].
    pub const fn payload_len(&self) -> u32 {
        match self.kind {
            Kind::Pad => 0,
            _ => self.stored,
        }
    }

    /// Bytes of the payload without its tag: at most [`PAYLOAD_MAX`].
    pub const fn data_len(&self) -> u32 {
        self.payload_len().saturating_sub(self.encoding.tag_len())
    }

    /// Bytes from the start of the record to the start of the next one.
    pub const fn span(&self) -> u64 {
        (RECORD_HEADER_LEN + self.stored as u64).next_multiple_of(RECORD_ALIGN)
    }

    /// The LSN of the next record.
    pub fn end(&self) -> Lsn {
        self.lsn.plus(self.span())
    }

    /// The bytes of a volume that the record changes.
    pub fn changes(&self) -> Option<Extent> {
        match self.kind {
            // What a volume grows by reads as zeroes.
            Kind::Write | Kind::Trim | Kind::Zero | Kind::Resize => {
                Some(Extent { volume: self.volume, offset: self.offset, len: self.len })
            }
            Kind::Verify | Kind::Mark | Kind::Epoch | Kind::Pad => None,
        }
    }
}

/// The checksum of the payload of the record at `lsn`, as the payload is stored.
pub fn payload_sum(group: &GroupId, lsn: Lsn, payload: &[u8]) -> u32 {
    crc32c(&[&group.0, &lsn.0.to_le_bytes(), payload])
}

/// [`payload_sum`] of a payload of `len` bytes whose CRC-32C is `crc`: the bytes need not be read again once the record has
/// its place.
pub(crate) fn payload_sum_with(group: &GroupId, lsn: Lsn, crc: u32, len: u64) -> u32 {
    let before = crc32c(&[&group.0, &lsn.0.to_le_bytes()]);
    let sum = crc_fast::checksum_combine(
        crc_fast::CrcAlgorithm::Crc32Iscsi,
        before.into(),
        crc.into(),
        len,
    );
    u32::try_from(sum).expect("a CRC-32C has 32 bits")
}

/// What the header of the next record names as [`Record::chain`].
pub fn header_sum(header: &[u8; HEADER_LEN]) -> u32 {
    let [a, b, c, d, ..] = *header;
    u32::from_le_bytes([a, b, c, d])
}

fn checksum(group: &GroupId, wire: &Wire) -> u32 {
    crc32c(&[&group.0, &wire.as_bytes()[COVERED..]])
}

/// Bytes of a volume.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Extent {
    /// The volume.
    pub volume: u8,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub len: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: GroupId = GroupId(*b"sixteen bytes id");

    #[test]
    fn a_payload_has_one_checksum_however_it_is_made() {
        for len in [0, 1, 63, 64, 4096, 1 << 20] {
            let payload: Vec<u8> = (0..=250).cycle().take(len).collect();
            let made = payload_sum_with(&GROUP, Lsn(640), crc32c(&[&payload]), len as u64);
            assert_eq!(made, payload_sum(&GROUP, Lsn(640), &payload), "{len} bytes");
        }
    }

    fn record() -> Record {
        Record {
            lsn: Lsn(0x1040),
            epoch: 7,
            chain: 0x0102_0304,
            kind: Kind::Write,
            encoding: Encoding::Plain,
            volume: 3,
            stored: 5,
            offset: 0x2_0000,
            len: 5,
            time_ns: 1_700_000_000_000_000_000,
            committed: Lsn(0x1000),
        }
    }

    /// Made by another program: docs/replica-format.md has it.
    const GOLDEN: [u8; 64] = [
        0x96, 0x4f, 0x65, 0xd4, 0x04, 0x03, 0x02, 0x01, 0x40, 0x10, 0, 0, 0, 0, 0, 0, //
        7, 0, 0, 0, 1, 0, 3, 0, 5, 0, 0, 0, 0x58, 0x4a, 0x6d, 0x65, //
        0, 0, 2, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, //
        0, 0, 0x2a, 0x36, 0xfe, 0x9c, 0x97, 0x17, 0, 0x10, 0, 0, 0, 0, 0, 0,
    ];

    #[test]
    fn a_record_has_the_bytes_of_the_document() {
        let sum = payload_sum(&GROUP, Lsn(0x1040), b"hello");
        assert_eq!(record().encode(&GROUP, sum), GOLDEN);
        assert_eq!(Record::decode(&GROUP, &GOLDEN), Ok((record(), 0x656d_4a58)));
        assert_eq!(header_sum(&GOLDEN), 0xd465_4f96);
    }

    #[test]
    fn a_header_with_one_changed_bit_is_refused() {
        for bit in 0..HEADER_LEN * 8 {
            let mut damaged = GOLDEN;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Record::decode(&GROUP, &damaged), Err(FormatError::RecordChecksum), "{bit}");
        }
    }

    #[test]
    fn a_record_of_another_group_or_address_has_other_checksums() {
        let other = GroupId([7; 16]);
        assert_eq!(Record::decode(&other, &GOLDEN), Err(FormatError::RecordChecksum));
        let sum = payload_sum(&GROUP, Lsn(0x1040), b"hello");
        assert_ne!(payload_sum(&other, Lsn(0x1040), b"hello"), sum);
        assert_ne!(payload_sum(&GROUP, Lsn(0x1080), b"hello"), sum);
    }

    /// The bytes of a header that no source makes, with the right checksum.
    fn forged(change: impl FnOnce(&mut Wire)) -> [u8; HEADER_LEN] {
        let mut wire: Wire = zerocopy::transmute!(GOLDEN);
        change(&mut wire);
        wire.crc = checksum(&GROUP, &wire).into();
        zerocopy::transmute!(wire)
    }

    #[test]
    fn a_header_with_numbers_of_no_record_is_refused() {
        let refused = |bytes, error| assert_eq!(Record::decode(&GROUP, &bytes), Err(error));
        refused(forged(|wire| wire.kind = 0), FormatError::RecordKind(0));
        refused(forged(|wire| wire.kind = 9), FormatError::RecordKind(9));
        refused(forged(|wire| wire.encoding = 3), FormatError::RecordEncoding(3));
        let changes: [fn(&mut Wire); 15] = [
            |wire| wire.padding = 1,
            |wire| wire.volume = VOLUMES_MAX,
            |wire| wire.lsn = 0x1041.into(),
            |wire| wire.lsn = (u64::MAX - 63).into(),
            |wire| wire.committed = 0x1080.into(),
            |wire| wire.stored = 6.into(),
            |wire| wire.stored = (PAYLOAD_MAX + 1).into(),
            |wire| wire.stored = 0.into(),
            |wire| wire.len = u64::MAX.into(),
            |wire| wire.offset = u64::MAX.into(),
            |wire| wire.kind = Kind::Verify as u8,
            |wire| wire.kind = Kind::Pad as u8,
            |wire| wire.encoding = Encoding::Sealed as u8,
            |wire| {
                (wire.kind, wire.encoding) = (Kind::Pad as u8, Encoding::SealedLz4 as u8);
                wire.stored = 64.into();
            },
            |wire| {
                (wire.kind, wire.stored, wire.len) = (Kind::Pad as u8, 64.into(), u64::MAX.into())
            },
        ];
        for change in changes {
            refused(forged(change), FormatError::RecordNumbers);
        }
    }

    #[test]
    fn each_kind_and_encoding_decodes_to_what_was_encoded() {
        let plain = Record { stored: 0, len: 4096, ..record() };
        let records = [
            record(),
            Record { encoding: Encoding::Lz4, len: 99, ..record() },
            Record { encoding: Encoding::Zstd, len: 99, ..record() },
            Record { encoding: Encoding::SealedZstd, stored: 21, len: 99, ..record() },
            Record { encoding: Encoding::Sealed, stored: 21, ..record() },
            Record { kind: Kind::Trim, encoding: Encoding::Sealed, stored: 16, ..plain },
            Record { kind: Kind::Trim, ..plain },
            Record { kind: Kind::Zero, ..plain },
            Record { kind: Kind::Verify, stored: 16, ..plain },
            Record { kind: Kind::Mark, stored: 255, ..plain },
            Record { kind: Kind::Resize, ..plain },
            Record { kind: Kind::Epoch, stored: 8, ..plain },
            Record { kind: Kind::Pad, stored: 64, ..plain },
            Record { kind: Kind::Pad, encoding: Encoding::Sealed, stored: 0, ..plain },
            Record {
                kind: Kind::Pad,
                encoding: Encoding::Sealed,
                stored: 128,
                offset: u64::MAX,
                len: u64::MAX,
                ..plain
            },
        ];
        for record in records {
            assert_eq!(Record::decode(&GROUP, &record.encode(&GROUP, 9)), Ok((record, 9)));
        }
    }

    #[test]
    #[should_panic(expected = "nobody could read")]
    fn a_record_that_would_be_refused_is_not_encoded() {
        Record { committed: Lsn(0x2000), ..record() }.encode(&GROUP, 0);
    }
}
