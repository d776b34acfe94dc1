//! The data path: one RDMA engine, connections to daemons, and operations cut into parts.
//!
//! ```text
//!   operation --segments x copies--> parts --post--> engine --completion--> part over
//!      ^                               | link lost                             |
//!      '----- issued again after the region was mapped again <-- failed        '--> last part: operation over
//! ```
//!
//! An operation has phases: a write reaches the copies in sync, and only then those being filled (`rebuild` says why);
//! an atomic operation reaches the copies in sync from the last one to the first, whose answer counts: so a copy has
//! every change that a copy of a higher rank has.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma::{
    Access, Engine, Event, MemoryRegion, Operation, Payload, Placement, PostError, QpConfig, QpId,
    Rkey, WorkRequest,
};

use super::link::Line;
use super::slab::Slab;
use super::staging::{PART_MAX, Slot, Staging};
use crate::error::StoreError;
use crate::layout::{Segment, wide};

/// Where a copy's bytes are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Target {
    pub(super) link: usize,
    pub(super) rkey: Rkey,
    pub(super) base: u64,
}

/// The mapped copies of one piece.
#[derive(Clone, Debug, Default)]
pub(super) struct PieceMap {
    pub(super) in_sync: Vec<Target>,
    pub(super) syncing: Vec<Target>,
    /// The region has several copies: an answer counts only while its daemon is leased.
    pub(super) has_others: bool,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Read,
    Write {
        durable: bool,
    },
    Commit,
    FetchAdd {
        add: u64,
    },
    CompareSwap {
        compare: u64,
        swap: u64,
    },
    /// A read of the first copy in sync, or a write of the copies being filled, of one piece: the rebuild's.
    ReadFirst {
        piece: u32,
    },
    Fill {
        piece: u32,
        durable: bool,
    },
}

impl Kind {
    pub(super) fn is_atomic(self) -> bool {
        matches!(self, Self::FetchAdd { .. } | Self::CompareSwap { .. })
    }
}

/// One operation.
#[derive(Debug)]
pub(super) struct Op {
    pub(super) region: usize,
    pub(super) kind: Kind,
    pub(super) offset: u64,
    pub(super) len: usize,
    /// The bytes to write, or those that were read.
    pub(super) buffer: Vec<u8>,
    pub(super) value: u64,
    pub(super) phase: u32,
    in_flight: u32,
    failed: bool,
    /// A copy that an atomic operation may have changed though no answer came.
    pub(super) doubt: Option<String>,
    /// The servers whose copies an atomic operation has changed.
    pub(super) changed: Vec<String>,
    pub(super) error: Option<StoreError>,
    pub(super) is_over: bool,
    /// Its completion goes to the queue of its region.
    pub(super) is_queued: bool,
    pub(super) ticket: u64,
    /// When it failed first.
    pub(super) failed_since: Option<Instant>,
}

/// A part of an operation at one copy.
#[derive(Clone, Copy, Debug)]
struct Part {
    op: usize,
    link: usize,
    what: What,
    rkey: Rkey,
    address: u64,
    at: usize,
    len: usize,
    /// Bytes of a write that are posted.
    posted: usize,
    slot: Option<Slot>,
    /// The answer counts only while the daemon is leased: other copies may go on without it.
    needs_lease: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum What {
    Read,
    Write { durable: bool },
    Flush { durable: bool },
    FetchAdd { add: u64 },
    CompareSwap { compare: u64, swap: u64 },
}

/// A link with its RDMA connection.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) line: Arc<Line>,
    pub(super) qp: QpId,
    pub(super) connection: u64,
    staging: MemoryRegion,
    waiting: VecDeque<Part>,
    pub(super) is_up: bool,
    in_flight: usize,
    /// How many mappings use it.
    pub(super) users: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Io {
    pub(super) engine: Box<dyn Engine>,
    pub(super) links: Slab<Link>,
    by_qp: HashMap<QpId, usize>,
    pub(super) ops: Slab<Op>,
    parts: Slab<Part>,
    staging: Staging,
    events: Vec<Event>,
    /// Connection events, for who dials.
    pub(super) news: Vec<Event>,
    /// Operations to be issued again once their region is mapped again.
    pub(super) failed: VecDeque<usize>,
    /// Operations that are over and queued.
    pub(super) over: VecDeque<usize>,
    buffers: Vec<Vec<u8>>,
    turn: usize,
}

impl Io {
    pub(super) fn new(engine: Box<dyn Engine>) -> Result<Self, StoreError> {
        let staging =
            Staging::new().map_err(|why| StoreError::Host { what: "memory for answers", why })?;
        Ok(Self {
            engine,
            links: Slab::default(),
            by_qp: HashMap::new(),
            ops: Slab::default(),
            parts: Slab::default(),
            staging,
            events: Vec::with_capacity(EVENTS_RESERVED),
            news: Vec::new(),
            failed: VecDeque::new(),
            over: VecDeque::new(),
            buffers: Vec::new(),
            turn: 0,
        })
    }

    /// Dials; the outcome is among the news.
    pub(super) fn dial(
        &mut self,
        address: std::net::SocketAddr,
        private_data: &[u8],
    ) -> Result<QpId, String> {
        let config = QpConfig { ord: ORD, ird: 0, ..QpConfig::default() };
        self.engine.connect(address, config, private_data).map_err(|error| error.to_string())
    }

    /// Takes a connection that was established.
    pub(super) fn adopt(
        &mut self,
        line: Arc<Line>,
        qp: QpId,
        connection: u64,
    ) -> Result<usize, String> {
        let medium = Arc::clone(self.staging.medium());
        let registered =
            self.engine.register(qp, medium, 0..super::staging::BYTES, Access::READ_SINK);
        let staging = registered.map_err(|error| error.to_string())?;
        let (waiting, in_flight) = (VecDeque::new(), 0);
        let link =
            Link { line, qp, connection, staging, waiting, is_up: true, in_flight, users: 0 };
        let index = self.links.insert(link);
        self.by_qp.insert(qp, index);
        Ok(index)
    }

    /// A buffer of an earlier operation, or a new one.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.buffers.pop().unwrap_or_default()
    }

    /// Keeps a buffer for a later operation.
    pub(super) fn give_back(&mut self, mut buffer: Vec<u8>) {
        if self.buffers.len() < BUFFERS_KEPT && buffer.capacity() <= PART_MAX {
            buffer.clear();
            self.buffers.push(buffer);
        }
    }

    /// An operation that is not issued yet.
    pub(super) fn op(&mut self, region: usize, kind: Kind, offset: u64, buffer: Vec<u8>) -> usize {
        let len = buffer.len();
        self.ops.insert(Op {
            region,
            kind,
            offset,
            len,
            buffer,
            value: 0,
            phase: 0,
            in_flight: 0,
            failed: false,
            doubt: None,
            changed: Vec::new(),
            error: None,
            is_over: false,
            is_queued: false,
            ticket: 0,
            failed_since: None,
        })
    }

    /// Issues one phase of an operation: the parts of `segments` at the copies that the phase reaches. An operation
    /// without a further part is over.
    pub(super) fn issue(
        &mut self,
        id: usize,
        pieces: &[PieceMap],
        segments: impl Iterator<Item = Segment>,
    ) {
        self.turn = self.turn.wrapping_add(1);
        // Held while parts are posted: one that fails at once is not the last one.
        self.ops[id].in_flight += 1;
        let mut fails = false;
        for segment in segments {
            let piece = usize::try_from(segment.piece).ok().and_then(|at| pieces.get(at));
            fails |= piece.is_none_or(|piece| !self.issue_segment(id, segment, piece));
        }
        let op = &mut self.ops[id];
        op.failed |= fails;
        op.in_flight -= 1;
        if op.in_flight == 0 {
            self.settle(id);
        }
    }

    /// The parts of one segment; `false` where there is no copy for it.
    fn issue_segment(&mut self, id: usize, segment: Segment, piece: &PieceMap) -> bool {
        let (kind, phase) = (self.ops[id].kind, self.ops[id].phase);
        let part = |target: &Target, what, needs_lease| Part {
            op: id,
            link: target.link,
            what,
            rkey: target.rkey,
            address: target.base + segment.offset,
            at: segment.at,
            len: segment.len,
            posted: 0,
            slot: None,
            needs_lease,
        };
        let (reached, what) = match kind {
            Kind::Read | Kind::ReadFirst { .. } => {
                let first = if kind == Kind::Read { self.turn } else { 0 };
                let Some(target) = self.choose(piece, first) else { return false };
                self.post(part(&target, What::Read, piece.has_others));
                return true;
            }
            Kind::FetchAdd { .. } | Kind::CompareSwap { .. } => {
                // While a copy is being filled its words are not those of the others: the operation waits.
                let next = self.next_change(id, piece).filter(|_| piece.syncing.is_empty());
                let Some(target) = next else { return false };
                let what = match kind {
                    Kind::CompareSwap { compare, swap } => What::CompareSwap { compare, swap },
                    Kind::FetchAdd { add } => What::FetchAdd { add },
                    _ => What::Read,
                };
                self.post(part(&target, what, false));
                return true;
            }
            Kind::Write { durable } if phase == 0 => (&piece.in_sync, What::Write { durable }),
            Kind::Write { durable } | Kind::Fill { durable, .. } => {
                (&piece.syncing, What::Write { durable })
            }
            Kind::Commit if phase == 0 => (&piece.in_sync, What::Flush { durable: true }),
            Kind::Commit => (&piece.syncing, What::Flush { durable: true }),
        };
        reached.iter().for_each(|target| self.post(part(target, what, false)));
        // In a later phase only some pieces have copies that are being filled.
        let may_lack = phase > 0 && !matches!(kind, Kind::Fill { .. });
        !reached.is_empty() || may_lack
    }

    /// The copy that a read asks: the next in turn whose daemon is known to be leased, else the next in turn, whose answer
    /// is looked at anyway.
    fn choose(&self, piece: &PieceMap, first: usize) -> Option<Target> {
        let copies = piece.in_sync.len();
        let mut order = (0..copies).map(|at| &piece.in_sync[(first + at) % copies]);
        let leased = |target: &&Target| self.links[target.link].line.is_leased();
        match copies {
            1 => piece.in_sync.first().copied(),
            _ => order.clone().find(leased).or_else(|| order.next()).copied(),
        }
    }

    /// The copy that an atomic operation changes next: the last in rank that it has not changed.
    pub(super) fn next_change(&self, id: usize, piece: &PieceMap) -> Option<Target> {
        let changed = &self.ops[id].changed;
        let is_left = |target: &&Target| !changed.contains(&self.links[target.link].line.server);
        piece.in_sync.iter().rev().find(is_left).copied()
    }

    /// The next step of an operation without a part in flight.
    fn settle(&mut self, id: usize) {
        let op = &mut self.ops[id];
        if op.failed {
            op.failed = false;
            self.failed.push_back(id);
            return;
        }
        op.phase += 1;
        self.over.push_back(id);
    }

    fn post(&mut self, part: Part) {
        self.ops[part.op].in_flight += 1;
        let link = &mut self.links[part.link];
        if !link.is_up {
            self.part_over(&part, Err(()));
            return;
        }
        if !link.waiting.is_empty() {
            link.waiting.push_back(part);
            return;
        }
        if let Err(part) = self.try_post(part) {
            self.links[part.link].waiting.push_back(part);
        }
    }

    /// Gives the part back where the queue is full or staging memory is short.
    fn try_post(&mut self, mut part: Part) -> Result<(), Part> {
        let (qp, staging) = {
            let link = &self.links[part.link];
            (link.qp, link.staging)
        };
        let (rkey, remote_addr) = (part.rkey, part.address);
        let len32 = u32::try_from(part.len).unwrap_or(u32::MAX);
        if let What::Write { .. } = part.what {
            while part.posted < part.len {
                let end = (part.posted + self.engine.inline_max()).min(part.len);
                let bytes = &self.ops[part.op].buffer[part.at + part.posted..part.at + end];
                let remote_addr = remote_addr + wide(part.posted);
                let operation =
                    Operation::Write { payload: Payload::Inline(bytes), rkey, remote_addr };
                match self.engine.post_send(qp, WorkRequest::unsignaled(IGNORED, operation)) {
                    Ok(()) => part.posted = end,
                    Err(error) => return self.not_posted(part, error),
                }
            }
        }
        if part.what == What::Read && part.slot.is_none() {
            part.slot = self.staging.reserve(part.len);
            if part.slot.is_none() {
                return Err(part);
            }
        }
        let kind = |durable| if durable { Placement::Persistence } else { Placement::Visibility };
        let operation = match part.what {
            What::Read => {
                let offset = part.slot.map_or(0, |slot| slot.offset);
                Operation::Read { local: staging.slice(offset, len32), rkey, remote_addr }
            }
            What::Write { durable } | What::Flush { durable } => {
                Operation::Flush { rkey, remote_addr, len: len32, kind: kind(durable) }
            }
            What::FetchAdd { add } => Operation::FetchAdd { rkey, remote_addr, add, mask: 0 },
            What::CompareSwap { compare, swap } => Operation::CompareSwap {
                rkey,
                remote_addr,
                compare,
                compare_mask: u64::MAX,
                swap,
                swap_mask: u64::MAX,
            },
        };
        let name = self.parts.next();
        match self.engine.post_send(qp, WorkRequest::signaled(wide(name), operation)) {
            Ok(()) => {
                self.parts.insert(part);
                self.links[part.link].in_flight += 1;
                Ok(())
            }
            Err(error) => self.not_posted(part, error),
        }
    }

    fn not_posted(&mut self, mut part: Part, error: PostError) -> Result<(), Part> {
        if error == PostError::QueueFull {
            return Err(part);
        }
        tracing::debug!(%error, server = self.links[part.link].line.server, "an operation was not posted");
        if let Some(slot) = part.slot.take() {
            self.staging.free(slot);
        }
        let link = &self.links[part.link];
        link.line.lose();
        self.part_over(&part, Err(()));
        Ok(())
    }

    /// Work of the engine, and of what its events lead to. `pieces` are those of a region.
    pub(super) fn poll(&mut self) -> bool {
        self.drop_lost();
        let mut events = std::mem::take(&mut self.events);
        self.engine.poll(&mut events);
        let any = !events.is_empty();
        for event in events.drain(..) {
            match event {
                Event::Completion(completion) if completion.wr_id == IGNORED => {}
                Event::Completion(completion) => {
                    let name = usize::try_from(completion.wr_id).unwrap_or(usize::MAX);
                    let Some(part) = self.parts.remove(name) else { continue };
                    self.links[part.link].in_flight -= 1;
                    let answer = if completion.is_success() {
                        Ok(completion.atomic.unwrap_or(0))
                    } else {
                        Err(())
                    };
                    self.part_over(&part, answer);
                }
                Event::Disconnected { qp, reason } => self.disconnected(qp, reason),
                other => self.news.push(other),
            }
        }
        self.events = events;
        self.post_waiting();
        any
    }

    fn disconnected(&mut self, qp: QpId, reason: rdma::DisconnectReason) {
        let Some(index) = self.by_qp.remove(&qp) else {
            self.news.push(Event::Disconnected { qp, reason });
            return;
        };
        let link = &mut self.links[index];
        tracing::debug!(server = link.line.server, %reason, "an RDMA connection has ended");
        link.is_up = false;
        link.line.lose();
        link.line.end();
        let waiting = std::mem::take(&mut link.waiting);
        for part in waiting {
            self.part_over(&part, Err(()));
        }
        self.forget_unused(index);
    }

    /// A link that is down, with no part in flight and no mapping, goes.
    pub(super) fn forget_unused(&mut self, index: usize) {
        let link = &self.links[index];
        if !link.is_up && link.in_flight == 0 && link.users == 0 {
            self.links.remove(index);
        }
    }

    /// Ends the RDMA connections of links whose control connection is lost.
    fn drop_lost(&mut self) {
        for index in 0..self.links.bound() {
            if let Some(link) = self.links.get(index)
                && link.is_up
                && link.line.is_lost()
            {
                let qp = link.qp;
                self.engine.disconnect(qp);
            }
        }
    }

    fn post_waiting(&mut self) {
        for index in 0..self.links.bound() {
            while let Some(part) = self.links.get_mut(index).and_then(|one| one.waiting.pop_front())
            {
                if let Err(part) = self.try_post(part) {
                    self.links[index].waiting.push_front(part);
                    break;
                }
            }
        }
    }

    fn part_over(&mut self, part: &Part, answer: Result<u64, ()>) {
        let is_good = self.take_answer(part, answer);
        let op = &mut self.ops[part.op];
        op.in_flight -= 1;
        op.failed |= !is_good;
        if op.in_flight == 0 {
            self.settle(part.op);
        }
    }

    /// Whether the part did what was asked.
    fn take_answer(&mut self, part: &Part, answer: Result<u64, ()>) -> bool {
        let op = &mut self.ops[part.op];
        let Ok(value) = answer else {
            if let Some(slot) = part.slot {
                self.staging.free(slot);
            }
            if op.kind.is_atomic() {
                op.doubt = Some(self.links[part.link].line.server.clone());
            }
            return false;
        };
        if let Some(slot) = part.slot {
            let line = &self.links[part.link].line;
            // Asked after the bytes came: a daemon that has its lease still had it when it read them.
            if part.needs_lease && !line.is_leased() && !line.ping() {
                self.staging.free(slot);
                line.lose();
                return false;
            }
            self.staging.take(slot, &mut op.buffer[part.at..part.at + part.len]);
        }
        if op.kind.is_atomic() {
            op.value = value;
            op.changed.push(self.links[part.link].line.server.clone());
        }
        true
    }

    /// Removes the operations of a region that is gone; none is in flight.
    pub(super) fn forget_of(&mut self, region: usize) {
        let of: Vec<usize> = self.ops.keys().filter(|id| self.ops[*id].region == region).collect();
        self.failed.retain(|id| !of.contains(id));
        self.over.retain(|id| !of.contains(id));
        of.into_iter().for_each(|id| drop(self.ops.remove(id)));
    }

    /// Whether a link carries anything of a region.
    pub(super) fn in_flight_of(&self, region: usize) -> bool {
        self.ops.values().any(|op| op.region == region && op.in_flight > 0)
    }

    /// Waits for an event, for `patience` at most.
    pub(super) fn wait(&mut self, patience: Duration) {
        self.engine.wait(Some(patience));
    }
}

const IGNORED: u64 = u64::MAX;
/// Reads, flushes and atomics of one connection that a daemon carries out at the same time.
const ORD: u8 = 64;
const EVENTS_RESERVED: usize = 512;
const BUFFERS_KEPT: usize = 64;
