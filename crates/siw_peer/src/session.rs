//! One connection: our part of a scenario.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rdma::{
    Access, DisconnectReason, Event, LocalSlice, MemoryRegion, Operation, Payload, QpId, Rkey,
    WcOpcode, WcStatus, WorkRequest,
};

use crate::expected::PASSES;
use crate::host::{Asks, Failure, Host, MEMORY_LEN, PATIENCE};

/// Why a scenario stopped.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The connection is over.
    Ended(DisconnectReason),
    /// An end did not do what the scenario requires.
    Fault(String),
}

/// What a control message is for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Kind {
    Advert = 1,
    /// A data message of that length comes next: post a receive for it.
    Send,
    Go,
    Ok,
    /// That many bytes were written.
    Wrote,
    /// The other end acts now.
    Turn,
    Bye,
    /// A long write comes next.
    Watch,
    Die,
}

impl Kind {
    const ALL: [Self; 9] = [
        Self::Advert,
        Self::Send,
        Self::Go,
        Self::Ok,
        Self::Wrote,
        Self::Turn,
        Self::Bye,
        Self::Watch,
        Self::Die,
    ];
}

/// Forty bytes, most significant first.
#[derive(Clone, Copy, Debug)]
struct Control {
    kind: Kind,
    len: u64,
    addr: u64,
    key: Rkey,
    secret_key: Rkey,
    secret_addr: u64,
}

impl Control {
    fn parse(bytes: &[u8; CONTROL_LEN]) -> Option<Self> {
        let wide = |at: usize| bytes[at..at + 8].iter().fold(0, |sum, b| sum << 8 | u64::from(*b));
        let key = |at: usize| Rkey(bytes[at..at + 4].iter().fold(0, |n, b| n << 8 | u32::from(*b)));
        let kind = Kind::ALL.into_iter().find(|kind| *kind as u8 == bytes[0])?;
        Some(Self {
            kind,
            len: wide(8),
            addr: wide(16),
            key: key(24),
            secret_key: key(28),
            secret_addr: wide(32),
        })
    }

    fn emit(&self) -> [u8; CONTROL_LEN] {
        let mut bytes = [0; CONTROL_LEN];
        bytes[0] = self.kind as u8;
        bytes[8..16].copy_from_slice(&self.len.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.addr.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.key.0.to_be_bytes());
        bytes[28..32].copy_from_slice(&self.secret_key.0.to_be_bytes());
        bytes[32..].copy_from_slice(&self.secret_addr.to_be_bytes());
        bytes
    }
}

/// See the module.
pub(crate) struct Session<'h> {
    host: &'h mut Host,
    qp: QpId,
    /// All of our memory, open to the peer.
    region: MemoryRegion,
    /// A part of our memory that is not open to the peer.
    secret: MemoryRegion,
    theirs: Control,
    posted: usize,
    succeeded: usize,
    /// A message that arrived before the completion of the request that it answers.
    early: Option<u32>,
}

impl<'h> Session<'h> {
    pub(crate) fn new(host: &'h mut Host, qp: QpId) -> Result<Self, Failure> {
        let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let medium = Arc::clone(&host.memory);
        let region = host.engine.register(qp, Arc::clone(&medium), 0..MEMORY_LEN, all)?;
        let range = SECRET_AT..SECRET_AT + 4096;
        let secret = host.engine.register(qp, medium, range, Access::LOCAL_WRITE)?;
        host.memory.try_place(READ_AT, &pattern(READ_LEN, READ_SEED))?;
        let theirs = Control {
            kind: Kind::Advert,
            len: 0,
            addr: 0,
            key: Rkey(0),
            secret_key: Rkey(0),
            secret_addr: 0,
        };
        let mut session =
            Self { host, qp, region, secret, theirs, posted: 0, succeeded: 0, early: None };
        session.post_control_recv().map_err(|stop| format!("{stop:?}"))?;
        Ok(session)
    }

    /// Posted operations that did not succeed; receives do not count.
    pub(crate) fn unfinished(&self) -> usize {
        self.posted - self.succeeded
    }

    /// Runs the scenario, up to the farewell.
    pub(crate) fn play(&mut self, name: &str, asks: Asks) -> Result<(), Stop> {
        let (acting, acting_there) = if asks == Asks::We { ("i-", "r-") } else { ("r-", "i-") };
        if name == "die-replied" {
            return self.until_the_end();
        }
        let responds = if asks == Asks::We { "die-g-" } else { "die-h-" };
        self.introduce(asks, name.starts_with("r-") || name.starts_with(responds))?;
        if let Some(what) = name.strip_prefix("die-h-") {
            self.act_at_length(what)?;
            return self.until_the_end();
        }
        if let Some(what) = name.strip_prefix(acting) {
            self.misbehave(what)?;
            if what == PASSES {
                return self.completion().map(drop);
            }
            return self.until_the_end();
        }
        if name.starts_with(acting_there) {
            return self.until_the_end();
        }
        match (name, asks) {
            ("hello" | "enough", _) => Ok(()),
            ("sound", Asks::We) => {
                self.act()?;
                self.tell(Kind::Turn, 0)?;
                self.serve(Kind::Bye)
            }
            ("sound", Asks::Peer) => {
                self.serve(Kind::Turn)?;
                self.act()?;
                self.tell(Kind::Bye, 0)
            }
            ("die-idle", Asks::We) => {
                self.tell(Kind::Turn, 0)?;
                self.serve(Kind::Turn)?;
                self.until_the_end()
            }
            ("die-idle", Asks::Peer) => {
                self.serve(Kind::Turn)?;
                self.tell(Kind::Turn, 0)?;
                self.until_the_end()
            }
            // The peer dies while it acts.
            _ if name.starts_with("die-g-") => self.serve(Kind::Bye),
            _ => Err(Stop::Fault(format!("no such scenario: {name}"))),
        }
    }

    /// Neither end sends two messages in a row, because each has one receive. Where the responder acts
    /// first, the initiator gives it the turn.
    fn introduce(&mut self, asks: Asks, responder_first: bool) -> Result<(), Stop> {
        if asks == Asks::We {
            self.tell(Kind::Advert, 0)?;
        }
        self.theirs = self.hear()?;
        if self.theirs.kind != Kind::Advert {
            return Err(Stop::Fault("no advert".into()));
        }
        self.post_control_recv()?;
        if asks == Asks::Peer {
            self.tell(Kind::Advert, 0)?;
        }
        match (responder_first, asks) {
            (false, _) => Ok(()),
            (true, Asks::We) => self.tell(Kind::Go, 0),
            (true, Asks::Peer) => self.hear_only(Kind::Go),
        }
    }

    /// Every operation in every size.
    fn act(&mut self) -> Result<(), Stop> {
        for (seed, len) in (0_u8..).zip(SIZES) {
            let bytes = pattern(len, seed);
            self.host.memory.try_place(SEND_AT, &bytes).map_err(fault)?;
            let source = self.slice(SEND_AT, len);
            self.tell(Kind::Send, len)?;
            self.hear_only(Kind::Go)?;
            self.carry_out(send(Payload::Registered(source)))?;
            self.hear_only(Kind::Ok)?;
            let (rkey, addr) = (self.theirs.key, self.theirs.addr);
            let payload = Payload::Registered(source);
            self.carry_out(Operation::Write { payload, rkey, remote_addr: addr + WRITE_AT })?;
            self.tell(Kind::Wrote, len)?;
            self.hear_only(Kind::Ok)?;
            let local = self.slice(SINK_AT, len);
            // siw may answer an empty Read with bytes of another message (docs/interop.md).
            if len > 0 {
                self.carry_out(Operation::Read { local, rkey, remote_addr: addr + READ_AT })?;
                self.compare(SINK_AT, len, READ_SEED, "read")?;
            }
        }
        Ok(())
    }

    /// Serves the operations of the other end, until that end sends `last`.
    fn serve(&mut self, last: Kind) -> Result<(), Stop> {
        let mut seed = 0;
        loop {
            let heard = self.hear()?;
            match heard.kind {
                Kind::Send => {
                    let at = if heard.len == MEMORY_LEN { 0 } else { INBOX_AT };
                    self.post_recv(at, heard.len)?;
                    self.tell(Kind::Go, 0)?;
                    let len = self.received()?;
                    if u64::from(len) != heard.len {
                        return Err(Stop::Fault(format!("{len} of {} bytes", heard.len)));
                    }
                    self.compare(at, heard.len, seed, "send")?;
                    self.post_control_recv()?;
                    self.tell(Kind::Ok, 0)?;
                }
                Kind::Wrote => {
                    self.compare(WRITE_AT, heard.len, seed, "write")?;
                    seed += 1;
                    self.post_control_recv()?;
                    self.tell(Kind::Ok, 0)?;
                }
                kind if kind == last => return self.post_control_recv(),
                kind => return Err(Stop::Fault(format!("{kind:?} where {last:?} was due"))),
            }
        }
    }

    /// A long operation, in the middle of which the peer dies.
    fn act_at_length(&mut self, what: &str) -> Result<(), Stop> {
        let (rkey, remote_addr) = (self.theirs.key, self.theirs.addr);
        let all = self.slice(0, MEMORY_LEN);
        let payload = Payload::Registered(all);
        match what {
            "send" => {
                self.tell(Kind::Send, MEMORY_LEN)?;
                self.hear_only(Kind::Go)?;
                self.post(send(payload))
            }
            "write" => {
                self.tell(Kind::Watch, 0)?;
                self.hear_only(Kind::Go)?;
                self.post(Operation::Write { payload, rkey, remote_addr })
            }
            "read" => {
                self.post(Operation::Read { local: all, rkey, remote_addr })?;
                let bytes = self.control(Kind::Die, 0).emit();
                self.post(send(Payload::Inline(&bytes)))
            }
            _ => Err(Stop::Fault(format!("no such operation: {what}"))),
        }
    }

    fn misbehave(&mut self, what: &str) -> Result<(), Stop> {
        let Control { addr, key, secret_key, secret_addr, .. } = self.theirs;
        let source = Payload::Registered(self.slice(SEND_AT, 64));
        let local = self.slice(SINK_AT, 64);
        let unknown = Rkey(key.0 ^ 0x00ff_0000);
        let write = |rkey, remote_addr| Operation::Write { payload: source, rkey, remote_addr };
        let read = |rkey, remote_addr| Operation::Read { local, rkey, remote_addr };
        let beyond = addr + MEMORY_LEN - 63;
        match what {
            "write-key" => self.post(write(unknown, addr)),
            "read-key" => self.post(read(unknown, addr)),
            "write-bounds" => self.post(write(key, beyond)),
            "read-bounds" => self.post(read(key, beyond)),
            "write-right" => self.post(write(secret_key, secret_addr)),
            "read-right" => self.post(read(secret_key, secret_addr)),
            "send-long" => {
                let long = u64::try_from(CONTROL_LEN + 1).map_err(fault)?;
                self.post(send(Payload::Registered(self.slice(SEND_AT, long))))
            }
            "send-none" => {
                // There is one receive, and no other will be posted.
                self.post(send(Payload::Inline(&[0; 16])))?;
                self.post(send(Payload::Inline(&[0; 16])))
            }
            _ => Err(Stop::Fault(format!("no such misdeed: {what}"))),
        }
    }

    fn until_the_end(&mut self) -> Result<(), Stop> {
        loop {
            self.completion()?;
        }
    }

    fn slice(&self, at: u64, len: u64) -> LocalSlice {
        self.region.slice(at, u32::try_from(len).expect("all of our memory has 32 MiB"))
    }

    fn control(&self, kind: Kind, len: u64) -> Control {
        Control {
            kind,
            len,
            addr: self.region.remote_addr_base,
            key: self.region.rkey,
            secret_key: self.secret.rkey,
            secret_addr: self.secret.remote_addr_base,
        }
    }

    fn tell(&mut self, kind: Kind, len: u64) -> Result<(), Stop> {
        let bytes = self.control(kind, len).emit();
        self.carry_out(send(Payload::Inline(&bytes)))
    }

    fn hear(&mut self) -> Result<Control, Stop> {
        let len = self.received()?;
        let mut bytes = [0; CONTROL_LEN];
        self.host.memory.try_read(CONTROL_AT, &mut bytes).map_err(fault)?;
        let whole = usize::try_from(len).is_ok_and(|len| len == CONTROL_LEN);
        let heard = Control::parse(&bytes).filter(|_| whole);
        heard.ok_or_else(|| Stop::Fault(format!("a control message of {len} bytes")))
    }

    fn hear_only(&mut self, kind: Kind) -> Result<(), Stop> {
        let heard = self.hear()?.kind;
        if heard != kind {
            return Err(Stop::Fault(format!("{heard:?} where {kind:?} was due")));
        }
        self.post_control_recv()
    }

    fn post_control_recv(&mut self) -> Result<(), Stop> {
        self.post_recv(CONTROL_AT, u64::try_from(CONTROL_LEN).map_err(fault)?)
    }

    fn post_recv(&mut self, at: u64, len: u64) -> Result<(), Stop> {
        let slice = self.slice(at, len);
        self.host.engine.post_recv(self.qp, 0, slice).or_else(|error| self.gone(&error))
    }

    fn post(&mut self, operation: Operation<'_>) -> Result<(), Stop> {
        let request = WorkRequest::signaled(0, operation);
        self.posted += 1;
        self.host.engine.post_send(self.qp, request).or_else(|error| self.gone(&error))
    }

    /// A request that cannot be posted came too late, or is a mistake.
    fn gone(&mut self, error: &dyn std::error::Error) -> Result<(), Stop> {
        let qp = self.qp;
        let ended = self.host.wait_for(Duration::from_secs(1), |event| match event {
            Event::Disconnected { qp: ended, reason } if *ended == qp => Some(*reason),
            _ => None,
        });
        Err(ended.map_or_else(|| Stop::Fault(error.to_string()), Stop::Ended))
    }

    /// Posts an operation and waits until it is done.
    fn carry_out(&mut self, operation: Operation<'_>) -> Result<(), Stop> {
        self.post(operation)?;
        loop {
            match self.completion()? {
                (WcOpcode::Recv, len) if self.early.is_none() => self.early = Some(len),
                (WcOpcode::Recv, _) => return Err(Stop::Fault("two messages at once".into())),
                _ => return Ok(()),
            }
        }
    }

    /// Waits for a message; returns its length.
    fn received(&mut self) -> Result<u32, Stop> {
        if let Some(len) = self.early.take() {
            return Ok(len);
        }
        match self.completion()? {
            (WcOpcode::Recv, len) => Ok(len),
            (other, _) => Err(Stop::Fault(format!("{other:?} where a message was due"))),
        }
    }

    /// The next success of this connection. The end of the connection follows its failures.
    fn completion(&mut self) -> Result<(WcOpcode, u32), Stop> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let qp = self.qp;
            let left = deadline.saturating_duration_since(Instant::now());
            let found = self.host.wait_for(left, |event| match event {
                Event::Completion(done) if done.qp == qp => Some(Ok(*done)),
                Event::Disconnected { qp: ended, reason } if *ended == qp => Some(Err(*reason)),
                _ => None,
            });
            match found {
                Some(Ok(done)) if done.status == WcStatus::Success => {
                    self.succeeded += usize::from(done.opcode != WcOpcode::Recv);
                    return Ok((done.opcode, done.len));
                }
                Some(Ok(_)) => {}
                Some(Err(reason)) => return Err(Stop::Ended(reason)),
                None => return Err(Stop::Fault("nothing came of it".into())),
            }
        }
    }

    fn compare(&self, at: u64, len: u64, seed: u8, what: &str) -> Result<(), Stop> {
        let expected = pattern(len, seed);
        let mut found = vec![0; expected.len()];
        self.host.memory.try_read(at, &mut found).map_err(fault)?;
        match found.iter().zip(&expected).position(|(found, expected)| found != expected) {
            Some(at) => Err(Stop::Fault(format!("{what}: byte {at} of {len} is not as it was"))),
            None => Ok(()),
        }
    }
}

fn send(payload: Payload<'_>) -> Operation<'_> {
    Operation::Send { payload, invalidate: None, solicited: false }
}

fn fault(error: impl std::fmt::Display) -> Stop {
    Stop::Fault(error.to_string())
}

/// Bytes that tell their place.
fn pattern(len: u64, seed: u8) -> Vec<u8> {
    let byte = |at: u64| u8::try_from(at % 251).expect("below 251") ^ seed;
    (0..len).map(byte).collect()
}

/// The sizes that are moved: nothing, a size that fits an Ethernet frame and one that does not,
/// many frames.
const SIZES: [u64; 7] = [0, 1, 1423, 1425, 5000, 65_539, (1 << 20) + 1];
const CONTROL_LEN: usize = 40;
const WRITE_AT: u64 = 0;
const READ_AT: u64 = 2 << 20;
const SEND_AT: u64 = 4 << 20;
const SINK_AT: u64 = 6 << 20;
const INBOX_AT: u64 = 8 << 20;
const CONTROL_AT: u64 = 10 << 20;
const SECRET_AT: u64 = 12 << 20;
const READ_LEN: u64 = (1 << 20) + 1;
const READ_SEED: u8 = 77;
