//! Listening, dialling and answering, and the events of the connection manager.
//!
//! The local address of a connection decides which device it uses. The engine looks that address up
//! first, in the routing table, without a packet on the network. Events report the outcome of every
//! later step of a dial.
//!
//! The engine sends an answer in the round after `accept`, so that what the owner posts right after
//! `accept` is queued before the peer learns of the connection.
//!
//! Spec: rdma_cm(7); rdma_connect(3) for the limits of private data.

use std::net::{SocketAddr, UdpSocket};

use super::connection::{Connection, Receives, Sends, Stage};
use super::engine::{VerbsEngine, qp_of};
use super::greeting::{self, Answers};
use super::sys::cm::{CmId, Happened, Terms, What};
use super::sys::device::Features;
use super::sys::queue::{QueuePair, Shape};
use crate::common::timers::Due;
use crate::interface::{
    AdapterFault, ConnectFailure, ConnectionId, DisconnectReason, EngineError, Event, Handover,
    IRD_ORD_MAX, PRIVATE_DATA_MAX, QUEUE_DEPTH_MAX, QpCapabilities, QpConfig, QpId, TerminateCode,
};
use basics::Key;

/// The owner of a connection manager's identifier.
#[derive(Clone, Copy, Debug)]
pub(super) enum Whose {
    Qp(Key),
    Request(Key),
}

/// A peer that has asked for a connection and was not answered.
#[derive(Debug)]
pub(super) struct Request {
    id: CmId,
    /// The operations that the peer answers, if it has sent a greeting.
    greeted: Option<Answers>,
    initiator_depth: u8,
}

/// A request between two engines.
#[derive(Debug)]
struct InTransit(Request);

impl VerbsEngine {
    pub(super) fn dial(
        &mut self,
        addr: SocketAddr,
        config: QpConfig,
        private_data: &[u8],
    ) -> Result<QpId, EngineError> {
        check(config)?;
        if self.qps.is_full() {
            return Err(EngineError::QpsExhausted { max: self.config.qps_max });
        }
        let source = source_for(addr)?;
        let id = CmId::bound(&self.channel, source)?;
        let device = id.device().ok_or(EngineError::ConfigNoDeviceAt(source))?;
        let device = self.known(device)?;
        let features = self.devices[device].features;
        let max = private_data_max(&features, REQUEST_MAX);
        if private_data.len() > max {
            return Err(EngineError::ConfigPrivateData { len: private_data.len(), max });
        }
        let answers = answers(config, &features);
        let private_data = match features.is_iwarp {
            true => private_data.to_vec(),
            false => greeting::emit(answers, private_data),
        };
        let terms = Terms {
            private_data,
            responder_resources: config.ird.min(features.responder_max),
            initiator_depth: config.ord.min(features.initiator_max),
        };
        let key = self.add(id, device, config, Stage::Resolving(terms), true)?;
        self.timers.after(self.config.handshake_timeout, Due::dial(key));
        let timeout = i32::try_from(self.config.handshake_timeout.as_millis()).unwrap_or(i32::MAX);
        let resolving = match self.qps.get(key) {
            Some(connection) => connection.queue.id().resolve_address(addr, timeout),
            None => Ok(()),
        };
        if let Err(error) = resolving {
            self.forget(key);
            return Err(error);
        }
        Ok(qp_of(key))
    }

    /// Makes a queue pair and puts it into the table.
    fn add(
        &mut self,
        id: CmId,
        device: usize,
        config: QpConfig,
        stage: Stage,
        is_initiator: bool,
    ) -> Result<Key, EngineError> {
        let known = &self.devices[device];
        let (features, announcements) = (known.features, known.announcements.clone());
        let name = id.name();
        let mut made = None;
        let capabilities = capabilities(config, &features);
        let key = self.qps.insert_if(|key| {
            let shape = Shape {
                send_depth: u32::from(config.send_depth).min(features.depth_max),
                recv_depth: u32::from(config.recv_depth).min(features.depth_max),
                name: u64::from(key.index),
            };
            let queue = QueuePair::new(id, &features, &announcements, shape);
            let queue = queue.map_err(|error| made = Some(error)).ok()?;
            let depth = |depth: u32| u16::try_from(depth).unwrap_or(u16::MAX);
            let (send_depth, recv_depth) = (depth(shape.send_depth), depth(shape.recv_depth));
            Some(Connection {
                queue,
                stage,
                config: QpConfig { send_depth, recv_depth, ..config },
                capabilities,
                is_initiator,
                is_iwarp: features.is_iwarp,
                answers: answers(config, &features),
                device,
                sends: Sends::default(),
                receives: Receives::default(),
                ring: None,
                regions: std::collections::HashMap::new(),
                is_busy: false,
                is_armed: false,
                closing: None,
                fault: None,
                is_broken: false,
                told: None,
            })
        });
        let full = EngineError::QpsExhausted { max: self.config.qps_max };
        let key = key.ok_or_else(|| made.unwrap_or(full))?;
        self.names.insert(name, Whose::Qp(key));
        Ok(key)
    }

    pub(super) fn answer_yes(
        &mut self,
        ConnectionId { index, generation }: ConnectionId,
        config: QpConfig,
        private_data: &[u8],
    ) -> Result<QpId, EngineError> {
        check(config)?;
        let key = Key { index, generation };
        let unknown = EngineError::UnknownConnection(ConnectionId { index, generation });
        let request = self.requests.get(key).ok_or(unknown)?;
        let device = request.id.device().ok_or(EngineError::HostNoDevice)?;
        let device = self.known(device)?;
        let features = self.devices[device].features;
        let max = private_data_max(&features, ANSWER_MAX);
        if private_data.len() > max {
            return Err(EngineError::ConfigPrivateData { len: private_data.len(), max });
        }
        if self.qps.is_full() {
            return Err(EngineError::QpsExhausted { max: self.config.qps_max });
        }
        let request = self.requests.remove(key).ok_or(unknown)?;
        self.names.remove(&request.id.name());
        let answers = answers(config, &features);
        let terms = Terms {
            private_data: match request.greeted {
                Some(_) => greeting::emit(answers, private_data),
                None => private_data.to_vec(),
            },
            responder_resources: config.ird.min(features.responder_max),
            initiator_depth: match features.is_iwarp {
                true => config.ord.min(features.initiator_max),
                false => config.ord.min(features.initiator_max).min(request.initiator_depth),
            },
        };
        let stage = Stage::Answering(terms.clone());
        let key = self.add(request.id, device, config, stage, false)?;
        if let Some(connection) = self.qps.get_mut(key) {
            connection.agree(request.greeted, &terms);
        }
        self.answering.push(key);
        self.timers.after(self.config.handshake_timeout, Due::dial(key));
        Ok(qp_of(key))
    }

    /// Sends the answers that are due.
    pub(super) fn answer_all(&mut self) -> bool {
        let answering = std::mem::take(&mut self.answering);
        let worked = !answering.is_empty();
        for key in answering {
            let Some(connection) = self.qps.get_mut(key) else { continue };
            let stage = std::mem::replace(&mut connection.stage, Stage::Answered);
            let Stage::Answering(terms) = stage else { continue };
            if let Err(error) = connection.queue.id().accept(&terms) {
                tracing::debug!(%error, "a connection was not accepted");
                self.end(key, host(&error));
            }
        }
        worked
    }

    pub(super) fn answer_no(
        &mut self,
        ConnectionId { index, generation }: ConnectionId,
        private_data: &[u8],
    ) {
        let Some(request) = self.requests.remove(Key { index, generation }) else { return };
        self.names.remove(&request.id.name());
        let field = match request.greeted {
            Some(_) => {
                let fits = &private_data[..private_data.len().min(REJECTION_MAX)];
                greeting::emit(Answers::empty(), fits)
            }
            None => private_data.to_vec(),
        };
        request.id.reject(&field);
    }

    pub(super) fn let_go(
        &mut self,
        ConnectionId { index, generation }: ConnectionId,
    ) -> Option<Handover> {
        let request = self.requests.remove(Key { index, generation })?;
        self.names.remove(&request.id.name());
        Some(Handover(Box::new(InTransit(request))))
    }

    pub(super) fn take_up(&mut self, handover: Handover) -> Option<ConnectionId> {
        let InTransit(mut request) = *handover.0.downcast::<InTransit>().ok()?;
        if self.requests.is_full() {
            request.id.reject(&[]);
            return None;
        }
        request.id.migrate(&self.channel).ok()?;
        self.enter(request)
    }

    fn enter(&mut self, request: Request) -> Option<ConnectionId> {
        let name = request.id.name();
        let key = self.requests.insert(request).ok()?;
        self.names.insert(name, Whose::Request(key));
        self.timers.after(self.config.handshake_timeout, Due::request(key));
        if self.order.len() > 2 * self.requests.len() + ORDER_LOOSE {
            let requests = &self.requests;
            self.order.retain(|key| requests.get(*key).is_some());
        }
        self.order.push_back(key);
        let Key { index, generation } = key;
        Some(ConnectionId { index, generation })
    }

    /// Takes the events of the connection manager.
    pub(super) fn take_happenings(&mut self) -> bool {
        let mut worked = false;
        for _ in 0..HAPPENINGS_PER_LOOK {
            let Some(happened) = self.channel.next() else { break };
            self.happened(happened);
            worked = true;
        }
        worked
    }

    fn happened(&mut self, Happened { of, what }: Happened) {
        if let What::Requested { id, terms } = what {
            self.requested(id, &terms);
            return;
        }
        match self.names.get(&of).copied() {
            Some(Whose::Qp(key)) => self.happened_to(key, what),
            // A request that was not answered has one event only: its end.
            Some(Whose::Request(key)) => self.withdraw(key),
            None => self.happened_to_listener(of, &what),
        }
    }

    fn happened_to_listener(&mut self, of: usize, what: &What) {
        let listener = self.listeners.iter().position(|listener| listener.name() == of);
        if let (Some(place), What::DeviceRemoved) = (listener, what) {
            let address = self.listeners.swap_remove(place).local();
            tracing::error!(
                %address,
                "the device of a listener is being removed: nobody is served there any more; \
                 start anew when it is back"
            );
        }
    }

    fn requested(&mut self, id: CmId, terms: &Terms) {
        let Some(device) = id.device() else { return };
        let Ok(device) = self.known(device) else { return };
        let features = self.devices[device].features;
        if self.requests.is_full() {
            self.drop_oldest();
        }
        let (greeted, said) = greeting::parse(&terms.private_data, features.is_iwarp);
        let private_data = said.to_vec();
        let (peer, local) = (id.peer(), id.local());
        let request = Request { id, greeted, initiator_depth: terms.initiator_depth };
        if let Some(id) = self.enter(request) {
            self.events.push(Event::ConnectRequest { id, peer, local, private_data });
        }
    }

    /// Drops the oldest request to make room for another.
    fn drop_oldest(&mut self) {
        while let Some(key) = self.order.pop_front() {
            if let Some(request) = self.requests.get(key) {
                request.id.reject(&[]);
                self.stats.handshakes_dropped += 1;
                self.withdraw(key);
                return;
            }
        }
    }

    fn withdraw(&mut self, key: Key) {
        if let Some(request) = self.requests.remove(key) {
            self.names.remove(&request.id.name());
            let Key { index, generation } = key;
            let id = ConnectionId { index, generation };
            self.events.push(Event::ConnectRequestGone { id });
        }
    }

    fn happened_to(&mut self, key: Key, what: What) {
        let Some(connection) = self.qps.get_mut(key) else { return };
        let is_dialled = connection.is_initiator && !matches!(connection.stage, Stage::Up);
        match what {
            What::AddressResolved => {
                let timeout = self.config.handshake_timeout.as_millis();
                let timeout = i32::try_from(timeout).unwrap_or(i32::MAX);
                if let Err(error) = connection.queue.id().resolve_route(timeout) {
                    self.fail(key, failure(&error), Vec::new());
                }
            }
            What::RouteResolved => {
                let stage = std::mem::replace(&mut connection.stage, Stage::Calling);
                let Stage::Resolving(terms) = stage else { return };
                if let Err(error) = connection.queue.id().connect(&terms) {
                    self.fail(key, failure(&error), Vec::new());
                }
            }
            What::Established(terms) => {
                if matches!(connection.stage, Stage::Up) {
                    return;
                }
                let mut private_data = Vec::new();
                if connection.is_initiator {
                    let is_iwarp = connection.is_iwarp;
                    let (greeted, said) = greeting::parse(&terms.private_data, is_iwarp);
                    private_data = said.to_vec();
                    connection.agree(greeted, &terms);
                }
                connection.stage = Stage::Up;
                self.events.push(Event::Established { qp: qp_of(key), private_data });
            }
            What::Rejected { status, terms } if is_dialled => {
                let (_, said) = greeting::parse(&terms.private_data, connection.is_iwarp);
                let reason = match status {
                    REJECTED_NO_LISTENER => ConnectFailure::HostIo { errno: libc::ECONNREFUSED },
                    _ => ConnectFailure::PeerRejected,
                };
                let said = said.to_vec();
                self.fail(key, reason, said);
            }
            What::Failed { status } if is_dialled => {
                let reason = match -status {
                    libc::ETIMEDOUT => ConnectFailure::PeerSilent,
                    errno if errno > 0 => ConnectFailure::HostIo { errno },
                    _ => ConnectFailure::PeerHandshake,
                };
                self.fail(key, reason, Vec::new());
            }
            What::Disconnected if is_dialled => {
                self.fail(key, ConnectFailure::PeerClosed, Vec::new());
            }
            What::Rejected { status, .. } | What::Failed { status } => {
                self.end(key, DisconnectReason::HostIo { errno: status.saturating_abs() });
            }
            What::Disconnected => {
                let local = connection.closing.is_some();
                let reason =
                    if local { DisconnectReason::Local } else { DisconnectReason::PeerClosed };
                self.end(key, reason);
            }
            What::DeviceRemoved => self.end_by_adapter(key, AdapterFault::Removed),
            What::Requested { .. } => {}
        }
    }

    pub(super) fn fail(&mut self, key: Key, reason: ConnectFailure, private_data: Vec<u8>) {
        if self.forget(key).is_some() {
            self.events.push(Event::ConnectFailed { qp: qp_of(key), reason, private_data });
        }
    }

    /// Handles a deadline that has come.
    pub(super) fn fire(&mut self, due: Due) {
        match due {
            Due::Request { index, generation } => {
                let key = Key { index, generation };
                if let Some(request) = self.requests.get(key) {
                    request.id.reject(&[]);
                    self.withdraw(key);
                }
            }
            Due::Dial { index, generation } | Due::Kick { index, generation } => {
                let key = Key { index, generation };
                let Some(connection) = self.qps.get(key) else { return };
                if matches!(connection.stage, Stage::Up) {
                    return;
                }
                if connection.is_initiator {
                    self.fail(key, ConnectFailure::PeerSilent, Vec::new());
                } else {
                    self.end(key, DisconnectReason::HostIo { errno: libc::ETIMEDOUT });
                }
            }
            // Adapters listen by themselves, and give up by themselves what they send in vain.
            Due::Accept { .. } | Due::Stall { .. } => {}
            Due::Linger { index, generation } => {
                let key = Key { index, generation };
                let Some(connection) = self.qps.get(key) else { return };
                let local = connection.closing.is_some();
                // Neither end has closed the connection: most likely the peer broke a rule.
                let told = connection.told.unwrap_or(UNTOLD);
                let reason = if local { DisconnectReason::Local } else { told };
                self.end(key, reason);
            }
        }
    }
}

impl Connection {
    /// Settles what both ends can do, once each has said what it can.
    fn agree(&mut self, greeted: Option<Answers>, terms: &Terms) {
        let theirs = greeted.unwrap_or_default();
        let both = theirs & self.answers;
        self.capabilities.flush = both.contains(Answers::FLUSH);
        self.capabilities.atomic_write = both.contains(Answers::ATOMIC_WRITE);
        // Drivers of iWARP disagree on which number belongs to which end, and use the lesser by
        // themselves.
        if !self.is_iwarp {
            self.capabilities.ird = self.capabilities.ird.min(terms.responder_resources);
            self.capabilities.ord = self.capabilities.ord.min(terms.initiator_depth);
        }
    }
}

fn capabilities(config: QpConfig, features: &Features) -> QpCapabilities {
    QpCapabilities {
        flush: false,
        atomic_write: false,
        verify: false,
        rfc7306: false,
        fpdu_max: 0,
        crc: false,
        ird: config.ird.min(features.responder_max),
        ord: config.ord.min(features.initiator_max),
    }
}

fn answers(config: QpConfig, features: &Features) -> Answers {
    if config.announce { Answers::of(features) } else { Answers::empty() }
}

fn check(config: QpConfig) -> Result<(), EngineError> {
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
    Ok(())
}

/// The local address that packets to `addr` leave from. A datagram socket finds that address and
/// sends nothing.
fn source_for(addr: SocketAddr) -> Result<SocketAddr, EngineError> {
    let failed = |error: std::io::Error| EngineError::HostIo {
        call: "looking for the way to the peer",
        errno: error.raw_os_error().unwrap_or(libc::EIO),
    };
    let any: SocketAddr = match addr {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0; 16], 0).into(),
    };
    let socket = UdpSocket::bind(any).map_err(failed)?;
    socket.connect(addr).map_err(failed)?;
    let mut source = socket.local_addr().map_err(failed)?;
    source.set_port(0);
    Ok(source)
}

fn private_data_max(features: &Features, field: usize) -> usize {
    if features.is_iwarp { PRIVATE_DATA_MAX } else { field - greeting::HEADER_LEN }
}

fn failure(error: &EngineError) -> ConnectFailure {
    match *error {
        EngineError::HostIo { errno, .. } => ConnectFailure::HostIo { errno },
        _ => ConnectFailure::PeerHandshake,
    }
}

fn host(error: &EngineError) -> DisconnectReason {
    match *error {
        EngineError::HostIo { errno, .. } => DisconnectReason::HostIo { errno },
        _ => DisconnectReason::PeerClosed,
    }
}

/// The reason for a queue pair that failed by itself: no adapter tells what the peer did.
pub(super) const UNTOLD: DisconnectReason =
    DisconnectReason::PeerViolation(TerminateCode { layer: 0, etype: 1, code: 0xff });
/// Requests that are gone and may still stand in the order of arrival.
const ORDER_LOOSE: usize = 16;
/// Events of the connection manager that one look takes.
const HAPPENINGS_PER_LOOK: u32 = 64;
/// Private data of a request, an answer and a rejection over InfiniBand (rdma_connect(3),
/// rdma_accept(3), rdma_reject(3)).
const REQUEST_MAX: usize = 56;
const ANSWER_MAX: usize = 196;
const REJECTION_MAX: usize = 148 - greeting::HEADER_LEN;
/// InfiniBand Architecture §12.6.7.2: no process serves the port.
const REJECTED_NO_LISTENER: i32 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dial_leaves_from_the_address_the_host_would_take() {
        let source = source_for("127.0.0.1:1".parse().unwrap()).unwrap();
        assert_eq!(source, "127.0.0.1:0".parse().unwrap());
    }

    #[test]
    fn absurd_depths_are_refused() {
        let none = QpConfig { recv_depth: 0, ..QpConfig::default() };
        let refused = EngineError::ConfigQueueDepth { depth: 0, max: QUEUE_DEPTH_MAX };
        assert_eq!(check(none), Err(refused));
        let greedy = QpConfig { ord: 129, ..QpConfig::default() };
        let refused = EngineError::ConfigReadLimit { asked: 129, max: IRD_ORD_MAX };
        assert_eq!(check(greedy), Err(refused));
    }

    #[test]
    fn a_push_token_fits_where_adapters_leave_56_bytes() {
        // docs/push-mode.md: 48 bytes with the request, 24 with the answer.
        const { assert!(REQUEST_MAX - greeting::HEADER_LEN >= 48) };
        const { assert!(ANSWER_MAX - greeting::HEADER_LEN >= 24) };
    }
}
