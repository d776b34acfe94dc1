//! Writes the layout of a new volume.

use pmem::{Medium, MediumError};
use std::sync::Arc;

use crate::VolumeError;
use crate::access::{Structure, write_info};
use crate::info::{Info, LayoutVersion};
use crate::layout::{
    ARENA_LEN_MAX, ARENA_LEN_MIN, ARENAS_MAX, ArenaLayout, LANES_MAX, MAP_STEP, is_sector,
};

/// What a new volume is to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Format {
    /// Bytes of a sector: 512 or 4096.
    pub sector: u32,
    /// Lanes of each arena: writes at the same time, and blocks that hold no sector. Linux has 256.
    pub lanes: u32,
    /// Where the first arena begins.
    pub version: LayoutVersion,
    /// The volume's identity: random bytes.
    pub uuid: [u8; 16],
    /// The namespace that alone may hold the volume; zeroes for any.
    pub parent_uuid: [u8; 16],
}

impl Format {
    /// What Linux makes: 256 lanes, and the layout of namespaces whose labels say nothing.
    pub const fn linux(sector: u32, uuid: [u8; 16]) -> Self {
        Self { sector, lanes: 256, version: LayoutVersion::V1_1, uuid, parent_uuid: [0; 16] }
    }
}

/// Makes a volume of a whole medium. What the medium held is lost.
///
/// The sectors read as zeroes here. Linux reads a sector that was never written from its first block, so a medium that
/// is to be used there and held something before is zeroed first.
///
/// A medium of less than 16 MiB gets a single arena that Linux does not open.
///
/// # Durability
///
/// The info block of the first arena is written last. A crash before leaves no volume, and one after `Ok` the volume.
///
/// # Errors
///
/// [`VolumeError::ConfigSector`], [`VolumeError::ConfigLanes`], [`VolumeError::ConfigTooSmall`], [`VolumeError::Medium`].
pub fn create(medium: &Arc<dyn Medium>, format: Format) -> Result<(), VolumeError> {
    let layouts = plan(medium.len(), format)?;
    // An old info block must not speak for a structure that is half written.
    for at in [LayoutVersion::V1_1.start(), LayoutVersion::V2_0.start()] {
        write_info(&**medium, at, &[0; crate::info::INFO_LEN])?;
    }
    for (number, layout) in layouts.iter().enumerate().rev() {
        let next = layouts.get(number + 1).map_or(0, |next| next.start - layout.start);
        write_arena(medium, *layout, next, format)?;
    }
    Ok(())
}

/// The arenas of a medium of `len` bytes.
fn plan(len: u64, format: Format) -> Result<Vec<ArenaLayout>, VolumeError> {
    let Format { sector, lanes, .. } = format;
    if !is_sector(sector) {
        return Err(VolumeError::ConfigSector { sector });
    }
    if !(1..=LANES_MAX).contains(&lanes) {
        return Err(VolumeError::ConfigLanes { lanes, most: LANES_MAX });
    }
    let (mut start, mut layouts) = (format.version.start(), Vec::new());
    while let Some(room) = len.checked_sub(start).filter(|room| *room > 0) {
        if room < ARENA_LEN_MIN && !layouts.is_empty() {
            break;
        }
        let Some(layout) = ArenaLayout::plan(start, room.min(ARENA_LEN_MAX), sector, lanes) else {
            break;
        };
        layouts.push(layout);
        start += room.min(ARENA_LEN_MAX);
    }
    match layouts.len() {
        0 => {
            Err(VolumeError::ConfigTooSmall { len, least: ARENA_LEN_MIN + format.version.start() })
        }
        1..=ARENAS_MAX => Ok(layouts),
        _ => Err(VolumeError::ConfigTooManyArenas { most: ARENAS_MAX }),
    }
}

/// Writes map, flog and info blocks of an arena, the info block at its start last.
pub(crate) fn write_arena(
    medium: &Arc<dyn Medium>,
    layout: ArenaLayout,
    next: u64,
    format: Format,
) -> Result<(), MediumError> {
    let structure = Structure { medium: Arc::clone(medium), layout };
    zero(&**medium, layout.entry_at(0), u64::from(layout.sectors) * MAP_STEP)?;
    for lane in 0..layout.lanes {
        structure.reset_group(lane, layout.sectors + lane)?;
    }
    let Format { uuid, parent_uuid, version, .. } = format;
    let info = Info { uuid, parent_uuid, has_error: false, version, next, layout };
    write_info(&**medium, layout.copy_at(), &info.emit())?;
    write_info(&**medium, layout.start, &info.emit())
}

fn zero(medium: &dyn Medium, mut at: u64, mut len: u64) -> Result<(), MediumError> {
    let (begin, all) = (at, len);
    let zeroes = vec![0; 64 << 10];
    while len > 0 {
        let part = len.min(64 << 10);
        medium.place(at, &zeroes[..usize::try_from(part).expect("64 KiB at most")])?;
        (at, len) = (at + part, len - part);
    }
    medium.persist(begin, all)
}
