//! The engine: its owner's calls, and waiting.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use basics::{Key, Table};
use pmem::Medium;

use super::connections::Connections;
use super::context::{Context, Looks};
use super::fetches::Fetches;
use super::link::RECEIVE_LEN;
use super::qp::{End, Phase, Qp};
use super::regions::Regions;
use super::socket::Network;
use super::token::Token;
use super::work_frame::check_local;
use super::workers::Workers;
use crate::common::PollWindow;
use crate::common::poller::{Interest, Poller, host_io};
use crate::common::timers::Timers;
use crate::common::waiting::{self, Waiting};
use crate::interface::{
    Access, ConnectionId, Deregistration, Engine, EngineConfig, EngineError, EngineStats, Event,
    Handover, LocalSlice, MemoryRegion, PostError, QpCapabilities, QpConfig, QpId, RegisterError,
    Rkey, WakeReceiver, Waker, WorkRequest,
};

/// See the module.
#[derive(Debug)]
pub(super) struct SoftEngine {
    pub(super) config: EngineConfig,
    pub(super) qps: Table<Qp>,
    /// Places of the established queue pairs.
    pub(super) active: Vec<u32>,
    /// Queue pairs that have something to transmit.
    pub(super) dirty: Vec<Key>,
    pub(super) connections: Connections,
    pub(super) context: Context,
    pub(super) timers: Timers,
    wake: WakeReceiver,
    window: PollWindow,
}

impl SoftEngine {
    pub(super) fn open(network: Network, config: EngineConfig) -> Result<Self, EngineError> {
        let poller = Poller::new()?;
        let wake = WakeReceiver::new()?;
        poller.add(&wake, Token::Waker.to_bits(), Interest::READ).map_err(host_io("epoll_ctl"))?;
        let context = Context {
            regions: Regions::new(config.regions_max, config.environment.random.clone()),
            workers: Workers::new(config.workers_max, wake.waker()),
            fetches: Fetches::default(),
            poller,
            events: Vec::with_capacity(EVENTS_START),
            stats: EngineStats::default(),
            bounce: vec![0; RECEIVE_LEN],
            hook: config.wire_hook.clone(),
            round: 0,
        };
        Ok(Self {
            qps: Table::new(config.qps_max),
            active: Vec::new(),
            dirty: Vec::new(),
            connections: Connections::new(network, config.handshakes_max),
            context,
            timers: Timers::new(config.environment.clock.clone()),
            wake,
            window: PollWindow::new(config.polling),
            config,
        })
    }

    fn key_of(QpId { index, generation }: QpId) -> Key {
        Key { index, generation }
    }

    fn qp_mut(&mut self, id: QpId) -> Option<&mut Qp> {
        self.qps.get_mut(Self::key_of(id))
    }
}

impl Waiting for SoftEngine {
    fn work(&mut self) -> bool {
        let sleeps_next = self.window.spin_for() == Some(Duration::ZERO);
        self.round(if sleeps_next { Looks::AtTheSleep } else { Looks::Now })
    }

    fn has_news(&mut self) -> bool {
        !self.context.events.is_empty() || self.wake.take_call()
    }

    fn now(&self) -> Instant {
        self.timers.now()
    }

    fn window(&mut self) -> &mut PollWindow {
        &mut self.window
    }

    fn sleep(&mut self, since: Instant, left: Option<Duration>) {
        let (workers, fetches) = (&self.context.workers, &mut self.context.fetches);
        if !self.dirty.is_empty() || !fetches.submit() {
            return;
        }
        if !self.wake.may_sleep(|| workers.has_done() || fetches.have_ended()) {
            return;
        }
        if !self.rest() {
            self.rise();
            self.wake.got_up(false);
            return;
        }
        let timeout = self.timers.within(left);
        self.context.stats.sleeps += 1;
        let count = self.context.poller.poll(timeout);
        self.rise();
        let waker = (0..count)
            .filter_map(|place| self.context.poller.ready(place))
            .any(|ready| ready.token == Token::Waker.to_bits());
        self.wake.got_up(waker);
        self.context.stats.wakes += u64::from(count > 0);
        self.window.slept(self.timers.now() - since, count > 0);
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

    fn hand_over(&mut self, request: ConnectionId) -> Option<Handover> {
        self.let_go(request)
    }

    fn take_over(&mut self, handover: Handover) -> Option<ConnectionId> {
        self.take_up(handover)
    }

    fn register(
        &mut self,
        qp: QpId,
        medium: Arc<dyn Medium>,
        range: Range<u64>,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        self.qp_mut(qp).ok_or(RegisterError::UnknownQp(qp))?;
        self.context.fetches.prepare(&medium, &self.context.poller);
        self.context.regions.register(qp, medium, range, access)
    }

    fn deregister(&mut self, qp: QpId, rkey: Rkey) -> Result<Deregistration, RegisterError> {
        let key = Self::key_of(qp);
        let owner = self.qps.get_mut(key).ok_or(RegisterError::UnknownQp(qp))?;
        let at_work = self.context.regions.deregister(qp, rkey)?;
        if at_work > 0 {
            owner.deferral.withdraw(rkey.0);
        }
        if owner.deferral.cut_at(rkey.0) {
            // Operations that the peer had queued for the region will not be carried out, nor will
            // those behind them: the peer must not continue as if they had been.
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
        check_local(&self.context.regions, qp, buffer, Access::RECEIVE)?;
        if matches!(owner.phase, Phase::Draining(_)) {
            return Err(PostError::NotConnected(qp));
        }
        owner.receives.post(wr_id, buffer)
    }

    fn disconnect(&mut self, qp: QpId) {
        let key = Self::key_of(qp);
        if self.qps.get(key).is_some() {
            self.end(key, End::Reason(crate::interface::DisconnectReason::Local));
        }
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> usize {
        if self.context.events.is_empty() || !self.dirty.is_empty() {
            self.round(Looks::Now);
        }
        let count = self.context.events.len();
        events.append(&mut self.context.events);
        count
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        waiting::wait(self, timeout);
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

const EVENTS_START: usize = 256;
