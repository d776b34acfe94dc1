//! An entry of the map: which block holds a sector, and in what state.
//!
//! ```text
//!   31     30      29 ............ 0
//!   zero | error | block
//!    0      0       -      initial: never written, reads as zeroes, its block has the sector's number
//!    1      0     block    zero:    reads as zeroes
//!    0      1     block    error:   the block's bytes are lost, reads fail, a write makes it normal
//!    1      1     block    normal
//! ```
//!
//! btt.rst has zero and error the other way round in its table; Linux's driver and UEFI's structure, which has the
//! error in bit 30, agree with this one.
//!
//! Spec: UEFI 2.7 §6.2 `EFI_BTT_MAP_ENTRY`; Linux drivers/nvdimm/btt.h `MAP_TRIM_SHIFT`, `MAP_ERR_SHIFT`.

/// What the map says of a sector.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum MapEntry {
    /// Nothing was ever written there.
    Initial,
    /// The sector is zeroes; the block is its own all the same.
    Zero(u32),
    /// The bytes of the block are lost.
    Lost(u32),
    /// The block holds the sector.
    Normal(u32),
}

impl MapEntry {
    pub(crate) const fn parse(raw: u32) -> Self {
        let block = raw & BLOCK;
        match (raw & ZERO != 0, raw & ERROR != 0) {
            (false, false) => Self::Initial,
            (true, false) => Self::Zero(block),
            (false, true) => Self::Lost(block),
            (true, true) => Self::Normal(block),
        }
    }

    pub(crate) const fn emit(self) -> u32 {
        match self {
            Self::Initial => 0,
            Self::Zero(block) => ZERO | (block & BLOCK),
            Self::Lost(block) => ERROR | (block & BLOCK),
            Self::Normal(block) => ZERO | ERROR | (block & BLOCK),
        }
    }

    /// The block that belongs to sector number `sector`.
    pub(crate) const fn block(self, sector: u32) -> u32 {
        match self {
            Self::Initial => sector,
            Self::Zero(block) | Self::Lost(block) | Self::Normal(block) => block,
        }
    }

    /// Whether the sector reads as zeroes.
    pub(crate) const fn is_zero(self) -> bool {
        matches!(self, Self::Initial | Self::Zero(_))
    }
}

const ZERO: u32 = 1 << 31;
/// The flog has this flag too, on an old block whose bytes are lost.
pub(crate) const ERROR: u32 = 1 << 30;
/// The bits of a block's number.
pub(crate) const BLOCK: u32 = ERROR - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_an_entry_are_those_of_linux() {
        let table = [
            (0x0000_0000, MapEntry::Initial),
            (0x8000_0007, MapEntry::Zero(7)),
            (0x4000_0007, MapEntry::Lost(7)),
            (0xc000_0007, MapEntry::Normal(7)),
            (0xffff_ffff, MapEntry::Normal(0x3fff_ffff)),
        ];
        for (raw, entry) in table {
            assert_eq!(MapEntry::parse(raw), entry);
            assert_eq!(entry.emit(), raw);
        }
        assert_eq!(MapEntry::parse(5).block(9), 9, "an initial entry has no number of its own");
    }
}
