//! The engine: its owner's calls, and one round of work after another.
//!
//! ```text
//!   round:  batches that came back -> what was posted -> input -> (now and then) epoll, timers
//! ```
//!
//! With one or two connections each round asks their sockets directly: a `recv` that finds
//! nothing costs 0.18 us, and one that finds something needs no `epoll_wait` before it. With more,
//! the round asks epoll. A round gives each queue pair one `recv` and two `send`s at most, so that
//! none can hold up the others.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmem::Medium;

use super::batch::Batch;
use super::connections::Connections;
use super::context::Context;
use super::link::RECEIVE_LEN;
use super::poll_window::PollWindow;
use super::poller::{Interest, Poller, host_io};
use super::qp::{End, Phase, Qp};
use super::regions::Regions;
use super::table::{Key, Table};
use super::timers::Timers;
use super::token::Token;
use super::work_frame::check_local;
use super::workers::Workers;
use crate::verbs::{
    Access, ConnectionId, Deregistration, Engine, EngineConfig, EngineError, EngineStats, Event,
    LocalSlice, MemoryRegion, PostError, QpCapabilities, QpConfig, QpId, RegisterError, Rkey,
    WakeReceiver, Waker, WcStatus, WorkRequest,
};

/// See the module.
#[derive(Debug)]
pub(super) struct SoftEngine {
    pub(super) config: EngineConfig,
    pub(super) qps: Table<Qp>,
    /// Places of the queue pairs that are up.
    pub(super) active: Vec<u32>,
    /// Queue pairs that have something to transmit.
    pub(super) dirty: Vec<Key>,
    pub(super) connections: Connections,
    pub(super) context: Context,
    pub(super) timers: Timers,
    wake: WakeReceiver,
    window: PollWindow,
    rounds: u32,
}

impl SoftEngine {
    pub(super) fn open(config: EngineConfig) -> Result<Self, EngineError> {
        let poller = Poller::new()?;
        let wake = WakeReceiver::new()?;
        poller.add(&wake, Token::Waker.to_bits(), Interest::READ).map_err(host_io("epoll_ctl"))?;
        let context = Context {
            regions: Regions::new(config.regions_max),
            workers: Workers::new(config.workers_max, wake.waker()),
            poller,
            events: Vec::with_capacity(EVENTS_START),
            stats: EngineStats::default(),
            bounce: vec![0; RECEIVE_LEN],
            hook: config.wire_hook.clone(),
        };
        Ok(Self {
            qps: Table::new(config.qps_max),
            active: Vec::new(),
            dirty: Vec::new(),
            connections: Connections::new(config.handshakes_max),
            context,
            timers: Timers::default(),
            wake,
            window: PollWindow::new(config.polling),
            rounds: 0,
            config,
        })
    }

    /// One round of work. `true`: something was done.
    fn round(&mut self) -> bool {
        self.context.stats.polls += 1;
        self.rounds = self.rounds.wrapping_add(1);
        let mut worked = self.collect_batches();
        worked |= self.transmit_dirty();
        let direct = self.active.len() <= DIRECT_MAX;
        if direct {
            let mut place = 0;
            while let Some(index) = self.active.get(place).copied() {
                worked |= self.receive(index);
                // Whoever ended made room for the last of the list.
                if self.active.get(place) == Some(&index) {
                    place += 1;
                }
            }
        }
        let due = self.rounds.is_multiple_of(LOOK_ROUNDS);
        if !direct || due || self.connections.are_busy() || self.is_any_blocked() {
            self.context.stats.epoll_calls += 1;
            let count = self.context.poller.poll(Some(Duration::ZERO));
            worked |= self.serve_ready(count, direct);
        }
        if due && !self.timers.is_empty() {
            worked |= self.fire_timers();
        }
        worked
    }

    /// Whether a connection among those asked directly waits for TCP to take more.
    fn is_any_blocked(&mut self) -> bool {
        if self.active.len() > DIRECT_MAX {
            return false;
        }
        let mut blocked = false;
        for place in 0..self.active.len() {
            let index = self.active.get(place).copied().unwrap_or(u32::MAX);
            blocked |=
                self.qps.at(index).and_then(|(_, qp)| qp.link()).is_some_and(|link| link.blocked);
        }
        blocked
    }

    fn is_up(&mut self, index: u32) -> bool {
        self.qps.at(index).is_some_and(|(_, qp)| qp.link().is_some())
    }

    /// Serves what epoll reported. `direct`: input of queue pairs was looked at already.
    fn serve_ready(&mut self, count: usize, direct: bool) -> bool {
        let mut worked = false;
        for place in 0..count {
            let Some(ready) = self.context.poller.ready(place) else { break };
            match Token::from_bits(ready.token) {
                Some(Token::Qp(index)) => {
                    if ready.writable {
                        worked |= self.writable(index);
                    }
                    if ready.readable && !(direct && self.is_up(index)) {
                        worked |= self.receive(index);
                    }
                }
                Some(Token::Listener(index)) => {
                    self.accept_connections(index);
                    worked = true;
                }
                Some(Token::Request(index)) => worked |= self.advance_incoming(index),
                Some(Token::Linger(index)) => worked |= self.advance_linger(index),
                Some(Token::Waker) | None => {}
            }
        }
        worked
    }

    /// One queue pair's share of input, and what follows from it.
    fn receive(&mut self, index: u32) -> bool {
        let Some((key, qp)) = self.qps.at(index) else { return false };
        if matches!(qp.phase, Phase::Dialing(_)) {
            return self.advance_dial(key);
        }
        match qp.receive(&mut self.context) {
            Ok(false) => false,
            Ok(true) => {
                self.transmit(key);
                true
            }
            Err(end) => {
                self.end(key, end);
                true
            }
        }
    }

    /// TCP takes bytes again, or a dialled connection is there.
    fn writable(&mut self, index: u32) -> bool {
        let Some((key, qp)) = self.qps.at(index) else { return false };
        if matches!(qp.phase, Phase::Dialing(_)) {
            return self.advance_dial(key);
        }
        let Some(link) = qp.link() else { return false };
        if !link.blocked {
            return false;
        }
        link.blocked = false;
        link.watch(&self.context, key);
        self.transmit(key);
        true
    }

    /// Frames and sends what a queue pair has, and gives workers what it cannot do itself.
    pub(super) fn transmit(&mut self, key: Key) {
        let Some(qp) = self.qps.get_mut(key) else { return };
        let outcome = qp.transmit(&mut self.context).and_then(|more| {
            qp.submit(&mut self.context)?;
            Ok(more)
        });
        match outcome {
            Ok(more) => {
                if let Some(link) = qp.link()
                    && link.transmit.tail_position() > 0
                {
                    link.arm_kick(key, &mut self.timers);
                }
                if more {
                    self.mark_dirty(key);
                }
            }
            Err(end) => self.end(key, end),
        }
    }

    pub(super) fn mark_dirty(&mut self, key: Key) {
        if let Some(qp) = self.qps.get_mut(key)
            && !qp.dirty
        {
            qp.dirty = true;
            self.dirty.push(key);
        }
    }

    /// Transmits for those that posted since the last round.
    fn transmit_dirty(&mut self) -> bool {
        // Whoever gets dirty meanwhile has its turn in the next round.
        let count = self.dirty.len();
        for place in 0..count {
            let Some(key) = self.dirty.get(place).copied() else { break };
            if let Some(qp) = self.qps.get_mut(key) {
                qp.dirty = false;
                self.transmit(key);
            }
        }
        self.dirty.drain(..count);
        count > 0
    }

    /// Takes back what workers have done.
    fn collect_batches(&mut self) -> bool {
        let mut worked = false;
        while let Some(batch) = self.context.workers.collect() {
            self.batch_returned(batch);
            worked = true;
        }
        worked
    }

    fn batch_returned(&mut self, batch: Box<Batch>) {
        let key = batch.qp;
        let Some(qp) = self.qps.get_mut(key) else { return };
        let mut outcome = qp.batch_returned(batch, &mut self.context);
        if matches!(qp.phase, Phase::Draining(_)) {
            self.drained(key);
            return;
        }
        if outcome.is_ok() {
            outcome = qp.resume(&mut self.context);
        }
        match outcome {
            Ok(()) => self.transmit(key),
            Err(end) => self.end(key, end),
        }
    }

    fn key_of(QpId { index, generation }: QpId) -> Key {
        Key { index, generation }
    }

    fn qp_mut(&mut self, id: QpId) -> Option<&mut Qp> {
        self.qps.get_mut(Self::key_of(id))
    }

    /// Sleeps until something comes or `left` is over, and serves what came.
    fn sleep(&mut self, since: Instant, left: Option<Duration>) {
        let workers = &self.context.workers;
        if !self.dirty.is_empty() || !self.wake.may_sleep(|| workers.has_done()) {
            return;
        }
        let now = Instant::now();
        let next = self.timers.until_next(now);
        let timeout = match (left, next) {
            (Some(left), Some(next)) => Some(left.min(next)),
            (left, next) => left.or(next),
        };
        self.context.stats.sleeps += 1;
        let count = self.context.poller.poll(timeout);
        let waker = (0..count)
            .filter_map(|place| self.context.poller.ready(place))
            .any(|ready| ready.token == Token::Waker.to_bits());
        self.wake.got_up(waker);
        self.context.stats.wakes += u64::from(count > 0);
        self.window.slept(since.elapsed(), count > 0);
        self.serve_ready(count, false);
        self.fire_timers();
    }
}

impl Engine for SoftEngine {
    fn listen(&mut self, addr: SocketAddr) -> Result<SocketAddr, EngineError> {
        self.connections.listen(addr, &self.context.poller)
    }

    fn connect(
        &mut self,
        addr: SocketAddr,
        config: QpConfig,
        private_data: &[u8],
    ) -> Result<QpId, EngineError> {
        self.dial(addr, config, private_data)
    }

    fn accept(
        &mut self,
        request: ConnectionId,
        config: QpConfig,
        private_data: &[u8],
    ) -> Result<QpId, EngineError> {
        self.answer_yes(request, config, private_data)
    }

    fn reject(&mut self, request: ConnectionId, private_data: &[u8]) {
        self.answer_no(request, private_data);
    }

    fn register(
        &mut self,
        qp: QpId,
        medium: Arc<dyn Medium>,
        range: Range<u64>,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        self.qp_mut(qp).ok_or(RegisterError::UnknownQp(qp))?;
        self.context.regions.register(qp, medium, range, access)
    }

    fn deregister(&mut self, qp: QpId, rkey: Rkey) -> Result<Deregistration, RegisterError> {
        let key = Self::key_of(qp);
        let owner = self.qps.get_mut(key).ok_or(RegisterError::UnknownQp(qp))?;
        let at_work = self.context.regions.deregister(qp, rkey)?;
        if owner.deferral.cut_at(rkey.0) {
            // What the peer had queued for the region will not happen, and neither will what
            // came after it: the peer must not go on as if it had.
            let refused = super::fault::Fault::RefusedLater(iwarp::Protection::PeerStag);
            self.end(key, End::Fault(refused));
        }
        Ok(if at_work == 0 { Deregistration::Done } else { Deregistration::Pending })
    }

    fn post_send(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError> {
        let key = Self::key_of(qp);
        let poster = self.qps.get_mut(key).ok_or(PostError::UnknownQp(qp))?;
        let link = poster.link().ok_or(PostError::NotConnected(qp))?;
        if !link.capabilities().supports(&request.operation) {
            return Err(PostError::PeerUnsupported);
        }
        let mut halves = poster.halves(&mut self.context).ok_or(PostError::NotConnected(qp))?;
        match halves.requester.post(&mut halves.scope, &request)? {
            Ok(()) => self.mark_dirty(key),
            Err(fault) => self.end(key, End::Fault(fault)),
        }
        Ok(())
    }

    fn post_recv(&mut self, qp: QpId, wr_id: u64, buffer: LocalSlice) -> Result<(), PostError> {
        let owner = self.qps.get_mut(Self::key_of(qp)).ok_or(PostError::UnknownQp(qp))?;
        check_local(&self.context.regions, qp, buffer, Access::LOCAL_WRITE)?;
        if matches!(owner.phase, Phase::Draining(_)) {
            return Err(PostError::NotConnected(qp));
        }
        owner.receives.post(wr_id, buffer)
    }

    fn disconnect(&mut self, qp: QpId) {
        let key = Self::key_of(qp);
        if self.qps.get(key).is_some() {
            self.end(key, End::Reason(crate::verbs::DisconnectReason::Local));
        }
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> usize {
        if self.context.events.is_empty() || !self.dirty.is_empty() {
            self.round();
        }
        let count = self.context.events.len();
        events.append(&mut self.context.events);
        count
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        let start = Instant::now();
        let mut idle_since = start;
        self.window.look_around(start);
        loop {
            let worked = self.round();
            if !self.context.events.is_empty() || self.wake.take_call() {
                return;
            }
            let now = Instant::now();
            let left = timeout.map(|timeout| timeout.saturating_sub(now - start));
            if left == Some(Duration::ZERO) {
                return;
            }
            if worked {
                idle_since = now;
                continue;
            }
            let idle = now - idle_since;
            if self.window.spin_for().is_some_and(|window| idle >= window) {
                self.sleep(idle_since, left);
                idle_since = Instant::now();
                self.window.look_around(idle_since);
            } else {
                std::hint::spin_loop();
            }
        }
    }

    fn waker(&self) -> Waker {
        self.wake.waker()
    }

    fn capabilities(&self, qp: QpId) -> Option<QpCapabilities> {
        match &self.qps.get(Self::key_of(qp))?.phase {
            Phase::Up(link) => Some(link.capabilities()),
            Phase::Dialing(_) | Phase::Draining(_) => None,
        }
    }

    fn inline_max(&self) -> usize {
        super::INLINE_MAX
    }

    fn stats(&self) -> EngineStats {
        self.context.stats
    }
}

/// Status of the oldest unanswered request when the peer reports an error.
pub(super) fn status_of(code: crate::verbs::TerminateCode) -> WcStatus {
    // RFC 5040 §4.8, RFC 5041 §7.2: type 1 of layers 0 and 1 is about memory.
    if code.layer <= 1 && code.etype == 1 {
        WcStatus::RemoteAccess
    } else {
        WcStatus::RemoteOperation
    }
}

/// Up to so many connections are asked directly.
const DIRECT_MAX: usize = 2;
/// Every so many rounds epoll and the timers are looked at in any case.
const LOOK_ROUNDS: u32 = 64;
const EVENTS_START: usize = 256;
