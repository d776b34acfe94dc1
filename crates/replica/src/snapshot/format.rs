//! What a snapshot is on a disk: the facts of the whole, and for each volume that has no clone the blocks that were kept.
//!
//! ```text
//!   DIRECTORY/NAME/facts        64 + 16 n + 8 bytes: which moment of which volumes
//!   DIRECTORY/NAME/volume-N.clone   a file that shares its blocks with the volume's (reflink)
//!   DIRECTORY/NAME/volume-N.kept    blocks of the volume that have changed since:
//!
//!   facts:  0 magic "LFSNAPSH"   8 version 1   12 volumes n   16 group (16)   32 lsn   40 time, ns since 1970
//!           48 id   56 zeroes (8)
//!           64 + 16 i: size of volume i   72 + 16 i: 1 clone, 2 kept   73 + 16 i: zeroes (7)
//!           64 + 16 n: checksum of what is before   68 + 16 n: zeroes (4)
//!   kept:   0 magic "LFKEPT01"   8 id   16 volume's size   24 granule   28 volume   32 slots   40 zeroes (20)
//!           60 checksum of bytes 0 to 60   64 zeroes up to 4096
//!           4096 + 32 i: entry of slot i   then, from a multiple of the granule on: slot i, a granule
//!   entry:  0 granule's number   8 batch   16 kind: 1 kept, 2 zeroes, 3 lost, 4 void   17 zeroes (3)
//!           20 checksum of the slot, where it is kept   24 length that the checksum is about   28 checksum of bytes 0 to 28,
//!           begun with the id and the slot's number
//! ```
//!
//! Numbers are little-endian; checksums are CRC-32C. The store that commits a snapshot is the rename of its directory; the one
//! that commits kept blocks is the persist that follows their entries.

use log::Lsn;

use crate::format::VOLUMES_MAX;
use crate::names::GroupId;

/// Which moment of which volumes a snapshot is.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Facts {
    /// The group of the volumes.
    pub group: GroupId,
    /// Everything below this is in the volumes, and nothing else.
    pub at: Lsn,
    /// When it was made, in nanoseconds since 1970.
    pub time_ns: u64,
    /// Random: tells its files from those of another snapshot.
    pub id: u64,
    /// The volumes, by their numbers in the group.
    pub volumes: Vec<VolumeFacts>,
}

/// How a volume is kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct VolumeFacts {
    /// Its size in bytes.
    pub size: u64,
    /// How it is kept.
    pub how: How,
}

/// How a snapshot of a volume is kept.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum How {
    /// A file that shares its blocks with the volume's file. Nothing has to be kept when the volume changes.
    Clone,
    /// Blocks are copied before the volume changes.
    Kept,
}

impl Facts {
    /// Facts from the bytes of their file; `None` if they are damaged or of another version.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let count = u32_at(bytes, 12).filter(|count| *count <= u32::from(VOLUMES_MAX))?;
        let end = 64 + 16 * usize::try_from(count).ok()?;
        let is_sound = bytes.len() == end + 8
            && bytes.starts_with(FACTS_MAGIC)
            && u32_at(bytes, 8)? == VERSION
            && u64_at(bytes, 56)? == 0
            && u32_at(bytes, end)? == checksum(&[&bytes[..end]])
            && u32_at(bytes, end + 4)? == 0;
        if !is_sound {
            return None;
        }
        let volume = |at: usize| {
            let how = match bytes[at + 8..at + 16] {
                [1, 0, 0, 0, 0, 0, 0, 0] => How::Clone,
                [2, 0, 0, 0, 0, 0, 0, 0] => How::Kept,
                _ => return None,
            };
            Some(VolumeFacts { size: u64_at(bytes, at)?, how })
        };
        Some(Self {
            group: GroupId(bytes[16..32].try_into().ok()?),
            at: Lsn(u64_at(bytes, 32)?),
            time_ns: u64_at(bytes, 40)?,
            id: u64_at(bytes, 48)?,
            volumes: (64..end).step_by(16).map(volume).collect::<Option<_>>()?,
        })
    }

    /// The bytes of the file.
    pub fn emit(&self) -> Vec<u8> {
        let count = u32::try_from(self.volumes.len()).expect("at most VOLUMES_MAX");
        let mut bytes = Vec::from(FACTS_MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend(count.to_le_bytes());
        bytes.extend(self.group.0);
        for word in [self.at.0, self.time_ns, self.id, 0] {
            bytes.extend(word.to_le_bytes());
        }
        for volume in &self.volumes {
            bytes.extend(volume.size.to_le_bytes());
            let how: u64 = match volume.how {
                How::Clone => 1,
                How::Kept => 2,
            };
            bytes.extend(how.to_le_bytes());
        }
        bytes.extend(checksum(&[&bytes]).to_le_bytes());
        bytes.extend([0; 4]);
        bytes
    }
}

/// The beginning of a file of kept blocks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Head {
    pub(super) id: u64,
    pub(super) size: u64,
    pub(super) volume: u32,
    pub(super) slots: u64,
}

impl Head {
    pub(super) fn parse(bytes: &[u8; HEAD_USED]) -> Option<Self> {
        let head = Self {
            id: u64_at(bytes, 8)?,
            size: u64_at(bytes, 16)?,
            volume: u32_at(bytes, 28)?,
            slots: u64_at(bytes, 32)?,
        };
        // Whatever else is in the bytes would not come back.
        (head.slots <= SLOTS_MAX && head.emit() == *bytes).then_some(head)
    }

    pub(super) fn emit(&self) -> [u8; HEAD_USED] {
        let mut bytes = [0; HEAD_USED];
        bytes[..8].copy_from_slice(KEPT_MAGIC);
        bytes[8..16].copy_from_slice(&self.id.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.size.to_le_bytes());
        let granule = u32::try_from(KEPT_GRANULE).expect("65,536");
        bytes[24..28].copy_from_slice(&granule.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.volume.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.slots.to_le_bytes());
        let sum = checksum(&[&bytes[..60]]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    /// Where the entry of a slot is.
    pub(super) const fn entry_at(&self, slot: u64) -> u64 {
        HEAD_LEN + slot * ENTRY_LEN as u64
    }

    /// Where a slot is.
    pub(super) const fn slot_at(&self, slot: u64) -> u64 {
        self.entry_at(self.slots).next_multiple_of(KEPT_GRANULE) + slot * KEPT_GRANULE
    }

    /// Length of the file.
    pub(super) const fn file_len(&self) -> u64 {
        self.slot_at(self.slots)
    }
}

/// What is known of a slot.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Entry {
    /// Number of the volume's granule.
    pub(super) granule: u64,
    /// Grows with each persist.
    pub(super) batch: u64,
    pub(super) what: What,
}

/// What a granule held.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum What {
    /// The first `len` bytes of the slot.
    Bytes { sum: u32, len: u32 },
    /// Zeroes.
    Zeroes,
    /// What could not be read any more.
    Lost,
    /// Nothing: the entry does not count.
    Void,
}

impl Entry {
    pub(super) fn parse(bytes: &[u8; ENTRY_LEN], id: u64, slot: u64) -> Option<Self> {
        let (sum, len) = (u32_at(bytes, 20)?, u32_at(bytes, 24)?);
        let what = match bytes[16] {
            1 if u64::from(len) <= KEPT_GRANULE => What::Bytes { sum, len },
            2 => What::Zeroes,
            3 => What::Lost,
            4 => What::Void,
            _ => return None,
        };
        let entry = Self { granule: u64_at(bytes, 0)?, batch: u64_at(bytes, 8)?, what };
        (entry.emit(id, slot) == *bytes).then_some(entry)
    }

    pub(super) fn emit(&self, id: u64, slot: u64) -> [u8; ENTRY_LEN] {
        let mut bytes = [0; ENTRY_LEN];
        bytes[..8].copy_from_slice(&self.granule.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.batch.to_le_bytes());
        let (kind, sum, len) = match self.what {
            What::Bytes { sum, len } => (1, sum, len),
            What::Zeroes => (2, 0, 0),
            What::Lost => (3, 0, 0),
            What::Void => (4, 0, 0),
        };
        bytes[16] = kind;
        bytes[20..24].copy_from_slice(&sum.to_le_bytes());
        bytes[24..28].copy_from_slice(&len.to_le_bytes());
        let sum = checksum(&[&id.to_le_bytes(), &slot.to_le_bytes(), &bytes[..28]]);
        bytes[28..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}

/// CRC-32C of the parts in a row.
pub(super) fn checksum(parts: &[&[u8]]) -> u32 {
    let mut digest = crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi);
    parts.iter().for_each(|part| digest.update(part));
    u32::try_from(digest.finalize()).expect("the algorithm has 32 bits")
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// Bytes of a granule: the length of the blocks that copies write.
pub const KEPT_GRANULE: u64 = 64 << 10;
/// Slots of a file at most: an entry's address and a slot's stay far from the end of 64 bits.
pub(super) const SLOTS_MAX: u64 = 1 << 40;
pub(super) const HEAD_LEN: u64 = 4096;
/// Bytes of the head that mean something.
pub(super) const HEAD_USED: usize = 64;
pub(super) const ENTRY_LEN: usize = 32;
const FACTS_MAGIC: &[u8; 8] = b"LFSNAPSH";
const KEPT_MAGIC: &[u8; 8] = b"LFKEPT01";
const VERSION: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn facts() -> Facts {
        Facts {
            group: GroupId([0xa5; 16]),
            at: Lsn(0x1122_3344),
            time_ns: 7,
            id: 0xfeed,
            volumes: vec![
                VolumeFacts { size: 0x10_0000, how: How::Clone },
                VolumeFacts { size: 0x20_0200, how: How::Kept },
            ],
        }
    }

    #[test]
    fn the_facts_have_the_bytes_of_the_map_above() {
        let bytes = facts().emit();
        let mut golden = b"LFSNAPSH\x01\0\0\0\x02\0\0\0".to_vec();
        golden.extend([0xa5; 16]);
        golden.extend(
            b"\x44\x33\x22\x11\0\0\0\0\x07\0\0\0\0\0\0\0\xed\xfe\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        );
        golden
            .extend(b"\0\0\x10\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\x02\x20\0\0\0\0\0\x02\0\0\0\0\0\0\0");
        assert_eq!(bytes[..96], golden);
        assert_eq!(bytes.len(), 104);
        assert_eq!(Facts::parse(&bytes), Some(facts()));
    }

    #[test]
    fn facts_with_any_bit_changed_are_refused() {
        let bytes = facts().emit();
        for bit in 0..bytes.len() * 8 {
            let mut changed = bytes.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Facts::parse(&changed), None, "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert_eq!(Facts::parse(&bytes[..len]), None);
        }
    }

    #[test]
    fn an_entry_counts_only_in_its_slot_of_its_snapshot() {
        let entries = [What::Bytes { sum: 9, len: 65536 }, What::Zeroes, What::Lost, What::Void];
        for what in entries {
            let entry = Entry { granule: 3, batch: 4, what };
            let bytes = entry.emit(5, 6);
            assert_eq!(Entry::parse(&bytes, 5, 6), Some(entry));
            assert_eq!(Entry::parse(&bytes, 5, 7), None);
            assert_eq!(Entry::parse(&bytes, 6, 6), None);
            for bit in 0..bytes.len() * 8 {
                let mut changed = bytes;
                changed[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Entry::parse(&changed, 5, 6), None, "bit {bit}");
            }
        }
        assert_eq!(Entry::parse(&[0; ENTRY_LEN], 0, 0), None);
    }

    #[test]
    fn a_head_comes_back_and_a_foreign_one_does_not() {
        let head = Head { id: 5, size: 1 << 30, volume: 2, slots: 1000 };
        assert_eq!(Head::parse(&head.emit()), Some(head));
        assert_eq!(Head::parse(&[0; HEAD_USED]), None);
        let many = Head { slots: SLOTS_MAX + 1, ..head };
        assert_eq!(Head::parse(&many.emit()), None);
        assert_eq!(head.slot_at(0) % KEPT_GRANULE, 0);
        assert!(head.slot_at(0) >= head.entry_at(1000));
    }
}
