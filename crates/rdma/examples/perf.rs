//! Measures how many bytes, or messages, a connection moves: RDMA Write, RDMA Read and Send.
//!
//! ```text
//!  client                                        server
//!  Send "hello"  ------------------------------> posted receive
//!                <-----------------------------  Send: rkey, base, length of its region
//!  Write | Read, `depth` of them open
//!  Read of one byte: every write before it was placed (RFC 5040 §5.5)
//!
//!  Send, never more than the server has receives for
//!                <-----------------------------  Send: another CREDIT of them were received
//! ```
//!
//! `perf serve [nocrc]` prints its address and serves until its input ends. `perf write|read|send ADDR
//! SIZE DEPTH SECONDS [nocrc]` prints one line: `bytes_per_s=N messages_per_s=N crc=on|off`, and what
//! the client's engine did for each message; in its last message the server reports what its own engine
//! did in all.

use std::io::Read as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use pmem::Medium;
use rdma::{
    Access, Engine, EngineConfig, Event, MemoryRegion, Operation, Payload, Provider, QpConfig,
    QpId, Rkey, SoftProvider, WcOpcode, WorkCompletion, WorkRequest,
};

type Failure = Box<dyn std::error::Error + Send + Sync>;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", ref rest @ ..] => serve(!rest.contains(&"nocrc")),
        [operation @ ("write" | "read" | "send"), addr, size, depth, seconds, ref rest @ ..] => {
            let shape = Shape {
                size: size.parse()?,
                depth: depth.parse()?,
                time: Duration::from_secs_f64(seconds.parse()?),
            };
            let mut client = Client::open(addr.parse()?, !rest.contains(&"nocrc"))?;
            let before = client.engine.stats();
            let (messages, took) = match operation {
                "write" => client.one_sided(shape, Client::write)?,
                "read" => client.one_sided(shape, Client::read)?,
                _ => client.send(shape)?,
            };
            let spent = client.engine.stats() - before;
            let rate = messages as f64 / took.as_secs_f64();
            let crc = client.engine.capabilities(client.qp).is_some_and(|both| both.crc);
            let each = |count: u64| count as f64 / messages as f64;
            println!(
                "bytes_per_s={:.0} messages_per_s={rate:.0} crc={} sends={:.2} receives={:.2} \
                 empty={:.2} epolls={:.2} sleeps={:.3} copied={:.0}",
                rate * f64::from(shape.size),
                if crc { "on" } else { "off" },
                each(spent.send_calls),
                each(spent.recv_calls - spent.recv_empty),
                each(spent.recv_empty),
                each(spent.epoll_calls),
                each(spent.sleeps),
                each(spent.bytes_copied),
            );
            Ok(())
        }
        _ => {
            Err("perf serve [nocrc] | perf write|read|send ADDR SIZE DEPTH SECONDS [nocrc]".into())
        }
    }
}

/// The operations of a client.
#[derive(Clone, Copy)]
struct Shape {
    /// Bytes of each message.
    size: u32,
    /// How many operations are open at once.
    depth: usize,
    time: Duration,
}

fn config(crc: bool) -> QpConfig {
    QpConfig { crc, send_depth: DEPTH_MAX, recv_depth: RECEIVES, ..QpConfig::default() }
}

/// Serves every client that connects; the process ends with its standard input.
fn serve(crc: bool) -> Result<(), Failure> {
    let mut engine = SoftProvider.open_engine(EngineConfig::default())?;
    println!("{}", engine.listen("127.0.0.1:0".parse()?)?);
    let (stop, waker) = (Arc::new(AtomicBool::new(false)), engine.waker());
    let stopped = Arc::clone(&stop);
    thread::spawn(move || {
        // An unreadable input has ended too.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        stop.store(true, Ordering::Release);
        waker.wake();
    });
    let medium = memory(REGION)?;
    let mut peer = None;
    let mut events = Vec::with_capacity(512);
    while !stopped.load(Ordering::Acquire) {
        engine.wait(None);
        engine.poll(&mut events);
        for event in events.drain(..) {
            match event {
                Event::ConnectRequest { id, .. } => {
                    let qp = engine.accept(id, config(crc), &[])?;
                    peer = Some(Served::new(&mut *engine, qp, &medium)?);
                }
                Event::Completion(done) if done.opcode == WcOpcode::Recv && done.is_success() => {
                    if let Some(served) = &mut peer {
                        served.received(&mut *engine, done)?;
                    }
                }
                _ => {}
            }
        }
    }
    eprintln!("{:?}", engine.stats());
    Ok(())
}

/// The server's side of one connection.
struct Served {
    qp: QpId,
    region: MemoryRegion,
    inbox: MemoryRegion,
    received: u64,
}

impl Served {
    fn new(engine: &mut dyn Engine, qp: QpId, medium: &Arc<dyn Medium>) -> Result<Self, Failure> {
        let rights = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let region = engine.register(qp, Arc::clone(medium), 0..medium.len(), rights)?;
        let inbox = memory(u64::from(MESSAGE_MAX))?;
        let range = 0..inbox.len();
        let inbox = engine.register(qp, inbox, range, Access::LOCAL_WRITE)?;
        for _ in 0..RECEIVES {
            engine.post_recv(qp, 0, inbox.slice(0, MESSAGE_MAX))?;
        }
        Ok(Self { qp, region, inbox, received: 0 })
    }

    /// The first message is "hello"; of the others every [`CREDIT`]th is answered.
    fn received(&mut self, engine: &mut dyn Engine, done: WorkCompletion) -> Result<(), Failure> {
        if done.qp != self.qp {
            return Ok(());
        }
        engine.post_recv(self.qp, 0, self.inbox.slice(0, MESSAGE_MAX))?;
        let mut answer = Vec::with_capacity(ANSWER);
        if self.received == 0 {
            answer.extend_from_slice(&self.region.rkey.0.to_le_bytes());
            answer.extend_from_slice(&self.region.remote_addr_base.to_le_bytes());
        }
        if self.received.is_multiple_of(CREDIT) {
            let payload = Payload::Inline(&answer);
            let send = Operation::Send { payload, invalidate: None, solicited: false };
            engine.post_send(self.qp, WorkRequest::unsignaled(0, send))?;
        }
        self.received += 1;
        Ok(())
    }
}

struct Client {
    engine: Box<dyn Engine>,
    qp: QpId,
    local: MemoryRegion,
    rkey: Rkey,
    base: u64,
    events: Vec<Event>,
}

impl Client {
    fn open(addr: SocketAddr, crc: bool) -> Result<Self, Failure> {
        let mut engine = SoftProvider.open_engine(EngineConfig::default())?;
        let qp = engine.connect(addr, config(crc), &[])?;
        let medium = memory(REGION)?;
        let local = engine.register(qp, Arc::clone(&medium), 0..REGION, Access::LOCAL_WRITE)?;
        let events = Vec::with_capacity(512);
        let mut client = Self { engine, qp, local, rkey: Rkey(0), base: 0, events };
        client.until(|event| matches!(event, Event::Established { .. }))?;
        for place in 0..ANSWERS {
            client.engine.post_recv(qp, place, local.slice(0, MESSAGE_MAX))?;
        }
        let hello = Operation::Send {
            payload: Payload::Inline(b"hello"),
            invalidate: None,
            solicited: false,
        };
        client.engine.post_send(qp, WorkRequest::unsignaled(0, hello))?;
        client.until(is_received)?;
        let mut answer = [0; ANSWER];
        medium.read(0, &mut answer)?;
        let (rkey, base) = answer.split_at(4);
        client.rkey = Rkey(u32::from_le_bytes(rkey.try_into()?));
        client.base = u64::from_le_bytes(base.try_into()?);
        Ok(client)
    }

    fn until(&mut self, mut wanted: impl FnMut(&Event) -> bool) -> Result<(), Failure> {
        loop {
            self.engine.wait(None);
            self.engine.poll(&mut self.events);
            for event in self.events.drain(..) {
                if wanted(&event) {
                    return Ok(());
                }
                ended(&event)?;
            }
        }
    }

    fn write(&self, shape: Shape, place: u64) -> Operation<'static> {
        let payload = Payload::Registered(self.local.slice(place, shape.size));
        Operation::Write { payload, rkey: self.rkey, remote_addr: self.base + place }
    }

    fn read(&self, shape: Shape, place: u64) -> Operation<'static> {
        let local = self.local.slice(place, shape.size);
        Operation::Read { local, rkey: self.rkey, remote_addr: self.base + place }
    }

    /// Keeps `depth` operations open for the time; returns the number of operations and the time
    /// they took.
    fn one_sided(
        &mut self,
        shape: Shape,
        operation: fn(&Self, Shape, u64) -> Operation<'static>,
    ) -> Result<(u64, Duration), Failure> {
        let (start, mut posted, mut done) = (Instant::now(), 0_u64, 0_u64);
        let places = REGION / u64::from(shape.size);
        let depth = u64::try_from(shape.depth)?;
        while start.elapsed() < shape.time {
            while posted - done < depth {
                let place = (posted % places) * u64::from(shape.size);
                let operation = operation(self, shape, place);
                self.engine.post_send(self.qp, WorkRequest::signaled(0, operation))?;
                posted += 1;
            }
            done += self.completed()?;
        }
        while done < posted {
            done += self.completed()?;
        }
        self.fence()?;
        Ok((done, start.elapsed()))
    }

    /// Waits for the answer to a read, which shows that everything before it was placed.
    fn fence(&mut self) -> Result<(), Failure> {
        let local = self.local.slice(0, 1);
        let read = Operation::Read { local, rkey: self.rkey, remote_addr: self.base };
        self.engine.post_send(self.qp, WorkRequest::signaled(1, read))?;
        self.until(|event| matches!(event, Event::Completion(done) if done.wr_id == 1))
    }

    fn completed(&mut self) -> Result<u64, Failure> {
        self.engine.wait(None);
        self.engine.poll(&mut self.events);
        let mut count = 0;
        for event in self.events.drain(..) {
            ended(&event)?;
            count += u64::from(matches!(event, Event::Completion(_)));
        }
        Ok(count)
    }

    /// Sends with `depth` messages not yet handed to TCP; counts the messages that the server says
    /// it received.
    fn send(&mut self, shape: Shape) -> Result<(u64, Duration), Failure> {
        let bytes = vec![0x5a; usize::try_from(shape.size.min(MESSAGE_MAX))?];
        let depth = u64::try_from(shape.depth)?;
        // The hello was the server's first message, and the server's answer stands for it.
        let (mut posted, mut done, mut received) = (1_u64, 1_u64, 1_u64);
        let start = Instant::now();
        let mut took = start.elapsed();
        while took < shape.time {
            while posted - done < depth && posted < received + u64::from(RECEIVES) {
                let payload = Payload::Inline(&bytes);
                let send = Operation::Send { payload, invalidate: None, solicited: false };
                self.engine.post_send(self.qp, WorkRequest::signaled(0, send))?;
                posted += 1;
            }
            self.engine.wait(None);
            self.engine.poll(&mut self.events);
            for event in std::mem::take(&mut self.events) {
                ended(&event)?;
                if is_received(&event) {
                    self.engine.post_recv(self.qp, 0, self.local.slice(0, MESSAGE_MAX))?;
                    received += CREDIT;
                    took = start.elapsed();
                } else if matches!(event, Event::Completion(_)) {
                    done += 1;
                }
            }
        }
        Ok((received - 1, took))
    }
}

fn is_received(event: &Event) -> bool {
    matches!(event, Event::Completion(done) if done.opcode == WcOpcode::Recv && done.is_success())
}

fn ended(event: &Event) -> Result<(), Failure> {
    match event {
        Event::Completion(done) if !done.is_success() => Err(format!("failed: {done:?}").into()),
        Event::ConnectFailed { .. } | Event::Disconnected { .. } => {
            Err(format!("connection lost: {event:?}").into())
        }
        _ => Ok(()),
    }
}

/// Anonymous memory whose pages are all resident: an engine never waits for a page.
fn memory(len: u64) -> Result<Arc<dyn Medium>, Failure> {
    let medium = pmem::anonymous(len)?;
    medium.prepare(0, len)?;
    Ok(medium)
}

const REGION: u64 = 32 << 20;
const MESSAGE_MAX: u32 = 4096;
const ANSWER: usize = 12;
const DEPTH_MAX: u16 = 256;
// More receives than messages travel in one round trip, so that a sender never waits for an answer.
const RECEIVES: u16 = 4096;
const CREDIT: u64 = 512;
const ANSWERS: u64 = 32;
