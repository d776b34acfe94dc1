//! What the volumes have to hold: the last acknowledged write of each cell, or one that was not answered.

use std::collections::HashMap;
use std::sync::Arc;

use replica::format::{Extent, Kind};

use crate::disk::{Contents, Stored, cells, empty};

#[derive(Debug)]
pub(crate) struct Truth {
    acknowledged: Contents,
    /// Of each cell: writes without an answer.
    pending: Vec<Vec<u64>>,
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
        Self { acknowledged, pending, behind, is_lossy: false, acknowledged_count: 0 }
    }

    pub(crate) fn is_issued(&mut self, record: &Stored) {
        let before = self.behind.get(&record.chain).cloned().unwrap_or_else(|| Arc::new(empty()));
        let mut after = Contents::clone(&before);
        if let Some(extent) = record.entry.extent {
            let stamp = if record.entry.kind == Kind::Write { record.stamp } else { 0 };
            after[cells(extent)].fill(stamp);
            for cell in cells(extent) {
                self.pending[cell].push(stamp);
            }
        }
        self.behind.insert(record.entry.sum, Arc::new(after));
    }

    pub(crate) fn is_acknowledged(&mut self, extent: Extent, stamp: u64) {
        self.acknowledged_count += 1;
        for cell in cells(extent) {
            self.acknowledged[cell] = stamp;
            self.pending[cell].clear();
        }
    }

    /// Whether a source may show these volumes. What it shows stays.
    pub(crate) fn check(&mut self, shown: &Contents) -> Result<(), String> {
        for (cell, stamp) in shown.iter().enumerate() {
            let is_pending = self.pending[cell].contains(stamp);
            if *stamp != self.acknowledged[cell] && !is_pending && !self.is_lossy {
                return Err(format!(
                    "cell {cell} holds write {stamp}; acknowledged is {}, unanswered {:?}",
                    self.acknowledged[cell], self.pending[cell]
                ));
            }
            if is_pending || self.is_lossy {
                self.acknowledged[cell] = *stamp;
                self.pending[cell].clear();
            }
        }
        Ok(())
    }

    /// Whether a source may let read these volumes now.
    pub(crate) fn may_be_read(&self, shown: &Contents) -> Result<(), String> {
        let is_old = |cell: usize| {
            shown[cell] != self.acknowledged[cell] && !self.pending[cell].contains(&shown[cell])
        };
        let old = (0..shown.len()).find(|cell| !self.is_lossy && is_old(*cell));
        old.map_or(Ok(()), |cell| {
            let (found, wanted) = (shown[cell], self.acknowledged[cell]);
            Err(format!("cell {cell} holds write {found}; acknowledged is {wanted}"))
        })
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
