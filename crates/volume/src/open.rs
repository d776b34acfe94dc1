//! Finds the arenas of a medium by their info blocks, or by the copies of those.
//!
//! The copy of an info block lies at the arena's end. Where the info block itself is damaged, the arena's end is where
//! the damaged bytes say that it is, where the medium ends, 512 GiB on, or where the arenas behind it lead: the copy at
//! the end of the medium says where the last arena begins, and so where the copy of the one before ends. A copy counts
//! only where it says that it lies.

use std::sync::Arc;

use pmem::{Medium, MediumError};

use crate::access::{Structure, read_info};
use crate::info::{Info, LayoutVersion, claimed_copy, has_signature};
use crate::layout::{ARENA_LEN_MAX, ARENAS_MAX, PAGE};
use crate::{Damage, Fault, VolumeError};

/// What a volume is opened for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Access {
    /// Nothing on the medium changes, and writes that a crash has interrupted stay as they are.
    ReadOnly,
    /// Reads and writes.
    ReadWrite,
}

/// An arena as its info blocks describe it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) info: Info,
    pub(crate) structure: Structure,
    /// What is wrong with the info blocks; the arena can be used all the same.
    pub(crate) info_damage: Option<Damage>,
    /// Set where the info block has its error flag.
    pub(crate) error_flag: Option<Damage>,
}

/// All arenas of a medium, from the first.
///
/// # Errors
///
/// [`VolumeError::PeerForeign`] if there is none; [`VolumeError::MediaDamaged`] if a later one cannot be found.
pub(crate) fn find_arenas(medium: &Arc<dyn Medium>) -> Result<Vec<Found>, VolumeError> {
    // Where both could be meant: an info block at byte 0 is what it looks like, at byte 4096 it may be data.
    for version in [LayoutVersion::V2_0, LayoutVersion::V1_1] {
        let first = find(medium, version.start(), 0)?;
        let Some(first) = first.filter(|found| found.info.version == version) else { continue };
        let mut arenas = vec![first];
        loop {
            let last = &arenas[arenas.len() - 1];
            let (start, next) = (last.structure.layout.start, last.info.next);
            if next == 0 {
                return Ok(arenas);
            }
            let (offset, arena) = (start + next, arenas.len());
            let both = Damage { arena, offset, fault: Fault::InfoBoth };
            let found = find(medium, offset, arena)?.filter(|found| found.info.version == version);
            arenas.push(found.ok_or(VolumeError::MediaDamaged(both))?);
        }
    }
    Err(VolumeError::PeerForeign)
}

/// The arena at `start`; `None` if neither its info block nor a copy is valid.
fn find(medium: &Arc<dyn Medium>, start: u64, number: usize) -> Result<Option<Found>, MediumError> {
    let Some(room) = medium.len().checked_sub(start).filter(|room| *room >= 2 * PAGE) else {
        return Ok(None);
    };
    let bytes = read_info(&**medium, start)?;
    let damage = |offset, fault| Damage { arena: number, offset, fault };
    let (info, info_damage) = match Info::parse(&bytes, start, room) {
        Ok(info) => {
            let at = info.layout.copy_at();
            let copy = read_info(&**medium, at)?;
            let is_same = Info::parse(&copy, start, room) == Ok(info);
            (info, (!is_same).then(|| damage(at, Fault::InfoCopy)))
        }
        Err(_) => {
            let Some(info) = find_copy(medium, start, room, claimed_copy(&bytes))? else {
                return Ok(None);
            };
            (info, Some(damage(start, Fault::InfoBlock)))
        }
    };
    let error_flag = info.has_error.then(|| damage(start, Fault::ErrorFlag));
    let structure = Structure { medium: Arc::clone(medium), layout: info.layout };
    Ok(Some(Found { info, structure, info_damage, error_flag }))
}

fn find_copy(
    medium: &Arc<dyn Medium>,
    start: u64,
    room: u64,
    claimed: u64,
) -> Result<Option<Info>, MediumError> {
    let end_of = |len: u64| (len - len % PAGE).checked_sub(PAGE);
    let led_to = walk_back(&**medium, start)?;
    for copy in [Some(claimed), end_of(room), end_of(ARENA_LEN_MAX), led_to].into_iter().flatten() {
        let lies_inside = copy.checked_add(PAGE).is_some_and(|end| end <= room);
        if !lies_inside || copy < PAGE {
            continue;
        }
        let bytes = read_info(&**medium, start + copy)?;
        if let Ok(info) = Info::parse(&bytes, start, room)
            && info.layout.copy == copy
        {
            return Ok(Some(info));
        }
    }
    Ok(None)
}

/// Where the copies of the arenas behind say that the copy of the arena at `start` lies, from that start.
fn walk_back(medium: &dyn Medium, start: u64) -> Result<Option<u64>, MediumError> {
    let mut end = medium.len() - medium.len() % PAGE;
    for _ in 0..ARENAS_MAX {
        let Some(at) = end.checked_sub(PAGE) else { return Ok(None) };
        let bytes = read_info(medium, at)?;
        let copy = claimed_copy(&bytes);
        match at.checked_sub(copy) {
            Some(found) if found == start => return Ok(Some(copy)),
            Some(before) if has_signature(&bytes) && start < before && before < end => end = before,
            _ => return Ok(None),
        }
    }
    Ok(None)
}
