//! Applications: each writes somewhere, waits for the answer, and writes again.

use std::sync::Arc;

use replica::core::{Draft, Entry, Event};
use replica::format::{Encoding, Extent, Kind};

use crate::disk::{CELL, CELLS, Stored, VOLUMES, cells};
use crate::member::{Work, Writer};
use crate::plan::MS;
use crate::world::{What, World};

impl World<'_> {
    pub(crate) fn write(&mut self, member: u8, at: usize) {
        let life = self.members[usize::from(member)].life;
        let (heals, may_write) = (self.heals, self.next_stamp <= self.plan.writes_max);
        let Some(process) = self.process(member) else { return };
        match process.writers[at] {
            Writer::Idle => {
                if heals {
                    return;
                }
                let is_open = process.is_open && may_write;
                let delay = match is_open && self.submit(member, at) {
                    true => self.chance.skewed(1_000, MS),
                    false => self.chance.skewed(MS, 20 * MS),
                };
                self.later(delay, What::Writer(member, life, at));
            }
            Writer::Placing(work) => {
                process.writers[at] = Writer::Waiting(work);
                if let Some(pad) = work.pad {
                    self.step(member, Event::Placed(pad));
                }
                self.step(member, Event::Placed(work.lsn));
                // It may be committed already.
                let Some(process) = self.process(member) else { return };
                if !process.core.is_source() || process.is_stopping {
                    process.writers[at] = Writer::Idle;
                    self.later(MS, What::Writer(member, life, at));
                }
            }
            Writer::Waiting(_) => {}
            Writer::Applying(work) => {
                process.writers[at] = Writer::Idle;
                if let Some(extent) = work.extent {
                    self.members[usize::from(member)].disk.write(extent, work.stamp);
                    if let Err(fault) = self.truth.is_acknowledged(extent, work.stamp, work.sum) {
                        self.fault = Some(format!("member {member} acknowledges: {fault}"));
                    }
                }
                self.history(|| {
                    let at = work.extent.map(cells);
                    format!(
                        "member {member} answers write {} of cells {at:?}, at {}",
                        work.stamp, work.lsn
                    )
                });
                self.step(member, Event::Applied(work.lsn));
                let delay = self.chance.skewed(1_000, 5 * MS);
                self.later(delay, What::Writer(member, life, at));
            }
        }
    }

    pub(crate) fn submit(&mut self, member: u8, at: usize) -> bool {
        let volume = u8::try_from(self.chance.below(VOLUMES.into())).unwrap_or(0);
        let Some(process) = self.process(member) else { return false };
        let size = process.core.sizes()[usize::from(volume)] / CELL;
        let first = self.chance.below(size);
        let mut len = (1 + self.chance.below(3)).min(size - first);
        let (mut begin, mut kind) = (first, Kind::Write);
        match self.chance.below(80) {
            0..4 => kind = Kind::Mark,
            4..8 => kind = Kind::Zero,
            8..16 => kind = Kind::Trim,
            16 if size < CELLS => {
                len = (1 + self.chance.below(2)).min(CELLS - size);
                (begin, kind) = (size, Kind::Resize);
            }
            _ => {}
        }
        let extent = Extent { volume, offset: begin * CELL, len: len * CELL };
        let (stamp, first_sum, time_ns) = (self.next_stamp, self.next_sum, self.day_of(member));
        let Some(process) = self.process(member) else { return false };
        if process.touches(extent) {
            return false;
        }
        let stored = match kind {
            Kind::Write => u32::try_from(extent.len).unwrap_or(0),
            Kind::Mark => 10,
            _ => 0,
        };
        let draft = Draft {
            kind,
            encoding: Encoding::Plain,
            volume,
            stored,
            offset: extent.offset,
            len: extent.len,
            time_ns,
        };
        let seal = |record: &replica::format::Record| {
            if record.kind == Kind::Pad { first_sum } else { first_sum + 1 }
        };
        let Ok(admitted) = process.core.submit(draft, seal) else { return false };
        self.next_sum += 2;
        self.next_stamp += 1;
        let mut stored = Vec::new();
        for record in admitted.pad.iter().chain([&admitted.record]) {
            let entry = Entry::of(record, seal(record));
            let stamp = if record.kind == Kind::Write { stamp } else { 0 };
            stored.push(Arc::new(Stored {
                entry,
                epoch: record.epoch,
                chain: record.chain,
                stamp,
                compares: None,
            }));
        }
        for record in stored {
            self.truth.is_issued(&record);
            self.members[usize::from(member)].disk.place(record);
        }
        let record = admitted.record;
        let Some(process) = self.process(member) else { return false };
        process.writers[at] = Writer::Placing(Work {
            pad: admitted.pad.map(|pad| pad.lsn),
            lsn: record.lsn,
            end: record.end(),
            extent: record.changes(),
            stamp: if kind == Kind::Write { stamp } else { 0 },
            sum: seal(&record),
        });
        true
    }
}
