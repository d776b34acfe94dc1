//! Establishes and ends connections.
//!
//! ```text
//!   listen, accept(2)          request            accept
//!   ---------------> Incoming ---------> owner ------------+
//!                                          | reject        v
//!   connect -> Dialing ------------------------------------> Up --> Linger --> closed
//!                                          +-----------------------^
//! ```
//!
//! Spec: RFC 5044 §7.1, RFC 6581 §9.

use std::mem;
use std::net::SocketAddr;

use basics::{Key, Table};
use iwarp::Agreement;
use iwarp::mpa::MULPDU_FLOOR;
use rustix::io::Errno;

use super::byte_queue::ByteQueue;
use super::dial::{Dialing, Dialled, Route, start_config};
use super::engine::SoftEngine;
use super::farewell::LINGER_MAX;
use super::linger::Linger;
use super::link::Link;
use super::newcomers::Newcomers;
use super::qp::{End, Phase, Qp};
use super::socket::{ByteStream as _, Listener, Network};
use super::token::Token;
use crate::common::poller::{Interest, Poller, host_io};
use crate::common::timers::Due;
use crate::interface::{
    ConnectFailure, ConnectionId, DisconnectReason, EngineError, Event, IRD_ORD_MAX,
    PRIVATE_DATA_MAX, QUEUE_DEPTH_MAX, QpConfig, QpId,
};

/// Connections that are not a queue pair yet, or no longer.
#[derive(Debug)]
pub(super) struct Connections {
    pub(super) network: Network,
    pub(super) listeners: Vec<Listener>,
    pub(super) incoming: Newcomers,
    pub(super) lingering: Table<Linger>,
    /// Queue pairs that are dialling.
    pub(super) dialling: usize,
    next_number: u64,
}

impl Connections {
    pub(super) fn new(network: Network, handshakes_max: u32) -> Self {
        Self {
            network,
            listeners: Vec::new(),
            incoming: Newcomers::new(handshakes_max),
            lingering: Table::new(LINGER_MAX),
            dialling: 0,
            next_number: 0,
        }
    }

    pub(super) fn listen(
        &mut self,
        addr: SocketAddr,
        poller: &Poller,
    ) -> Result<SocketAddr, EngineError> {
        let listener = self.network.listen(addr).map_err(host_io("listen"))?;
        let addr = listener.local_addr().map_err(host_io("getsockname"))?;
        let index = u32::try_from(self.listeners.len()).unwrap_or(u32::MAX);
        poller
            .add(&listener, Token::Listener(index).to_bits(), Interest::READ)
            .map_err(host_io("epoll_ctl"))?;
        self.listeners.push(listener);
        Ok(addr)
    }

    /// Whether a connection is in a state that only epoll reports on.
    pub(super) fn are_busy(&self) -> bool {
        self.incoming.len() + self.lingering.len() + self.dialling > 0
    }

    pub(super) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }
}

impl SoftEngine {
    pub(super) fn answer_yes(
        &mut self,
        ConnectionId { index, generation }: ConnectionId,
        config: QpConfig,
        private_data: &[u8],
    ) -> Result<QpId, EngineError> {
        check(&config, private_data)?;
        let key = Key { index, generation };
        let unknown = EngineError::UnknownConnection(ConnectionId { index, generation });
        let incoming = self.connections.incoming.get(key).ok_or(unknown)?;
        if self.qps.is_full() {
            return Err(EngineError::QpsExhausted { max: self.config.qps_max });
        }
        let start = start_config(self.connections.network, &config, self.config.handshake_timeout);
        let (agreement, reply) =
            incoming.accept(start, private_data, self.timers.now()).map_err(|_| unknown)?;
        let mut incoming = self.connections.incoming.remove(key).ok_or(unknown)?;
        incoming.socket.admit();
        let mut link = Link::new(incoming.socket, incoming.number, agreement);
        link.queue_reply(&reply, &mut self.context.stats.bytes_copied);
        self.insert_up(config, link)
    }

    /// Makes a queue pair of an accepted connection.
    fn insert_up(&mut self, config: QpConfig, link: Link) -> Result<QpId, EngineError> {
        let max = self.config.qps_max;
        let phase = Phase::Up(Box::new(link));
        let key = self.qps.insert_if(|key| Some(Qp::new(key, config, phase)));
        let key = key.ok_or(EngineError::QpsExhausted { max })?;
        if let Some(link) = self.qps.get_mut(key).and_then(Qp::link) {
            link.watch(&self.context, key);
        }
        self.active.push(key.index);
        self.mark_dirty(key);
        Ok(QpId { index: key.index, generation: key.generation })
    }

    pub(super) fn answer_no(
        &mut self,
        ConnectionId { index, generation }: ConnectionId,
        private_data: &[u8],
    ) {
        let key = Key { index, generation };
        let Some(incoming) = self.connections.incoming.remove(key) else { return };
        let (socket, number, reply) = incoming.reject(private_data);
        let mut transmit = ByteQueue::new(reply.len().max(1));
        transmit.push(&reply, &mut self.context.stats.bytes_copied);
        self.linger(socket, number, transmit);
    }

    pub(super) fn dial(
        &mut self,
        addr: SocketAddr,
        config: QpConfig,
        private_data: &[u8],
    ) -> Result<QpId, EngineError> {
        check(&config, private_data)?;
        let max = self.config.qps_max;
        if self.qps.is_full() {
            return Err(EngineError::QpsExhausted { max });
        }
        let number = self.connections.number();
        let start = start_config(self.connections.network, &config, self.config.handshake_timeout);
        let silence_max = self.config.silence_max;
        let route = Route { network: self.connections.network, addr, start, silence_max };
        let dialing =
            Dialing::begin(route, private_data, number, self.timers.now()).map_err(|failure| {
                let errno = match failure {
                    ConnectFailure::HostIo { errno } => errno,
                    _ => 0,
                };
                EngineError::HostIo { call: "connect", errno }
            })?;
        let phase = Phase::Dialing(Box::new(dialing));
        let key = self.qps.insert_if(|key| Some(Qp::new(key, config, phase)));
        let key = key.ok_or(EngineError::QpsExhausted { max })?;
        self.connections.dialling += 1;
        self.watch_dial(key);
        Ok(QpId { index: key.index, generation: key.generation })
    }

    /// Has epoll report the socket of a new attempt.
    fn watch_dial(&mut self, key: Key) {
        let Some(Qp { phase: Phase::Dialing(dialing), .. }) = self.qps.get(key) else { return };
        let token = Token::Qp(key.index);
        if let Err(errno) = dialing.socket.watch(&self.context.poller, token, Interest::WRITE) {
            let errno = errno.raw_os_error();
            self.dial_failed(key, ConnectFailure::HostIo { errno });
            return;
        }
        self.timers.at(dialing.deadline, Due::dial(key));
    }

    /// Continues a dial whose socket is ready.
    pub(super) fn advance_dial(&mut self, key: Key) -> bool {
        let Some(Qp { phase: Phase::Dialing(dialing), .. }) = self.qps.get_mut(key) else {
            return false;
        };
        match dialing.advance(self.context.hook.as_deref()) {
            Dialled::Pending { just_connected: false } => {}
            Dialled::Pending { just_connected: true } => {
                let token = Token::Qp(key.index);
                dialing.socket.rewatch(&self.context.poller, token, Interest::READ);
            }
            Dialled::Agreed { agreement, early } => self.dialled(key, agreement, &early),
            Dialled::Again(attempt) => {
                let old = dialing.number;
                let number = self.connections.number();
                let again = dialing.again(attempt, number, self.timers.now());
                self.closed(old);
                match again {
                    Ok(()) => self.watch_dial(key),
                    Err(failure) => self.dial_failed(key, failure),
                }
            }
            Dialled::Failed(failure) => self.dial_failed(key, failure),
        }
        true
    }

    /// The peer has accepted: the queue pair is established.
    fn dialled(&mut self, key: Key, agreement: Agreement, early: &[u8]) {
        let Some(qp) = self.qps.get_mut(key) else { return };
        let placeholder = Phase::Draining(DisconnectReason::Local);
        let Phase::Dialing(dialing) = mem::replace(&mut qp.phase, placeholder) else { return };
        let private_data = dialing.peer_private_data();
        let mut link = Link::new(dialing.socket, dialing.number, agreement);
        link.residue.push(early, &mut self.context.stats.bytes_copied);
        // RFC 5044 §7.1.2: the acceptor may not send before it has received a frame of ours. A peer
        // with our profile gets a frame at once; other peers get what was agreed, or our first
        // request.
        if agreement.ready.is_some() || agreement.is_extended() {
            link.frame_kick(&mut self.context);
        }
        link.watch(&self.context, key);
        qp.phase = Phase::Up(Box::new(link));
        let established = Event::Established { qp: qp.id(), private_data };
        self.context.events.push(established);
        self.connections.dialling -= 1;
        self.active.push(key.index);
        self.mark_dirty(key);
    }

    fn dial_failed(&mut self, key: Key, reason: ConnectFailure) {
        let Some(qp) = self.qps.remove(key) else { return };
        let Phase::Dialing(dialing) = &qp.phase else { return };
        self.connections.dialling -= 1;
        self.closed(dialing.number);
        self.context.regions.drop_all(qp.id());
        let (qp, private_data) = (qp.id(), dialing.peer_private_data());
        self.context.events.push(Event::ConnectFailed { qp, reason, private_data });
    }

    /// Handles the deadlines that have come.
    pub(super) fn fire_timers(&mut self) -> bool {
        let now = self.timers.now();
        let mut worked = false;
        while let Some(due) = self.timers.pop(now) {
            worked = true;
            match due {
                Due::Request { index, generation } => {
                    let key = Key { index, generation };
                    let incoming = self.connections.incoming.get_mut(key);
                    if incoming.is_some_and(|incoming| incoming.expire(now)) {
                        self.drop_incoming(key);
                    }
                }
                Due::Dial { index, generation } => {
                    let key = Key { index, generation };
                    if let Some(Qp { phase: Phase::Dialing(dialing), .. }) = self.qps.get_mut(key)
                        && let Some(failure) = dialing.expire(now)
                    {
                        self.dial_failed(key, failure);
                    }
                }
                Due::Kick { index, generation } => {
                    let key = Key { index, generation };
                    let (timers, context) = (&mut self.timers, &mut self.context);
                    let link = self.qps.get_mut(key).and_then(Qp::link);
                    if link.is_some_and(|link| link.kick(key, timers, context)) {
                        self.mark_dirty(key);
                    }
                }
                Due::Stall { index, generation } => self.stalled(Key { index, generation }),
                Due::Accept { index } => self.watch_listener(index, Interest::READ),
                Due::Linger { index, generation } => self.drop_linger(Key { index, generation }),
            }
        }
        worked
    }

    /// Where the host does not do it: ends a connection in time whose peer takes nothing.
    pub(super) fn watch_stall(&mut self, key: Key) {
        if self.connections.network.ends_stalled() {
            return;
        }
        let Some(silence_max) = self.config.silence_max else { return };
        if self.qps.get_mut(key).and_then(Qp::link).is_some_and(Link::begin_stall) {
            self.timers.after(silence_max, Due::stall(key));
        }
    }

    fn stalled(&mut self, key: Key) {
        let Some(link) = self.qps.get_mut(key).and_then(Qp::link) else { return };
        if link.has_stalled() {
            let errno = Errno::TIMEDOUT.raw_os_error();
            self.end(key, End::Reason(DisconnectReason::HostIo { errno }));
        } else {
            self.watch_stall(key);
        }
    }

    pub(super) fn closed(&self, number: u64) {
        if let Some(hook) = &self.context.hook {
            hook.closed(number);
        }
    }
}

fn check(config: &QpConfig, private_data: &[u8]) -> Result<(), EngineError> {
    for depth in [config.send_depth, config.recv_depth] {
        if depth == 0 || depth > QUEUE_DEPTH_MAX {
            return Err(EngineError::ConfigQueueDepth { depth, max: QUEUE_DEPTH_MAX });
        }
    }
    for asked in [config.ird, config.ord] {
        if asked > IRD_ORD_MAX {
            return Err(EngineError::ConfigReadLimit { asked, max: IRD_ORD_MAX });
        }
    }
    if config.fpdu_max < MULPDU_FLOOR {
        return Err(EngineError::ConfigFpdu { asked: config.fpdu_max, min: MULPDU_FLOOR });
    }
    if private_data.len() > PRIVATE_DATA_MAX {
        let len = private_data.len();
        return Err(EngineError::ConfigPrivateData { len, max: PRIVATE_DATA_MAX });
    }
    Ok(())
}
