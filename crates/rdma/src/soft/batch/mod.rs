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
//! A flush of storage flushes the whole file, whichever queue pair asks. So the worker lays the
//! batch aside ([`Pause::Commit`]), and the batch holds no worker while it waits: one worker
//! flushes the file for all batches laid aside.
//!
//! Long work, which is hashes and flushes by CPU instructions, is done in pieces: after each piece the batch
//! goes back to the end of its lane ([`Pause::Turn`]), and before each operation and each piece the worker
//! checks whether the region or the connection has ended ([`Withdrawn`]).
//!
//! Each device has workers of its own. Where the next operation of a batch concerns another device,
//! the workers of that device continue the batch.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use basics::Key;
use pmem::{AtomicOp, Backing, Medium, MediumError};

use self::flushes::{Flush, Flushes, Settled};
pub(super) use self::hash::Hash;
use self::hash::Hashing;
pub(super) use self::withdrawn::Withdrawn;
use super::fault::Fault;
use super::serial::Serial;
use crate::interface::{WcStatus, WorkCompletion};

mod flushes;
mod hash;
mod withdrawn;

/// Operations in order, and room for their bytes. Reused, so that a busy queue pair allocates
/// nothing in the long run.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) qp: Key,
    pub(super) operations: Vec<Deferred>,
    /// What [`Work::Place`] places, and behind it what [`Work::Fetch`] fetched.
    pub(super) payload: Vec<u8>,
    /// The first operation that no worker has looked at yet.
    next: usize,
    /// How the operations before it ended, while flushes of theirs are open.
    ran: Option<Result<Stop, (usize, Failure)>>,
    /// How many operations succeeded, counted from the first.
    pub(super) succeeded: usize,
    /// Why the operation behind those did not succeed.
    pub(super) failure: Option<Failure>,
    pub(super) persists: u64,
    flushes: Flushes,
    /// The outcome of [`Batch::write_back`].
    written: Result<(), Failure>,
    /// The state of the hash that the next operation asks for, if the hash has begun.
    hashing: Option<Hashing>,
    withdrawn: Arc<Withdrawn>,
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
    /// Nothing follows.
    Nothing,
    /// The engine answers this request of the peer.
    Answer(Serial),
    /// A posted receive is complete.
    Received(WorkCompletion),
    /// A posted receive is complete and ends a region.
    ReceivedAndInvalidates(WorkCompletion),
    /// This read of ours is complete: its last bytes were being placed.
    ReadPlaced(Serial),
    /// This read of the peer, in transmission, goes on with the fetched bytes.
    FetchedForResponse(Serial),
    /// This work request, in transmission, goes on with the fetched bytes.
    FetchedForRequest(Serial),
}

/// Why an operation did not succeed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Failure {
    /// The medium refused.
    Medium(MediumError),
    /// A verify found another hash.
    HashDiffers,
    /// The medium panicked: how far it came is unknown, so no operation of the batch counts.
    Panicked,
    /// The engine is gone, and no operation begins any more.
    Stopped,
    /// The region or the connection has ended in the meantime.
    Withdrawn,
}

/// Why a worker stops working on a batch for now.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pause {
    /// Nothing is left, or the rest concerns another device.
    Over,
    /// A file has to be flushed before anything else of the batch happens.
    Commit(Site),
    /// The batch has had its turn, and long work is left: other batches come first.
    Turn(Site),
}

/// How much long work, hashes above all, a batch may do in one turn.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Pace {
    /// As much as delays no other batch noticeably.
    Short,
    /// A piece.
    Long,
}

/// The bounds of a turn.
#[derive(Debug)]
struct Turn<'a> {
    stop: &'a AtomicBool,
    bytes_left: u64,
}

/// Where operations stopped without a failure.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stop {
    /// At the end, or at an operation of another device.
    End,
    /// At an operation that waits for the flushes before it.
    Barrier,
    /// In a hash, at the end of the turn.
    Turn,
}

/// Where an operation may have to wait.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Site {
    /// The device; 0 for every medium that is on none.
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
            written: Ok(()),
            hashing: None,
            withdrawn: Arc::default(),
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
        self.written = Ok(());
        self.hashing = None;
        self.withdrawn.clear();
    }

    /// Marks what the engine withdraws while a worker has the batch.
    pub(super) fn withdrawn(&self) -> &Arc<Withdrawn> {
        &self.withdrawn
    }

    /// Whether the queue pair must stop reading until a worker has caught up.
    pub(super) fn is_full(&self) -> bool {
        self.operations.len() >= OPERATIONS_MAX || self.payload.len() >= PAYLOAD_MAX
    }

    /// Where the rest of the batch has to continue; `None` if there is no rest, or no worker for
    /// it.
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

    /// Carries out everything that succeeds, up to a flush of storage, the first operation of
    /// another device or the end of its turn. Called on a worker; blocks. A medium that panics costs
    /// the connection whose batch it is, not the worker. Once `stop` is set no operation begins.
    pub(super) fn run(&mut self, stop: &AtomicBool, pace: Pace) -> Pause {
        let bytes_left = match pace {
            Pace::Short => SHORT_TURN_BYTES,
            Pace::Long => LONG_TURN_BYTES,
        };
        let mut turn = Turn { stop, bytes_left };
        let outcome = catch_unwind(AssertUnwindSafe(|| self.run_and_settle(&mut turn)));
        (self.succeeded, self.failure) = match outcome {
            Ok(Ok(Pause::Over)) => (self.next, None),
            Ok(Ok(pause)) => return pause,
            Ok(Err((index, failure))) => (index, Some(failure)),
            Err(_) => (0, Some(Failure::Panicked)),
        };
        Pause::Over
    }

    /// Brings to the file what the batch has to have flushed: that part of a flush each batch does for itself, so that each
    /// learns of the errors of its own bytes. Blocks.
    fn write_back(&mut self, stop: &AtomicBool) {
        self.written = match self.flushes.first() {
            None => Ok(()),
            Some(_) if stop.load(Ordering::Relaxed) => Err(Failure::Stopped),
            Some(Flush { medium, start, end, .. }) => {
                guarded(|| medium.write_back(*start, end - start))
            }
        };
    }

    /// Flushes the file that the batch waits for. Blocks. The flush counts for every batch that was
    /// laid aside for the same file before the call, and has brought its bytes to the file.
    fn commit(&mut self, stop: &AtomicBool) -> Result<(), Failure> {
        let Some(Flush { medium, start, end, .. }) = self.flushes.first() else { return Ok(()) };
        if stop.load(Ordering::Relaxed) {
            return Err(Failure::Stopped);
        }
        self.persists += 1;
        // Every batch has brought its own bytes to the file: an error of these bytes alone, which came since, is no outcome for
        // the others.
        let len = if medium.is_written_later() { 0 } else { end - start };
        let start = if len == 0 { 0 } else { *start };
        guarded(|| medium.persist(start, len))
    }

    /// Records the outcome of the flush that the batch waited for. A failure counts against the
    /// first flush that needed it, and ends the others unflushed: after a failure nothing is
    /// flushed into success.
    pub(super) fn committed(&mut self, outcome: Result<(), Failure>) {
        let Some(Flush { first_index, .. }) = self.flushes.take_first() else { return };
        if let Err(failure) = std::mem::replace(&mut self.written, Ok(())).and(outcome) {
            self.flushes.clear();
            let succeeded = if failure == Failure::Panicked { 0 } else { first_index };
            (self.succeeded, self.failure) = (succeeded, Some(failure));
        }
    }

    /// Ends a batch that was committed if no operation is left for this device; `false`: one is
    /// left.
    pub(super) fn ends(&mut self, stop: &AtomicBool) -> bool {
        if self.failure.is_none() && self.flushes.is_empty() && self.ran != Some(Ok(Stop::Barrier))
        {
            return self.run(stop, Pace::Short) == Pause::Over;
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

    /// The fault of the connection for a failure: of a receive or read of ours, or of an operation
    /// of the peer.
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

    /// A flush ahead of a failed operation succeeds only if it was settled. Behind a failed flush
    /// none is left to settle, so none is ever tried again.
    fn run_and_settle(&mut self, turn: &mut Turn<'_>) -> Result<Pause, (usize, Failure)> {
        loop {
            let ran = match self.ran.take() {
                Some(ran) => ran,
                None => self.run_in_order(turn),
            };
            let tags = |index: usize| self.operations.get(index)?.target.as_ref().map(|t| t.tag);
            let is_withdrawn = |index| tags(index).is_some_and(|tag| self.withdrawn.covers(tag));
            match self.flushes.settle(&mut self.persists, turn, is_withdrawn)? {
                Settled::All => {}
                Settled::Commit(site) => {
                    self.ran = Some(ran);
                    return Ok(Pause::Commit(site));
                }
                Settled::Turn(site) => {
                    self.ran = Some(ran);
                    return Ok(Pause::Turn(site));
                }
            }
            match ran? {
                Stop::End => return Ok(Pause::Over),
                Stop::Turn => return Ok(Pause::Turn(self.site())),
                Stop::Barrier => {}
            }
        }
    }

    fn run_in_order(&mut self, turn: &mut Turn<'_>) -> Result<Stop, (usize, Failure)> {
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
            if turn.stop.load(Ordering::Relaxed) {
                return Err((index, Failure::Stopped));
            }
            if self.withdrawn.covers(target.tag) {
                return Err((index, Failure::Withdrawn));
            }
            if let Work::Hash(expected) = operation.work {
                let hashing = self.hashing.get_or_insert_default();
                let hash = hashing.go_on(target, turn, &self.withdrawn);
                let Some(hash) = hash.map_err(|failure| (index, failure))? else {
                    return Ok(Stop::Turn);
                };
                self.hashing = None;
                if expected.is_some_and(|expected| expected != hash) {
                    return Err((index, Failure::HashDiffers));
                }
                operation.result = u64::from(hash);
            }
            self.next += 1;
            let failed = |error| (index, Failure::Medium(error));
            match operation.work.clone() {
                Work::Nothing | Work::Hash(_) => {}
                Work::Place(range) => {
                    let bytes = self.payload.get(range).unwrap_or_default();
                    target.medium.place(target.offset, bytes).map_err(failed)?;
                }
                Work::Persist => self.flushes.add(index, target),
                Work::Atomic(op) => {
                    operation.result = target.medium.atomic(target.offset, op).map_err(failed)?;
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

/// Commits a file for all of these batches: each brings its own bytes there, and one flush serves all whose bytes are there.
/// Blocks. Returns the outcome of the flush, which every batch is told by [`Batch::committed`].
pub(super) fn commit_together<'b>(
    group: impl Iterator<Item = &'b mut Batch>,
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let mut flusher = None;
    for batch in group {
        batch.write_back(stop);
        if batch.written.is_ok() {
            flusher = flusher.or(Some(batch));
        }
    }
    // Where nothing is in the file, nothing is flushed.
    flusher.map_or(Ok(()), |batch| batch.commit(stop))
}

/// The outcome of an operation on a medium, which may panic.
fn guarded(operation: impl FnOnce() -> Result<(), MediumError>) -> Result<(), Failure> {
    match catch_unwind(AssertUnwindSafe(operation)) {
        Ok(outcome) => outcome.map_err(Failure::Medium),
        Err(_) => Err(Failure::Panicked),
    }
}

fn site_of(target: &Target) -> Site {
    site_of_medium(&target.medium)
}

/// Two media on storage that share a site are the same file: a flush of either flushes both.
fn site_of_medium(medium: &Arc<dyn Medium>) -> Site {
    match medium.backing() {
        Some(Backing { device, file }) => Site { device, file },
        None => {
            let address = Arc::as_ptr(medium).cast::<()>().addr();
            Site { device: 0, file: u64::try_from(address).expect("addresses have 64 bits") }
        }
    }
}

/// Operations one batch collects before the queue pair stops reading.
pub(super) const OPERATIONS_MAX: usize = 512;
/// Bytes one batch collects before the queue pair stops reading; one frame more may be added.
pub(super) const PAYLOAD_MAX: usize = 256 * 1024;
/// Most bytes of one [`Work::Fetch`].
pub(super) const FETCH_MAX: u64 = 64 * 1024;
/// Bytes hashed, or flushed by CPU instructions, in a turn of [`Pace::Short`]: as many as an engine does
/// itself in a round.
const SHORT_TURN_BYTES: u64 = 128 * 1024;
/// Bytes of a turn of [`Pace::Long`]: some 100 us where the bytes lie in memory.
const LONG_TURN_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests;
