//! Adds an arena to a volume in use.
//!
//! ```text
//!   1 the file grows                          a crash leaves a longer file
//!   2 the new arena is written beyond the old end
//!   3 the last arena's info copy names it     the info block still says that there is none
//!   4 the last arena's info block names it    the volume has grown; torn, it is no block, and the copy counts
//! ```

use std::fs::File;

use block::BlockError;
use pmem::OpenOptions;

use crate::access::{Structure, read_info, write_info};
use crate::arena::Arena;
use crate::create::{Format, write_arena};
use crate::info::Info;
use crate::layout::{ARENA_LEN_MAX, ARENA_LEN_MIN, ArenaLayout, PAGE};
use crate::open::Access;

/// The file of a volume.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) file: File,
    pub(crate) options: OpenOptions,
}

/// Adds an arena behind `last` that has `more` bytes of sectors at least, as far as one arena can have them.
///
/// # Durability
///
/// As [`block::BlockDevice::resize`].
pub(crate) fn add_arena(
    source: &Source,
    last: &Arena,
    number: usize,
    more: u64,
) -> Result<Arena, BlockError> {
    let old = &last.structure.layout;
    let start = old.start + old.len();
    let len = length_for(more, old.sector, old.lanes).clamp(ARENA_LEN_MIN, ARENA_LEN_MAX);
    let layout =
        ArenaLayout::plan(start, len, old.sector, old.lanes).ok_or(BlockError::ConfigFixedSize)?;
    let present = pmem::length(&source.file).map_err(|_| BlockError::ConfigFixedSize)?;
    if present < start + len {
        rustix::fs::ftruncate(&source.file, start + len)?;
        rustix::fs::fsync(&source.file)?;
    }
    let longer = pmem::map_file(&source.file, start + len, source.options)
        .map_err(|_| BlockError::ConfigFixedSize)?;
    let bytes = read_info(&*longer, old.start)?;
    let info = Info::parse(&bytes, old.start, longer.len() - old.start)
        .map_err(|_| BlockError::MediaDamaged { offset: 0 })?;
    let Info { uuid, parent_uuid, version, .. } = info;
    let format = Format { sector: old.sector, lanes: old.lanes, version, uuid, parent_uuid };
    write_arena(&longer, layout, 0, format)?;
    let named = Info { next: old.len(), ..info }.emit();
    write_info(&*longer, old.copy_at(), &named)?;
    write_info(&*longer, old.start, &named)?;
    let structure = Structure { medium: longer, layout };
    Ok(Arena::open(structure, number, Access::ReadWrite, None)?)
}

/// Bytes of an arena that has `bytes` of sectors, rounded up.
fn length_for(bytes: u64, sector: u32, lanes: u32) -> u64 {
    let (step, lanes) = (u64::from(sector), u64::from(lanes));
    let blocks = bytes.div_ceil(step) + lanes;
    // Map and flog, each up to the next page, two info blocks, and the page that the split leaves.
    let structure =
        (blocks * 4).next_multiple_of(PAGE) + (lanes * 64).next_multiple_of(PAGE) + 4 * PAGE;
    (blocks * step + structure).next_multiple_of(PAGE)
}
