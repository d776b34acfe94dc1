//! The thread that owns the engine: dials, negotiates, carries frames.
//!
//! ```text
//!             Established           NegotiateResponse
//!  +---------+  receives  +-------------+  pool   +------+
//!  | Dialled |----------->| Negotiating |-------->| Up   |---> frames both ways
//!  +---------+            +-------------+         +------+
//!       \_______________________\___________________/ any error, close(): Ended
//! ```
//!
//! Receive buffers are slots of one registered region; a slot is posted again as soon as its bytes
//! are copied out, so the server's credits never wait for the receiving task.
//!
//! Spec: MS-SMBD §3.1.5.7, §3.1.5.8; MS-SMB2 §2.1 (no length prefix here).

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmem::Medium;
use rdma::{
    Access, Engine, Event, MemoryRegion, Operation, Payload, PostError, QpId, WcOpcode,
    WorkCompletion, WorkRequest,
};
use smbdirect::{Agreement, Connection, Initiator, NegotiateRequest};
use tokio::sync::{mpsc, oneshot};

use super::{DirectConfig, FrameLimits, Pool, Shared, Up};
use crate::error::ConnectionError;

/// Reports to the caller that the connection is established.
type Established = oneshot::Sender<Result<Up, ConnectionError>>;

pub(super) struct Driver {
    engine: Box<dyn Engine>,
    qp: QpId,
    config: DirectConfig,
    shared: Arc<Shared>,
    frames: mpsc::Sender<Result<Vec<u8>, ConnectionError>>,
    established: Option<Established>,
    state: State,
    receives: Option<Receives>,
    pool: Option<Arc<Pool>>,
    transmit: Vec<u8>,
    /// Bytes of `transmit` that the queue had no room for yet.
    unsent: Option<usize>,
    incoming: Vec<u8>,
}

enum State {
    Dialled,
    Negotiating(Initiator),
    Up(Box<Connection>),
}

/// Receive buffers: slot `i` lies at `i * len`.
struct Receives {
    medium: Arc<dyn Medium>,
    region: MemoryRegion,
    len: u32,
}

impl Driver {
    pub(super) fn dial(
        mut engine: Box<dyn Engine>,
        address: SocketAddr,
        mut config: DirectConfig,
        shared: Arc<Shared>,
        frames: mpsc::Sender<Result<Vec<u8>, ConnectionError>>,
        established: Established,
    ) -> Result<Self, ConnectionError> {
        // A message is copied into the engine while posting, so it must fit there.
        let inline_max = u32::try_from(engine.inline_max()).unwrap_or(u32::MAX);
        config.limits.send_size_max = config.limits.send_size_max.min(inline_max);
        config.qp.recv_depth = config.qp.recv_depth.max(config.limits.receive_credit_max);
        let qp = engine.connect(address, config.qp, &[])?;
        let transmit = vec![0; as_usize(config.limits.send_size_max)];
        let incoming = vec![0; as_usize(config.limits.receive_size_max)];
        Ok(Self {
            engine,
            qp,
            config,
            shared,
            frames,
            established: Some(established),
            state: State::Dialled,
            receives: None,
            pool: None,
            transmit,
            unsent: None,
            incoming,
        })
    }

    pub(super) fn run(mut self) {
        let mut events = Vec::new();
        let error = loop {
            if let Err(error) = self.turn(&mut events) {
                break error;
            }
        };
        tracing::debug!(%error, "SMB Direct connection ended");
        let error = *self.shared.lock().ended.get_or_insert(error);
        if let Some(pool) = &self.pool {
            pool.close();
        }
        if let Some(established) = self.established.take() {
            let _ = established.send(Err(error));
        }
        // With a full channel, dropping the channel ends the receiver.
        let _ = self.frames.try_send(Err(error));
        self.engine.disconnect(self.qp);
        let deadline = self.now() + LINGER;
        while self.now() < deadline {
            events.clear();
            self.engine.poll(&mut events);
            if events.iter().any(|event| matches!(event, Event::Disconnected { .. })) {
                return;
            }
            self.engine.wait(Some(LINGER));
        }
    }

    fn now(&self) -> Instant {
        self.config.engine.environment.clock.now()
    }

    fn turn(&mut self, events: &mut Vec<Event>) -> Result<(), ConnectionError> {
        self.engine.poll(events);
        // A queue pair that is gone flushes and refuses work before the event that carries the
        // reason.
        let end = events.iter().find_map(|event| match event {
            Event::Disconnected { reason, .. } => Some(ConnectionError::RdmaLost(*reason)),
            _ => None,
        });
        for event in events.drain(..) {
            self.handle(event).map_err(|error| end.unwrap_or(error))?;
        }
        self.take_commands()?;
        let deadline = self.handle_time(self.now())?;
        self.flush()?;
        let timeout = deadline.map(|at| at.saturating_duration_since(self.now()));
        self.engine.wait(timeout);
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Result<(), ConnectionError> {
        match event {
            Event::Established { .. } => self.negotiate(),
            Event::Completion(completion) => self.complete(&completion),
            Event::ConnectFailed { reason, .. } => Err(ConnectionError::RdmaDial(reason)),
            Event::Disconnected { reason, .. } => Err(ConnectionError::RdmaLost(reason)),
            Event::ConnectRequest { .. }
            | Event::ConnectRequestGone { .. }
            | Event::Deregistered { .. } => Ok(()),
        }
    }

    fn negotiate(&mut self) -> Result<(), ConnectionError> {
        let limits = self.config.limits;
        let (count, len) = (limits.receive_credit_max, limits.receive_size_max);
        let medium = pmem::anonymous(u64::from(count) * u64::from(len))?;
        let range = 0..medium.len();
        let region = self.engine.register(self.qp, Arc::clone(&medium), range, Access::RECEIVE)?;
        self.receives = Some(Receives { medium, region, len });
        for slot in 0..count {
            self.post_receive(u64::from(slot))?;
        }
        let mut initiator = Initiator::new(limits)?;
        if let Some(request) = initiator.poll_transmit(self.now()) {
            let mut bytes = [0; NegotiateRequest::LEN];
            request.emit(&mut bytes);
            self.post(&bytes)?;
        }
        self.state = State::Negotiating(initiator);
        Ok(())
    }

    fn complete(&mut self, completion: &WorkCompletion) -> Result<(), ConnectionError> {
        if !completion.is_success() {
            return Err(ConnectionError::RdmaWork(completion.status));
        }
        if completion.opcode != WcOpcode::Recv {
            return Ok(());
        }
        let receives = self.receives.as_ref().expect("receives were posted before one completes");
        let message = &mut self.incoming[..as_usize(completion.len)];
        receives.medium.read(completion.wr_id * u64::from(receives.len), message)?;
        let now = self.now();
        match &mut self.state {
            State::Dialled => {}
            State::Negotiating(initiator) => {
                let agreement =
                    initiator.handle_receive(now, &self.incoming[..as_usize(completion.len)])?;
                self.come_up(agreement, now)?;
            }
            State::Up(connection) => {
                let message = &self.incoming[..as_usize(completion.len)];
                if let Some(frame) = connection.handle_receive(now, message)? {
                    let frame = Ok(frame.to_vec());
                    // The receiving task is gone, or the server sends frames that no request asked
                    // for.
                    self.frames.try_send(frame).map_err(|_| ConnectionError::Closed)?;
                }
            }
        }
        self.post_receive(completion.wr_id)?;
        if let State::Up(connection) = &mut self.state {
            connection.receives_posted(1);
        }
        Ok(())
    }

    fn come_up(&mut self, agreement: Agreement, now: Instant) -> Result<(), ConnectionError> {
        let io_size_max = agreement.read_write_size_max;
        let limits = FrameLimits {
            send: as_usize(agreement.fragmented_send_size_max),
            receive: as_usize(agreement.fragmented_receive_size_max),
        };
        let mut connection = Box::new(Connection::new(agreement, now));
        // All receives but the one that has just been emptied.
        connection.receives_posted(self.config.limits.receive_credit_max - 1);
        self.state = State::Up(connection);
        let medium = pmem::anonymous(u64::from(self.config.pool_len))?;
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let range = 0..medium.len();
        let region = self.engine.register(self.qp, Arc::clone(&medium), range, access)?;
        let pool = Arc::new(Pool::new(medium, region, io_size_max));
        self.pool = Some(Arc::clone(&pool));
        match self.established.take().map(|established| established.send(Ok(Up { pool, limits }))) {
            Some(Ok(())) => Ok(()),
            // The caller of `connect` has stopped waiting.
            _ => Err(ConnectionError::Closed),
        }
    }

    fn take_commands(&mut self) -> Result<(), ConnectionError> {
        let mut commands = self.shared.lock();
        if let Some(error) = commands.ended {
            return Err(error);
        }
        if let State::Up(connection) = &mut self.state {
            while let Some(frame) = commands.frames.pop_front() {
                if let Err(unsent) = connection.send(frame, None) {
                    match unsent.reason {
                        smbdirect::SendError::QueueFull => {
                            commands.frames.push_front(unsent.message);
                            break;
                        }
                        reason => return Err(reason.into()),
                    }
                }
            }
        }
        Ok(())
    }

    fn handle_time(&mut self, now: Instant) -> Result<Option<Instant>, ConnectionError> {
        match &mut self.state {
            State::Dialled => Ok(None),
            State::Negotiating(initiator) => {
                initiator.handle_timeout(now);
                if let Some(Err(reason)) = initiator.outcome() {
                    return Err(reason.into());
                }
                Ok(initiator.poll_timeout())
            }
            State::Up(connection) => {
                connection.handle_timeout(now)?;
                Ok(connection.poll_timeout())
            }
        }
    }

    /// Posts what may leave, until the queue is full.
    fn flush(&mut self) -> Result<(), ConnectionError> {
        let State::Up(connection) = &mut self.state else { return Ok(()) };
        loop {
            let len = match self.unsent.take() {
                Some(len) => len,
                None => match connection.poll_transmit(&mut self.transmit) {
                    Some(transmit) => transmit.len,
                    None => return Ok(()),
                },
            };
            let payload = Payload::Inline(&self.transmit[..len]);
            let operation = Operation::Send { payload, invalidate: None, solicited: false };
            match self.engine.post_send(self.qp, WorkRequest::signaled(SEND, operation)) {
                Ok(()) => {}
                // The completions of the queue continue this.
                Err(PostError::QueueFull) => {
                    self.unsent = Some(len);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn post(&mut self, message: &[u8]) -> Result<(), ConnectionError> {
        let payload = Payload::Inline(message);
        let operation = Operation::Send { payload, invalidate: None, solicited: false };
        Ok(self.engine.post_send(self.qp, WorkRequest::signaled(SEND, operation))?)
    }

    fn post_receive(&mut self, slot: u64) -> Result<(), ConnectionError> {
        let receives = self.receives.as_ref().expect("the region is made before its receives");
        let buffer = receives.region.slice(slot * u64::from(receives.len), receives.len);
        Ok(self.engine.post_recv(self.qp, slot, buffer)?)
    }
}

fn as_usize(len: u32) -> usize {
    usize::try_from(len).expect("u32 fits usize")
}

/// The id of all sends: no caller waits for a single one.
const SEND: u64 = u64::MAX;
/// How long a closing connection may take to send its last bytes.
const LINGER: Duration = Duration::from_millis(500);
