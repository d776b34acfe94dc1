//! Makes a damaged volume whole again, as far as what is left tells how.
//!
//! | damage | repair |
//! |---|---|
//! | one of two info blocks | written from the other one |
//! | a flog entry | written anew, with a block that nobody owns |
//! | a map entry beyond the end, or a block of two sectors | the entry becomes an error with a block that nobody owns: reads fail until a write |
//! | the error flag | cleared, after the rest |
//!
//! What a repaired sector held is gone, and its reader is told so; no sector silently becomes zeroes or another's bytes.

use std::sync::Arc;

use pmem::{Medium, MediumError};

use crate::access::{Structure, write_info};
use crate::check::{Owner, Owners, each_entry};
use crate::info::Info;
use crate::map_entry::MapEntry;
use crate::open::find_arenas;
use crate::recovery::{Flog, FlogFailure};
use crate::{Report, VolumeError, check};

/// Repairs the volume of a medium that nobody uses, and checks it again. Writes that a crash has interrupted are ended
/// first where the flog can be read.
///
/// # Durability
///
/// A crash during the repair leaves a volume that can be repaired again; after `Ok` the repair survives.
///
/// # Errors
///
/// As [`check()`].
pub fn repair(medium: &Arc<dyn Medium>) -> Result<Report, VolumeError> {
    for (number, found) in find_arenas(medium)?.into_iter().enumerate() {
        repair_arena(&found.structure, number)?;
        if found.info_damage.is_some() || found.error_flag.is_some() {
            let bytes = Info { has_error: false, ..found.info }.emit();
            let layout = &found.structure.layout;
            // The valid one of the two is overwritten last.
            let is_first_valid =
                found.info_damage.is_none_or(|damage| damage.offset == layout.copy_at());
            let (first, last) = match is_first_valid {
                true => (layout.copy_at(), layout.start),
                false => (layout.start, layout.copy_at()),
            };
            write_info(&**medium, first, &bytes)?;
            write_info(&**medium, last, &bytes)?;
        }
    }
    check(medium)
}

fn repair_arena(structure: &Structure, number: usize) -> Result<(), MediumError> {
    let flog = match Flog::read(structure, number) {
        Ok(flog) => {
            flog.end_writes(structure)?;
            Some(flog)
        }
        Err(FlogFailure::Damaged(_)) => None,
        Err(FlogFailure::Medium(error)) => return Err(error),
    };
    let mut findings = Report::default();
    let mut owners = Owners::of(structure, number, &mut findings)?;
    let lanes_are_sound = flog.as_ref().is_some_and(|flog| {
        flog.newest.iter().all(|(_, entry)| owners.claim(entry.old, Owner::Lane))
    });
    let is_whole = findings.is_whole() && lanes_are_sound;
    if is_whole {
        return Ok(());
    }
    // From here on only the map speaks: its first claim of each block counts, and lanes get what is left.
    let wrong = wrong_sectors(structure)?;
    let owners = Owners::of(structure, number, &mut Report::default())?;
    let mut unowned = owners.unowned();
    // Lanes first: their old notes must not speak when a crash ends this, and there is a block for every sector and lane.
    for lane in 0..structure.layout.lanes {
        let Some(block) = unowned.next() else { return Ok(()) };
        structure.reset_group(lane, block)?;
    }
    for (sector, block) in wrong.into_iter().zip(unowned) {
        structure.set_entry(sector, MapEntry::Lost(block))?;
    }
    Ok(())
}

/// Sectors whose map entry names a block beyond the end, or one that an earlier sector has.
fn wrong_sectors(structure: &Structure) -> Result<Vec<u32>, MediumError> {
    let blocks = usize::try_from(structure.layout.blocks).expect("64-bit addresses");
    let (mut taken, mut wrong) = (vec![false; blocks], Vec::new());
    each_entry(structure, |sector, entry| {
        let block = usize::try_from(entry.block(sector)).expect("64-bit addresses");
        match taken.get_mut(block) {
            Some(is_taken) if !*is_taken => *is_taken = true,
            _ => wrong.push(sector),
        }
    })?;
    Ok(wrong)
}
