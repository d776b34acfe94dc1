//! One push connection: an engine of its own, one queue pair, one mapped region on it.
//!
//! The engine is owned by whoever owns the region and is driven from the calling thread, so an
//! operation costs no hand-over between threads. iWARP completes requests in posting order, so
//! progress is one number: the sequence of the last signaled request that completed.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmem::Medium;
use rdma::{
    Access, DisconnectReason, Engine, EngineConfig, Event, LocalSlice, MemoryRegion, Operation,
    Payload, Placement, PollPolicy, PostError, Provider, QpCapabilities, QpConfig, QpId, Rkey,
    Waker, WorkRequest,
};
use smbdirect::BufferDescriptor;

use super::journal::Sequence;
use super::path::FallbackReason;

/// An established push connection with its region.
#[derive(Debug)]
pub(crate) struct Channel {
    engine: Box<dyn Engine>,
    qp: QpId,
    capabilities: QpCapabilities,
    rkey: Rkey,
    remote_base: u64,
    staging: Staging,
    events: Vec<Event>,
    completed: Sequence,
    /// The hash or word that the last completion brought.
    answer: u64,
    ended: Option<FallbackReason>,
}

impl Channel {
    /// Dials and waits for the answer; returns the private data of the answer too.
    pub(crate) fn dial(
        provider: &dyn Provider,
        polling: PollPolicy,
        address: std::net::SocketAddr,
        private_data: &[u8],
    ) -> Result<(Self, Vec<u8>), FallbackReason> {
        let config = EngineConfig { polling, ..EngineConfig::default() };
        let mut engine = provider.open_engine(config).map_err(FallbackReason::Host)?;
        let qp = engine
            .connect(address, QpConfig::default(), private_data)
            .map_err(FallbackReason::Host)?;
        let reply = await_connection(&mut *engine, qp)?;
        let capabilities = engine.capabilities(qp).ok_or(FallbackReason::Silent)?;
        let staging = Staging::register(&mut *engine, qp)?;
        let channel = Self {
            engine,
            qp,
            capabilities,
            rkey: Rkey(0),
            remote_base: 0,
            staging,
            events: Vec::with_capacity(EVENTS_RESERVED),
            completed: Sequence(0),
            answer: 0,
            ended: None,
        };
        Ok((channel, reply))
    }

    /// Learns where the region lies. Its pieces must be contiguous and under one token.
    pub(crate) fn attach(&mut self, pieces: &[BufferDescriptor]) -> Result<(), FallbackReason> {
        let first = pieces.first().ok_or(FallbackReason::PeerIncapable)?;
        let mut end = first.offset;
        for piece in pieces {
            if piece.token != first.token || piece.offset != end {
                return Err(FallbackReason::PeerIncapable);
            }
            let next = end.checked_add(u64::from(piece.length));
            end = next.ok_or(FallbackReason::PeerIncapable)?;
        }
        (self.rkey, self.remote_base) = (Rkey(first.token.0), first.offset);
        Ok(())
    }

    /// Whether a commit needs no request on the SMB connection.
    pub(crate) fn has_flush(&self) -> bool {
        self.capabilities.flush
    }

    /// Whether an eight-byte store can be ordered behind a flush.
    pub(crate) fn has_atomic_write(&self) -> bool {
        self.capabilities.atomic_write
    }

    /// Whether the peer hashes its own bytes.
    pub(crate) fn has_verify(&self) -> bool {
        self.capabilities.verify
    }

    /// Ends the owner's wait from another thread.
    pub(crate) fn waker(&self) -> Waker {
        self.engine.waker()
    }

    /// Posts the bytes. No completion comes: the next commit tells.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), FallbackReason> {
        let mut offset = offset;
        for piece in bytes.chunks(self.engine.inline_max()) {
            let payload = Payload::Inline(piece);
            let (rkey, remote_addr) = (self.rkey, self.remote_base + offset);
            self.post(WorkRequest::unsignaled(0, Operation::Write { payload, rkey, remote_addr }))?;
            offset += wide(piece.len());
        }
        Ok(())
    }

    /// Posts a commit of everything posted before it in the range.
    ///
    /// Without RDMA Flush, the answer to a one-byte read says that the writes before it were
    /// placed (RFC 5040 §5.5); the caller then flushes over SMB.
    pub(crate) fn commit(
        &mut self,
        sequence: Sequence,
        range: Range<u64>,
    ) -> Result<(), FallbackReason> {
        if !self.capabilities.flush {
            return self.read(sequence, range.start, self.staging.probe());
        }
        let mut start = range.start;
        loop {
            let len = u32::try_from(range.end - start).unwrap_or(FLUSH_MAX);
            let (rkey, remote_addr) = (self.rkey, self.remote_base + start);
            let kind = Placement::Persistence;
            let operation = Operation::Flush { rkey, remote_addr, len, kind };
            start += u64::from(len);
            let signaled = start == range.end;
            self.post(WorkRequest { wr_id: sequence.0, signaled, operation })?;
            if signaled {
                return Ok(());
            }
        }
    }

    /// Posts a read into staging memory.
    pub(crate) fn read(
        &mut self,
        sequence: Sequence,
        offset: u64,
        slot: Slot,
    ) -> Result<(), FallbackReason> {
        let (rkey, remote_addr) = (self.rkey, self.remote_base + offset);
        let local = self.staging.slice(slot);
        let operation = Operation::Read { local, rkey, remote_addr };
        self.post(WorkRequest::signaled(sequence.0, operation))
    }

    /// Posts an eight-byte store that no earlier commit's failure lets happen.
    pub(crate) fn atomic_write(&mut self, offset: u64, value: u64) -> Result<(), FallbackReason> {
        let (rkey, remote_addr) = (self.rkey, self.remote_base + offset);
        self.post(WorkRequest::unsignaled(0, Operation::AtomicWrite { rkey, remote_addr, value }))
    }

    /// Posts a request for the hash of the peer's bytes.
    pub(crate) fn verify(
        &mut self,
        sequence: Sequence,
        offset: u64,
        len: u32,
    ) -> Result<(), FallbackReason> {
        let (rkey, remote_addr) = (self.rkey, self.remote_base + offset);
        let operation = Operation::Verify { rkey, remote_addr, len, expected: None };
        self.post(WorkRequest::signaled(sequence.0, operation))
    }

    /// Room for the answer of a read, if there is some.
    pub(crate) fn reserve(&mut self, len: u32) -> Option<Slot> {
        self.staging.reserve(len)
    }

    /// Copies a completed read out and frees its room: the oldest or the newest in use.
    pub(crate) fn take(&mut self, slot: Slot, out: &mut [u8]) {
        self.staging.take(slot, out);
    }

    /// The sequence of the last signaled request that completed, and what its answer brought.
    pub(crate) fn completed(&self) -> (Sequence, u64) {
        (self.completed, self.answer)
    }

    /// Lets the engine work once without waiting.
    pub(crate) fn poll(&mut self) -> Result<(), FallbackReason> {
        let mut events = std::mem::take(&mut self.events);
        self.engine.poll(&mut events);
        for event in events.drain(..) {
            self.handle(&event);
        }
        // Handed back with its memory: a poll allocates nothing.
        self.events = events;
        self.ended.map_or(Ok(()), Err)
    }

    /// Waits for anything at all, for `patience` at most.
    pub(crate) fn wait(&mut self, patience: Duration) {
        self.engine.wait(Some(patience));
    }

    /// Says goodbye, so that the server need not find out.
    pub(crate) fn close(mut self) {
        self.engine.disconnect(self.qp);
        self.engine.poll(&mut self.events);
    }

    fn post(&mut self, request: WorkRequest<'_>) -> Result<(), FallbackReason> {
        loop {
            match self.engine.post_send(self.qp, request) {
                Ok(()) => return Ok(()),
                Err(PostError::QueueFull) => {
                    self.poll()?;
                    self.wait(BACK_PRESSURE);
                }
                Err(PostError::PeerUnsupported) => return Err(FallbackReason::PeerIncapable),
                Err(_) => {
                    self.poll()?;
                    return Err(FallbackReason::Disconnected(DisconnectReason::Local));
                }
            }
        }
    }

    fn handle(&mut self, event: &Event) {
        match event {
            Event::Completion(completion) if completion.is_success() => {
                self.completed = Sequence(completion.wr_id);
                let hash = completion.hash.map(u64::from);
                self.answer = hash.or(completion.atomic).unwrap_or(0);
            }
            Event::Disconnected { reason, .. } => {
                self.ended = Some(FallbackReason::Disconnected(*reason));
            }
            // A failed completion is followed by the Disconnected that says why.
            _ => {}
        }
    }
}

fn await_connection(engine: &mut dyn Engine, qp: QpId) -> Result<Vec<u8>, FallbackReason> {
    let deadline = Instant::now() + DIAL_TIMEOUT;
    let mut events = Vec::new();
    while Instant::now() < deadline {
        engine.poll(&mut events);
        for event in events.drain(..) {
            match event {
                Event::Established { qp: established, private_data } if established == qp => {
                    return Ok(private_data);
                }
                Event::ConnectFailed { reason, .. } => {
                    return Err(FallbackReason::Unreachable(reason));
                }
                Event::Disconnected { reason, .. } => {
                    return Err(FallbackReason::Disconnected(reason));
                }
                _ => {}
            }
        }
        engine.wait(Some(BACK_PRESSURE));
    }
    Err(FallbackReason::Silent)
}

/// A piece of staging memory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Slot {
    offset: u64,
    len: u32,
    /// Where the ring's free part began before.
    start: u64,
    /// Room the slot takes, with what was left unused at the end of the ring.
    taken: u64,
}

/// Registered memory that answers to reads arrive in: a ring, freed from its oldest or its newest
/// end, so that what is in use is always one stretch.
#[derive(Debug)]
struct Staging {
    medium: Arc<dyn Medium>,
    region: MemoryRegion,
    next: u64,
    used: u64,
}

impl Staging {
    fn register(engine: &mut dyn Engine, qp: QpId) -> Result<Self, FallbackReason> {
        let medium = pmem::anonymous(STAGING_BYTES).map_err(|_| FallbackReason::HostMemory)?;
        // Present before the first answer arrives: an engine never waits for a page.
        medium.prepare(0, STAGING_BYTES).map_err(|_| FallbackReason::HostMemory)?;
        let region = engine
            .register(qp, Arc::clone(&medium), 0..STAGING_BYTES, Access::LOCAL_WRITE)
            .map_err(|_| FallbackReason::HostMemory)?;
        Ok(Self { medium, region, next: 0, used: 0 })
    }

    fn reserve(&mut self, len: u32) -> Option<Slot> {
        let len_wide = u64::from(len);
        let to_end = STAGING_RING - self.next;
        let skipped = if len_wide > to_end { to_end } else { 0 };
        let taken = skipped + len_wide;
        if self.used + taken > STAGING_RING {
            return None;
        }
        let start = self.next;
        let offset = (start + skipped) % STAGING_RING;
        self.used += taken;
        self.next = (offset + len_wide) % STAGING_RING;
        Some(Slot { offset, len, start, taken })
    }

    fn take(&mut self, slot: Slot, out: &mut [u8]) {
        let read = self.medium.read(slot.offset, out);
        debug_assert!(read.is_ok(), "anonymous memory neither ends nor fails");
        self.used -= slot.taken;
        if (slot.offset + u64::from(slot.len)) % STAGING_RING == self.next {
            self.next = slot.start;
        }
    }

    /// One byte behind the ring, for answers whose bytes nobody wants.
    fn probe(&self) -> Slot {
        Slot { offset: STAGING_RING, len: 1, start: 0, taken: 0 }
    }

    fn slice(&self, slot: Slot) -> LocalSlice {
        self.region.slice(slot.offset, slot.len)
    }
}

fn wide(len: usize) -> u64 {
    u64::try_from(len).expect("usize has at most 64 bits here")
}

/// The longest read of one request, in bytes.
pub(crate) const READ_MAX: u32 = 1 << 20;

// A gigabyte-sized flush still leaves the length field room.
const FLUSH_MAX: u32 = 1 << 31;
// Four of the longest reads at once.
const STAGING_RING: u64 = 4 << 20;
// One page behind the ring holds the probe byte.
const STAGING_BYTES: u64 = STAGING_RING + 4096;
const EVENTS_RESERVED: usize = 512;
const BACK_PRESSURE: Duration = Duration::from_millis(100);
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
