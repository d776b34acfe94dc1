//! The info block of an arena: 4096 bytes at its start, and once more at its end.
//!
//! ```text
//!    0 "BTT_ARENA_INFO\0\0"   16      56 bytes of a sector          4      88 data    8
//!   16 uuid                   16      60 sectors                    4      96 map     8
//!   32 uuid of the namespace  16      64 bytes of a block           4     104 flog    8
//!   48 flags                   4      68 blocks                     4     112 copy    8
//!   52 version, major          2      72 free blocks (lanes)        4     120 zeroes
//!   54 version, minor          2      76 bytes of this: 4096        4    4088 checksum 8
//!                                     80 bytes to the next arena    8
//! ```
//!
//! All numbers are little-endian; offsets count from the start of the arena. The checksum is Fletcher's of 64 bits over
//! the block with a checksum of zero. The checksum makes the block valid, so a block that a crash has torn is none.
//!
//! Spec: UEFI 2.7 §6.2 `EFI_BTT_INFO_BLOCK`.

use crate::layout::{ArenaLayout, PAGE};

/// The bytes of an info block.
pub(crate) type InfoBytes = [u8; INFO_LEN];

/// An info block: what it says of its arena.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Info {
    pub(crate) uuid: [u8; 16],
    /// The namespace that holds the arena; zeroes for any.
    pub(crate) parent_uuid: [u8; 16],
    /// Whether an earlier user has found the arena damaged.
    pub(crate) has_error: bool,
    pub(crate) version: LayoutVersion,
    /// Bytes to the next arena, zero in the last one.
    pub(crate) next: u64,
    pub(crate) layout: ArenaLayout,
}

/// The version of the layout, which says where the first arena begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LayoutVersion {
    /// 1.1: the first 4096 bytes are free. Linux uses it on namespaces whose labels do not say BTT.
    V1_1,
    /// 2.0: the first arena begins at the first byte. UEFI, and Linux on namespaces whose labels say so.
    V2_0,
}

impl LayoutVersion {
    /// Where the first arena begins.
    pub(crate) const fn start(self) -> u64 {
        match self {
            Self::V1_1 => PAGE,
            Self::V2_0 => 0,
        }
    }

    const fn numbers(self) -> (u16, u16) {
        match self {
            Self::V1_1 => (1, 1),
            Self::V2_0 => (2, 0),
        }
    }
}

/// Why 4096 bytes are no info block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum InfoFault {
    /// They do not begin as one.
    Signature,
    /// The checksum is another.
    Checksum,
    /// The checksum is right, and the block describes a layout that this crate does not know, or that cannot be.
    Contents,
}

impl Info {
    /// Reads an info block of an arena that begins at `start` of a medium and may have `room` bytes.
    pub(crate) fn parse(bytes: &InfoBytes, start: u64, room: u64) -> Result<Self, InfoFault> {
        if !has_signature(bytes) {
            return Err(InfoFault::Signature);
        }
        if u64_at(bytes, CHECKSUM) != checksum(bytes) {
            return Err(InfoFault::Checksum);
        }
        let version = match (u16_at(bytes, 52), u16_at(bytes, 54)) {
            (1, 1) => LayoutVersion::V1_1,
            (2, 0) => LayoutVersion::V2_0,
            _ => return Err(InfoFault::Contents),
        };
        let next = u64_at(bytes, 80);
        let layout = ArenaLayout {
            start,
            sector: u32_at(bytes, 56),
            sectors: u32_at(bytes, 60),
            block: u32_at(bytes, 64),
            blocks: u32_at(bytes, 68),
            lanes: u32_at(bytes, 72),
            data: u64_at(bytes, 88),
            map: u64_at(bytes, 96),
            flog: u64_at(bytes, 104),
            copy: u64_at(bytes, 112),
        };
        let end = if next == 0 { room } else { next };
        if end > room || !layout.is_sound(end) || u32_at(bytes, 76) != INFO_LEN_32 {
            return Err(InfoFault::Contents);
        }
        let has_error = u32_at(bytes, 48) & FLAG_ERROR != 0;
        let (uuid, parent_uuid) = (array_at(bytes, 16), array_at(bytes, 32));
        Ok(Self { uuid, parent_uuid, has_error, version, next, layout })
    }

    /// The bytes of the block.
    pub(crate) fn emit(&self) -> InfoBytes {
        let mut bytes = [0; INFO_LEN];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        let (layout, (major, minor)) = (&self.layout, self.version.numbers());
        put(0, &SIGNATURE);
        put(16, &self.uuid);
        put(32, &self.parent_uuid);
        put(48, &if self.has_error { FLAG_ERROR } else { 0 }.to_le_bytes());
        put(52, &major.to_le_bytes());
        put(54, &minor.to_le_bytes());
        let words =
            [layout.sector, layout.sectors, layout.block, layout.blocks, layout.lanes, INFO_LEN_32];
        for (at, word) in (56..).step_by(4).zip(words) {
            put(at, &word.to_le_bytes());
        }
        let offsets = [self.next, layout.data, layout.map, layout.flog, layout.copy];
        for (at, offset) in (80..).step_by(8).zip(offsets) {
            put(at, &offset.to_le_bytes());
        }
        let sum = checksum(&bytes);
        bytes[CHECKSUM..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }
}

/// Whether `bytes` begin as an info block does, valid or not.
pub fn has_signature(bytes: &[u8]) -> bool {
    bytes.starts_with(&SIGNATURE)
}

/// Where a block that may not be valid says that its copy is, from the start of the arena: a place to look.
pub(crate) fn claimed_copy(bytes: &InfoBytes) -> u64 {
    u64_at(bytes, 112)
}

/// Fletcher's sum of 32-bit little-endian words, as if the checksum were zero.
fn checksum(bytes: &InfoBytes) -> u64 {
    let (mut low, mut high) = (0_u32, 0_u32);
    let (words, _) = bytes[..CHECKSUM].as_chunks::<4>();
    for word in words {
        low = low.wrapping_add(u32::from_le_bytes(*word));
        high = high.wrapping_add(low);
    }
    // The two words of the checksum count as zero: they add the low sum twice more.
    high = high.wrapping_add(low).wrapping_add(low);
    u64::from(high) << 32 | u64::from(low)
}

fn array_at<const N: usize>(bytes: &InfoBytes, at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("a slice of N bytes")
}

fn u16_at(bytes: &InfoBytes, at: usize) -> u16 {
    u16::from_le_bytes(array_at(bytes, at))
}

fn u32_at(bytes: &InfoBytes, at: usize) -> u32 {
    u32::from_le_bytes(array_at(bytes, at))
}

fn u64_at(bytes: &InfoBytes, at: usize) -> u64 {
    u64::from_le_bytes(array_at(bytes, at))
}

/// Bytes of an info block.
pub(crate) const INFO_LEN: usize = 4096;
const INFO_LEN_32: u32 = 4096;
const SIGNATURE: [u8; 16] = *b"BTT_ARENA_INFO\0\0";
const FLAG_ERROR: u32 = 1;
/// Where the checksum lies: in the last 8 bytes.
const CHECKSUM: usize = INFO_LEN - 8;

#[cfg(test)]
mod tests {
    use super::*;

    fn sixteen_mib() -> Info {
        Info {
            uuid: [0x11; 16],
            parent_uuid: [0; 16],
            has_error: false,
            version: LayoutVersion::V1_1,
            next: 0,
            layout: ArenaLayout::plan(PAGE, 16 << 20, 4096, 256).unwrap(),
        }
    }

    #[test]
    fn an_emitted_block_parses_to_what_it_was_made_from() {
        for info in [sixteen_mib(), Info { has_error: true, next: 32 << 20, ..sixteen_mib() }] {
            assert_eq!(Info::parse(&info.emit(), PAGE, 64 << 20), Ok(info));
        }
    }

    #[test]
    fn a_block_with_any_byte_changed_is_none() {
        let bytes = sixteen_mib().emit();
        for at in 0..INFO_LEN {
            let mut changed = bytes;
            changed[at] ^= 0x10;
            Info::parse(&changed, PAGE, 16 << 20).unwrap_err();
        }
    }

    #[test]
    fn a_block_of_an_arena_longer_than_its_medium_is_refused() {
        let bytes = sixteen_mib().emit();
        assert_eq!(Info::parse(&bytes, PAGE, (16 << 20) - 1), Err(InfoFault::Contents));
    }
}
