//! The exchange of rping(1), so that the soft provider can meet programs written for verbs.
//!
//! ```text
//!  client                                   server
//!    Send {address, rkey, length} ------->    where the client's pattern lies
//!              <------- RDMA Read             the server fetches it
//!              <------- Send
//!    Send {address, rkey, length} ------->    where it wants it back
//!              <------- RDMA Write            the server puts it there
//!              <------- Send
//!    compares, and begins again with the next pattern
//! ```
//!
//! `rping server ADDR:PORT CONNECTIONS [nocrc]` answers so many connections and prints for each how
//! many rounds it had and how it ended. `rping client ADDR:PORT ROUNDS SIZE [nocrc]` is the other end.
//!
//! Spec: the messages are sixteen octets: address (8), key (4) and length (4), most significant first.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pmem::Medium;
use rdma::{
    Access, Engine, EngineConfig, Event, MemoryRegion, Operation, Payload, Provider, QpConfig,
    QpId, Rkey, SoftProvider, WcOpcode, WorkRequest,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["server", address, connections, rest @ ..] => {
            serve(address.parse()?, connections.parse()?, crc(rest)?)
        }
        ["client", address, rounds, size, rest @ ..] => {
            ask(address.parse()?, rounds.parse()?, size.parse()?, crc(rest)?)
        }
        _ => {
            Err("rping server ADDR:PORT CONNECTIONS [nocrc] | client ADDR:PORT ROUNDS SIZE [nocrc]"
                .into())
        }
    }
}

fn crc(rest: &[&str]) -> Result<bool, Failure> {
    match rest {
        [] => Ok(true),
        ["nocrc"] => Ok(false),
        other => Err(format!("unknown: {other:?}").into()),
    }
}

/// Where a peer's buffer lies.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Advert {
    remote_addr: u64,
    rkey: Rkey,
    len: u32,
}

impl Advert {
    fn parse(bytes: &[u8; ADVERT_LEN]) -> Self {
        let (addr, rest) = bytes.split_at(8);
        let (key, len) = rest.split_at(4);
        let word = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let narrow = |bytes: &[u8]| u32::try_from(word(bytes)).expect("four bytes");
        Self { remote_addr: word(addr), rkey: Rkey(narrow(key)), len: narrow(len) }
    }

    fn emit(self) -> [u8; ADVERT_LEN] {
        let mut bytes = [0; ADVERT_LEN];
        bytes[..8].copy_from_slice(&self.remote_addr.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.rkey.0.to_be_bytes());
        bytes[12..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

/// Memory of one connection: two places for adverts that arrive, one for one that leaves, and two
/// buffers for what is fetched and put.
struct Memory {
    medium: Arc<dyn Medium>,
    region: MemoryRegion,
    qp: QpId,
}

impl Memory {
    fn new(engine: &mut dyn Engine, qp: QpId) -> Result<Self, Failure> {
        let medium = pmem::anonymous(MEMORY_LEN)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE;
        let region = engine.register(qp, medium.clone(), 0..MEMORY_LEN, access)?;
        let memory = Self { medium, region, qp };
        for slot in 0..RECEIVES {
            memory.post_recv(engine, slot)?;
        }
        Ok(memory)
    }

    fn post_recv(&self, engine: &mut dyn Engine, slot: u64) -> Result<(), Failure> {
        let slice = self.region.slice(slot * wide(ADVERT_LEN), u32::try_from(ADVERT_LEN)?);
        Ok(engine.post_recv(self.qp, slot, slice)?)
    }

    fn send(&self, engine: &mut dyn Engine, advert: Advert) -> Result<(), Failure> {
        let bytes = advert.emit();
        let payload = Payload::Inline(&bytes);
        let send = Operation::Send { payload, invalidate: None, solicited: false };
        Ok(engine.post_send(self.qp, WorkRequest::unsignaled(SEND, send))?)
    }

    fn advert(&self, slot: u64) -> Result<Advert, Failure> {
        let mut bytes = [0; ADVERT_LEN];
        self.medium.try_read(slot * wide(ADVERT_LEN), &mut bytes)?;
        Ok(Advert::parse(&bytes))
    }
}

/// One connection that is served.
struct Session {
    memory: Memory,
    rounds: u64,
    /// The bytes that the server fetched and puts back; empty until the first advert of the peer.
    fetched: Option<u32>,
}

impl Session {
    fn received(&mut self, engine: &mut dyn Engine, slot: u64) -> Result<(), Failure> {
        let Advert { remote_addr, rkey, len } = self.memory.advert(slot)?;
        self.memory.post_recv(engine, slot)?;
        if len > BUFFER_LEN {
            return Err(format!("a buffer of {len} bytes").into());
        }
        let qp = self.memory.qp;
        match self.fetched.take() {
            None => {
                let local = self.memory.region.slice(FIRST_BUFFER, len);
                let read = Operation::Read { local, rkey, remote_addr };
                engine.post_send(qp, WorkRequest::signaled(u64::from(len), read))?;
            }
            Some(fetched) => {
                let slice = self.memory.region.slice(FIRST_BUFFER, fetched.min(len));
                let payload = Payload::Registered(slice);
                let write = Operation::Write { payload, rkey, remote_addr };
                engine.post_send(qp, WorkRequest::unsignaled(SEND, write))?;
                self.memory.send(engine, NOWHERE)?;
                self.rounds += 1;
            }
        }
        Ok(())
    }

    fn fetched(&mut self, engine: &mut dyn Engine, len: u32) -> Result<(), Failure> {
        self.fetched = Some(len);
        self.memory.send(engine, NOWHERE)
    }
}

fn serve(address: SocketAddr, connections: u32, crc: bool) -> Result<(), Failure> {
    let mut engine = SoftProvider.open_engine(EngineConfig::default())?;
    println!("listening {}", engine.listen(address)?);
    let mut sessions: Vec<Session> = Vec::new();
    let mut events = Vec::new();
    let mut ended = 0;
    while ended < connections {
        engine.wait(None);
        engine.poll(&mut events);
        for event in events.drain(..) {
            match event {
                Event::ConnectRequest { id, .. } => {
                    let config = QpConfig { crc, ..QpConfig::default() };
                    let qp = engine.accept(id, config, &[])?;
                    let memory = Memory::new(&mut *engine, qp)?;
                    sessions.push(Session { memory, rounds: 0, fetched: None });
                }
                Event::Completion(done) if done.is_success() => {
                    let Some(session) = sessions.iter_mut().find(|s| s.memory.qp == done.qp) else {
                        continue;
                    };
                    let done = match done.opcode {
                        WcOpcode::Recv => session.received(&mut *engine, done.wr_id),
                        WcOpcode::Read => session.fetched(&mut *engine, done.len),
                        _ => Ok(()),
                    };
                    // Posting fails if the peer has gone meanwhile; every other failure is the
                    // peer's fault. Either way this connection ends, and no other.
                    if let Err(failure) = done {
                        println!("{}: {failure}", session.memory.qp);
                        engine.disconnect(session.memory.qp);
                    }
                }
                Event::Disconnected { qp, reason } => {
                    let index = sessions.iter().position(|session| session.memory.qp == qp);
                    let rounds = index.map_or(0, |index| sessions.swap_remove(index).rounds);
                    println!("{rounds} rounds, then {reason:?}");
                    ended += 1;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn ask(address: SocketAddr, rounds: u64, size: u32, crc: bool) -> Result<(), Failure> {
    let mut engine = SoftProvider.open_engine(EngineConfig::default())?;
    let engine = &mut *engine;
    let qp = engine.connect(address, QpConfig { crc, ..QpConfig::default() }, &[])?;
    let mut events = Vec::new();
    wait_for(engine, &mut events, |event| matches!(event, Event::Established { .. }))?;
    let memory = Memory::new(engine, qp)?;
    let buffer = |offset: u64| Advert {
        remote_addr: memory.region.remote_addr_base + offset,
        rkey: memory.region.rkey,
        len: size,
    };
    let size = usize::try_from(size.min(BUFFER_LEN))?;
    for round in 0..rounds {
        let mut pattern: Vec<u8> = (0..wide(size)).map(|at| mixed(round, at)).collect();
        // rping returns a string with its terminating zero.
        if let Some(last) = pattern.last_mut() {
            *last = 0;
        }
        memory.medium.try_place(FIRST_BUFFER, &pattern)?;
        for offset in [FIRST_BUFFER, SECOND_BUFFER] {
            memory.send(engine, buffer(offset))?;
            let answer = wait_for(
                engine,
                &mut events,
                |event| matches!(event, Event::Completion(done) if done.opcode == WcOpcode::Recv),
            )?;
            if let Event::Completion(done) = answer {
                memory.post_recv(engine, done.wr_id)?;
            }
        }
        let mut returned = vec![0; size];
        memory.medium.try_read(SECOND_BUFFER, &mut returned)?;
        if let Some(at) = (0..size).find(|at| returned[*at] != pattern[*at]) {
            return Err(format!("round {round}: byte {at} of {size} came back changed").into());
        }
    }
    println!("{rounds} rounds of {size} bytes, {:?}", engine.capabilities(qp));
    engine.disconnect(qp);
    wait_for(engine, &mut events, |event| matches!(event, Event::Disconnected { .. }))?;
    Ok(())
}

/// Waits for an event that is `wanted`; an event that reports a failure ends the run.
fn wait_for(
    engine: &mut dyn Engine,
    events: &mut Vec<Event>,
    wanted: impl Fn(&Event) -> bool,
) -> Result<Event, Failure> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(index) = events.iter().position(&wanted) {
            return Ok(events.remove(index));
        }
        for event in events.drain(..) {
            match event {
                Event::Completion(done) if done.is_success() => {}
                Event::Established { .. } => {}
                other => return Err(format!("{other:?}").into()),
            }
        }
        if Instant::now() > deadline {
            return Err(format!("nothing heard for {} s", PATIENCE.as_secs()).into());
        }
        engine.wait(Some(Duration::from_secs(1)));
        engine.poll(events);
    }
}

/// Letters that differ from round to round and from place to place.
fn mixed(round: u64, at: u64) -> u8 {
    let [letter, ..] = ((round * 131 + at * 7 + at / 251) % 58).to_le_bytes();
    b'A' + letter
}

fn wide(len: usize) -> u64 {
    u64::try_from(len).expect("no memory is larger")
}

const ADVERT_LEN: usize = 16;
/// The payload of the "go on" message, which means nothing.
const NOWHERE: Advert = Advert { remote_addr: 0, rkey: Rkey(0), len: 0 };
const RECEIVES: u64 = 2;
const SEND: u64 = u64::MAX;
const BUFFER_LEN: u32 = 1 << 20;
const FIRST_BUFFER: u64 = 4096;
const SECOND_BUFFER: u64 = FIRST_BUFFER + (1 << 20);
const MEMORY_LEN: u64 = SECOND_BUFFER + (1 << 20);
const PATIENCE: Duration = Duration::from_secs(20);
