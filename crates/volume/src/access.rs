//! Reads and stores of the structure on a medium: map entries, flog halves, info blocks.
//!
//! A map entry is half of an aligned word of 8 bytes, the unit that no crash tears. It is replaced by an atomic
//! operation on the word, so the entry beside it, which another thread may be replacing, is never touched.

use std::sync::Arc;

use pmem::{AtomicOp, Medium, MediumError};

use crate::flog_entry::{FlogEntry, GroupBytes, Half, Halves};
use crate::info::{INFO_LEN, InfoBytes};
use crate::layout::{ArenaLayout, FLOG_STEP, MAP_STEP};
use crate::map_entry::MapEntry;

/// An arena's structure on its medium.
#[derive(Clone, Debug)]
pub(crate) struct Structure {
    pub(crate) medium: Arc<dyn Medium>,
    pub(crate) layout: ArenaLayout,
}

impl Structure {
    /// The map entry of a sector.
    pub(crate) fn entry(&self, sector: u32) -> Result<MapEntry, MediumError> {
        let at = self.layout.entry_at(sector);
        let mut word = [0; WORD];
        self.medium.read(at - at % WORD_64, &mut word)?;
        Ok(entry_in(word, at))
    }

    /// The map entries of `out.len()` sectors from `sector` on.
    pub(crate) fn entries(
        &self,
        sector: u32,
        out: &mut Vec<u32>,
        count: u32,
    ) -> Result<(), MediumError> {
        let len = u64::from(count) * MAP_STEP;
        let mut bytes = vec![0; usize::try_from(len).expect("a bounded part of the map")];
        self.medium.read(self.layout.entry_at(sector), &mut bytes)?;
        out.clear();
        out.extend(bytes.as_chunks::<4>().0.iter().map(|entry| u32::from_le_bytes(*entry)));
        Ok(())
    }

    /// Replaces the map entry of a sector.
    ///
    /// # Durability
    ///
    /// *Before* the call returns, and after an error, a crash leaves the old entry or the new one; *after* `Ok` the new one.
    pub(crate) fn set_entry(&self, sector: u32, entry: MapEntry) -> Result<(), MediumError> {
        let at = self.layout.entry_at(sector);
        let half = usize::try_from(at % WORD_64).expect("0 or 4");
        let (mut bytes, mut mask) = ([0; WORD], [0; WORD]);
        bytes[half..half + 4].copy_from_slice(&entry.emit().to_le_bytes());
        mask[half..half + 4].fill(0xff);
        let op = AtomicOp::CompareSwap {
            compare: 0,
            compare_mask: 0,
            swap: native(bytes),
            swap_mask: native(mask),
        };
        self.medium.atomic(at - at % WORD_64, op)?;
        self.medium.persist(at, MAP_STEP)
    }

    /// The flog group of a lane.
    pub(crate) fn group(&self, lane: u32) -> Result<GroupBytes, MediumError> {
        let mut group = [0; 64];
        self.medium.read(self.layout.group_at(lane), &mut group)?;
        Ok(group)
    }

    /// Overwrites a half of a lane's group.
    ///
    /// # Durability
    ///
    /// The half's last word has its sequence number, and becomes durable after its first: *before* the call returns a
    /// crash leaves the half's old sequence number or all of the new half; *after* `Ok` the new half.
    pub(crate) fn set_half(
        &self,
        lane: u32,
        halves: Halves,
        half: Half,
        entry: &FlogEntry,
    ) -> Result<(), MediumError> {
        let at = self.layout.group_at(lane) + halves.offset(half);
        // Two aligned words of one cache line, placed from low addresses to high: their order is kept.
        self.medium.place(at, &entry.emit())?;
        self.medium.persist(at, FLOG_STEP / 4)
    }

    /// Whether a block whose bytes were lost takes bytes again.
    pub(crate) fn can_hold(&self, block: u32) -> bool {
        let at = self.layout.block_at(block);
        let mut bytes = vec![0; usize::try_from(self.layout.sector).expect("4096 at most")];
        self.medium.place(at, &bytes).and_then(|()| self.medium.read(at, &mut bytes)).is_ok()
    }

    /// Makes a group anew, with one half that says that `block` is free.
    ///
    /// # Durability
    ///
    /// As that of one store to a word for each of the eight words: the caller has nothing to lose.
    pub(crate) fn reset_group(&self, lane: u32, block: u32) -> Result<(), MediumError> {
        let mut group = [0; 64];
        group[..16].copy_from_slice(&FlogEntry::untouched(lane, block).emit());
        let at = self.layout.group_at(lane);
        self.medium.place(at, &group)?;
        self.medium.persist(at, FLOG_STEP)
    }
}

/// Reads 4096 bytes that may be an info block.
pub(crate) fn read_info(medium: &dyn Medium, at: u64) -> Result<InfoBytes, MediumError> {
    let mut bytes = [0; INFO_LEN];
    medium.read(at, &mut bytes)?;
    Ok(bytes)
}

/// Writes an info block.
///
/// # Durability
///
/// *Before* the call returns a crash may leave a block that is torn, and so not valid: there are two for that reason.
pub(crate) fn write_info(
    medium: &dyn Medium,
    at: u64,
    bytes: &InfoBytes,
) -> Result<(), MediumError> {
    medium.place(at, bytes)?;
    medium.persist(at, u64::try_from(INFO_LEN).expect("a small number"))
}

fn entry_in(word: [u8; WORD], at: u64) -> MapEntry {
    let (entries, _) = word.as_chunks::<4>();
    let entry = entries[usize::from(!at.is_multiple_of(WORD_64))];
    MapEntry::parse(u32::from_le_bytes(entry))
}

/// The word of a medium that has these bytes in memory: media count words as the CPU does.
fn native(bytes: [u8; WORD]) -> u64 {
    u64::from_le_bytes(bytes).to_le()
}

const WORD: usize = 8;
const WORD_64: u64 = 8;
