//! What the volumes have to hold: the last acknowledged write of each cell, or one that was not answered.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use replica::format::{Extent, Kind};

use crate::disk::{Contents, Stored, cells, empty};

/// A write of a cell that was not answered, nor read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Pending {
    /// Of its record, which no other has.
    sum: u32,
    stamp: u64,
}

#[derive(Debug)]
pub(crate) struct Truth {
    /// Of each cell: the last write that was answered, or that a reader has seen.
    acknowledged: Contents,
    /// Of each cell: writes without an answer, in the order in which they were made.
    pending: Vec<Vec<Pending>>,
    /// Of a cell: records without which a source began. Nobody answers them any more.
    lost: HashSet<(usize, u32)>,
    /// What the volumes hold behind the record with this checksum, along its order.
    behind: HashMap<u32, Arc<Contents>>,
    /// Acknowledged writes may be lost: an operator promoted by force, or a member that flushes later.
    pub(crate) is_lossy: bool,
    pub(crate) acknowledged_count: u64,
}

impl Truth {
    pub(crate) fn new() -> Self {
        let acknowledged = empty();
        let pending = acknowledged.iter().map(|_| Vec::new()).collect();
        let behind = HashMap::from([(0, Arc::new(empty()))]);
        Self {
            acknowledged,
            pending,
            lost: HashSet::new(),
            behind,
            is_lossy: false,
            acknowledged_count: 0,
        }
    }

    pub(crate) fn is_issued(&mut self, record: &Stored) {
        let before = self.behind.get(&record.chain).cloned().unwrap_or_else(|| Arc::new(empty()));
        let mut after = Contents::clone(&before);
        if let Some(extent) = record.entry.extent {
            let stamp = if record.entry.kind == Kind::Write { record.stamp } else { 0 };
            after[cells(extent)].fill(stamp);
            for cell in cells(extent) {
                self.pending[cell].push(Pending { sum: record.entry.sum, stamp });
            }
        }
        self.behind.insert(record.entry.sum, Arc::new(after));
    }

    /// A writer is told that its write is done. One that another source, or a reader, has seen before counts from then on: what
    /// came behind it stays.
    pub(crate) fn is_acknowledged(
        &mut self,
        extent: Extent,
        stamp: u64,
        sum: u32,
    ) -> Result<(), String> {
        self.acknowledged_count += 1;
        for cell in cells(extent) {
            if self.pending[cell].iter().any(|it| it.sum == sum) {
                self.acknowledged[cell] = stamp;
                self.pending[cell].clear();
            } else if self.lost.contains(&(cell, sum)) && !self.is_lossy {
                return Err(format!("write {stamp} of cell {cell}, without which a source began"));
            }
        }
        Ok(())
    }

    /// Whether a source may begin with these volumes. What it shows stays, and what it does not show never comes.
    pub(crate) fn check(&mut self, shown: &Contents) -> Result<(), String> {
        for (cell, stamp) in shown.iter().enumerate() {
            let seen = self.pending[cell].iter().rposition(|it| it.stamp == *stamp);
            if *stamp != self.acknowledged[cell] && seen.is_none() && !self.is_lossy {
                return Err(format!(
                    "cell {cell} holds write {stamp}; acknowledged is {}, unanswered {:?}",
                    self.acknowledged[cell], self.pending[cell]
                ));
            }
            self.acknowledged[cell] = *stamp;
            let behind = seen.map_or(0, |at| at + 1);
            for pending in self.pending[cell].drain(..).skip(behind) {
                self.lost.insert((cell, pending.sum));
            }
        }
        Ok(())
    }

    /// Whether a source may let read these volumes now. What was read once stays.
    pub(crate) fn is_read(&mut self, shown: &Contents) -> Result<(), String> {
        if self.is_lossy {
            return Ok(());
        }
        for (cell, stamp) in shown.iter().enumerate() {
            if *stamp == self.acknowledged[cell] {
                continue;
            }
            let Some(at) = self.pending[cell].iter().rposition(|it| it.stamp == *stamp) else {
                return Err(format!(
                    "cell {cell} holds write {stamp}; acknowledged, or read before, is {}",
                    self.acknowledged[cell]
                ));
            };
            self.acknowledged[cell] = *stamp;
            self.pending[cell].drain(..=at);
        }
        Ok(())
    }

    /// Whether volumes are what the records up to the one with this checksum made.
    pub(crate) fn is_behind(&self, sum: u32, shown: &Contents) -> Result<(), String> {
        let Some(behind) = self.behind.get(&sum) else {
            return Err(format!("no record has the checksum {sum}"));
        };
        let differs = (0..shown.len()).find(|cell| behind[*cell] != shown[*cell]);
        differs.map_or(Ok(()), |cell| {
            Err(format!("cell {cell} holds write {}, not {}", shown[cell], behind[cell]))
        })
    }
}
