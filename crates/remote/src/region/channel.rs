//! One push connection: one queue pair of an engine, one mapped region on it.
//!
//! The engine runs on the thread that drives the region, so an operation
//! costs no hand-over between threads. iWARP completes requests in posting order, so the progress
//! is one number: the sequence of the last signaled request that completed.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use basics::{Clock, Environment};
use rdma::{
    ConnectFailure, DisconnectReason, EngineConfig, EngineError, Event, Operation, Payload,
    PeerOperations, Placement, PostError, Provider, QpCapabilities, Rkey, Waker, WorkRequest,
};

use super::control::Mapping;
use super::engine::Attachment;
use super::settings::RegionSettings;
use super::silence::Silence;
use super::staging::{Slot, Staging};
use super::unconfirmed::Sequence;

/// An established push connection with its region.
#[derive(Debug)]
pub(crate) struct Channel {
    engine: Attachment,
    provider: &'static str,
    is_adapter: bool,
    capabilities: QpCapabilities,
    rkey: Rkey,
    remote_base: u64,
    /// Length of the region.
    len: u64,
    staging: Staging,
    events: Vec<Event>,
    /// The last signaled request that was posted, and the last that completed.
    posted: Sequence,
    completed: Sequence,
    /// Hashes of the completed verifies, oldest first.
    hashes: VecDeque<(Sequence, u32)>,
    clock: Clock,
    /// How long an owner that polls has seen no awaited answer.
    silence: Silence,
    answer_timeout: Duration,
    ended: Option<ChannelError>,
}

impl Channel {
    /// Dials and waits for the answer, for `patience` at most; also returns the private data of the
    /// answer.
    pub(crate) fn dial(
        provider: &dyn Provider,
        settings: &RegionSettings,
        environment: &Environment,
        address: SocketAddr,
        private_data: &[u8],
        patience: Duration,
    ) -> Result<(Self, Vec<u8>), ChannelError> {
        let mut engine = attach(provider, settings, environment, (address, private_data))
            .map_err(ChannelError::Host)?;
        let reply = await_connection(&mut engine, &environment.clock, patience)?;
        let capabilities = engine.capabilities().ok_or(ChannelError::Silent)?;
        let staging = Staging::register(&mut engine)?;
        let channel = Self {
            engine,
            provider: provider.name(),
            is_adapter: provider.is_device(),
            capabilities,
            rkey: Rkey(0),
            remote_base: 0,
            len: 0,
            staging,
            events: Vec::with_capacity(EVENTS_RESERVED),
            posted: Sequence(0),
            completed: Sequence(0),
            hashes: VecDeque::new(),
            clock: environment.clock.clone(),
            silence: Silence::new(settings.answer_timeout),
            answer_timeout: settings.answer_timeout,
            ended: None,
        };
        Ok((channel, reply))
    }

    /// Gives the peer less time to answer than it had for the beginning of the connection.
    #[cfg(test)]
    pub(crate) fn lose_patience(&mut self, answer_timeout: Duration) {
        self.silence = Silence::new(answer_timeout);
        self.answer_timeout = answer_timeout;
    }

    /// Takes the address and the rights of the region of `len` bytes. The pieces of the mapping
    /// must be contiguous, under one key, and add up to `len`.
    pub(crate) fn attach(&mut self, mapping: &Mapping, len: u64) -> Result<(), ChannelError> {
        let first = mapping.pieces.first().ok_or(ChannelError::PeerIncapable)?;
        let mut end = first.remote_addr;
        for piece in &mapping.pieces {
            if piece.rkey != first.rkey || piece.remote_addr != end {
                return Err(ChannelError::PeerIncapable);
            }
            let next = end.checked_add(piece.len);
            end = next.ok_or(ChannelError::PeerIncapable)?;
        }
        if end - first.remote_addr != len {
            return Err(ChannelError::PeerIncapable);
        }
        (self.rkey, self.remote_base, self.len) = (first.rkey, first.remote_addr, len);
        let may = |operation| mapping.operations.contains(operation);
        self.capabilities.flush &= may(PeerOperations::FLUSH);
        self.capabilities.atomic_write &= may(PeerOperations::ATOMIC_WRITE);
        self.capabilities.verify &= may(PeerOperations::VERIFY);
        Ok(())
    }

    /// The name of the provider that carries the connection.
    pub(crate) fn provider(&self) -> &'static str {
        self.provider
    }

    /// Whether that is an adapter.
    pub(crate) fn is_adapter(&self) -> bool {
        self.is_adapter
    }

    /// Whether a commit needs no message of the control side.
    pub(crate) fn has_flush(&self) -> bool {
        self.capabilities.flush
    }

    /// Whether the peer stores eight bytes in one piece.
    pub(crate) fn has_atomic_write(&self) -> bool {
        self.capabilities.atomic_write
    }

    /// Whether a store of eight bytes stays undone when a commit posted before it fails: both are
    /// requests of the same queue pair, which its responder carries out in order
    /// (draft-talpey-rdma-commit-01 §3.1). A plain Write has no such order.
    pub(crate) fn orders_stores(&self) -> bool {
        self.capabilities.flush && self.capabilities.atomic_write
    }

    /// Whether the peer hashes its own bytes.
    pub(crate) fn has_verify(&self) -> bool {
        self.capabilities.verify
    }

    /// Ends the owner's wait from another thread.
    pub(crate) fn waker(&self) -> Waker {
        self.engine.waker()
    }

    /// Posts the bytes. No completion comes: the next commit shows that they arrived.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), ChannelError> {
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
    /// Without RDMA Flush, the answer to a one-byte read shows that the writes before it were
    /// placed (RFC 5040 §5.5); the caller then commits by a message.
    pub(crate) fn commit(
        &mut self,
        sequence: Sequence,
        range: Range<u64>,
    ) -> Result<(), ChannelError> {
        if !self.capabilities.flush {
            return self.settle(sequence, range.start);
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

    /// Posts a read of one byte at `offset`, whose answer shows that the writes before it were placed (RFC 5040 §5.5).
    pub(crate) fn settle(&mut self, sequence: Sequence, offset: u64) -> Result<(), ChannelError> {
        // Any byte of the region serves; an empty range at the region's end contains none.
        let probe = offset.min(self.len.saturating_sub(1));
        self.read(sequence, probe, self.staging.probe())
    }

    /// Posts a read into staging memory.
    pub(crate) fn read(
        &mut self,
        sequence: Sequence,
        offset: u64,
        slot: Slot,
    ) -> Result<(), ChannelError> {
        let (rkey, remote_addr) = (self.rkey, self.remote_base + offset);
        let local = self.staging.slice(slot);
        let operation = Operation::Read { local, rkey, remote_addr };
        self.post(WorkRequest::signaled(sequence.0, operation))
    }

    /// Posts an eight-byte store that is not carried out if an earlier commit fails.
    pub(crate) fn atomic_write(&mut self, offset: u64, value: u64) -> Result<(), ChannelError> {
        let (rkey, remote_addr) = (self.rkey, self.remote_base + offset);
        self.post(WorkRequest::unsignaled(0, Operation::AtomicWrite { rkey, remote_addr, value }))
    }

    /// Posts a request for the hash of the peer's bytes.
    pub(crate) fn verify(
        &mut self,
        sequence: Sequence,
        offset: u64,
        len: u32,
    ) -> Result<(), ChannelError> {
        let (rkey, remote_addr) = (self.rkey, self.remote_base + offset);
        let operation = Operation::Verify { rkey, remote_addr, len, expected: None };
        self.post(WorkRequest::signaled(sequence.0, operation))
    }

    /// Room for the answer of a read, if any is free.
    pub(crate) fn reserve(&mut self, len: u32) -> Option<Slot> {
        self.staging.reserve(len)
    }

    /// Copies a completed read out and frees its room, which must be the oldest or the newest in
    /// use.
    pub(crate) fn take(&mut self, slot: Slot, out: &mut [u8]) {
        self.staging.take(slot, out);
    }

    /// The sequence of the last signaled request that completed.
    pub(crate) fn completed(&self) -> Sequence {
        self.completed
    }

    /// The hash of a completed verify; the caller asks for the oldest first.
    pub(crate) fn take_hash(&mut self, verify: Sequence) -> Option<u32> {
        let (_, hash) = self.hashes.pop_front_if(|(sequence, _)| *sequence == verify)?;
        Some(hash)
    }

    /// Lets the engine do one round of work without waiting.
    ///
    /// # Errors
    ///
    /// The connection has ended, or the peer has left an answer owing for too long.
    pub(crate) fn poll(&mut self) -> Result<(), ChannelError> {
        let before = self.completed;
        let mut events = std::mem::take(&mut self.events);
        self.engine.poll(&mut events);
        for event in events.drain(..) {
            self.handle(&event);
        }
        // The vector goes back with its memory: a poll allocates nothing.
        self.events = events;
        if let Some(reason) = self.ended {
            return Err(reason);
        }
        if self.completed != before || self.completed == self.posted {
            self.silence.end();
            return Ok(());
        }
        if self.silence.is_too_long(self.clock.now()) { Err(ChannelError::Silent) } else { Ok(()) }
    }

    /// Waits for any event, for `patience` at most; may return earlier.
    pub(crate) fn wait(&mut self, patience: Duration) {
        self.engine.wait(patience.min(self.look_every()));
    }

    /// How long a wait may last without harm to the answer timeout.
    pub(crate) fn look_every(&self) -> Duration {
        self.silence.look_every()
    }

    fn post(&mut self, request: WorkRequest<'_>) -> Result<(), ChannelError> {
        let mut silence: Option<Silence> = None;
        let mut pause = ROOM_PAUSE_MIN;
        loop {
            match self.engine.post_send(request) {
                Ok(()) if request.signaled => {
                    self.posted = Sequence(request.wr_id);
                    return Ok(());
                }
                Ok(()) => return Ok(()),
                Err(PostError::QueueFull) => {
                    self.poll()?;
                    // The peer does not receive our writes, none of which awaits an answer.
                    let timeout = self.answer_timeout;
                    let silence = silence.get_or_insert_with(|| Silence::new(timeout));
                    if silence.is_too_long(self.clock.now()) {
                        return Err(ChannelError::Silent);
                    }
                    // No event reports that sent writes have left room.
                    self.wait(pause);
                    pause = (pause * 2).min(ROOM_PAUSE_MAX);
                }
                Err(PostError::PeerUnsupported) => return Err(ChannelError::PeerIncapable),
                Err(_) => {
                    self.poll()?;
                    return Err(ChannelError::Disconnected(DisconnectReason::Local));
                }
            }
        }
    }

    fn handle(&mut self, event: &Event) {
        match event {
            Event::Completion(completion) if completion.is_success() => {
                self.completed = Sequence(completion.wr_id);
                self.hashes.extend(completion.hash.map(|hash| (self.completed, hash)));
            }
            Event::Disconnected { reason, .. } => {
                self.ended = Some(ChannelError::Disconnected(*reason));
            }
            // `Disconnected` follows a failed completion and carries the reason.
            _ => {}
        }
    }
}

fn attach(
    provider: &dyn Provider,
    settings: &RegionSettings,
    environment: &Environment,
    (address, private_data): (SocketAddr, &[u8]),
) -> Result<Attachment, EngineError> {
    if let Some(shared) = &settings.shared {
        return Attachment::dial_shared(shared, address, private_data);
    }
    let (polling, environment) = (settings.polling, environment.clone());
    let config = EngineConfig { polling, environment, ..EngineConfig::default() };
    Attachment::dial_own(provider.open_engine(config)?, address, private_data)
}

fn await_connection(
    engine: &mut Attachment,
    clock: &Clock,
    timeout: Duration,
) -> Result<Vec<u8>, ChannelError> {
    let deadline = clock.now() + timeout;
    let mut events = Vec::new();
    while clock.now() < deadline {
        engine.poll(&mut events);
        for event in events.drain(..) {
            match event {
                Event::Established { private_data, .. } => return Ok(private_data),
                Event::ConnectFailed { reason, .. } => {
                    return Err(ChannelError::Unreachable(reason));
                }
                Event::Disconnected { reason, .. } => {
                    return Err(ChannelError::Disconnected(reason));
                }
                _ => {}
            }
        }
        engine.wait(DIAL_LOOK.min(timeout));
    }
    Err(ChannelError::Silent)
}

/// Why a channel could not be made, or is of no more use.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ChannelError {
    /// The connection ended.
    Disconnected(DisconnectReason),
    /// The connection could not be made.
    Unreachable(ConnectFailure),
    /// The peer did not answer in time.
    Silent,
    /// This machine gave no engine.
    Host(EngineError),
    /// This machine gave no memory for answers.
    HostMemory,
    /// The peer cannot do what the region needs, or answers nonsense.
    PeerIncapable,
}

fn wide(len: usize) -> u64 {
    u64::try_from(len).expect("usize has at most 64 bits here")
}

/// The longest read of one request, in bytes.
pub(crate) const READ_MAX: u32 = 1 << 20;

// A flush of this length still fits the length field.
const FLUSH_MAX: u32 = 1 << 31;
const EVENTS_RESERVED: usize = 512;
const DIAL_LOOK: Duration = Duration::from_millis(100);
// A fast link takes some 50 us for the longest frame; a peer that receives nothing is polled
// rarely.
const ROOM_PAUSE_MIN: Duration = Duration::from_micros(50);
const ROOM_PAUSE_MAX: Duration = Duration::from_millis(10);
