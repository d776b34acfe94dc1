//! Where the parts of an arena lie.
//!
//! ```text
//!  start        data                     map            flog           copy
//!  | info 4 KiB | blocks of the sectors, | 4 bytes for  | 64 bytes for | info 4 KiB |
//!  |            | and one for each lane  | each sector  | each lane    |            |
//! ```
//!
//! Map, flog and copy begin at multiples of 4096. The data area takes what they leave, so a few bytes at its end
//! belong to no block.
//!
//! Spec: UEFI 2.7 §6.3; the split between map and data is Linux's `alloc_arena`, so that the sizes are the same.

/// An arena. Offsets count from its start, `start` from the start of the medium.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct ArenaLayout {
    pub(crate) start: u64,
    /// Bytes of a sector: 512 or 4096.
    pub(crate) sector: u32,
    pub(crate) sectors: u32,
    /// Bytes from one block to the next: at least those of a sector.
    pub(crate) block: u32,
    /// Blocks: one for each sector and one for each lane.
    pub(crate) blocks: u32,
    /// Free blocks, and so writes at the same time.
    pub(crate) lanes: u32,
    pub(crate) data: u64,
    pub(crate) map: u64,
    pub(crate) flog: u64,
    pub(crate) copy: u64,
}

impl ArenaLayout {
    /// The layout of an arena of `len` bytes at `start`; `None` if it had no sector.
    pub(crate) fn plan(start: u64, len: u64, sector: u32, lanes: u32) -> Option<Self> {
        let whole = len - len % PAGE;
        let flog_len = (u64::from(lanes) * FLOG_STEP).next_multiple_of(PAGE);
        let available = whole.checked_sub(2 * PAGE)?.checked_sub(flog_len)?;
        let blocks = available.checked_sub(PAGE)? / (u64::from(sector) + MAP_STEP);
        // Offsets in the map have 30 bits; an arena of 512 GiB stays just below that.
        let blocks = u32::try_from(blocks).ok().filter(|blocks| *blocks <= BLOCKS_MAX)?;
        let sectors = blocks.checked_sub(lanes).filter(|sectors| *sectors > 0)?;
        let map_len = (u64::from(sectors) * MAP_STEP).next_multiple_of(PAGE);
        let map = PAGE + (available - map_len);
        let flog = map + map_len;
        let copy = flog + flog_len;
        Some(Self {
            start,
            sector,
            sectors,
            block: sector,
            blocks,
            lanes,
            data: PAGE,
            map,
            flog,
            copy,
        })
    }

    /// Whether the parts lie one after the other in an arena of `len` bytes, so that no access leaves its part.
    pub(crate) fn is_sound(&self, len: u64) -> bool {
        let after = |at: u64, count: u32, step: u64| at.checked_add(u64::from(count) * step);
        let fits = |end: Option<u64>, next: u64| end.is_some_and(|end| end <= next);
        let is_aligned =
            [self.data, self.map, self.flog, self.copy].iter().all(|at| at % LINE == 0);
        is_aligned
            && is_sector(self.sector)
            && self.block >= self.sector
            && u64::from(self.block) % LINE == 0
            && self.sectors > 0
            && (1..=LANES_MAX).contains(&self.lanes)
            && self.blocks <= BLOCKS_MAX
            && self.sectors.checked_add(self.lanes) == Some(self.blocks)
            && self.data >= PAGE
            && fits(after(self.data, self.blocks, u64::from(self.block)), self.map)
            && fits(after(self.map, self.sectors, MAP_STEP), self.flog)
            && fits(after(self.flog, self.lanes, FLOG_STEP), self.copy)
            && fits(self.copy.checked_add(PAGE), len)
    }

    /// Bytes of the arena, its info copy included.
    pub(crate) const fn len(&self) -> u64 {
        self.copy + PAGE
    }

    /// Where a block lies in the medium.
    pub(crate) fn block_at(&self, block: u32) -> u64 {
        self.start + self.data + u64::from(block) * u64::from(self.block)
    }

    /// Where the map entry of a sector lies in the medium.
    pub(crate) fn entry_at(&self, sector: u32) -> u64 {
        self.start + self.map + u64::from(sector) * MAP_STEP
    }

    /// Where the flog group of a lane lies in the medium.
    pub(crate) fn group_at(&self, lane: u32) -> u64 {
        self.start + self.flog + u64::from(lane) * FLOG_STEP
    }

    /// Where the copy of the info block lies in the medium.
    pub(crate) const fn copy_at(&self) -> u64 {
        self.start + self.copy
    }
}

/// The sizes of sectors that volumes have.
pub(crate) const fn is_sector(sector: u32) -> bool {
    matches!(sector, 512 | 4096)
}

/// Bytes of an info block, and the unit of the parts.
pub(crate) const PAGE: u64 = 4096;
/// Bytes of a map entry.
pub(crate) const MAP_STEP: u64 = 4;
/// Bytes of a flog group.
pub(crate) const FLOG_STEP: u64 = 64;
/// Bytes of a cache line: no part of the structure that is written at once crosses one.
const LINE: u64 = 64;
/// A map entry has 30 bits for the number of a block.
const BLOCKS_MAX: u32 = 1 << 30;
/// Lanes of an arena; Linux makes arenas of 256.
pub(crate) const LANES_MAX: u32 = 4096;
/// Arenas of a volume: 128 TiB of those that are as long as can be.
pub(crate) const ARENAS_MAX: usize = 256;
/// Bytes of the longest arena: 512 GiB.
pub(crate) const ARENA_LEN_MAX: u64 = 1 << 39;
/// Linux makes and opens no shorter arena: 16 MiB.
pub(crate) const ARENA_LEN_MIN: u64 = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_planned_arena_is_sound() {
        for len in [16 << 20, (16 << 20) + 4095, 1 << 30, ARENA_LEN_MAX] {
            for sector in [512, 4096] {
                let layout = ArenaLayout::plan(0, len, sector, 256).unwrap();
                assert!(layout.is_sound(len), "{len} {layout:?}");
                assert_eq!(layout.len(), len - len % PAGE);
            }
        }
    }

    #[test]
    fn an_arena_without_room_for_a_sector_is_none() {
        assert_eq!(ArenaLayout::plan(0, 4 * PAGE, 4096, 1), None);
        assert_eq!(ArenaLayout::plan(0, 0, 512, 1), None);
    }

    #[test]
    fn parts_that_overlap_or_leave_the_arena_are_not_sound() {
        let sound = ArenaLayout::plan(0, 16 << 20, 4096, 256).unwrap();
        let wrong = [
            ArenaLayout { data: 0, ..sound },
            ArenaLayout { map: sound.map / 2 / PAGE * PAGE, ..sound },
            ArenaLayout { flog: sound.flog - PAGE, ..sound },
            ArenaLayout { copy: sound.copy + PAGE, ..sound },
            ArenaLayout { copy: u64::MAX - 63, ..sound },
            ArenaLayout { lanes: 0, ..sound },
            ArenaLayout { sectors: sound.sectors + 1, ..sound },
            ArenaLayout { sector: 520, ..sound },
            ArenaLayout { block: 256, ..sound },
        ];
        for layout in wrong {
            assert!(!layout.is_sound(16 << 20), "{layout:?}");
        }
    }
}
