//! Looks at all of a volume while nobody uses it.
//!
//! A volume is whole if its info blocks are valid and equal, each flog entry has a newer half inside of the arena, and
//! each block of an arena has one owner: a sector, by the map, or a lane, by the flog.

use std::sync::Arc;

use pmem::{Medium, MediumError};

use crate::access::Structure;
use crate::map_entry::MapEntry;
use crate::open::find_arenas;
use crate::recovery::{Flog, FlogFailure};
use crate::{Damage, Fault, VolumeError};

/// What a check found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    /// Arenas that were looked at.
    pub arenas: usize,
    /// Sectors that hold bytes.
    pub normal: u64,
    /// Sectors that read as zeroes.
    pub zero: u64,
    /// Sectors whose bytes the medium has lost. A write heals each.
    pub lost: u64,
    /// Writes that a crash has interrupted, and that the next open ends.
    pub interrupted: u64,
    /// What is wrong: at most [`DAMAGE_MAX`] of it.
    pub damage: Vec<Damage>,
    /// Damage beyond that.
    pub more_damage: u64,
}

impl Report {
    /// Whether the volume is whole. Interrupted writes and lost sectors are no damage of the structure.
    pub fn is_whole(&self) -> bool {
        self.damage.is_empty()
    }

    fn add(&mut self, damage: Damage) {
        if self.damage.len() < DAMAGE_MAX {
            self.damage.push(damage);
        } else {
            self.more_damage += 1;
        }
    }
}

/// Checks the volume of a medium and changes nothing. Takes 4 bytes of memory for each block of an arena.
///
/// # Errors
///
/// [`VolumeError::PeerForeign`] and [`VolumeError::MediaDamaged`] if there are no arenas to look at, and
/// [`VolumeError::Medium`].
pub fn check(medium: &Arc<dyn Medium>) -> Result<Report, VolumeError> {
    let mut report = Report::default();
    for (number, found) in find_arenas(medium)?.into_iter().enumerate() {
        report.arenas += 1;
        found.info_damage.into_iter().chain(found.error_flag).for_each(|damage| report.add(damage));
        check_arena(&found.structure, number, &mut report)?;
    }
    Ok(report)
}

fn check_arena(
    structure: &Structure,
    number: usize,
    report: &mut Report,
) -> Result<(), MediumError> {
    let mut owners = Owners::of(structure, number, report)?;
    match Flog::read(structure, number) {
        Ok(flog) => {
            for entry in flog.interrupted(structure) {
                // Its sector will have the new block, which only the flog names so far.
                let entry = entry?;
                report.interrupted += 1;
                owners.release(entry.old);
                if !owners.claim(entry.new, Owner::Sector) {
                    let offset = structure.layout.entry_at(entry.sector);
                    let fault = Fault::BlockTwice { block: entry.new };
                    report.add(Damage { arena: number, offset, fault });
                }
            }
            for (lane, (_, entry)) in (0..).zip(&flog.newest) {
                let offset = structure.layout.group_at(lane);
                if !owners.claim(entry.old, Owner::Lane) {
                    let fault = Fault::BlockTwice { block: entry.old };
                    report.add(Damage { arena: number, offset, fault });
                }
            }
        }
        Err(FlogFailure::Damaged(damage)) => {
            report.add(damage);
            // Without its lanes every free block would be reported as lost.
            return Ok(());
        }
        Err(FlogFailure::Medium(error)) => return Err(error),
    }
    for block in owners.unowned() {
        let offset = structure.layout.block_at(block);
        report.add(Damage { arena: number, offset, fault: Fault::BlockLost { block } });
    }
    Ok(())
}

/// Who owns each block of an arena.
#[derive(Debug)]
pub(crate) struct Owners(Vec<Owner>);

/// The owner of a block.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Owner {
    None,
    Sector,
    Lane,
}

impl Owners {
    /// Reads the map of an arena, and reports entries that cannot be.
    pub(crate) fn of(
        structure: &Structure,
        arena: usize,
        report: &mut Report,
    ) -> Result<Self, MediumError> {
        let layout = &structure.layout;
        let blocks = usize::try_from(layout.blocks).expect("64-bit addresses");
        let mut owners = Self(vec![Owner::None; blocks]);
        each_entry(structure, |sector, entry| {
            match entry {
                MapEntry::Initial | MapEntry::Zero(_) => report.zero += 1,
                MapEntry::Lost(_) => report.lost += 1,
                MapEntry::Normal(_) => report.normal += 1,
            }
            let (block, offset) = (entry.block(sector), layout.entry_at(sector));
            let fault = match block < layout.blocks {
                false => Some(Fault::MapBeyondEnd { sector, block }),
                true if !owners.claim(block, Owner::Sector) => Some(Fault::BlockTwice { block }),
                true => None,
            };
            if let Some(fault) = fault {
                report.add(Damage { arena, offset, fault });
            }
        })?;
        Ok(owners)
    }

    /// Makes a block somebody's; false if it has an owner.
    pub(crate) fn claim(&mut self, block: u32, owner: Owner) -> bool {
        let slot = &mut self.0[index(block)];
        let is_free = *slot == Owner::None;
        if is_free {
            *slot = owner;
        }
        is_free
    }

    fn release(&mut self, block: u32) {
        self.0[index(block)] = Owner::None;
    }

    /// The blocks without an owner.
    pub(crate) fn unowned(&self) -> impl Iterator<Item = u32> + '_ {
        let numbered = (0..).zip(&self.0);
        numbered.filter(|(_, owner)| **owner == Owner::None).map(|(block, _)| block)
    }
}

/// Calls `each` with every entry of the map.
pub(crate) fn each_entry(
    structure: &Structure,
    mut each: impl FnMut(u32, MapEntry),
) -> Result<(), MediumError> {
    let (sectors, mut sector, mut entries) = (structure.layout.sectors, 0, Vec::new());
    while sector < sectors {
        let count = (sectors - sector).min(PART);
        structure.entries(sector, &mut entries, count)?;
        for (sector, raw) in (sector..).zip(&entries) {
            each(sector, MapEntry::parse(*raw));
        }
        sector += count;
    }
    Ok(())
}

fn index(block: u32) -> usize {
    usize::try_from(block).expect("64-bit addresses")
}

/// Damage that a report names piece by piece.
pub const DAMAGE_MAX: usize = 100;
/// Map entries that are read in one go.
const PART: u32 = 16 << 10;
