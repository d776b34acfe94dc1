//! An arena in use: reads, writes and zeroes its sectors, by many threads at once.
//!
//! ```text
//!   write of sector s in a lane        a crash here leaves
//!   1 data -> free block b             old sector, lane as before
//!   2 persist                          old sector
//!   3 lock s; a = map[s]
//!   4 flog half (s, a, b, sequence)    old sector until the sequence is durable, the new one from then on:
//!   5 persist                          recovery ends the write
//!   6 map[s] = b                       new sector
//!   7 persist                          new sector; a is the lane's free block
//! ```
//!
//! The sequence number of step 4 is the store that commits. Step 7 comes before the lane's next step 4, which
//! overwrites the only other note of b.

use std::sync::OnceLock;

use block::BlockError;
use pmem::MediumError;

use crate::access::Structure;
use crate::flog_entry::{FlogEntry, Halves};
use crate::lanes::{LaneInUse, Lanes};
use crate::map_entry::MapEntry;
use crate::map_locks::MapLocks;
use crate::open::Access;
use crate::readers::{Reader, Readers};
use crate::recovery::{Flog, FlogFailure};
use crate::{Damage, Fault};

/// An arena in use.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) structure: Structure,
    number: usize,
    halves: Halves,
    lanes: Lanes,
    readers: Readers,
    locks: MapLocks,
    /// Why the arena takes no more changes.
    damage: OnceLock<Damage>,
    is_read_only: bool,
}

impl Arena {
    /// Recovers an arena. A damaged flog leaves an arena that can be read, and that says where the damage is.
    pub(crate) fn open(
        structure: Structure,
        number: usize,
        access: Access,
        error_flag: Option<Damage>,
    ) -> Result<Self, MediumError> {
        let damage = OnceLock::new();
        if let Some(flag) = error_flag {
            let _ = damage.set(flag);
        }
        let (halves, states) = match Flog::read(&structure, number) {
            Ok(flog) => {
                let mut lanes = flog.lanes();
                if access == Access::ReadWrite && damage.get().is_none() {
                    flog.end_writes(&structure)?;
                    for (lane, (_, entry)) in lanes.iter_mut().zip(&flog.newest) {
                        lane.is_lost = entry.old_is_lost && !structure.can_hold(entry.old);
                    }
                }
                (flog.halves, lanes)
            }
            Err(FlogFailure::Damaged(found)) => {
                let _ = damage.set(found);
                (Halves::Adjacent, Vec::new())
            }
            Err(FlogFailure::Medium(error)) => return Err(error),
        };
        let arena = Self {
            structure,
            number,
            halves,
            lanes: Lanes::new(states),
            readers: Readers::new(),
            locks: MapLocks::new(),
            damage,
            is_read_only: access == Access::ReadOnly,
        };
        Ok(arena)
    }

    /// What makes the arena refuse changes.
    pub(crate) fn damage(&self) -> Option<Damage> {
        self.damage.get().copied()
    }

    /// Sectors of the arena.
    pub(crate) fn sectors(&self) -> u32 {
        self.structure.layout.sectors
    }

    /// Lanes whose free block the medium has lost.
    pub(crate) fn lanes_lost(&self) -> usize {
        self.lanes.states().filter(|lane| lane.is_lost).count()
    }

    /// Lanes there are.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// A place among the readers, for any number of sectors.
    pub(crate) fn enter(&self) -> Reader<'_> {
        self.readers.enter()
    }

    /// Reads a sector into `out`, which has its length.
    pub(crate) fn read(
        &self,
        reader: &Reader<'_>,
        sector: u32,
        out: &mut [u8],
    ) -> Result<(), BlockError> {
        let mut entry = self.entry(sector)?;
        loop {
            let block = match entry {
                MapEntry::Initial | MapEntry::Zero(_) => {
                    out.fill(0);
                    return Ok(());
                }
                MapEntry::Lost(_) => return Err(self.lost(sector)),
                MapEntry::Normal(block) => block,
            };
            reader.hold(block);
            let again = self.entry(sector)?;
            if again == entry {
                return self.read_block(sector, block, out);
            }
            entry = again;
        }
    }

    fn read_block(&self, sector: u32, block: u32, out: &mut [u8]) -> Result<(), BlockError> {
        match self.structure.medium.read(self.structure.layout.block_at(block), out) {
            Ok(()) => Ok(()),
            Err(MediumError::MediaIo(errno)) if is_loss(errno) => {
                self.note_lost(sector, block);
                Err(self.lost(sector))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Marks a sector whose block the medium has lost, so that later readers are told at once. The mark is a help:
    /// where it cannot be made the next reader finds the loss again.
    fn note_lost(&self, sector: u32, block: u32) {
        if self.is_read_only || self.damage.get().is_some() {
            return;
        }
        let _alone = self.locks.lock(sector);
        if self.structure.entry(sector) == Ok(MapEntry::Normal(block)) {
            let _ = self.structure.set_entry(sector, MapEntry::Lost(block));
        }
    }

    /// Writes a sector.
    ///
    /// # Durability
    ///
    /// *Before* the call returns, and after an error, a crash leaves the sector old or new, whole; *after* `Ok` new.
    pub(crate) fn write(&self, sector: u32, bytes: &[u8]) -> Result<(), BlockError> {
        self.check_writable(sector)?;
        loop {
            let mut lane = self.lane(sector)?;
            let (at, len) = (self.structure.layout.block_at(lane.state.free), length_of(bytes));
            let medium = &self.structure.medium;
            match medium.place(at, bytes).and_then(|()| medium.persist(at, len)) {
                Ok(()) => return self.commit(sector, &mut lane),
                // The lane's free block lies on bytes that the medium cannot hold: another lane's may not.
                Err(MediumError::MediaIo(errno)) if is_loss(errno) => lane.state.is_lost = true,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn lane(&self, sector: u32) -> Result<LaneInUse<'_>, BlockError> {
        let is_read = |block| self.readers.read(block);
        self.lanes.acquire(is_read).ok_or_else(|| {
            self.note(self.structure.layout.group_at(0), Fault::LanesLost);
            self.damaged(sector)
        })
    }

    /// Makes the lane's free block, which holds the new bytes, the block of the sector.
    fn commit(&self, sector: u32, lane: &mut LaneInUse<'_>) -> Result<(), BlockError> {
        let _alone = self.locks.lock(sector);
        let mapped = self.entry(sector)?;
        let (old, new) = (mapped.block(sector), lane.state.free);
        let old_is_lost = matches!(mapped, MapEntry::Lost(_));
        let sequence = lane.state.sequence;
        let note = FlogEntry { sector, old, old_is_lost, new, sequence };
        let structure = &self.structure;
        let committed = structure
            .set_half(lane.number, self.halves, lane.state.half, &note)
            .and_then(|()| structure.set_entry(sector, MapEntry::Normal(new)));
        if let Err(error) = committed {
            // The note may be durable and name a block that the lane would write again.
            self.note(structure.layout.group_at(lane.number), Fault::Medium);
            return Err(error.into());
        }
        lane.state.free = old;
        lane.state.half = lane.state.half.other();
        lane.state.sequence = sequence.next();
        lane.state.is_lost = old_is_lost && !structure.can_hold(old);
        Ok(())
    }

    /// Makes a sector read as zeroes. Its block stays its own.
    ///
    /// # Durability
    ///
    /// As [`Arena::write`]: one store to the map commits.
    pub(crate) fn zero(&self, sector: u32) -> Result<(), BlockError> {
        self.check_writable(sector)?;
        let alone = self.locks.lock(sector);
        match self.entry(sector)? {
            // Whoever stored the entry made it durable under the lock, or has noted that nobody could.
            MapEntry::Zero(_) => self.check_writable(sector),
            // The flog has to note that the block is lost, or a later write would go to it.
            MapEntry::Lost(_) => {
                drop(alone);
                let zeroes = [0; 4096];
                let len = usize::try_from(self.structure.layout.sector).expect("4096 at most");
                self.write(sector, &zeroes[..len])
            }
            entry => {
                let zero = MapEntry::Zero(entry.block(sector));
                self.structure.set_entry(sector, zero).map_err(|error| {
                    self.note(self.structure.layout.entry_at(sector), Fault::Medium);
                    error.into()
                })
            }
        }
    }

    /// Whether the first of up to `count` sectors reads as zeroes, and how many sectors in a row are like it.
    pub(crate) fn state(&self, sector: u32, count: u32) -> Result<(bool, u32), BlockError> {
        let (mut entries, mut seen, mut first) = (Vec::new(), 0, None);
        while seen < count {
            let part = (count - seen).min(STATE_PART);
            self.structure.entries(sector + seen, &mut entries, part)?;
            for raw in &entries {
                let is_zero = MapEntry::parse(*raw).is_zero();
                if *first.get_or_insert(is_zero) != is_zero {
                    return Ok((!is_zero, seen));
                }
                seen += 1;
            }
        }
        Ok((first.unwrap_or(false), seen))
    }

    /// The map entry of a sector, whose block the arena has.
    fn entry(&self, sector: u32) -> Result<MapEntry, BlockError> {
        let entry = self.structure.entry(sector)?;
        let block = entry.block(sector);
        if block >= self.structure.layout.blocks {
            let fault = Fault::MapBeyondEnd { sector, block };
            self.note(self.structure.layout.entry_at(sector), fault);
            return Err(self.damaged(sector));
        }
        Ok(entry)
    }

    fn check_writable(&self, sector: u32) -> Result<(), BlockError> {
        if self.is_read_only {
            return Err(BlockError::ConfigReadOnly);
        }
        if self.damage.get().is_some() { Err(self.damaged(sector)) } else { Ok(()) }
    }

    /// Notes the first damage; from then on the arena takes no changes.
    fn note(&self, offset: u64, fault: Fault) {
        let _ = self.damage.set(Damage { arena: self.number, offset, fault });
    }

    fn damaged(&self, sector: u32) -> BlockError {
        BlockError::MediaDamaged { offset: self.offset_of(sector) }
    }

    fn lost(&self, sector: u32) -> BlockError {
        BlockError::MediaLost { offset: self.offset_of(sector) }
    }

    /// Where the sector lies among those of the arena, in bytes. The volume adds where the arena begins.
    fn offset_of(&self, sector: u32) -> u64 {
        u64::from(sector) * u64::from(self.structure.layout.sector)
    }

    #[cfg(test)]
    pub(crate) fn readers(&self) -> &Readers {
        &self.readers
    }
}

/// Whether an `errno` says that bytes of the medium are lost, rather than that the medium is gone or full.
const fn is_loss(errno: i32) -> bool {
    // EIO; EHWPOISON: the memory below has failed.
    matches!(errno, 5 | 133)
}

fn length_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("no supported machine has more than 64 address bits")
}

/// Map entries that are looked at in one go: 4 KiB of the map.
const STATE_PART: u32 = 1024;
