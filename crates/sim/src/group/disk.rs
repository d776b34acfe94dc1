//! What a member keeps when it dies: its label, ring, volumes and dirty maps, with what was not durable in any state.

use std::collections::BTreeMap;
use std::sync::Arc;

use replica::core::{Entry, Found};
use replica::dirty::DirtyMap;
use replica::format::{Extent, Kind, Label};
use replica::{Epoch, Lsn, MemberId};

use crate::chance::Chance;

/// Volumes of a group, cells that a volume may grow to, cells that it begins with, bytes of a cell.
pub(crate) const VOLUMES: u8 = 2;
pub(crate) const CELLS: u64 = 32;
pub(crate) const CELLS_FIRST: u64 = 24;
pub(crate) const CELL: u64 = 16 << 10;

/// Each cell of each volume: the number of the write that it holds, 0 for none.
pub(crate) type Contents = Vec<u64>;

/// Cells of an extent.
pub(crate) fn cells(extent: Extent) -> std::ops::Range<usize> {
    let first = u64::from(extent.volume) * CELLS + extent.offset / CELL;
    let last = u64::from(extent.volume) * CELLS + (extent.offset + extent.len) / CELL;
    usize::try_from(first).unwrap_or(0)..usize::try_from(last).unwrap_or(0)
}

/// What volumes of these sizes hold: what a device has behind the end of its volume is none of it.
pub(crate) fn shown(contents: &Contents, sizes: &[u64]) -> Contents {
    let mut shown = contents.clone();
    for (volume, size) in (0_u8..).zip(sizes) {
        let behind = Extent { volume, offset: *size, len: CELLS * CELL - size };
        shown[cells(behind)].fill(0);
    }
    shown
}

pub(crate) fn empty() -> Contents {
    vec![0; usize::try_from(u64::from(VOLUMES) * CELLS).unwrap_or(0)]
}

/// A record as it lies in a ring.
#[derive(Clone, Debug)]
pub(crate) struct Stored {
    pub(crate) entry: Entry,
    pub(crate) epoch: u32,
    pub(crate) chain: u32,
    /// The number of the write; 0 for none.
    pub(crate) stamp: u64,
    /// What is to be compared, and what its source had there.
    pub(crate) compares: Option<(Extent, Contents)>,
}

#[derive(Clone, Debug)]
struct Slot {
    record: Arc<Stored>,
    is_durable: bool,
}

#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) label: Label,
    capacity: u64,
    ring: BTreeMap<Lsn, Slot>,
    pub(crate) volumes: Contents,
    /// What each cell may hold after a crash, besides what it holds now.
    durable: Contents,
    flushing: Option<Contents>,
    maps: Vec<(MemberId, DirtyMap)>,
    /// A copy at one moment, while the volumes are none.
    pub(crate) snapshot: Option<Contents>,
}

impl Disk {
    pub(crate) fn new(label: Label, capacity: u64) -> Self {
        Self {
            label,
            capacity,
            ring: BTreeMap::new(),
            volumes: empty(),
            durable: empty(),
            flushing: None,
            maps: Vec::new(),
            snapshot: None,
        }
    }

    /// A record comes into the ring; what lay at its place is gone.
    pub(crate) fn place(&mut self, record: Arc<Stored>) {
        let (lsn, end) = (record.entry.lsn, record.entry.end);
        let capacity = self.capacity;
        let (at, len) = (lsn.0 % capacity, end.0 - lsn.0);
        self.ring.retain(|other, slot| {
            let (its, its_len) = (other.0 % capacity, slot.record.entry.end.0 - other.0);
            its + its_len <= at || at + len <= its
        });
        self.ring.insert(lsn, Slot { record, is_durable: false });
    }

    /// What was placed below `to` is durable.
    pub(crate) fn persist(&mut self, to: Lsn) {
        for slot in self.ring.values_mut().filter(|slot| slot.record.entry.lsn < to) {
            slot.is_durable = true;
        }
    }

    pub(crate) fn record(&self, lsn: Lsn) -> Option<&Arc<Stored>> {
        self.ring.get(&lsn).map(|slot| &slot.record)
    }

    /// The records between two LSNs, if the ring has all of them.
    pub(crate) fn records(&self, from: Lsn, to: Lsn) -> Option<Vec<Arc<Stored>>> {
        let (mut at, mut found) = (from, Vec::new());
        while at < to {
            let record = self.record(at)?;
            at = record.entry.end;
            found.push(Arc::clone(record));
        }
        (at == to).then_some(found)
    }

    pub(crate) fn write(&mut self, extent: Extent, stamp: u64) {
        self.volumes[cells(extent)].fill(stamp);
    }

    pub(crate) fn apply(&mut self, record: &Stored) {
        let Some(extent) = record.entry.extent else { return };
        let is_write = record.entry.kind == Kind::Write;
        self.write(extent, if is_write { record.stamp } else { 0 });
    }

    pub(crate) fn begin_flush(&mut self) {
        self.flushing = Some(self.volumes.clone());
    }

    pub(crate) fn end_flush(&mut self) {
        if let Some(flushed) = self.flushing.take() {
            self.durable = flushed;
        }
    }

    pub(crate) fn store_map(&mut self, member: MemberId, map: &DirtyMap) {
        self.maps.retain(|(of, _)| *of != member);
        self.maps.push((member, map.clone()));
    }

    /// Power goes: what was not durable is there or not, piece by piece.
    pub(crate) fn crash(&mut self, chance: &Chance) {
        self.ring.retain(|_, slot| slot.is_durable || chance.happens(1, 2));
        for slot in self.ring.values_mut() {
            slot.is_durable = true;
        }
        let flushed = self.flushing.take();
        for (at, cell) in self.volumes.iter_mut().enumerate() {
            *cell = match (chance.below(3), &flushed) {
                (0, _) => self.durable[at],
                (1, Some(flushed)) => flushed[at],
                _ => *cell,
            };
        }
        self.durable.clone_from(&self.volumes);
    }

    /// A record that the label says was committed cannot be read any more, if there is one.
    pub(crate) fn damage(&mut self, chance: &Chance) -> bool {
        let committed: Vec<Lsn> =
            self.ring.range(self.label.start..self.label.committed).map(|it| *it.0).collect();
        if committed.is_empty() {
            return false;
        }
        self.ring.remove(&committed[chance.index(committed.len())]);
        true
    }

    /// Pages of dirty maps cannot be read: they lack everything.
    pub(crate) fn damage_maps(&mut self, chance: &Chance) {
        for (_, map) in self.maps.iter_mut().filter(|_| chance.happens(1, 2)) {
            let sizes: Vec<u64> = map.sizes().into_iter().collect();
            *map = DirtyMap::full(&sizes);
        }
    }

    /// A cell changes behind its owner's back, also where it was durable.
    pub(crate) fn rot(&mut self, cell: usize, into: u64) {
        self.volumes[cell] = into;
        self.durable[cell] = into;
    }

    /// What a member finds when it starts.
    pub(crate) fn found(&self) -> Found {
        let label = self.label.clone();
        let (mut at, mut chain, mut entries) = (label.start, label.start_chain, Vec::new());
        while let Some(record) = self.record(at) {
            let epoch = label.history.epoch_at(at).map(Epoch::tag);
            if record.chain != chain || epoch != Some(record.epoch) {
                break;
            }
            entries.push(record.entry);
            (at, chain) = (record.entry.end, record.entry.sum);
        }
        let behind = self.ring.values().map(|slot| &slot.record).filter(|record| {
            let is_kept = record.entry.end.0 <= label.start.0 + self.capacity;
            let epoch = label.history.epoch_at(record.entry.lsn).map(Epoch::tag);
            record.entry.lsn >= at && is_kept && epoch == Some(record.epoch)
        });
        let claimed = behind.map(|record| record.entry.committed).fold(label.committed, Lsn::max);
        Found { label, entries, dirty: self.maps.clone(), claimed }
    }
}
