//! The memory of a member: labels, dirty maps, and the ring of records.
//!
//! ```text
//!   place (any thread, any order) -> persist -> durable
//!   store_dirty -> store_label with a later start -> room before it is used again
//!   open -> scan: what is in the ring is made durable, and is all there is
//! ```
//! The memory is a [`pmem::Medium`]: persistent memory, or a file. It is a copy of the order, never its author: which
//! record lies where, and when room is used again, the core says.
//!
//! docs/replica-format.md describes the format and what a crash leaves.

mod create;
mod error;
mod labels;
mod scan;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::fs::File;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use log::Lsn;
use pmem::{DurabilityClass, Medium};

pub use self::create::CreateOptions;
pub use self::error::{OpenCause, OpenError, RingError};
pub use self::scan::Scanned;
use crate::dirty::{DIRTY_PAGE_LEN, DIRTY_PAGES, DirtyMap};
use crate::format::{
    Geometry, LABEL_LEN, Label, RECORD_ALIGN, RECORD_HEADER_LEN, RecordKeys, crc32c,
};
use crate::names::{GroupId, MemberId};
#[cfg(test)]
use crate::planted::Planted;

/// The memory of a member. Every method may be called from any thread at any time; what threads place at once must
/// not overlap.
#[derive(Debug)]
pub struct Ring {
    medium: Arc<dyn Medium>,
    geometry: Geometry,
    group: GroupId,
    /// Start of the label that is durable: room below it may be used again.
    start: AtomicU64,
    labels: Mutex<Labels>,
    /// One slot had no label: a newer one may have been lost there, and the one in force be older than the records.
    looks_far: bool,
    /// Locked for as long as the ring lives, so that no second program uses it.
    owned: Option<File>,
    /// Of records that are sealed.
    keys: Option<Arc<RecordKeys>>,
}

/// Which label is in force.
#[derive(Debug)]
struct Labels {
    sequence: u64,
    slot: u8,
}

impl Ring {
    /// The group.
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Records that are sealed are read with these keys; without, none counts.
    #[must_use]
    pub fn with_keys(mut self, keys: Option<Arc<RecordKeys>>) -> Self {
        self.keys = keys;
        self
    }

    /// The keys of records that are sealed.
    pub fn keys(&self) -> Option<&RecordKeys> {
        self.keys.as_deref()
    }

    /// How the memory is divided.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Bytes of the ring.
    pub fn capacity(&self) -> u64 {
        self.geometry.capacity
    }

    /// The memory, for devices that write to it directly; [`Ring::offset`] says where.
    pub fn medium(&self) -> &Arc<dyn Medium> {
        &self.medium
    }

    /// Lets others open the file. The caller has ended all use of the ring.
    pub(crate) fn release(&self) {
        if let Some(file) = &self.owned {
            let _ = rustix::fs::flock(file, rustix::fs::FlockOperation::Unlock);
        }
    }

    /// Where in the memory the byte at `lsn` lies.
    pub fn offset(&self, lsn: Lsn) -> u64 {
        self.geometry.ring() + lsn.0 % self.geometry.capacity
    }

    /// Bytes that a write which a crash interrupts may damage beside those that it changes: a sector of a disk; none of
    /// memory, where records share no cache line.
    ///
    /// Where a record begins in the unit in which an acknowledged one ends, the acknowledged one rests on the promise of
    /// the disk that it writes sectors whole. A source that does not trust its members' disks so far fills up to
    /// the next multiple of the greatest unit with a [`crate::format::Kind::Pad`] before it persists.
    pub fn unit(&self) -> u64 {
        match self.medium.class() {
            DurabilityClass::Storage => SECTOR,
            DurabilityClass::Pmem | DurabilityClass::Volatile => RECORD_ALIGN,
        }
    }

    /// Puts a record with its header, from [`crate::format::Record::encode`], and the zeros behind it into the ring's
    /// memory. Not durable.
    ///
    /// # Errors
    ///
    /// [`RingError::NoRoom`] where the room is not free, by the label that is durable, or the record would cross the end
    /// of the ring; otherwise what the medium says.
    pub fn place(&self, lsn: Lsn, header: &[u8; 64], payload: &[u8]) -> Result<(), RingError> {
        let span = (RECORD_HEADER_LEN + length_of(payload)).next_multiple_of(RECORD_ALIGN);
        self.check_room(lsn, span)?;
        let offset = self.offset(lsn);
        if span > self.until_end(lsn) {
            return Err(RingError::Crosses { lsn, len: span });
        }
        // One call of the medium for most records: a copy of 64 KiB costs less than a system call or a fence more.
        let (first, rest) = payload.split_at(payload.len().min(FIRST_LEN));
        SCRATCH.with_borrow_mut(|scratch| {
            scratch.clear();
            scratch.extend_from_slice(header);
            scratch.extend_from_slice(first);
            if rest.is_empty() {
                scratch.resize(scratch.len().next_multiple_of(LINE), 0);
            }
            self.medium.place(offset, scratch)
        })?;
        let offset = offset + RECORD_HEADER_LEN + length_of(first);
        let (lines, last) = rest.split_at(rest.len() / LINE * LINE);
        if !lines.is_empty() {
            self.medium.place(offset, lines)?;
        }
        if !last.is_empty() {
            let mut line = [0; LINE];
            line[..last.len()].copy_from_slice(last);
            self.medium.place(offset + length_of(lines), &line)?;
        }
        Ok(())
    }

    /// Puts bytes of another member's ring into the ring's memory, at the same place. Not durable.
    ///
    /// # Errors
    ///
    /// As [`Ring::place`]; the bytes may lie on both sides of the end of the ring.
    pub fn place_bytes(&self, lsn: Lsn, bytes: &[u8]) -> Result<(), RingError> {
        self.check_room(lsn, length_of(bytes))?;
        let mut rest = bytes;
        for (offset, len) in self.pieces(lsn, lsn.plus(length_of(bytes))) {
            let (piece, after) = rest.split_at(usize::try_from(len).expect("a part of a slice"));
            self.medium.place(offset, piece)?;
            rest = after;
        }
        Ok(())
    }

    /// Makes everything durable that was placed between the LSNs.
    ///
    /// # Durability
    ///
    /// On `Ok` the bytes survive as they were placed by calls that had returned when this one began. A crash before
    /// leaves any mixture of old and new words of 8 bytes, of memory, or sectors of 512, of a disk.
    ///
    /// # Errors
    ///
    /// What the medium says; it is then unknown what is durable, and every later call fails.
    pub fn persist(&self, from: Lsn, to: Lsn) -> Result<(), RingError> {
        #[cfg(test)]
        if Planted::SkipsPersist.is_here() {
            return Ok(());
        }
        self.check_range(from, to)?;
        for (offset, len) in self.pieces(from, to) {
            self.medium.persist(offset, len)?;
        }
        Ok(())
    }

    /// [`Ring::persist`] of bytes that a device wrote, or a program that has died.
    ///
    /// # Durability
    ///
    /// As [`Ring::persist`], of all that was visible when the call began.
    ///
    /// # Errors
    ///
    /// As [`Ring::persist`].
    pub fn persist_foreign(&self, from: Lsn, to: Lsn) -> Result<(), RingError> {
        self.check_range(from, to)?;
        for (offset, len) in self.pieces(from, to) {
            self.medium.persist_foreign(offset, len)?;
        }
        Ok(())
    }

    /// Reads what lies between `lsn` and `lsn` plus the length of `out`.
    ///
    /// # Errors
    ///
    /// What the medium says, or [`RingError::NoRoom`] of more than the capacity.
    pub fn read(&self, lsn: Lsn, out: &mut [u8]) -> Result<(), RingError> {
        let to = Lsn(lsn.0.saturating_add(length_of(out)));
        self.check_range(lsn, to)?;
        let mut rest = out;
        for (offset, len) in self.pieces(lsn, to) {
            let (piece, after) = rest.split_at_mut(usize::try_from(len).expect("part of a slice"));
            self.medium.read(offset, piece)?;
            rest = after;
        }
        Ok(())
    }

    /// The label that is in force; it is durable.
    ///
    /// # Errors
    ///
    /// What the medium says, or that neither slot holds a label.
    pub fn load_label(&self) -> Result<Label, RingError> {
        let _labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        let (label, _, _) = labels::newest_label(&*self.medium)?;
        Ok(label)
    }

    /// Stores a label. Its sequence must be greater than that of the one in force.
    ///
    /// # Durability
    ///
    /// On `Ok` the label is in force for good, and room below its start may be used again. A crash before leaves it, or the
    /// one before it, whole.
    ///
    /// # Errors
    ///
    /// [`RingError::Sequence`], [`RingError::OtherGroup`]; otherwise what the medium says: it is then unknown which label
    /// is in force after a crash.
    pub fn store_label(&self, label: &Label) -> Result<(), RingError> {
        let mut labels = self.labels.lock().unwrap_or_else(PoisonError::into_inner);
        if label.sequence <= labels.sequence {
            return Err(RingError::Sequence { found: labels.sequence, stored: label.sequence });
        }
        if label.group != self.group {
            return Err(RingError::OtherGroup { found: self.group, wanted: label.group });
        }
        let slot = 1 - labels.slot;
        #[cfg(test)]
        let slot = if Planted::UsesOneSlot.is_here() { labels.slot } else { slot };
        let offset = Geometry::label(slot);
        self.medium.place(offset, &label.encode(&self.geometry))?;
        self.persist_label(offset)?;
        *labels = Labels { sequence: label.sequence, slot };
        self.start.store(label.start.0, Ordering::Release);
        Ok(())
    }

    fn persist_label(&self, offset: u64) -> Result<(), RingError> {
        #[cfg(test)]
        if Planted::FreesBeforeLabel.is_here() {
            return Ok(());
        }
        Ok(self.medium.persist(offset, LABEL_LEN as u64)?)
    }

    /// Stores a map of `member` after [`DirtyMap::take_changed`], or a clone of it. Every map that was taken is to be
    /// stored, in order.
    ///
    /// # Durability
    ///
    /// On `Ok` the map is durable as it was taken. After a crash before, each page is as it was before or afterwards, or
    /// has every bit.
    ///
    /// # Errors
    ///
    /// [`RingError::NoMap`] without room for the map; otherwise what the medium says.
    pub fn store_dirty(&self, member: MemberId, map: &DirtyMap) -> Result<(), RingError> {
        let (mut first, mut end) = (u64::MAX, 0);
        for (at, mut page) in map.pages_to_store() {
            let offset = self.page(member, at)?;
            self.seal(member, &mut page);
            self.medium.place(offset, &page)?;
            (first, end) = (first.min(offset), end.max(offset + DIRTY_PAGE_LEN as u64));
        }
        if first < end {
            self.medium.persist(first, end - first)?;
        }
        Ok(())
    }

    /// The map of `member` for volumes of these sizes as it was stored; everything is lacking where nothing was.
    ///
    /// # Errors
    ///
    /// [`RingError::NoMap`] without room for such a map; otherwise what the medium says.
    pub fn load_dirty(&self, member: MemberId, sizes: &[u64]) -> Result<DirtyMap, RingError> {
        DirtyMap::load(sizes, |at| {
            let offset = self.page(member, at)?;
            let mut page = [0; DIRTY_PAGE_LEN];
            self.medium.read(offset, &mut page)?;
            self.seal(member, &mut page);
            Ok(page)
        })
    }

    /// Mixes the group and the member into a page's checksum, or takes them out: a page of another map is not sound.
    fn seal(&self, member: MemberId, page: &mut [u8; DIRTY_PAGE_LEN]) {
        let seal = crc32c(&[&self.group.0, &[member.0]]).to_le_bytes();
        page.iter_mut().zip(seal).for_each(|(byte, seal)| *byte ^= seal);
    }

    /// Where in the memory the page lies that the persistent form of a map has at `at`.
    fn page(&self, member: MemberId, at: u64) -> Result<u64, RingError> {
        let page_len = DIRTY_PAGE_LEN as u64;
        let number = at / page_len;
        let (volume, page) = (number / u64::from(DIRTY_PAGES), number % u64::from(DIRTY_PAGES));
        let pages = u64::from(self.geometry.volume_pages);
        let has_room = volume < u64::from(self.geometry.volumes)
            && page < pages
            && at.is_multiple_of(page_len);
        let map = self.geometry.map(member).filter(|_| has_room);
        let map = map.ok_or(RingError::NoMap { member, offset: at })?;
        Ok(map + (volume * pages + page) * page_len)
    }

    /// Bytes from `lsn` to the end of the ring.
    fn until_end(&self, lsn: Lsn) -> u64 {
        self.geometry.capacity - lsn.0 % self.geometry.capacity
    }

    /// The one or two pieces of the memory between two LSNs.
    fn pieces(&self, from: Lsn, to: Lsn) -> impl Iterator<Item = (u64, u64)> {
        let mut at = from;
        std::iter::from_fn(move || {
            let len = to.since(at).min(self.until_end(at));
            let piece = (self.offset(at), len);
            at = at.plus(len);
            (len > 0).then_some(piece)
        })
    }

    /// Whether bytes may be placed.
    fn check_room(&self, lsn: Lsn, len: u64) -> Result<(), RingError> {
        let start = Lsn(self.start.load(Ordering::Acquire));
        let end = lsn.0.checked_add(len);
        let limit = start.plus(self.geometry.capacity);
        if lsn < start || end.is_none_or(|end| end > limit.0) {
            return Err(RingError::NoRoom { lsn, len, start, limit });
        }
        Ok(())
    }

    /// Whether a range is no longer than the ring.
    fn check_range(&self, from: Lsn, to: Lsn) -> Result<(), RingError> {
        let len = to.since(from);
        if len > self.geometry.capacity {
            let start = Lsn(self.start.load(Ordering::Acquire));
            return Err(RingError::NoRoom { lsn: from, len, start, limit: to });
        }
        Ok(())
    }
}

fn length_of(bytes: &[u8]) -> u64 {
    u64::try_from(bytes.len()).expect("no supported machine has more than 64 address bits")
}

/// The smallest unit of disks.
const SECTOR: u64 = 512;
const LINE: usize = 64;
/// Bytes of a payload that are placed together with the header: a multiple of [`LINE`].
const FIRST_LEN: usize = 64 << 10;

const _: () = assert!(LINE as u64 == RECORD_ALIGN && FIRST_LEN.is_multiple_of(LINE));

thread_local! {
    static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}
