//! Records that their threads place and commit themselves, side by side: where the only member in sync is memory of this
//! machine.
//!
//! ```text
//!   reserve, under the staging lock --> place, persist: each thread its own record --> publish
//!
//!   durable ......... [ under way ] [ done ] [ done ] .... reserved
//!           frontier ^ goes on once the first is done, over all that are done behind it
//! ```
//! A crash may leave a later record and not an earlier one. The log ends before the earlier one then, as none behind it was
//! acknowledged, and what lies behind never counts: the next opening begins a generation there.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use pmem::{Medium, MediumError};

use crate::format::{HEADER_LEN, Header, Kind, LogId};
use crate::lsn::{Generation, Lsn};
use crate::ring::Ring;
use crate::scan::to_u64;

/// The memory, if records may go there side by side. Whoever reserves holds it until the record is published.
#[derive(Debug, Default)]
pub(crate) struct Direct(RwLock<Option<Arc<dyn Medium>>>);

impl Direct {
    pub(crate) fn new(medium: Option<Arc<dyn Medium>>) -> Self {
        Self(RwLock::new(medium))
    }

    pub(crate) fn memory(&self) -> RwLockReadGuard<'_, Option<Arc<dyn Medium>>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on as `medium` says; what is under way has ended when this returns.
    pub(crate) fn set(&self, medium: Option<Arc<dyn Medium>>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = medium;
    }
}

/// Room for one record, and for the filler before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reserved {
    pub(crate) id: LogId,
    pub(crate) ring: Ring,
    pub(crate) generation: Generation,
    /// Where the filler begins, if there is one, and the record otherwise.
    pub(crate) start: Lsn,
    pub(crate) lsn: Lsn,
    pub(crate) end: Lsn,
    /// Everything below was durable when the room was reserved.
    pub(crate) durable: Lsn,
}

impl Reserved {
    pub(crate) fn range(&self) -> Range<Lsn> {
        self.start..self.end
    }

    /// Places the record, and makes it durable.
    pub(crate) fn write(&self, medium: &dyn Medium, record: &[u8]) -> Result<(), MediumError> {
        self.write_parts(medium, record).inspect_err(|_| {
            // Who gives up between parts drains those that are placed.
            let _ = medium.try_place(self.ring.offset(self.start), &[]);
        })
    }

    fn write_parts(&self, medium: &dyn Medium, record: &[u8]) -> Result<(), MediumError> {
        if self.start < self.lsn {
            let len = self.lsn.since(self.start) - to_u64(HEADER_LEN);
            let header = self.header(Kind::Filler, self.start, len).emit(&self.id, &[]);
            let mut line = [0; LINE];
            line[..HEADER_LEN].copy_from_slice(&header);
            self.place(medium, self.start, &line)?;
            medium.persist(self.ring.offset(self.start), to_u64(LINE))?;
        }
        let header = self.header(Kind::Data, self.lsn, to_u64(record.len()));
        let mut line = [0; LINE];
        line[..HEADER_LEN].copy_from_slice(&header.emit(&self.id, record));
        let (first, rest) = record.split_at(record.len().min(LINE - HEADER_LEN));
        line[HEADER_LEN..HEADER_LEN + first.len()].copy_from_slice(first);
        self.place(medium, self.lsn, &line)?;
        let (whole, last) = rest.split_at(rest.len() / LINE * LINE);
        let mut at = self.lsn.plus(to_u64(LINE));
        if !whole.is_empty() {
            self.place(medium, at, whole)?;
            at = at.plus(to_u64(whole.len()));
        }
        if !last.is_empty() {
            let mut line = [0; LINE];
            line[..last.len()].copy_from_slice(last);
            self.place(medium, at, &line)?;
        }
        #[cfg(test)]
        if crate::planted::Planted::SkipsCommit.is_here() {
            return Ok(());
        }
        medium.persist(self.ring.offset(self.lsn), self.end.since(self.lsn))
    }

    fn header(&self, kind: Kind, lsn: Lsn, length: u64) -> Header {
        let length = u32::try_from(length).expect("at most RECORD_MAX, and a filler is shorter");
        Header { kind, length, lsn, durable: self.durable, generation: self.generation }
    }

    /// Places a part; the thread's next persist drains all of them.
    fn place(&self, medium: &dyn Medium, at: Lsn, bytes: &[u8]) -> Result<(), MediumError> {
        let offset = self.ring.offset(at);
        match medium.try_place_part(offset, bytes) {
            Err(MediumError::WouldBlock) => medium.place(offset, bytes),
            outcome => outcome,
        }
    }
}

/// Up to where all is durable, and what is durable behind that.
#[derive(Debug)]
pub(crate) struct Frontier {
    durable: AtomicU64,
    /// In no order; as many as threads that append at once.
    done: Mutex<Vec<Range<Lsn>>>,
}

impl Frontier {
    pub(crate) fn new(durable: Lsn) -> Self {
        Self { durable: AtomicU64::new(durable.0), done: Mutex::default() }
    }

    /// Everything below is durable.
    pub(crate) fn durable(&self) -> Lsn {
        Lsn(self.durable.load(Ordering::Acquire))
    }

    /// A range that is durable. Ranges do not overlap, and every byte belongs to one.
    pub(crate) fn publish(&self, range: Range<Lsn>) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        let mut end = self.durable();
        #[cfg(test)]
        if crate::planted::Planted::PublishesOutOfOrder.is_here() {
            end = end.max(range.start);
        }
        if range.start != end {
            if !range.is_empty() {
                done.push(range);
            }
            return;
        }
        end = range.end;
        while let Some(next) = done.iter().position(|range| range.start == end) {
            end = done.swap_remove(next).end;
        }
        self.durable.store(end.0, Ordering::Release);
    }
}

/// A line of the processor's cache, which records do not share.
const LINE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_done_out_of_order_is_durable_once_all_before_it_is() {
        let frontier = Frontier::new(Lsn(64));
        frontier.publish(Lsn(192)..Lsn(256));
        frontier.publish(Lsn(256)..Lsn(320));
        assert_eq!(frontier.durable(), Lsn(64));
        frontier.publish(Lsn(64)..Lsn(128));
        assert_eq!(frontier.durable(), Lsn(128));
        frontier.publish(Lsn(128)..Lsn(128));
        frontier.publish(Lsn(128)..Lsn(192));
        assert_eq!(frontier.durable(), Lsn(320));
        assert!(frontier.done.lock().unwrap().is_empty());
    }
}
