//! The floor: a plain TCP exchange of the same bytes, with the same polling, placement and fence,
//! and nothing else. No RDMA can be faster on this machine; the ratio to the floor is the cost of
//! Landfast.
//!
//! ```text
//!   write   ->  header 64 B (as long as MPA, DDP and the Flush Request) | block
//!           <-  24 B (as long as the Flush Response)
//!   read    ->  header 52 B (as long as the Read Request)
//!           <-  20 B (as long as MPA and DDP) | block
//!  header: operation u8 (1 write, 2 read) | 3 B zero | length u32 | offset u64 | zeros
//! ```
//!
//! All integers little-endian. The responder trusts its peer: it is a measuring device.

use std::fs::OpenOptions;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use pmem::Medium;
use rdma::PollWindow;

use super::arm::{Arm, Recording};
use super::plan::{Operation, Operations, Plan};
use crate::args::{self, Poll};
use crate::failure::Failure;
use crate::output;

/// The requester's end.
#[derive(Debug)]
pub(crate) struct Floor {
    wire: Wire,
    block: usize,
    outstanding: usize,
    request: Vec<u8>,
}

impl Floor {
    /// Dials a responder.
    pub(crate) fn connect(address: SocketAddr, plan: &Plan) -> Result<Self, Failure> {
        let failed = Failure::system("cannot reach the floor responder");
        let stream = TcpStream::connect(address).map_err(failed)?;
        Ok(Self {
            wire: Wire::new(stream, plan.poll)?,
            block: plan.block,
            outstanding: plan.outstanding,
            request: vec![0x5a; WRITE_HEADER + plan.block],
        })
    }

    /// Sends one request and returns the size of the answer that the responder now owes.
    fn submit(&mut self, operation: Operation) -> Result<usize, Failure> {
        let (code, offset, header, answer) = match operation {
            Operation::WriteCommit(offset) => (WRITE, offset, WRITE_HEADER, WRITE_ANSWER),
            Operation::Read(offset) => (READ, offset, READ_HEADER, READ_ANSWER + self.block),
        };
        let length = u32::try_from(self.block).expect("a block has at most 1 MiB");
        self.request[..header].fill(0);
        self.request[0] = code;
        self.request[4..8].copy_from_slice(&length.to_le_bytes());
        self.request[8..16].copy_from_slice(&offset.to_le_bytes());
        let end = if code == WRITE { header + self.block } else { header };
        if self.outstanding == 1 {
            self.wire.send(&self.request[..end])?;
        } else {
            self.wire.queue(&self.request[..end]);
        }
        Ok(answer)
    }
}

impl Arm for Floor {
    fn run(
        &mut self,
        operations: &mut Operations,
        until: Instant,
        recording: &mut Recording,
    ) -> Result<(), Failure> {
        let mut queue = std::collections::VecDeque::with_capacity(self.outstanding);
        loop {
            while queue.len() < self.outstanding && Instant::now() < until {
                let issued = Instant::now();
                let answer = self.submit(operations.draw())?;
                queue.push_back((issued, answer));
            }
            let Some((issued, answer)) = queue.pop_front() else { return Ok(()) };
            self.wire.fill(answer)?;
            self.wire.consume(answer);
            recording.finished(issued, self.block);
        }
    }

    fn commit(&self) -> &'static str {
        "none"
    }

    fn durability(&self) -> String {
        "none asked: bytes placed and fenced in volatile memory".into()
    }
}

/// A responder in a process of its own, which ends when this value is dropped.
#[derive(Debug)]
pub(crate) struct Responder {
    child: Child,
    address: SocketAddr,
}

impl Responder {
    /// Starts this program again as `landfast floor` and learns its address.
    pub(crate) fn start(poll: Poll) -> Result<Self, Failure> {
        let program =
            std::env::current_exe().map_err(Failure::system("cannot find this program"))?;
        let mut child = Command::new(program)
            .args(["floor", "--poll", &format!("{poll:?}").to_lowercase()])
            .stdout(Stdio::piped())
            .stdin(Stdio::piped())
            .spawn()
            .map_err(Failure::system("cannot start the floor responder"))?;
        let mut line = String::new();
        let output = child.stdout.take().expect("the output was asked to be piped");
        BufReader::new(output).read_line(&mut line).map_err(Failure::system("floor responder"))?;
        let address = line.trim().parse().map_err(|_| Failure::Child {
            process: "the floor responder",
            what: format!("said {line:?} instead of its address"),
        })?;
        Ok(Self { child, address })
    }

    /// The address of the responder.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Answers requests until standard input closes.
pub(crate) fn respond(options: &args::Floor) -> Result<(), Failure> {
    let listener = TcpListener::bind(options.listen).map_err(Failure::system("cannot listen"))?;
    let address = listener.local_addr().map_err(Failure::system("cannot listen"))?;
    output::say(&format!("{address}\n"))?;
    let medium = memory(&options.directory)?;
    let poll = options.poll;
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let medium = Arc::clone(&medium);
            thread::spawn(move || Wire::new(stream, poll).and_then(|wire| answer(wire, &*medium)));
        }
    });
    // The parent process holds the other end: the responder ends with it.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}

/// An unlinked file in `directory`; volatile memory emulates persistence.
fn memory(directory: &std::path::Path) -> Result<Arc<dyn Medium>, Failure> {
    let path = directory.join(format!("landfast-floor-{}", std::process::id()));
    let failed = Failure::local("cannot use", &path);
    let created = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
    let prepared = created.and_then(|file| {
        std::fs::remove_file(&path)?;
        file.set_len(FILE_SIZE)?;
        Ok(file)
    });
    let file = prepared.map_err(failed)?;
    pmem::map_file(&file, FILE_SIZE, pmem::OpenOptions { emulate_persistence: true }).map_err(
        |source| Failure::Child { process: "the floor responder", what: source.to_string() },
    )
}

fn answer(mut wire: Wire, medium: &dyn Medium) -> Result<(), Failure> {
    let failed = |source: pmem::MediumError| Failure::Child {
        process: "the floor responder",
        what: source.to_string(),
    };
    let mut reply = vec![0_u8; READ_ANSWER + BLOCK_MAX];
    loop {
        wire.fill(READ_HEADER)?;
        let header = wire.filled();
        let code = header[0];
        let field = |range: std::ops::Range<usize>| {
            header[range].iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
        };
        let length = usize::try_from(field(4..8)).unwrap_or(BLOCK_MAX).min(BLOCK_MAX);
        let offset = field(8..16) % (FILE_SIZE - u64::try_from(BLOCK_MAX).expect("1 MiB"));
        if code == WRITE {
            wire.fill(WRITE_HEADER + length)?;
            let block = &wire.filled()[WRITE_HEADER..WRITE_HEADER + length];
            medium.place(offset, block).map_err(failed)?;
            medium.persist(offset, field_len(length)).map_err(failed)?;
            wire.consume(WRITE_HEADER + length);
            wire.queue(&reply[..WRITE_ANSWER]);
        } else {
            wire.consume(READ_HEADER);
            medium.read(offset, &mut reply[READ_ANSWER..READ_ANSWER + length]).map_err(failed)?;
            wire.queue(&reply[..READ_ANSWER + length]);
        }
    }
}

fn field_len(length: usize) -> u64 {
    u64::try_from(length).expect("a usize fits a u64 on every target")
}

/// A TCP stream that is polled as the engines poll their streams.
#[derive(Debug)]
struct Wire {
    stream: TcpStream,
    window: PollWindow,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Sent in one piece before the next poll for input, as an engine sends frames.
    out: Vec<u8>,
}

impl Wire {
    fn new(stream: TcpStream, poll: Poll) -> Result<Self, Failure> {
        let failed = Failure::system("cannot set up a socket");
        stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).map_err(failed)?;
        let buffer = vec![0; 2 * (WRITE_HEADER + BLOCK_MAX)];
        Ok(Self {
            stream,
            window: PollWindow::new(poll.policy()),
            buffer,
            start: 0,
            end: 0,
            out: Vec::new(),
        })
    }

    /// The bytes that have arrived and are not consumed.
    fn filled(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    fn consume(&mut self, count: usize) {
        self.start += count;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Waits until `count` bytes have arrived.
    fn fill(&mut self, count: usize) -> Result<(), Failure> {
        if self.start + count > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        while self.end - self.start < count {
            self.receive()?;
        }
        Ok(())
    }

    /// Spins or sleeps, as the window says, until bytes were received.
    fn receive(&mut self) -> Result<(), Failure> {
        let queued = std::mem::take(&mut self.out);
        self.send(&queued)?;
        // The vector goes back with its memory.
        self.out = queued;
        self.out.clear();
        let Self { stream, window, buffer, end, .. } = self;
        let failed = Failure::system("floor connection");
        let mut got = Err(ErrorKind::WouldBlock.into());
        let mut attempt = || {
            got = (&*stream).read(&mut buffer[*end..]);
            got.as_ref().map_err(std::io::Error::kind) != Err(ErrorKind::WouldBlock)
        };
        window.wait(&mut attempt, || {
            let mut descriptors =
                [rustix::event::PollFd::new(&*stream, rustix::event::PollFlags::IN)];
            // Interrupted or not, the next attempt shows whether there is input.
            let _ = rustix::event::poll(&mut descriptors, None);
        });
        match got {
            Ok(0) => {
                let what = "closed the connection".into();
                Err(Failure::Child { process: "the floor peer", what })
            }
            Ok(received) => {
                *end += received;
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    /// Sends the bytes before the next wait for input.
    fn queue(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Sends the bytes now.
    fn send(&mut self, mut bytes: &[u8]) -> Result<(), Failure> {
        while !bytes.is_empty() {
            match self.stream.write(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => thread::yield_now(),
                Err(error) => return Err(Failure::system("floor connection")(error)),
            }
        }
        Ok(())
    }
}

const WRITE: u8 = 1;
const READ: u8 = 2;
const WRITE_HEADER: usize = 64;
const WRITE_ANSWER: usize = 24;
const READ_HEADER: usize = 52;
const READ_ANSWER: usize = 20;
const BLOCK_MAX: usize = 1 << 20;
const FILE_SIZE: u64 = 64 << 20;
