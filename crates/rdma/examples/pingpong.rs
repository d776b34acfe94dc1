//! Measures how much longer a write and its flush take than a plain exchange of the same bytes: over TCP, or
//! for provider `shm` through memory that two threads share.
//!
//! Two threads spin: one owns a client engine, the other a server engine. Between every block of
//! RDMA round trips there is a block of plain round trips on another connection: as many bytes in
//! each direction, received into a buffer, placed in the same kind of medium, fenced, answered.
//!
//! Then the same writes and flushes with sixteen open at a time.
//!
//! `cargo run --release -p landfast-rdma --example pingpong [SIZE [ROUNDS [nocrc|shm]]]`

use std::io::{ErrorKind, Read, Write};
use std::mem;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use pmem::{Medium, OpenOptions};
use rdma::{
    Access, Engine, EngineConfig, EngineStats, Event, MemoryRegion, Operation, Payload, Placement,
    PollPolicy, PostError, Provider, QpConfig, QpId, ShmProvider, SoftProvider, WorkRequest,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let size: usize = arguments.next().map_or(Ok(4096), |size| size.parse())?;
    let rounds: usize = arguments.next().map_or(Ok(200_000), |rounds| rounds.parse())?;
    let how = arguments.next();
    let crc = how.as_deref() != Some("nocrc");
    let provider = provider(how.as_deref());
    let stop = Arc::new(AtomicBool::new(false));

    let (mut plain, floor) = match provider.name() {
        "shm" => floor_of_memory(size),
        _ => floor_of_tcp()?,
    };
    let turn = Arc::new(Turn::default());
    let (mut server, rdma_addr) = open_server(&*provider)?;
    let (tell_region, region) = channel();
    let server_thread = {
        let (stop, turn) = (Arc::clone(&stop), Arc::clone(&turn));
        thread::spawn(move || serve(&mut *server, floor, size, &turn, &stop, &tell_region))
    };

    let mut client = Client::open(&*provider, rdma_addr, crc, &region)?;
    let page = vec![0x5a; size];
    let request = vec![0x5a; request_len(size)];
    let (mut floor_ns, mut rdma_ns) = (Vec::new(), Vec::new());
    let blocks = rounds.div_ceil(BLOCK);
    let mut spent = EngineStats::default();
    for block in 0..blocks {
        turn.rdma.store(false, Ordering::Release);
        for _ in 0..BLOCK {
            floor_ns.push(plain.round(&request)?);
        }
        turn.rdma.store(true, Ordering::Release);
        let before = client.engine.stats();
        for _ in 0..BLOCK {
            rdma_ns.push(client.round(&page)?);
        }
        if block == blocks - 1 {
            spent = client.engine.stats() - before;
        }
    }
    let per_second = client.pipeline(&page, rounds)?;
    stop.store(true, Ordering::Release);
    turn.rdma.store(false, Ordering::Release);
    drop(plain);
    let served = server_thread.join().map_err(|_| "the server panicked")??;
    let floor = if provider.name() == "shm" { "memory" } else { "tcp" };
    report(size, floor, &mut floor_ns, &mut rdma_ns);
    let one_by_one = 1e9 / (rdma_ns.iter().sum::<u64>() as f64 / rdma_ns.len() as f64);
    println!(
        "{DEPTH} open at a time: {per_second:.0} per second, {:.2} times the {one_by_one:.0} of one",
        per_second / one_by_one
    );
    let (per_op, ops) = (|count: u64, ops: usize| count as f64 / ops as f64, BLOCK);
    println!(
        "client per operation: {:.2} recv ({:.2} empty), {:.2} send, {:.2} frames out, {:.0} bytes copied",
        per_op(spent.recv_calls, ops),
        per_op(spent.recv_empty, ops),
        per_op(spent.send_calls, ops),
        per_op(spent.frames_sent, ops),
        per_op(spent.bytes_copied, ops),
    );
    let ops = blocks * BLOCK;
    println!(
        "server per operation: {:.2} recv ({:.2} empty), {:.2} send, {:.2} epoll, {:.2} persists",
        per_op(served.recv_calls, ops),
        per_op(served.recv_empty, ops),
        per_op(served.send_calls, ops),
        per_op(served.epoll_calls, ops),
        per_op(served.persists, ops),
    );
    Ok(())
}

fn provider(how: Option<&str>) -> Box<dyn Provider> {
    if how == Some("shm") { Box::new(ShmProvider) } else { Box::new(SoftProvider) }
}

/// The connection that the server looks at: on both ends only one connection spins at a time.
#[derive(Default)]
struct Turn {
    rdma: AtomicBool,
}

struct Client {
    engine: Box<dyn Engine>,
    qp: QpId,
    region: MemoryRegion,
    events: Vec<Event>,
}

impl Client {
    fn open(
        provider: &dyn Provider,
        addr: std::net::SocketAddr,
        crc: bool,
        region: &Receiver<MemoryRegion>,
    ) -> Result<Self, Failure> {
        let config = EngineConfig { polling: PollPolicy::Spin, ..EngineConfig::default() };
        let mut engine = provider.open_engine(config)?;
        let qp = engine.connect(addr, QpConfig { crc, ..QpConfig::default() }, &[])?;
        let mut events = Vec::new();
        loop {
            engine.wait(None);
            engine.poll(&mut events);
            for event in events.drain(..) {
                if let Event::Established { .. } = event {
                    let region = region.recv()?;
                    return Ok(Self { engine, qp, region, events: Vec::with_capacity(64) });
                }
            }
        }
    }

    fn round(&mut self, page: &[u8]) -> Result<u64, Failure> {
        let (rkey, remote_addr) = (self.region.rkey, self.region.remote_addr_base);
        let start = Instant::now();
        let write = Operation::Write { payload: Payload::Inline(page), rkey, remote_addr };
        let (len, kind) = (u32::try_from(page.len())?, Placement::Persistence);
        let flush = Operation::Flush { rkey, remote_addr, len, kind };
        self.engine.post_send(self.qp, WorkRequest::unsignaled(1, write))?;
        self.engine.post_send(self.qp, WorkRequest::signaled(2, flush))?;
        while self.engine.poll(&mut self.events) == 0 {}
        let elapsed = start.elapsed();
        match self.events.pop() {
            Some(Event::Completion(completion)) if completion.is_success() => {}
            other => return Err(format!("unexpected: {other:?}").into()),
        }
        Ok(u64::try_from(elapsed.as_nanos())?)
    }
}

impl Client {
    /// Writes and flushes with [`DEPTH`] open; returns how many complete per second.
    fn pipeline(&mut self, page: &[u8], rounds: usize) -> Result<f64, Failure> {
        let (len, kind) = (u32::try_from(page.len())?, Placement::Persistence);
        let (rkey, base) = (self.region.rkey, self.region.remote_addr_base);
        let (mut posted, mut done) = (0, 0);
        let start = Instant::now();
        while done < rounds {
            while posted < rounds && posted - done < DEPTH {
                let remote_addr = base + u64::from(len) * u64::try_from(posted % DEPTH)?;
                let write = Operation::Write { payload: Payload::Inline(page), rkey, remote_addr };
                let flush = Operation::Flush { rkey, remote_addr, len, kind };
                match self.engine.post_send(self.qp, WorkRequest::unsignaled(1, write)) {
                    Err(PostError::QueueFull) => break,
                    result => result?,
                }
                self.engine.post_send(self.qp, WorkRequest::signaled(2, flush))?;
                posted += 1;
            }
            done += self.engine.poll(&mut self.events);
            self.events.clear();
        }
        Ok(rounds as f64 / start.elapsed().as_secs_f64())
    }
}

fn open_server(
    provider: &dyn Provider,
) -> Result<(Box<dyn Engine>, std::net::SocketAddr), Failure> {
    let config = EngineConfig { polling: PollPolicy::Spin, ..EngineConfig::default() };
    let mut engine = provider.open_engine(config)?;
    let addr = engine.listen("127.0.0.1:0".parse()?)?;
    Ok((engine, addr))
}

/// Serves the connection whose turn it is.
fn serve(
    engine: &mut dyn Engine,
    mut floor: Floor,
    size: usize,
    turn: &Turn,
    stop: &AtomicBool,
    tell_region: &Sender<MemoryRegion>,
) -> Result<EngineStats, Failure> {
    tell_region.send(accept(engine)?)?;
    let medium = medium()?;
    let mut buffer = vec![0; request_len(size)];
    let mut events = Vec::new();
    while !stop.load(Ordering::Acquire) {
        if turn.rdma.load(Ordering::Acquire) {
            engine.poll(&mut events);
            events.clear();
        } else if floor.hear(&mut buffer, || turn.rdma.load(Ordering::Relaxed))? {
            medium.try_place(0, &buffer[..size])?;
            medium.try_persist(0, u64::try_from(size)?)?;
            floor.answer()?;
        }
    }
    Ok(engine.stats())
}

fn medium() -> Result<Arc<dyn Medium>, Failure> {
    let options = OpenOptions { emulate_persistence: true };
    Ok(pmem::anonymous_with(1 << 20, options)?)
}

/// Accepts the one RDMA connection and registers its region.
fn accept(engine: &mut dyn Engine) -> Result<MemoryRegion, Failure> {
    let medium = medium()?;
    let mut events = Vec::new();
    let mut region = None;
    loop {
        engine.wait(None);
        engine.poll(&mut events);
        for event in events.drain(..) {
            match event {
                Event::ConnectRequest { id, .. } => {
                    let config = QpConfig { crc: false, ..QpConfig::default() };
                    let qp = engine.accept(id, config, &[])?;
                    let range = 0..medium.len();
                    region = Some(engine.register(qp, medium.clone(), range, Access::PUSH)?);
                }
                Event::Established { .. } => return region.ok_or_else(|| "no region".into()),
                _ => {}
            }
        }
    }
}

/// One end of the plain exchange.
enum Floor {
    Tcp(TcpStream),
    Memory(Arc<Mailbox>),
}

/// Bytes that one thread writes and another reads.
struct Mailbox {
    bytes: Mutex<Vec<u8>>,
    asked: AtomicU64,
    answered: AtomicU64,
}

fn floor_of_tcp() -> Result<(Floor, Floor), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    for end in [&client, &server] {
        end.set_nodelay(true)?;
        end.set_nonblocking(true)?;
    }
    Ok((Floor::Tcp(client), Floor::Tcp(server)))
}

fn floor_of_memory(size: usize) -> (Floor, Floor) {
    let bytes = Mutex::new(vec![0; request_len(size)]);
    let mailbox = Mailbox { bytes, asked: AtomicU64::new(0), answered: AtomicU64::new(0) };
    let mailbox = Arc::new(mailbox);
    (Floor::Memory(Arc::clone(&mailbox)), Floor::Memory(mailbox))
}

impl Floor {
    /// The client's: asks and waits for the answer; in ns.
    fn round(&mut self, request: &[u8]) -> Result<u64, Failure> {
        match self {
            Self::Tcp(stream) => floor_round(stream, request),
            Self::Memory(mailbox) => mailbox.round(request),
        }
    }

    /// The server's: spins for a request, until `give_up` is set; `false`: there was none.
    fn hear(&mut self, buffer: &mut Vec<u8>, give_up: impl Fn() -> bool) -> Result<bool, Failure> {
        match self {
            Self::Tcp(stream) => receive(stream, buffer, give_up),
            Self::Memory(mailbox) => mailbox.hear(buffer),
        }
    }

    fn answer(&mut self) -> Result<(), Failure> {
        match self {
            Self::Tcp(stream) => stream.write_all(&[0; ANSWER_LEN])?,
            Self::Memory(mailbox) => {
                let asked = mailbox.asked.load(Ordering::Relaxed);
                mailbox.answered.store(asked, Ordering::Release);
            }
        }
        Ok(())
    }
}

impl Mailbox {
    fn round(&self, request: &[u8]) -> Result<u64, Failure> {
        let start = Instant::now();
        // Nobody else has it: an uncontended lock costs two atomic operations.
        self.bytes.lock().map_err(|_| "the server panicked")?.copy_from_slice(request);
        let asked = self.asked.load(Ordering::Relaxed) + 1;
        self.asked.store(asked, Ordering::Release);
        while self.answered.load(Ordering::Acquire) != asked {
            std::hint::spin_loop();
        }
        Ok(u64::try_from(start.elapsed().as_nanos())?)
    }

    fn hear(&self, buffer: &mut Vec<u8>) -> Result<bool, Failure> {
        if self.asked.load(Ordering::Acquire) == self.answered.load(Ordering::Relaxed) {
            return Ok(false);
        }
        // No copy: what is placed is what the client wrote.
        mem::swap(buffer, &mut *self.bytes.lock().map_err(|_| "the client panicked")?);
        Ok(true)
    }
}

fn floor_round(stream: &mut TcpStream, request: &[u8]) -> Result<u64, Failure> {
    let mut answer = [0; ANSWER_LEN];
    let start = Instant::now();
    stream.write_all(request)?;
    receive(stream, &mut answer, || false)?;
    Ok(u64::try_from(start.elapsed().as_nanos())?)
}

/// Spins until `buffer` is full, or until no byte has arrived and `give_up` is set.
fn receive(
    stream: &mut TcpStream,
    buffer: &mut [u8],
    give_up: impl Fn() -> bool,
) -> Result<bool, Failure> {
    let mut got = 0;
    while got < buffer.len() {
        match stream.read(&mut buffer[got..]) {
            Ok(0) => return Ok(false),
            Ok(len) => got += len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if got == 0 && give_up() {
                    return Ok(false);
                }
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(true)
}

fn report(size: usize, name: &str, floor: &mut [u64], rdma: &mut [u64]) {
    floor.sort_unstable();
    rdma.sort_unstable();
    println!("{size} bytes written and flushed, {} round trips of each kind, ns:", floor.len());
    println!("{:>8} {:>10} {:>10} {:>7}", "", name, "rdma", "ratio");
    for (name, percent) in [("min", 0), ("p25", 25), ("p50", 50), ("p90", 90), ("p99", 99)] {
        let at = |sorted: &[u64]| {
            let index = sorted.len() * percent / 100;
            sorted.get(index).copied().unwrap_or_default()
        };
        let (floor, rdma) = (at(floor), at(rdma));
        println!("{name:>8} {floor:>10} {rdma:>10} {:>7.3}", rdma as f64 / floor as f64);
    }
}

/// As many bytes as a write and a flush take on the wire: 20 bytes of frame around the payload,
/// 44 of flush request.
fn request_len(size: usize) -> usize {
    size + 20 + 44
}

const ANSWER_LEN: usize = 24;
const BLOCK: usize = 2000;
const DEPTH: usize = 16;
