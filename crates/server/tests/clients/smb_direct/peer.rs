//! The other end of an SMB Direct connection: a soft engine in the test's thread, which may also
//! say what no honest peer would.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmem::Medium;
use rdma::{
    Access, DisconnectReason, Engine, EngineConfig, Event, MemoryRegion, Operation, Payload,
    PollPolicy, Provider, QpConfig, QpId, Rkey, SoftProvider, WcOpcode, WorkCompletion,
    WorkRequest,
};
use smbdirect::{BufferDescriptor, Config, Connection, Initiator, NegotiateRequest, Token};

/// What ended a wait.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) message: Vec<u8>,
    pub(crate) invalidated: Option<Rkey>,
}

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) qp: QpId,
    events: Vec<Event>,
    buffers: Arc<dyn Medium>,
    region: MemoryRegion,
    smbd: Option<Connection>,
    /// Raw messages, before there is a `Connection` to read them.
    pub(crate) raw: VecDeque<Vec<u8>>,
    pub(crate) inbox: VecDeque<Incoming>,
    pub(crate) ended: Option<DisconnectReason>,
    pub(crate) welcome: Vec<u8>,
    /// A message that the queue pair did not take yet.
    stalled: Option<Vec<u8>>,
    /// Grants a credit for each message that has come.
    pub(crate) grants: bool,
    withheld: u16,
    /// Our own memory, which the server reads and writes.
    pub(crate) memory: Arc<dyn Medium>,
}

impl Peer {
    /// Dials; `None` when the server says no.
    pub(crate) fn try_dial(address: SocketAddr, private_data: &[u8]) -> Option<Self> {
        let config = EngineConfig { polling: PollPolicy::Block, ..EngineConfig::default() };
        let mut engine = SoftProvider.open_engine(config).unwrap();
        let qp = engine.connect(address, QpConfig::default(), private_data).unwrap();
        let mut events = Vec::new();
        let end = Instant::now() + PATIENCE;
        let welcome = loop {
            engine.wait(Some(Duration::from_millis(100)));
            engine.poll(&mut events);
            let found = events.drain(..).find_map(|event| match event {
                Event::Established { private_data, .. } => Some(Some(private_data)),
                Event::ConnectFailed { .. } => Some(None),
                _ => None,
            });
            if let Some(found) = found {
                break found?;
            }
            assert!(Instant::now() < end, "no answer to the connection request");
        };
        let len = u64::from(SLOTS) * u64::from(SLOT_LEN);
        let buffers = pmem::anonymous(len).unwrap();
        let access = Access::LOCAL_WRITE;
        let region = engine.register(qp, Arc::clone(&buffers), 0..len, access).unwrap();
        for slot in 0..SLOTS {
            let at = u64::from(slot) * u64::from(SLOT_LEN);
            engine.post_recv(qp, u64::from(slot), region.slice(at, SLOT_LEN)).unwrap();
        }
        Some(Self {
            engine,
            qp,
            events,
            buffers,
            region,
            smbd: None,
            raw: VecDeque::new(),
            inbox: VecDeque::new(),
            ended: None,
            stalled: None,
            grants: true,
            withheld: 0,
            welcome,
            memory: pmem::anonymous(MEMORY_LEN).unwrap(),
        })
    }

    pub(crate) fn dial(address: SocketAddr) -> Self {
        Self::try_dial(address, &[]).expect("the server takes the connection")
    }

    /// Dials and negotiates.
    pub(crate) fn connect(address: SocketAddr, config: Config) -> Self {
        let mut peer = Self::dial(address);
        peer.negotiate(config);
        peer
    }

    pub(crate) fn negotiate(&mut self, config: Config) {
        let mut initiator = Initiator::new(config).unwrap();
        let request = initiator.poll_transmit(Instant::now()).unwrap();
        let mut out = [0; NegotiateRequest::LEN];
        request.emit(&mut out);
        self.post(&out);
        let answer = self.next_raw();
        let agreement = initiator.handle_receive(Instant::now(), &answer).unwrap();
        let mut smbd = Connection::new(agreement, Instant::now());
        // One took the answer and was posted anew.
        smbd.receives_posted(SLOTS);
        self.smbd = Some(smbd);
    }

    /// Sends bytes as they are.
    pub(crate) fn post(&mut self, bytes: &[u8]) {
        let operation =
            Operation::Send { payload: Payload::Inline(bytes), invalidate: None, solicited: false };
        self.engine.post_send(self.qp, WorkRequest::signaled(1 << 32, operation)).unwrap();
        self.engine.poll(&mut self.events);
    }

    /// Queues an SMB2 message and sends what may leave.
    pub(crate) fn send(&mut self, message: Vec<u8>) {
        self.smbd.as_mut().unwrap().send(message, None).unwrap();
        self.transmit();
    }

    /// Grants again, and what was not granted meanwhile.
    pub(crate) fn resume(&mut self) {
        self.grants = true;
        let withheld = std::mem::take(&mut self.withheld);
        self.smbd.as_mut().unwrap().receives_posted(withheld);
        self.transmit();
    }

    /// Messages that the server lets us send.
    pub(crate) fn send_credits(&self) -> u16 {
        self.smbd.as_ref().unwrap().send_credits()
    }

    /// Messages that wait for credits of the server.
    pub(crate) fn queued(&self) -> usize {
        self.smbd.as_ref().unwrap().queued()
    }

    fn transmit(&mut self) {
        let Some(smbd) = &mut self.smbd else { return };
        let mut out = vec![0; 16 * 1024];
        loop {
            let stalled = self.stalled.take();
            let next = stalled.or_else(|| {
                let transmit = smbd.poll_transmit(&mut out)?;
                Some(out[..transmit.len].to_vec())
            });
            let Some(bytes) = next else { break };
            let payload = Payload::Inline(&bytes);
            let operation = Operation::Send { payload, invalidate: None, solicited: false };
            let request = WorkRequest::signaled(1 << 32, operation);
            if self.engine.post_send(self.qp, request).is_err() {
                // The next completion makes room, unless the connection has ended.
                self.stalled = Some(bytes);
                break;
            }
        }
        self.engine.poll(&mut self.events);
    }

    /// Lets the engine work once and takes in what came.
    pub(crate) fn work(&mut self) {
        if self.events.is_empty() {
            self.engine.wait(Some(Duration::from_millis(50)));
            self.engine.poll(&mut self.events);
        }
        for event in std::mem::take(&mut self.events) {
            match event {
                Event::Completion(done) if done.opcode == WcOpcode::Recv && done.is_success() => {
                    self.received(&done);
                }
                Event::Disconnected { reason, .. } => self.ended = Some(reason),
                _ => {}
            }
        }
        self.transmit();
    }

    fn received(&mut self, done: &WorkCompletion) {
        let at = done.wr_id * u64::from(SLOT_LEN);
        let mut bytes = vec![0; usize::try_from(done.len).unwrap()];
        self.buffers.read(at, &mut bytes).unwrap();
        let _ = self.engine.post_recv(self.qp, done.wr_id, self.region.slice(at, SLOT_LEN));
        let Some(smbd) = &mut self.smbd else {
            self.raw.push_back(bytes);
            return;
        };
        let whole = smbd.handle_receive(Instant::now(), &bytes).unwrap().map(<[u8]>::to_vec);
        smbd.receives_posted(u16::from(self.grants));
        self.withheld += u16::from(!self.grants);
        if let Some(message) = whole {
            self.inbox.push_back(Incoming { message, invalidated: done.invalidated });
        }
    }

    /// Works until `done` says something.
    pub(crate) fn until<T>(&mut self, mut done: impl FnMut(&mut Self) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            if let Some(found) = done(self) {
                return found;
            }
            assert!(Instant::now() < end, "the server did not do what was expected");
            self.work();
        }
    }

    pub(crate) fn next_raw(&mut self) -> Vec<u8> {
        self.until(|peer| {
            let next = peer.raw.pop_front();
            assert!(next.is_some() || peer.ended.is_none(), "ended: {:?}", peer.ended);
            next
        })
    }

    pub(crate) fn next(&mut self) -> Incoming {
        self.until(|peer| {
            let next = peer.inbox.pop_front();
            assert!(next.is_some() || peer.ended.is_none(), "ended: {:?}", peer.ended);
            next
        })
    }

    pub(crate) fn wait_for_end(&mut self) -> DisconnectReason {
        self.until(|peer| peer.ended)
    }

    /// Lets the server use a part of our memory.
    pub(crate) fn expose(&mut self, offset: u64, length: u32) -> BufferDescriptor {
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let range = offset..offset + u64::from(length);
        let memory = Arc::clone(&self.memory);
        let region = self.engine.register(self.qp, memory, range, access).unwrap();
        let token = Token(region.rkey.0);
        BufferDescriptor { offset: region.remote_addr_base, token, length }
    }

    /// Whether a token still stands for memory of ours.
    pub(crate) fn is_registered(&mut self, token: Token) -> bool {
        self.engine.deregister(self.qp, Rkey(token.0)).is_ok()
    }
}

/// Descriptors as they travel.
pub(crate) fn list(descriptors: &[BufferDescriptor]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for descriptor in descriptors {
        let mut out = [0; BufferDescriptor::LEN];
        descriptor.emit(&mut out);
        bytes.extend_from_slice(&out);
    }
    bytes
}

pub(crate) const PATIENCE: Duration = Duration::from_secs(30);
const SLOTS: u16 = 128;
const SLOT_LEN: u32 = 8192;
const MEMORY_LEN: u64 = 16 << 20;
