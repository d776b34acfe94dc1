//! Operations of one queue pair that may block, collected for a worker.
//!
//! ```text
//!   engine:  [W1 F1]                      [W2 F2 W3 F3 A4]
//!   worker:          place, persist                        place, place, persist, store
//!   peer:                            F1                                            F2 F3 A4
//! ```
//!
//! While a worker runs one batch of a queue pair, what the peer sends next collects in another;
//! so all flushes that arrive during one `persist` share the next one (group commit). Operations
//! of a batch run in order, except that a flush waits for the next one that depends on it: an
//! atomic, a verify, or the end of the batch. A failed operation ends the batch: nothing behind
//! it is carried out or answered.
//!
//! A flush of storage is one of the whole file, whoever asks. So the batch is laid aside for it
//! ([`Pause::Commit`]) and holds no worker while it waits: one worker flushes for all that are.
//!
//! Each device has workers of its own. Where the next operation of a batch is another device's,
//! this one's workers are done with the batch and those of the other go on with it.

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pmem::{AtomicOp, Backing, DurabilityClass, Medium, MediumError};

use super::fault::Fault;
use super::serial::Serial;
use crate::common::table::Key;
use crate::verbs::{WcStatus, WorkCompletion};

/// Operations in order, and room for their bytes. Reused, so that a busy queue pair allocates
/// nothing in the long run.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) qp: Key,
    pub(super) operations: Vec<Deferred>,
    /// What [`Work::Place`] places, and behind it what [`Work::Fetch`] fetched.
    pub(super) payload: Vec<u8>,
    /// The first operation that nobody has looked at yet.
    next: usize,
    /// How the operations before it ended, while flushes of theirs are open.
    ran: Option<Result<Stop, (usize, Failure)>>,
    /// How many operations succeeded, counted from the first.
    pub(super) succeeded: usize,
    /// Why the next one did not.
    pub(super) failure: Option<Failure>,
    pub(super) persists: u64,
    flushes: Flushes,
}

/// One operation and what the engine does when it has succeeded.
#[derive(Debug)]
pub(super) struct Deferred {
    pub(super) target: Option<Target>,
    pub(super) work: Work,
    pub(super) after: After,
    /// The word before an atomic, or a hash.
    pub(super) result: u64,
}

/// Checked bytes of a region.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) tag: u32,
    pub(super) medium: Arc<dyn Medium>,
    pub(super) offset: u64,
    pub(super) len: u64,
}

/// What a worker does to a target.
#[derive(Clone, Debug)]
pub(super) enum Work {
    /// Nothing: the operation only keeps its place in the order.
    Nothing,
    /// Places a part of the batch's payload.
    Place(Range<usize>),
    /// Makes the target durable.
    Persist,
    /// Works on a word, after earlier flushes.
    Atomic(AtomicOp),
    /// Hashes the target, after earlier flushes, and fails if another hash was expected.
    Hash(Option<u32>),
    /// Reads the target to the end of the payload; the result says where it begins there.
    Fetch,
}

/// What the engine does when the operation has succeeded.
#[derive(Clone, Copy, Debug)]
pub(super) enum After {
    /// Nothing.
    Nothing,
    /// This request of the peer's gets its answer.
    Answer(Serial),
    /// A posted receive is complete.
    Received(WorkCompletion),
    /// A posted receive is complete and ends a region.
    ReceivedAndInvalidates(WorkCompletion),
    /// This read of ours, whose last bytes were being placed, is complete.
    ReadPlaced(Serial),
    /// This read of the peer's, in transmission, goes on with what was fetched.
    FetchedForResponse(Serial),
    /// This work request, in transmission, goes on with what was fetched.
    FetchedForRequest(Serial),
}

/// Why an operation did not succeed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Failure {
    /// The medium refused.
    Medium(MediumError),
    /// A verify found another hash.
    HashDiffers,
    /// The medium panicked: nobody knows how far it came, so nothing of the batch counts.
    Panicked,
    /// The engine is gone, and nothing begins any more.
    Stopped,
}

/// Why a worker is done with a batch for now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pause {
    /// There is nothing left, or the rest is another device's.
    Over,
    /// A file has to be flushed before anything else of the batch happens.
    Commit(Site),
}

/// Where operations stopped without a failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stop {
    /// At the end, or at an operation of another device.
    End,
    /// At one that waits for the flushes before it.
    Barrier,
}

/// Where an operation may have to wait.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Site {
    /// The device; 0 for all that is no device.
    pub(super) device: u64,
    /// The file on it, or the medium where there is no file.
    pub(super) file: u64,
}

impl Batch {
    pub(super) fn new(qp: Key) -> Self {
        Self {
            qp,
            operations: Vec::with_capacity(OPERATIONS_MAX),
            payload: Vec::new(),
            next: 0,
            ran: None,
            succeeded: 0,
            failure: None,
            persists: 0,
            flushes: Flushes::default(),
        }
    }

    /// Forgets everything but the capacity.
    pub(super) fn clear(&mut self) {
        self.operations.clear();
        self.payload.clear();
        self.next = 0;
        self.ran = None;
        self.succeeded = 0;
        self.failure = None;
        self.persists = 0;
        self.flushes.clear();
    }

    /// Whether the queue pair must stop reading until a worker has caught up.
    pub(super) fn is_full(&self) -> bool {
        self.operations.len() >= OPERATIONS_MAX || self.payload.len() >= PAYLOAD_MAX
    }

    /// Where the rest of the batch has to go on; `None` when there is none, or nobody to do it.
    pub(super) fn goes_on(&self) -> Option<Site> {
        let is_over = self.failure.is_some() || self.next >= self.operations.len();
        (!is_over).then(|| self.site())
    }

    /// Where the next operation may have to wait.
    pub(super) fn site(&self) -> Site {
        let rest = self.operations.get(self.next..).unwrap_or_default();
        rest.iter()
            .find_map(|operation| operation.target.as_ref())
            .map_or_else(Site::default, site_of)
    }

    /// Ends the batch where it stands.
    pub(super) fn fail(&mut self, failure: Failure) {
        (self.succeeded, self.failure) = (self.next, Some(failure));
    }

    /// Carries out everything that succeeds, up to a flush of storage or the first operation of
    /// another device. Called on a worker; blocks. A medium that panics costs the connection whose
    /// batch it is, not the worker. Once `stop` is set no operation begins.
    pub(super) fn run(&mut self, stop: &AtomicBool) -> Pause {
        let outcome = catch_unwind(AssertUnwindSafe(|| self.run_and_settle(stop)));
        (self.succeeded, self.failure) = match outcome {
            Ok(Ok(Pause::Commit(site))) => return Pause::Commit(site),
            Ok(Ok(Pause::Over)) => (self.next, None),
            Ok(Err((index, failure))) => (index, Some(failure)),
            Err(_) => (0, Some(Failure::Panicked)),
        };
        Pause::Over
    }

    /// Flushes the file that the batch waits for. Blocks. It counts for every batch that was laid
    /// aside for the same file before the call.
    pub(super) fn commit(&mut self, stop: &AtomicBool) -> Result<(), Failure> {
        let Some(Flush { medium, start, end, .. }) = self.flushes.first() else { return Ok(()) };
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::Stopped);
        }
        self.persists += 1;
        let persist = || medium.persist(*start, end - start);
        let outcome = catch_unwind(AssertUnwindSafe(persist));
        match outcome {
            Ok(persisted) => persisted.map_err(Failure::Medium),
            Err(_) => Err(Failure::Panicked),
        }
    }

    /// The file that the batch waits for is flushed, or not. A failure counts against the first
    /// flush that needed it, and ends the others unflushed: after it nothing is flushed into
    /// success.
    pub(super) fn committed(&mut self, outcome: Result<(), Failure>) {
        let Some(Flush { first_index, .. }) = self.flushes.take_first() else { return };
        if let Err(failure) = outcome {
            self.flushes.clear();
            let succeeded = if failure == Failure::Panicked { 0 } else { first_index };
            (self.succeeded, self.failure) = (succeeded, Some(failure));
        }
    }

    /// Ends a batch that was committed if no operation of it is left here; `false`: one is.
    pub(super) fn ends(&mut self, stop: &AtomicBool) -> bool {
        if self.failure.is_none() && self.flushes.is_empty() && self.ran != Some(Ok(Stop::Barrier))
        {
            return self.run(stop) == Pause::Over;
        }
        self.failure.is_some()
    }

    /// What a [`Work::Fetch`] of this batch fetched.
    pub(super) fn fetched(&self, operation: &Deferred) -> &[u8] {
        let len = operation.target.as_ref().map_or(0, |target| target.len);
        let start = usize::try_from(operation.result).unwrap_or(usize::MAX);
        let end = start.saturating_add(usize::try_from(len).unwrap_or(usize::MAX));
        self.payload.get(start..end).unwrap_or_default()
    }

    /// Whose fault the failure is: a receive or read of ours, or an operation of the peer's.
    pub(super) fn fault(&self, failure: Failure) -> Fault {
        let failed = self.operations.get(self.succeeded).map(|operation| operation.after);
        match failed {
            Some(
                After::Received(_)
                | After::ReceivedAndInvalidates(_)
                | After::ReadPlaced(_)
                | After::FetchedForRequest(_),
            ) => Fault::Local(WcStatus::LocalMedia),
            _ => failure.into(),
        }
    }

    /// A flush ahead of a failed operation succeeded only if it is settled. Behind a failed flush
    /// none is left to settle, so that none is ever tried again.
    fn run_and_settle(&mut self, stop: &AtomicBool) -> Result<Pause, (usize, Failure)> {
        loop {
            let ran = match self.ran.take() {
                Some(ran) => ran,
                None => self.run_in_order(stop),
            };
            if let Some(site) = self.flushes.settle(&mut self.persists, stop)? {
                self.ran = Some(ran);
                return Ok(Pause::Commit(site));
            }
            if ran? == Stop::End {
                return Ok(Pause::Over);
            }
        }
    }

    fn run_in_order(&mut self, stop: &AtomicBool) -> Result<Stop, (usize, Failure)> {
        let home = self.site().device;
        while let Some(operation) = self.operations.get_mut(self.next) {
            let index = self.next;
            let Some(target) = &operation.target else {
                self.next += 1;
                continue;
            };
            if site_of(target).device != home {
                return Ok(Stop::End);
            }
            let waits = matches!(operation.work, Work::Atomic(_) | Work::Hash(_));
            if waits && !self.flushes.is_empty() {
                return Ok(Stop::Barrier);
            }
            self.next += 1;
            if stop.load(Ordering::Relaxed) {
                return Err((index, Failure::Stopped));
            }
            let failed = |error| (index, Failure::Medium(error));
            match operation.work.clone() {
                Work::Nothing => {}
                Work::Place(range) => {
                    let bytes = self.payload.get(range).unwrap_or_default();
                    target.medium.place(target.offset, bytes).map_err(failed)?;
                }
                Work::Persist => self.flushes.add(index, target),
                Work::Atomic(op) => {
                    operation.result = target.medium.atomic(target.offset, op).map_err(failed)?;
                }
                Work::Hash(expected) => {
                    let hash = hash_of(target).map_err(failed)?;
                    if expected.is_some_and(|expected| expected != hash) {
                        return Err((index, Failure::HashDiffers));
                    }
                    operation.result = u64::from(hash);
                }
                Work::Fetch => {
                    let start = self.payload.len();
                    let len = usize::try_from(target.len).expect("FETCH_MAX fits memory");
                    self.payload.resize(start + len, 0);
                    let room = self.payload.get_mut(start..).unwrap_or_default();
                    target.medium.read(target.offset, room).map_err(failed)?;
                    operation.result = u64::try_from(start).expect("a buffer's length fits");
                }
            }
        }
        Ok(Stop::End)
    }
}

/// Ranges that were asked to be durable and are not yet known to be.
#[derive(Debug, Default)]
struct Flushes {
    ranges: VecDeque<Flush>,
}

#[derive(Debug)]
struct Flush {
    first_index: usize,
    medium: Arc<dyn Medium>,
    start: u64,
    end: u64,
}

impl Flushes {
    fn clear(&mut self) {
        self.ranges.clear();
    }

    /// Notes a range; joins it to an earlier one where one persist serves both.
    fn add(&mut self, index: usize, target: &Target) {
        let (start, end) = (target.offset, target.offset + target.len);
        // A file on storage is synchronised whole, whatever the range. A flush of memory walks
        // its cache lines, so only ranges that touch may be joined.
        let whole = target.medium.class() == DurabilityClass::Storage;
        let joins = |flush: &&mut Flush| {
            Arc::ptr_eq(&flush.medium, &target.medium)
                && (whole || (start <= flush.end && flush.start <= end))
        };
        match self.ranges.iter_mut().find(joins) {
            Some(flush) => {
                flush.start = flush.start.min(start);
                flush.end = flush.end.max(end);
            }
            None => self.ranges.push_back(Flush {
                first_index: index,
                medium: Arc::clone(&target.medium),
                start,
                end,
            }),
        }
    }

    fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    fn first(&self) -> Option<&Flush> {
        self.ranges.front()
    }

    fn take_first(&mut self) -> Option<Flush> {
        self.ranges.pop_front()
    }

    /// Makes them durable, up to the first of a file on storage, and says which that is. A failure
    /// counts against the first flush that needed the range, and ends the others unflushed: after
    /// it nothing is flushed into success.
    fn settle(
        &mut self,
        persists: &mut u64,
        stop: &AtomicBool,
    ) -> Result<Option<Site>, (usize, Failure)> {
        while let Some(Flush { first_index, medium, start, end }) = self.ranges.front() {
            if medium.class() == DurabilityClass::Storage {
                return Ok(Some(site_of_medium(medium)));
            }
            let persisted = if stop.load(Ordering::Relaxed) {
                Err((*first_index, Failure::Stopped))
            } else {
                *persists += 1;
                let persisted = medium.persist(*start, end - start);
                persisted.map_err(|error| (*first_index, Failure::Medium(error)))
            };
            self.ranges.pop_front();
            if persisted.is_err() {
                self.ranges.clear();
            }
            persisted?;
        }
        Ok(None)
    }
}

fn site_of(target: &Target) -> Site {
    site_of_medium(&target.medium)
}

/// Two media on storage that have a site in common are one file: a flush of either is of both.
fn site_of_medium(medium: &Arc<dyn Medium>) -> Site {
    match medium.backing() {
        Some(Backing { device, file }) => Site { device, file },
        None => {
            let address = Arc::as_ptr(medium).cast::<()>().addr();
            Site { device: 0, file: u64::try_from(address).expect("addresses have 64 bits") }
        }
    }
}

/// CRC-32C of a target, read in pieces on the worker's stack.
fn hash_of(target: &Target) -> Result<u32, MediumError> {
    let mut hash = Hash::new();
    let mut piece = [0; HASH_PIECE];
    let mut done = 0;
    while done < target.len {
        let len = usize::try_from(target.len - done).unwrap_or(HASH_PIECE).min(HASH_PIECE);
        let Some(piece) = piece.get_mut(..len) else { break };
        target.medium.read(target.offset + done, piece)?;
        hash.update(piece);
        done += u64::try_from(len).expect("a piece is short");
    }
    Ok(hash.finish())
}

/// CRC-32C over bytes that come in pieces.
#[derive(Debug)]
pub(super) struct Hash(crc_fast::Digest);

impl Hash {
    pub(super) fn new() -> Self {
        Self(crc_fast::Digest::new(crc_fast::CrcAlgorithm::Crc32Iscsi))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(super) fn finish(&self) -> u32 {
        u32::try_from(self.0.finalize()).expect("CRC-32C has 32 bits")
    }
}

/// Operations one batch collects before the queue pair stops reading.
pub(super) const OPERATIONS_MAX: usize = 512;
/// Bytes one batch collects before the queue pair stops reading; one more frame may come on top.
pub(super) const PAYLOAD_MAX: usize = 256 * 1024;
/// Most bytes of one [`Work::Fetch`].
pub(super) const FETCH_MAX: u64 = 64 * 1024;
const HASH_PIECE: usize = 16 * 1024;

#[cfg(test)]
mod tests;
