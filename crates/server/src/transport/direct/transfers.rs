//! RDMA Reads and Writes of one connection, in bounded pieces.
//!
//! ```text
//!   Pull: descriptors --> RDMA Reads into free slots --> completions --> bytes in order --> done
//!   Push: bytes --> RDMA Writes, inline --> posted: a later Send arrives after them
//! ```
//!
//! A Write needs no completion before its answer is sent: RDMA keeps the order (RFC 5040 §5.5).
//! A Read's bytes are there only with its completion.

use std::collections::VecDeque;
use std::mem;
use std::time::{Duration, Instant};

use rdma::{Engine, Operation, Payload, PostError, QpId, WorkRequest};
use smb::NtStatus;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::cursor::Cursor;
use super::error::End;
use super::incoming::WAITING_COST;
use super::mailbox::Mailbox;
use super::staging::{Budget, Holder, STAGING_SLOT_LEN, STAGING_SLOTS, Staging};
use super::table::DirectId;
use crate::state::Room;

/// A transfer of bytes from the peer's memory.
#[derive(Debug)]
pub(super) struct Pull {
    serial: u64,
    cursor: Cursor,
    len: usize,
    missing: usize,
    data: Vec<u8>,
    pub(super) end: PullEnd,
}

/// The use of the bytes.
#[derive(Debug)]
pub(super) enum PullEnd {
    /// A task waits for them.
    Reply(oneshot::Sender<Result<Vec<u8>, NtStatus>>),
    /// The WRITE request of these bytes is handled with them.
    Request(Vec<u8>),
}

impl Pull {
    /// Fetches `len` bytes from where `cursor` points.
    pub(super) fn new(cursor: Cursor, len: u32, end: PullEnd) -> Self {
        let len = usize::try_from(len).expect("32 bits fit usize");
        Self { serial: 0, cursor, len, missing: len, data: Vec::new(), end }
    }

    /// Ends the pull without bytes.
    pub(super) fn fail(self, status: NtStatus) -> Option<Vec<u8>> {
        match self.end {
            PullEnd::Reply(reply) => {
                let _ = reply.send(Err(status));
                None
            }
            PullEnd::Request(request) => Some(request),
        }
    }

    /// The bytes, when all have arrived, and their use.
    pub(super) fn into_parts(self) -> (Vec<u8>, PullEnd) {
        (self.data, self.end)
    }
}

/// A transfer of bytes into the peer's memory.
#[derive(Debug)]
pub(super) struct Push {
    pub(super) cursor: Cursor,
    pub(super) data: Vec<u8>,
    pub(super) posted: u64,
    /// The room that the bytes take until all are posted.
    pub(super) _room: OwnedSemaphorePermit,
    /// The same among the answers of its user, if the bytes are many.
    pub(super) counted: Option<Room>,
}

impl Push {
    /// Bytes posted since the last call.
    pub(super) fn take_posted(&mut self) -> u64 {
        mem::take(&mut self.posted)
    }

    /// Posts as much as the queue pair takes; `true` if that was everything.
    pub(super) fn post(
        &mut self,
        engine: &mut dyn Engine,
        qp: QpId,
        inline_max: usize,
    ) -> Result<bool, End> {
        let len_max = WRITE_LEN_MAX.min(u32::try_from(inline_max).unwrap_or(WRITE_LEN_MAX));
        while let Some(chunk) = self.cursor.next_chunk(len_max) {
            let len = usize::try_from(chunk.len).expect("32 bits fit usize");
            let operation = Operation::Write {
                payload: Payload::Inline(&self.data[chunk.position..chunk.position + len]),
                rkey: chunk.rkey,
                remote_addr: chunk.remote_addr,
            };
            match engine.post_send(qp, WorkRequest::signaled(0, operation)) {
                Ok(()) => {
                    self.cursor.advance(chunk.len);
                    self.posted += u64::from(chunk.len);
                }
                Err(PostError::QueueFull) => return Ok(false),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(true)
    }
}

/// The connection whose Reads are posted, and the time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker<'a> {
    pub(super) qp: QpId,
    pub(super) id: DirectId,
    pub(super) holder: &'a Holder,
    pub(super) now: Instant,
    /// No bytes for requests that would wait with them: only those that requests under way wait for.
    pub(super) tasks_only: bool,
}

/// The Reads of one connection.
#[derive(Debug)]
pub(super) struct Transfers {
    pulls: VecDeque<Pull>,
    max: usize,
    kept_bytes: usize,
    /// The pull that each slot of the staging memory serves.
    reads: [Option<Read>; STAGING_SLOTS as usize],
    staging: Option<Staging>,
    last: u64,
    /// When a Read last ended, or when the first of those in flight was posted.
    progress: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Read {
    pull: u64,
    position: usize,
    len: usize,
}

impl Transfers {
    /// Transfers of a peer that may have `max` open requests.
    pub(super) fn new(max: usize, now: Instant) -> Self {
        let reads = [const { None }; STAGING_SLOTS as usize];
        Self {
            pulls: VecDeque::new(),
            max,
            kept_bytes: 0,
            reads,
            staging: None,
            last: 0,
            progress: now,
        }
    }

    /// Queues a pull; its Reads are posted by [`Transfers::advance`].
    pub(super) fn begin(&mut self, mut pull: Pull) -> Result<(), End> {
        if self.pulls.len() >= self.max {
            // More WRITE requests than the peer has SMB2 credits, none of whose bytes the peer lets
            // us fetch.
            return Err(End::PeerTooManyRequests);
        }
        self.last += 1;
        pull.serial = self.last;
        self.kept_bytes += pull.cost();
        self.pulls.push_back(pull);
        Ok(())
    }

    /// Whether Reads wait to be posted.
    pub(super) fn has_waiting(&self) -> bool {
        self.pulls.iter().any(|pull| !pull.cursor.is_done())
    }

    /// Whether there is a Read to post next. `tasks_only`: see [`Asker`].
    pub(super) fn has_next(&self, tasks_only: bool) -> bool {
        self.pulls.iter().any(|pull| pull.is_next(tasks_only))
    }

    /// Posts the Reads for which there is room, oldest pull first. Returns a pull that can never be
    /// carried out.
    pub(super) fn advance(
        &mut self,
        engine: &mut dyn Engine,
        budget: &mut Budget,
        mailbox: &Mailbox,
        Asker { qp, id, holder, now, tasks_only }: Asker<'_>,
    ) -> Result<Option<Pull>, End> {
        loop {
            let next = self.pulls.iter().position(|pull| pull.is_next(tasks_only));
            let Some(pull) = next.and_then(|index| self.pulls.get_mut(index)) else {
                return Ok(None);
            };
            if self.staging.is_none() {
                self.staging = budget.take(engine, qp, (id, holder))?;
            }
            let Some(staging) = &mut self.staging else { return Ok(None) };
            let Some(slot) = staging.take() else { return Ok(None) };
            let Some(chunk) = pull.cursor.next_chunk(STAGING_SLOT_LEN) else { return Ok(None) };
            let operation = Operation::Read {
                local: staging.slice(slot, chunk.len),
                rkey: chunk.rkey,
                remote_addr: chunk.remote_addr,
            };
            match engine.post_send(qp, WorkRequest::signaled(u64::from(slot), operation)) {
                Ok(()) => {
                    // Memory is allocated when bytes are in flight, not when they were announced.
                    if pull.data.is_empty() {
                        pull.data = mailbox.buffer(pull.len);
                        pull.data.resize(pull.len, 0);
                    }
                    pull.cursor.advance(chunk.len);
                    let len = usize::try_from(chunk.len).expect("32 bits fit usize");
                    let read = Read { pull: pull.serial, position: chunk.position, len };
                    if !self.is_reading() {
                        self.progress = now;
                    }
                    self.reads[usize::from(slot)] = Some(read);
                }
                Err(refused) => {
                    staging.give_back(slot);
                    return match (refused, next) {
                        (PostError::QueueFull, _) => Ok(None),
                        // The peer allows no Reads at all.
                        (PostError::PeerUnsupported, Some(index)) => Ok(self.remove(index)),
                        (error, _) => Err(error.into()),
                    };
                }
            }
        }
    }

    /// Handles a Read whose bytes are in its slot, and counts them in `fetched`. Returns the pull that is complete with
    /// them.
    pub(super) fn read_done(
        &mut self,
        slot: u16,
        now: Instant,
        fetched: &mut u64,
    ) -> Result<Option<Pull>, End> {
        self.progress = now;
        let place = self.reads.get_mut(usize::from(slot));
        let (Some(read), Some(staging)) = (place.and_then(Option::take), &mut self.staging) else {
            return Ok(None);
        };
        let index = self.pulls.iter().position(|pull| pull.serial == read.pull);
        if let Some(pull) = index.and_then(|index| self.pulls.get_mut(index)) {
            staging.read(slot, &mut pull.data[read.position..read.position + read.len])?;
            pull.missing -= read.len;
            *fetched += u64::try_from(read.len).expect("lengths fit 64 bits");
        }
        staging.give_back(slot);
        let done = index.filter(|index| self.pulls.get(*index).is_some_and(Pull::is_complete));
        Ok(done.and_then(|index| self.remove(index)))
    }

    fn remove(&mut self, index: usize) -> Option<Pull> {
        let pull = self.pulls.remove(index)?;
        self.kept_bytes -= pull.cost();
        Some(pull)
    }

    /// Bytes of requests that wait for their pulls.
    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Whether RDMA Reads are in flight.
    pub(super) fn is_reading(&self) -> bool {
        self.reads.iter().any(Option::is_some)
    }

    /// Whether the peer has served none of the Reads in flight for as long as `patience`.
    pub(super) fn is_unserved(&self, now: Instant, patience: Duration) -> bool {
        self.is_reading() && now.saturating_duration_since(self.progress) >= patience
    }

    /// Whether there is staging memory without a Read in flight.
    pub(super) fn is_idle(&self) -> bool {
        self.staging.is_some() && self.pulls.is_empty()
    }

    /// Returns idle staging memory while other connections wait for some.
    pub(super) fn yield_staging(&mut self, engine: &mut dyn Engine, budget: &mut Budget) {
        if self.pulls.is_empty()
            && budget.has_waiters()
            && let Some(staging) = self.staging.take()
        {
            budget.give_back(Some(engine), staging);
        }
    }

    /// Cleans up when the connection has ended.
    pub(super) fn end(self, budget: &mut Budget) {
        if let Some(staging) = self.staging {
            budget.give_back(None, staging);
        }
    }
}

impl Pull {
    fn is_complete(&self) -> bool {
        self.missing == 0
    }

    fn is_next(&self, tasks_only: bool) -> bool {
        let is_task = matches!(self.end, PullEnd::Reply(_));
        !self.cursor.is_done() && (is_task || !tasks_only)
    }

    // Bytes that it holds before any of its own are there.
    fn cost(&self) -> usize {
        match &self.end {
            PullEnd::Reply(_) => WAITING_COST + self.cursor.held(),
            PullEnd::Request(frame) => frame.capacity() + WAITING_COST + self.cursor.held(),
        }
    }
}

/// Longest RDMA Write, in bytes: half of the inline capacity of a queue pair, so that one piece can
/// be queued while another leaves.
const WRITE_LEN_MAX: u32 = 32 * 1024;

#[cfg(test)]
mod tests {
    use smbdirect::{BufferDescriptor, Token};

    use super::*;

    #[test]
    fn a_peer_that_serves_no_reads_cannot_make_the_queue_grow() {
        let mut bytes = [0; BufferDescriptor::LEN];
        BufferDescriptor { offset: 0, token: Token(1), length: 8 }.emit(&mut bytes);
        let pull = || {
            let cursor = Cursor::new(&bytes, 8).unwrap();
            Pull::new(cursor, 8, PullEnd::Request(Vec::new()))
        };
        let mut transfers = Transfers::new(2, Instant::now());
        transfers.begin(pull()).unwrap();
        transfers.begin(pull()).unwrap();
        assert!(matches!(transfers.begin(pull()), Err(End::PeerTooManyRequests)));
    }
}
