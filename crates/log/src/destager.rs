//! Takes the records of a log to its archive, in order, and frees their room in the tail.
//!
//! ```text
//!   idle --> a batch is durable, or somebody waits for room, or asks --> read, write full blocks, flush, trim --> idle
//! ```
//! In the usual course only full blocks are written, so that no block is written twice; where somebody waits, all that is
//! durable is. A writer that finds the log full waits in [`TailLog::wait_for_room`] until a round has made room.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::archive::Archive;
use crate::error::LogError;
use crate::format::LogId;
use crate::lsn::Lsn;
use crate::scan::to_u64;
use crate::store::{Store, StoreError};
use crate::tail_log::TailLog;

/// How records are destaged.
#[derive(Clone, Copy, Debug, Default)]
pub struct DestageOptions {
    /// Bytes that are durable in the tail before a round begins, if nobody waits: a multiple of 4,096, at most a quarter
    /// of the ring; by default that quarter or 1 MiB, whichever is less.
    pub batch: Option<u64>,
}

/// How far a log is destaged.
#[derive(Clone, Debug)]
pub struct DestageStatus {
    /// The oldest record of the archive.
    pub start: Lsn,
    /// Everything below is durable in the archive.
    pub destaged: Lsn,
    /// Bytes that are durable in the tail and not in the archive yet.
    pub lag: u64,
    /// Why nothing is destaged any more.
    pub ended: Option<LogError>,
}

/// Destages a log on a thread of its own until it is dropped.
#[derive(Debug)]
pub struct Destager {
    log: Arc<TailLog>,
    work: Arc<Mutex<Work>>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread does, and what it is asked.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) archive: Archive,
    id: LogId,
    /// Up to here the archive has bytes: the last record may be there in part.
    written: Lsn,
    /// Bytes of records from `written` on.
    pending: Vec<u8>,
    /// Where the records that `pending` ends begin anew.
    ends: VecDeque<Lsn>,
}

impl Destager {
    /// Destages `log` to the archive in `store`, which is made if the store holds none.
    ///
    /// # Errors
    ///
    /// [`LogError::ConfigCapacity`] if the store is smaller than the log; [`LogError::Foreign`] if it holds another log's
    /// archive; [`LogError::ArchiveGap`] and [`LogError::ArchiveAhead`] if the two do not fit together;
    /// [`LogError::ConfigDestaged`] if the log has a destager.
    pub fn start(
        log: Arc<TailLog>,
        store: Box<dyn Store>,
        options: DestageOptions,
    ) -> Result<Self, LogError> {
        let label = log.members().label().clone();
        let largest = label.capacity / 4 / BLOCK * BLOCK;
        let batch = options.batch.unwrap_or_else(|| largest.min(BATCH));
        let batch = batch.clamp(BLOCK, largest.max(BLOCK));
        log.begin_to_destage()?;
        let work = Work::begin(&log, store).inspect_err(|_| log.end_to_destage())?;
        let work = Arc::new(Mutex::new(work));
        let (of_thread, its_log) = (Arc::clone(&work), Arc::clone(&log));
        let run = move || run(&its_log, &of_thread, batch);
        let thread = std::thread::Builder::new().name("destage".to_owned()).spawn(run);
        let thread = thread.map_err(|error| {
            log.end_to_destage();
            LogError::Destaging { cause: StoreError::new(error) }
        })?;
        Ok(Self { log, work, thread: Some(thread) })
    }

    /// How far it has come.
    pub fn status(&self) -> DestageStatus {
        let work = lock(&self.work);
        let destaged = work.archive.end();
        let ended = self.log.gates().lock().destaging_ended.clone();
        let lag = self.log.durable_lsn().since(destaged);
        DestageStatus { start: work.archive.start(), destaged, lag, ended }
    }

    /// Waits until everything that is durable in the tail at this moment is durable in the archive; returns its end.
    ///
    /// # Durability
    ///
    /// On `Ok` the archive has every record below the LSN.
    ///
    /// # Errors
    ///
    /// Why nothing is destaged any more.
    pub fn drain(&self) -> Result<Lsn, LogError> {
        let end = self.log.durable_lsn();
        let mut gate = self.log.gates().lock();
        gate.drain_to = gate.drain_to.max(end);
        self.log.gates().announce_work();
        loop {
            if gate.destaged >= end {
                return Ok(end);
            }
            if let Some(cause) = &gate.destaging_ended {
                return Err(cause.clone());
            }
            if gate.is_broken {
                return Err(LogError::Broken);
            }
            gate = self.log.gates().wait(gate);
        }
    }

    /// Forgets the archive's records before `upto`, and continues where it was full.
    ///
    /// # Errors
    ///
    /// [`LogError::NoRecord`] if none begins there; [`LogError::Destaging`].
    pub fn forget(&self, upto: Lsn) -> Result<(), LogError> {
        lock(&self.work).archive.forget(upto)?;
        let mut gate = self.log.gates().lock();
        if matches!(gate.destaging_ended, Some(LogError::ArchiveFull)) {
            gate.destaging_ended = None;
        }
        self.log.gates().announce_work();
        Ok(())
    }

    /// The archive's records from its start, without those that are in the tail alone.
    ///
    /// # Errors
    ///
    /// As [`Archive::replay`].
    pub fn archived(&self) -> Result<Vec<(Lsn, Vec<u8>)>, LogError> {
        let mut work = lock(&self.work);
        let start = work.archive.start();
        work.archive.replay(start).collect()
    }
}

/// What is not destaged stays in the tail, for the next destager.
impl Drop for Destager {
    fn drop(&mut self) {
        self.log.gates().lock().is_destaging_to_end = true;
        self.log.gates().announce_work();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported by the thread.
            let _ = thread.join();
        }
        self.log.end_to_destage();
    }
}

/// Tells those who wait for room that nobody makes any, however the thread ends.
struct Ends<'l>(&'l TailLog);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let mut gate = self.0.gates().lock();
        gate.destaging_ended.get_or_insert(LogError::DestagerEnded);
        self.0.gates().announce(gate);
    }
}

fn run(log: &TailLog, work: &Mutex<Work>, batch: u64) {
    let _ends = Ends(log);
    loop {
        let (written, destaged) = lock(work).position();
        let Some(is_urgent) = wait_for_work(log, written, destaged, batch) else { return };
        // Held until the outcome is known to all: room that is made in between would not be seen.
        let mut work = lock(work);
        let outcome = work.round(log, is_urgent);
        let destaged = work.archive.end();
        let mut gate = log.gates().lock();
        drop(work);
        gate.destaged = destaged;
        if let Err(error) = outcome {
            tracing::error!(%error, %destaged, "the log is destaged no more");
            gate.destaging_ended = Some(error);
        }
        log.gates().announce(gate);
    }
}

/// Whether somebody waits; `None` at the end.
fn wait_for_work(log: &TailLog, written: Lsn, destaged: Lsn, batch: u64) -> Option<bool> {
    let mut gate = log.gates().lock();
    loop {
        if gate.is_destaging_to_end || gate.is_broken {
            return None;
        }
        let is_urgent = gate.wanting_room > 0 || gate.drain_to > destaged;
        let from = if is_urgent { destaged.plus(1) } else { written.plus(batch) };
        // Before the look: a commit that comes in between sees it.
        log.destage_at(from);
        if gate.destaging_ended.is_none() && log.durable_lsn() >= from {
            return Some(is_urgent);
        }
        gate = log.gates().wait_for_work(gate);
    }
}

impl Work {
    pub(crate) fn begin(log: &TailLog, store: Box<dyn Store>) -> Result<Self, LogError> {
        let mut mirror = log.members();
        let label = mirror.label().clone();
        let mut archive = Archive::of(store, &label)?;
        let durable = log.durable_lsn();
        // The log may have lost records and gone on without them: then another record lies at this address.
        if let Some(last) = archive.last().filter(|last| last.lsn >= label.start)
            && mirror.header_at(last.lsn)? != Some(last)
        {
            return Err(LogError::ArchiveAhead { archive: archive.end(), log: last.lsn });
        }
        archive.attach(&label, durable)?;
        drop(mirror);
        // What a round before may have placed and failed to flush is written again while the tail has it: the system shows
        // such bytes as if they were on the disk.
        let end = archive.begin_again(label.start);
        // What the archive has already need not stay.
        log.trim(end)?;
        log.gates().lock().destaged = end;
        Ok(Self { archive, id: label.id, written: end, pending: Vec::new(), ends: VecDeque::new() })
    }

    /// Up to where the archive has bytes, and whole records.
    fn position(&self) -> (Lsn, Lsn) {
        (self.written, self.archive.end())
    }

    /// Takes what is durable to the archive, and frees its room.
    pub(crate) fn round(&mut self, log: &TailLog, is_urgent: bool) -> Result<(), LogError> {
        let durable = log.durable_lsn();
        let read_to = self.written.plus(to_u64(self.pending.len()));
        let mut records = log.replay_below(read_to, durable)?;
        while let Some(found) = records.next_raw() {
            let (header, payload) = found?;
            let end = self.pending.len() + usize::try_from(header.extent()).expect("of this ring");
            self.pending.extend_from_slice(&header.emit(&self.id, &payload));
            self.pending.extend_from_slice(&payload);
            self.pending.resize(end, 0);
            self.ends.push_back(header.lsn.plus(header.extent()));
            if end >= WRITE_LEN {
                self.write(log, false)?;
            }
        }
        self.write(log, is_urgent)
    }

    /// Writes the full blocks of what is pending, or all of it.
    fn write(&mut self, log: &TailLog, is_all: bool) -> Result<(), LogError> {
        let pending = self.written.plus(to_u64(self.pending.len()));
        let end = if is_all { pending } else { Lsn(pending.0 / BLOCK * BLOCK) };
        let len = usize::try_from(end.since(self.written)).expect("of what is pending");
        if len == 0 {
            return Ok(());
        }
        if self.archive.room(self.written) < to_u64(len) {
            return Err(LogError::ArchiveFull);
        }
        let whole = self.ends.iter().take_while(|one| **one <= end).last().copied();
        let settled = whole.unwrap_or_else(|| self.archive.end());
        #[cfg(test)]
        if crate::planted::Planted::TrimsBeforeArchive.is_here() {
            log.trim(settled)?;
        }
        self.archive.settle(self.written, &self.pending[..len], settled)?;
        self.pending.drain(..len);
        self.ends.retain(|one| *one > end);
        self.written = end;
        log.trim(settled)
    }
}

fn lock(work: &Mutex<Work>) -> std::sync::MutexGuard<'_, Work> {
    work.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The unit that is written once.
const BLOCK: u64 = 4096;
/// Bytes of a round, unless the ring is small.
const BATCH: u64 = 1 << 20;
/// Bytes that are written together.
const WRITE_LEN: usize = 1 << 20;
