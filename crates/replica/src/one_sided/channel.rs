//! The source's end: writes ranges of its ring to the same place of another member's ring.
//!
//! One thread at a time drives it: nothing leaves and nothing is noticed but in [`Channel::poll`] and [`Channel::wait`].

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use basics::Environment;
use log::Lsn;
use rdma::{
    Access, Engine, EngineConfig, Event, LocalSlice, MemoryRegion, Operation, Payload, Placement,
    QpConfig, QpId, Rkey, Waker, WorkRequest,
};

use super::{OneSidedError, OneSidedOptions};
use crate::message::Ticket;
use crate::ring::Ring;

/// A connection to a member's engine.
#[derive(Debug)]
pub struct Channel {
    engine: Box<dyn Engine>,
    qp: QpId,
    events: Vec<Event>,
    /// This member's ring, which operations are read from.
    local: MemoryRegion,
    /// Where the ring begins in the medium, and how long it is.
    ring: (u64, u64),
    target: Option<Target>,
    /// The ranges whose flush has not been answered, by their ends.
    under_way: VecDeque<Lsn>,
    posted: u64,
    ended: Option<OneSidedError>,
}

/// Where a member's ring lies, as operations name it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Target {
    /// Its name.
    pub key: u32,
    /// The address of its first byte.
    pub address: u64,
}

impl Channel {
    /// Connects, and gives the number by which the member knows the connection. Waits for 5 s at most.
    ///
    /// # Errors
    ///
    /// The engine, or the connection.
    pub fn dial(
        options: &OneSidedOptions,
        environment: &Environment,
        ring: &Ring,
        address: SocketAddr,
        ticket: &Ticket,
    ) -> Result<(Self, u64), OneSidedError> {
        let config = EngineConfig {
            polling: options.polling,
            qps_max: 1,
            environment: environment.clone(),
            ..EngineConfig::default()
        };
        let mut engine = options.provider.provider().open_engine(config)?;
        let qp = engine.connect(address, QpConfig::default(), &ticket.0)?;
        let connection = established(&mut *engine, environment)?;
        if engine.capabilities(qp).is_none_or(|it| !it.flush) {
            return Err(OneSidedError::NoFlush);
        }
        let (begin, capacity) = (ring.geometry().ring(), ring.capacity());
        let medium = ring.medium().clone();
        let local = engine.register(qp, medium, begin..begin + capacity, Access::empty())?;
        let channel = Self {
            engine,
            qp,
            events: Vec::with_capacity(EVENTS_RESERVED),
            local,
            ring: (begin, capacity),
            target: None,
            under_way: VecDeque::with_capacity(UNDER_WAY_MAX),
            posted: 0,
            ended: None,
        };
        Ok((channel, connection))
    }

    /// Where the member's ring lies.
    pub fn attach(&mut self, target: Target) {
        self.target = Some(target);
    }

    /// Whether another range can be written now.
    pub fn has_room(&self) -> bool {
        self.under_way.len() < UNDER_WAY_MAX
    }

    /// How many ranges are on their way.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Writes what the ring holds between two LSNs to the same place there, and flushes it. The bytes stay as they are until
    /// [`Channel::poll`] says that the range is durable there.
    ///
    /// # Errors
    ///
    /// The way has ended.
    pub fn write(&mut self, from: Lsn, to: Lsn) -> Result<(), OneSidedError> {
        let target = self.target.ok_or(OneSidedError::NotMapped)?;
        let (_, capacity) = self.ring;
        let (rkey, mut at) = (Rkey(target.key), from);
        let mut pieces = [(0, 0); 2];
        let mut count = 0;
        while at < to && count < pieces.len() {
            let offset = at.0 % capacity;
            let len = to.since(at).min(capacity - offset);
            pieces[count] = (offset, u32::try_from(len).map_err(|_| OneSidedError::NotMapped)?);
            at = at.plus(len);
            count += 1;
        }
        let pieces = &pieces[..count];
        for (offset, len) in pieces {
            let local = LocalSlice { lkey: self.local.lkey, offset: *offset, len: *len };
            let remote_addr = target.address + offset;
            let payload = Payload::Registered(local);
            let operation = Operation::Write { payload, rkey, remote_addr };
            self.post(WorkRequest::unsignaled(0, operation))?;
        }
        for (index, (offset, len)) in pieces.iter().enumerate() {
            let (remote_addr, kind) = (target.address + offset, Placement::Persistence);
            let operation = Operation::Flush { rkey, remote_addr, len: *len, kind };
            let signaled = index + 1 == pieces.len();
            self.posted += u64::from(signaled);
            self.post(WorkRequest { wr_id: self.posted, signaled, operation })?;
        }
        self.under_way.push_back(to);
        Ok(())
    }

    fn post(&mut self, request: WorkRequest<'_>) -> Result<(), OneSidedError> {
        let posted = self.engine.post_send(self.qp, request).map_err(OneSidedError::Post);
        if let Err(error) = &posted {
            self.ended.get_or_insert_with(|| error.clone());
        }
        posted
    }

    /// Does what there is to do without waiting, and appends the ends of the ranges that have become durable at the member.
    ///
    /// # Errors
    ///
    /// The way has ended: what is on its way may be there or not.
    pub fn poll(&mut self, ends: &mut VecDeque<Lsn>) -> Result<(), OneSidedError> {
        self.engine.poll(&mut self.events);
        let before = ends.len();
        for event in self.events.drain(..) {
            match event {
                // Requests end in the order in which they were posted.
                Event::Completion(completion) if completion.is_success() => {
                    ends.extend(self.under_way.pop_front());
                }
                Event::Disconnected { reason, .. } => {
                    self.ended.get_or_insert(OneSidedError::Ended(reason));
                }
                // `Disconnected` follows, and has the reason.
                _ => {}
            }
        }
        match &self.ended {
            // What was answered before it ended was done.
            Some(error) if ends.len() == before => Err(error.clone()),
            _ => Ok(()),
        }
    }

    /// Waits for something to happen, for `patience` at most.
    pub fn wait(&mut self, patience: Duration) {
        self.engine.wait(Some(patience));
    }

    /// Ends a wait from another thread.
    pub fn waker(&self) -> Waker {
        self.engine.waker()
    }
}

impl Drop for Channel {
    /// The member learns of the end at once.
    fn drop(&mut self) {
        self.engine.disconnect(self.qp);
        self.engine.poll(&mut self.events);
    }
}

/// Waits until the connection is there: the number that its acceptor gives it.
fn established(engine: &mut dyn Engine, environment: &Environment) -> Result<u64, OneSidedError> {
    let until: Instant = environment.clock.now() + DIAL_LIMIT;
    let mut events = Vec::new();
    while environment.clock.now() < until {
        engine.poll(&mut events);
        for event in events.drain(..) {
            match event {
                Event::Established { private_data, .. } => {
                    let number = private_data.try_into().map(u64::from_le_bytes);
                    return number.map_err(|_| OneSidedError::NotMapped);
                }
                Event::ConnectFailed { reason, .. } => {
                    return Err(OneSidedError::Unreachable(reason));
                }
                Event::Disconnected { reason, .. } => return Err(OneSidedError::Ended(reason)),
                _ => {}
            }
        }
        engine.wait(Some(DIAL_LOOK));
    }
    Err(OneSidedError::Silent)
}

/// Ranges whose flush has not been answered, at most: what one connection answers at a time.
pub const UNDER_WAY_MAX: usize = 32;
/// How long a connection may take.
pub(super) const DIAL_LIMIT: Duration = Duration::from_secs(5);
const DIAL_LOOK: Duration = Duration::from_millis(100);
const EVENTS_RESERVED: usize = 128;
