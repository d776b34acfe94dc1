//! Makes the lanes of an arena from its flog, and ends the write that a crash has interrupted.
//!
//! ```text
//!   newer half: sector s, old block a, new block b          map[s]      then
//!   nothing was ever written (a = b)                        -           a is free
//!   all of the write is there                               b           a is free
//!   the write stopped between flog and map                  a           map[s] = b, a is free
//!   a later write of s, by another lane, has freed b        another     a is free
//! ```
//!
//! The data of the new block were durable before the flog named the block, so ending the write is always right; it was
//! never acknowledged, so either outcome would be. A lane's free block is in no map entry and no other lane.
//!
//! Spec: Linux Documentation/driver-api/nvdimm/btt.rst §3 f; drivers/nvdimm/btt.c `btt_freelist_init`.

use std::collections::HashSet;

use pmem::MediumError;

use crate::access::Structure;
use crate::flog_entry::{FlogEntry, GroupBytes, Half, Halves};
use crate::lanes::LaneState;
use crate::map_entry::MapEntry;
use crate::{Damage, Fault};

/// The lanes of an arena as its flog has them, before anything is changed.
#[derive(Debug)]
pub(crate) struct Flog {
    pub(crate) halves: Halves,
    pub(crate) newest: Vec<(Half, FlogEntry)>,
}

/// Why a flog gives no lanes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum FlogFailure {
    /// An entry is damaged.
    Damaged(Damage),
    /// The medium failed.
    Medium(MediumError),
}

impl From<MediumError> for FlogFailure {
    fn from(error: MediumError) -> Self {
        Self::Medium(error)
    }
}

impl Flog {
    /// Reads the flog of arena number `arena` and checks each of its entries by itself, and that no block is free twice.
    pub(crate) fn read(structure: &Structure, arena: usize) -> Result<Self, FlogFailure> {
        let layout = &structure.layout;
        let groups: Vec<GroupBytes> =
            (0..layout.lanes).map(|lane| structure.group(lane)).collect::<Result<_, _>>()?;
        let damaged = |lane: u32, fault: Fault| {
            let offset = layout.group_at(lane);
            FlogFailure::Damaged(Damage { arena, offset, fault })
        };
        let halves = Halves::of(groups.iter()).map_err(|number| {
            let lane = u32::try_from(number).expect("at most LANES_MAX");
            damaged(lane, Fault::FlogPadding { lane })
        })?;
        let (mut newest, mut free) = (Vec::with_capacity(groups.len()), HashSet::new());
        for (lane, group) in (0..).zip(&groups) {
            let (half, entry) =
                halves.newest(group).ok_or_else(|| damaged(lane, Fault::FlogSequence { lane }))?;
            // A new lane's sector is its own number, of which a short arena may have more than sectors.
            let is_untouched = entry.old == entry.new;
            let is_inside = entry.old.max(entry.new) < layout.blocks
                && (is_untouched || entry.sector < layout.sectors);
            if !is_inside {
                return Err(damaged(lane, Fault::FlogBeyondEnd { lane }));
            }
            if !free.insert(entry.old) {
                return Err(damaged(lane, Fault::BlockTwice { block: entry.old }));
            }
            newest.push((half, entry));
        }
        Ok(Self { halves, newest })
    }

    /// The lanes' states for the writes to come.
    pub(crate) fn lanes(&self) -> Vec<LaneState> {
        let state = |(half, entry): &(Half, FlogEntry)| LaneState {
            free: entry.old,
            half: half.other(),
            sequence: entry.sequence.next(),
            is_lost: false,
        };
        self.newest.iter().map(state).collect()
    }

    /// The entries whose write has not reached the map, each with its lane.
    pub(crate) fn interrupted<'f>(
        &'f self,
        structure: &'f Structure,
    ) -> impl Iterator<Item = Result<&'f FlogEntry, MediumError>> + 'f {
        let written =
            self.newest.iter().map(|(_, entry)| entry).filter(|entry| entry.old != entry.new);
        written.filter_map(|entry| match structure.entry(entry.sector) {
            Ok(mapped) if mapped.block(entry.sector) == entry.old => Some(Ok(entry)),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        })
    }

    /// Ends the writes that a crash has interrupted.
    ///
    /// # Durability
    ///
    /// A crash during the call leaves writes to end, which the next call does; after `Ok` all are ended.
    pub(crate) fn end_writes(&self, structure: &Structure) -> Result<(), MediumError> {
        for entry in self.interrupted(structure) {
            let entry = entry?;
            structure.set_entry(entry.sector, MapEntry::Normal(entry.new))?;
        }
        Ok(())
    }
}
