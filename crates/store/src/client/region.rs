//! A mapped region: reads, writes, atomic operations.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::io::Kind;
use super::notes_line::NotesLine;
use super::{Inner, Shared, StoreError, issue};
use crate::layout::wide;
use crate::meta::record::RegionRecord;
use crate::token::Rights;

/// A mapped region. Offsets count from its beginning.
///
/// A write that has returned is **visible**: it is at every copy in sync, and every later read of any client sees it. It
/// is **durable** only by [`Region::write_durable`] or [`Region::commit`], in the class of the region. Operations that
/// are submitted together have no order among themselves; writes of several clients to the same bytes at the same time
/// leave the bytes of one of them, not necessarily of the same one at every copy, until the next write.
#[derive(Debug)]
pub struct Region {
    pub(super) shared: Arc<Shared>,
    pub(super) index: usize,
    pub(super) name: String,
    pub(super) len: u64,
    pub(super) notes: NotesLine,
}

/// Names a submitted operation of a region.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Ticket(pub u64);

/// A submitted operation that has ended.
#[derive(Debug)]
pub struct Completion {
    /// Its ticket.
    pub ticket: Ticket,
    /// What it gave.
    pub outcome: Result<Outcome, StoreError>,
}

/// What an operation gave.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// A write is visible, or durable if that was asked for.
    Done,
    /// The bytes of a read.
    Bytes(Vec<u8>),
    /// The word before an atomic operation.
    Word(u64),
}

impl Region {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no byte: no region has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where its bytes are, as it was mapped last.
    pub fn record(&self) -> RegionRecord {
        self.shared.lock().regions[self.index].record.clone()
    }

    /// Reads into `out`.
    ///
    /// # Errors
    /// The range lies outside; no copy in sync can be reached.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), StoreError> {
        self.read_many(&mut [(offset, out)])
    }

    /// Writes; on return the bytes are visible at every copy in sync.
    ///
    /// # Errors
    /// The range lies outside, the region is mapped to read, or a copy that has no other in sync cannot be reached: then
    /// some of the bytes may be written.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.write_many(&[(offset, bytes)])
    }

    /// Reads several ranges at once.
    ///
    /// # Errors
    /// As [`Region::read`]; then nothing is known of what the buffers hold.
    pub fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<(), StoreError> {
        for group in reads.chunks_mut(OUTSTANDING_MAX / 2) {
            let ids = {
                let mut inner = self.begin()?;
                let ranges = group.iter().map(|(offset, out)| (*offset, out.len()));
                self.check_all(ranges)?;
                let start = |(offset, out): &(u64, &mut [u8])| {
                    let mut buffer = inner.io.buffer();
                    buffer.resize(out.len(), 0);
                    self.start(&mut inner, Kind::Read, *offset, buffer)
                };
                group.iter().map(start).collect::<Vec<_>>()
            };
            self.finish(&ids, |at, bytes| group[at].1.copy_from_slice(bytes))?;
        }
        Ok(())
    }

    /// Writes several ranges at once, in no order among themselves; on return all are visible.
    ///
    /// # Errors
    /// As [`Region::write`]; then some of the writes may have been made.
    pub fn write_many(&self, writes: &[(u64, &[u8])]) -> Result<(), StoreError> {
        self.write_all(writes, false)
    }

    /// [`Region::write`], and the bytes are durable in the region's class on return.
    ///
    /// # Durability
    /// On `Ok` the bytes survive what the class survives, at every copy in sync. A crash before leaves any mixture of
    /// old and new aligned 8-byte words, not necessarily the same one at every copy.
    ///
    /// # Errors
    /// As [`Region::write`]; [`StoreError::Volatile`].
    pub fn write_durable(&self, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        self.write_all(&[(offset, bytes)], true)
    }

    fn write_all(&self, writes: &[(u64, &[u8])], durable: bool) -> Result<(), StoreError> {
        for group in writes.chunks(OUTSTANDING_MAX / 2) {
            let ids = {
                let mut inner = self.begin()?;
                self.check_all(group.iter().map(|(offset, bytes)| (*offset, bytes.len())))?;
                self.check_writable(&inner, durable)?;
                let start = |(offset, bytes): &(u64, &[u8])| {
                    let mut buffer = inner.io.buffer();
                    buffer.extend_from_slice(bytes);
                    self.start(&mut inner, Kind::Write { durable }, *offset, buffer)
                };
                group.iter().map(start).collect::<Vec<_>>()
            };
            self.finish(&ids, |_, _| {})?;
        }
        Ok(())
    }

    /// Makes everything durable that this client wrote to the range before.
    ///
    /// # Durability
    /// On `Ok` the bytes survive what the region's class survives, at every copy in sync.
    ///
    /// # Errors
    /// As [`Region::write_durable`]; once [`StoreError::Lost`] where the only server that had them lost power since: then
    /// what this client wrote since its last commit of everything may be gone.
    pub fn commit(&self, offset: u64, len: u64) -> Result<(), StoreError> {
        let (id, writes) = {
            let mut inner = self.begin()?;
            let bytes = usize::try_from(len).unwrap_or(usize::MAX);
            self.check_all(std::iter::once((offset, bytes)))?;
            self.check_writable(&inner, true)?;
            let unconfirmed = &mut inner.regions[self.index].unconfirmed;
            if let Some(server) = unconfirmed.take_lost() {
                return Err(StoreError::Lost { name: self.name.clone(), server });
            }
            let writes = unconfirmed.writes();
            let id = inner.io.op(self.index, Kind::Commit, offset, Vec::new());
            inner.io.ops[id].len = bytes;
            issue(&mut inner, id);
            (id, writes)
        };
        self.finish(&[id], |_, _| {})?;
        let mut inner = self.shared.lock();
        let unconfirmed = &mut inner.regions[self.index].unconfirmed;
        unconfirmed.committed(offset..offset.saturating_add(len), writes);
        Ok(())
    }

    /// Adds to the little-endian word at a multiple of 8 and returns what it was.
    ///
    /// With several copies no two clients get the same number even where a server is lost in between, and the sum
    /// has every acknowledged addition. Where the first copy is lost before it answered, the addition was made and
    /// nobody knows its number: [`StoreError::InDoubt`]. An addition of a client that died in the middle may take effect
    /// when the first copy is lost.
    ///
    /// # Errors
    /// As [`Region::write`]; [`StoreError::Misaligned`]; [`StoreError::InDoubt`].
    pub fn fetch_add(&self, offset: u64, add: u64) -> Result<u64, StoreError> {
        self.atomic(offset, Kind::FetchAdd { add })
    }

    /// Stores `swap` in the word at a multiple of 8 if it is `compare`, and returns what it was.
    ///
    /// # Errors
    /// As [`Region::fetch_add`]; [`StoreError::SwapOfCopies`] for a region of several copies.
    pub fn compare_swap(&self, offset: u64, compare: u64, swap: u64) -> Result<u64, StoreError> {
        let copies = self.shared.lock().regions[self.index].record.copies;
        if copies > 1 {
            return Err(StoreError::SwapOfCopies(copies));
        }
        self.atomic(offset, Kind::CompareSwap { compare, swap })
    }

    fn atomic(&self, offset: u64, kind: Kind) -> Result<u64, StoreError> {
        let id = {
            let mut inner = self.begin()?;
            self.check_atomic(&inner, offset)?;
            self.start(&mut inner, kind, offset, Vec::new())
        };
        let mut word = 0;
        self.finish_with(&[id], |_, _, value| word = value)?;
        Ok(word)
    }

    /// Submits a read; [`Region::next_completion`] returns the bytes.
    ///
    /// # Errors
    /// The range lies outside; [`StoreError::QueueFull`].
    pub fn submit_read(&self, offset: u64, len: usize) -> Result<Ticket, StoreError> {
        let mut inner = self.begin()?;
        self.check_all(std::iter::once((offset, len)))?;
        let mut buffer = inner.io.buffer();
        buffer.resize(len, 0);
        self.submit(&mut inner, Kind::Read, offset, buffer)
    }

    /// Submits a write, durable on completion if `durable`.
    ///
    /// # Errors
    /// The range lies outside; the region is mapped to read; [`StoreError::Volatile`]; [`StoreError::QueueFull`].
    pub fn submit_write(
        &self,
        offset: u64,
        bytes: &[u8],
        durable: bool,
    ) -> Result<Ticket, StoreError> {
        let mut inner = self.begin()?;
        self.check_all(std::iter::once((offset, bytes.len())))?;
        self.check_writable(&inner, durable)?;
        let mut buffer = inner.io.buffer();
        buffer.extend_from_slice(bytes);
        self.submit(&mut inner, Kind::Write { durable }, offset, buffer)
    }

    /// Submits a [`Region::fetch_add`].
    ///
    /// # Errors
    /// As it.
    pub fn submit_fetch_add(&self, offset: u64, add: u64) -> Result<Ticket, StoreError> {
        let mut inner = self.begin()?;
        self.check_atomic(&inner, offset)?;
        self.submit(&mut inner, Kind::FetchAdd { add }, offset, Vec::new())
    }

    /// The next submitted operation that has ended, in the order of their ends; waits for `patience` at most.
    ///
    /// # Errors
    /// [`StoreError::NothingOutstanding`]; [`StoreError::Timeout`].
    pub fn next_completion(&self, patience: Duration) -> Result<Completion, StoreError> {
        let deadline = self.shared.now().checked_add(patience);
        let mut found = None;
        self.shared.await_done(|inner| {
            let mapped = &mut inner.regions[self.index];
            if let Some(id) = mapped.done.pop_front() {
                mapped.submitted -= 1;
                found = Some(Ok(id));
            } else if mapped.submitted == 0 {
                found = Some(Err(StoreError::NothingOutstanding));
            } else if deadline.is_some_and(|deadline| self.shared.now() >= deadline) {
                found = Some(Err(StoreError::Timeout));
            }
            found.is_some()
        });
        let id = found.expect("the wait is over when something was found")?;
        let mut inner = self.shared.lock();
        let op = inner.io.ops.remove(id).expect("an operation stays until it is taken");
        let outcome = match (op.error, op.kind) {
            (Some(error), _) => Err(error),
            (None, Kind::Read) => Ok(Outcome::Bytes(op.buffer)),
            (None, kind) if kind.is_atomic() => Ok(Outcome::Word(op.value)),
            (None, _) => {
                inner.io.give_back(op.buffer);
                Ok(Outcome::Done)
            }
        };
        Ok(Completion { ticket: Ticket(op.ticket), outcome })
    }

    /// Operations that are submitted and not taken.
    pub fn outstanding(&self) -> usize {
        self.shared.lock().regions[self.index].submitted
    }

    fn submit(
        &self,
        inner: &mut Inner,
        kind: Kind,
        offset: u64,
        buffer: Vec<u8>,
    ) -> Result<Ticket, StoreError> {
        let mapped = &mut inner.regions[self.index];
        if mapped.submitted >= OUTSTANDING_MAX {
            return Err(StoreError::QueueFull(mapped.submitted));
        }
        mapped.submitted += 1;
        mapped.tickets += 1;
        let ticket = mapped.tickets;
        let id = inner.io.op(self.index, kind, offset, buffer);
        inner.io.ops[id].is_queued = true;
        inner.io.ops[id].ticket = ticket;
        issue(inner, id);
        // On its way at once, though nobody waits yet.
        self.shared.drive(inner);
        Ok(Ticket(ticket))
    }

    /// The lock, and the region mapped as it is to be.
    pub(super) fn begin(&self) -> Result<std::sync::MutexGuard<'_, Inner>, StoreError> {
        let mut inner = self.shared.lock();
        if self.shared.has_news.swap(false, Ordering::AcqRel) {
            self.shared.attend(&mut inner);
        }
        self.shared.membership.check()?;
        Ok(inner)
    }

    pub(super) fn start(
        &self,
        inner: &mut Inner,
        kind: Kind,
        offset: u64,
        buffer: Vec<u8>,
    ) -> usize {
        let id = inner.io.op(self.index, kind, offset, buffer);
        issue(inner, id);
        id
    }

    pub(super) fn finish(
        &self,
        ids: &[usize],
        mut take: impl FnMut(usize, &[u8]),
    ) -> Result<(), StoreError> {
        self.finish_with(ids, |at, bytes, _| take(at, bytes))
    }

    /// Waits for operations, takes what they gave, and returns the first error.
    fn finish_with(
        &self,
        ids: &[usize],
        mut take: impl FnMut(usize, &[u8], u64),
    ) -> Result<(), StoreError> {
        let mut outcome = Ok(());
        let mut next = 0;
        self.shared.await_done(|inner| {
            while next < ids.len() && inner.io.ops[ids[next]].is_over {
                let op = inner.io.ops.remove(ids[next]).expect("it is there");
                match op.error {
                    Some(error) => {
                        outcome = std::mem::replace(&mut outcome, Ok(())).and(Err(error))
                    }
                    None => take(next, &op.buffer, op.value),
                }
                inner.io.give_back(op.buffer);
                next += 1;
            }
            next == ids.len()
        });
        outcome
    }

    fn check_all(&self, ranges: impl Iterator<Item = (u64, usize)>) -> Result<(), StoreError> {
        for (offset, len) in ranges {
            let len = wide(len);
            if offset.checked_add(len).is_none_or(|end| end > self.len) {
                return Err(StoreError::OutOfRange { offset, len, limit: self.len });
            }
        }
        Ok(())
    }

    fn check_writable(&self, inner: &Inner, durable: bool) -> Result<(), StoreError> {
        let mapped = &inner.regions[self.index];
        if !mapped.rights.contains(Rights::WRITE) {
            return Err(StoreError::ReadOnly(self.name.clone()));
        }
        if durable && !mapped.can_commit {
            let class = mapped.record.class;
            return Err(StoreError::Volatile { name: self.name.clone(), class });
        }
        Ok(())
    }

    fn check_atomic(&self, inner: &Inner, offset: u64) -> Result<(), StoreError> {
        self.check_all(std::iter::once((offset, 8)))?;
        self.check_writable(inner, false)?;
        if offset.is_multiple_of(8) { Ok(()) } else { Err(StoreError::Misaligned(offset)) }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        self.shared.give_back(&mut inner, self.index);
        // What nobody waits for any more goes with the region.
        inner.io.forget_of(self.index);
        let removed = inner.regions.remove(self.index);
        drop(inner);
        if removed.is_some_and(|one| one.rights.contains(Rights::WRITE) && one.record.copies > 1) {
            self.shared.forget_writer(&self.name);
        }
    }
}

/// Operations of one region that are submitted and not taken, at most.
pub const OUTSTANDING_MAX: usize = 1024;
