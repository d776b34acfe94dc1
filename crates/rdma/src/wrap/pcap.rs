//! Writes the bytes of an engine's connections into a pcap file that tshark and Wireshark open.
//!
//! ```text
//!   file header, 24 bytes: magic a1b23c4d | 2.4 | 0 | 0 | snaplen | link type 1 (Ethernet)
//!   per packet, 16 bytes:  seconds | nanoseconds | bytes kept | bytes there, then the packet
//! ```
//!
//! The bytes are those of the TCP streams; the packets around them are made up, with right
//! sequence numbers and checksums, so that MPA, DDP and RDMAP dissect. A stream begins with a
//! made-up handshake and ends with a FIN.
//!
//! Spec: draft-ietf-opsawg-pcap §4 and §5; the host's byte order is allowed, ours is big-endian.

use std::collections::HashMap;
use std::fs::{File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufWriter, Read as _, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use basics::{Clock, place_of_file};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Access, AtFlags, CWD, FlockOperation, OFlags, accessat, flock};
use rustix::io::Errno;

use super::packet::{ACK, FIN, PAYLOAD_MAX, PSH, PacketRepr, SYN};
use crate::interface::{Engine, EngineConfig, EngineError, Provider, WireHook, WireVerdict};

/// A provider whose engines all write into one capture file.
#[derive(Debug)]
pub struct Pcap<P> {
    inner: P,
    capture: Arc<Capture>,
    engines: AtomicU64,
}

impl<P: Provider> Pcap<P> {
    /// Captures the engines of `inner` into a file at `path`, which only its owner may read: the file holds everything
    /// that is sent unencrypted. An earlier capture is there until the first connection, so that a program that does
    /// not start leaves it.
    ///
    /// A pipe must have a reader, and one that takes nothing for a second ends the capture.
    ///
    /// # Errors
    /// The file cannot be opened, is neither empty nor a capture, or another process captures into it; nobody reads the
    /// pipe.
    pub fn create(inner: P, path: &Path) -> Result<Self, PcapError> {
        let mut options = OpenOptions::new();
        options.create(true).write(true).truncate(false).mode(OWNER_ALONE);
        // The open of a pipe would wait for a reader, and a write for one that reads, whatever signals come.
        options.custom_flags(OFlags::NONBLOCK.bits().cast_signed());
        let file = options.open(path).map_err(|error| match error.raw_os_error() {
            Some(errno) if errno == Errno::NXIO.raw_os_error() && is_pipe(path) => {
                io::Error::new(error.kind(), "nobody reads the pipe: start its reader first")
            }
            _ => error,
        })?;
        let metadata = file.metadata()?;
        if metadata.is_file() {
            check_content(path, &metadata)?;
            flock(&file, FlockOperation::NonBlockingLockExclusive)
                .map_err(|_| io::Error::other("another process captures into the file"))?;
        }
        let (file, streams, packet) = (BufWriter::new(Sink(file)), HashMap::new(), Vec::new());
        let (begun, failed) = (false, false);
        let writer = Writer { file, now: UNIX_EPOCH, streams, packet, begun, failed };
        let capture = Capture { writer: Mutex::new(writer) };
        Ok(Self { inner, capture: Arc::new(capture), engines: AtomicU64::new(0) })
    }

    /// Looks whether [`Pcap::create`] would take a file, and makes and changes nothing: another process may capture
    /// into it. Of a pipe it warns: whether it has a reader only an open tells, whose end the reader would see.
    ///
    /// # Errors
    /// The file could not be opened or made, or is neither empty nor a capture.
    pub fn look(path: &Path) -> Result<(), PcapError> {
        let place = place_of_file(path)?;
        let found = match path.metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let parent = place.parent().filter(|parent| !parent.as_os_str().is_empty());
                let parent = parent.unwrap_or_else(|| Path::new("."));
                let access = Access::WRITE_OK | Access::EXEC_OK;
                accessat(CWD, parent, access, AtFlags::EACCESS).map_err(io::Error::from)?;
                return Ok(());
            }
            found => found?,
        };
        if found.file_type().is_fifo() {
            tracing::warn!(path = %path.display(), "a capture into a pipe begins only where somebody reads it already");
        }
        if found.is_file() || found.is_dir() {
            OpenOptions::new().write(true).open(path)?;
            check_content(path, &found)?;
        }
        Ok(())
    }
}

impl<P: Provider> Provider for Pcap<P> {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn is_device(&self) -> bool {
        self.inner.is_device()
    }

    fn open_engine(&self, mut config: EngineConfig) -> Result<Box<dyn Engine>, EngineError> {
        let next = config.wire_hook.take();
        let engine = self.engines.fetch_add(1, Ordering::Relaxed);
        let clock = config.environment.clock.clone();
        let hook = Chained { capture: Arc::clone(&self.capture), clock, engine, next };
        config.wire_hook = Some(Arc::new(hook));
        self.inner.open_engine(config)
    }
}

/// A capture file could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the capture: {0}")]
pub struct PcapError(#[from] io::Error);

/// The file, shared by the engines that write into it. A capture serves diagnosis, not speed:
/// engines may wait for each other here.
#[derive(Debug)]
struct Capture {
    writer: Mutex<Writer>,
}

impl Capture {
    fn with(&self, now: SystemTime, write: impl FnOnce(&mut Writer) -> io::Result<()>) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        if writer.failed {
            return;
        }
        writer.now = now;
        if let Err(error) = writer.begin().and_then(|()| write(&mut writer)) {
            // The streams must go on; the capture ends where the disk is full.
            tracing::warn!(%error, "the capture stops here");
            writer.failed = true;
        }
    }
}

/// The hook of one engine: the capture, and the hook that was there before. Stream numbers are per
/// engine, so engines are numbered too.
#[derive(Debug)]
struct Chained {
    capture: Arc<Capture>,
    clock: Clock,
    engine: u64,
    next: Option<Arc<dyn WireHook>>,
}

impl Chained {
    fn with(&self, write: impl FnOnce(&mut Writer) -> io::Result<()>) {
        self.capture.with(self.clock.time_of_day(), write);
    }
}

impl WireHook for Chained {
    fn opened(&self, stream: u64, local: SocketAddr, peer: SocketAddr, active: bool) {
        let key = (self.engine, stream);
        self.with(|writer| writer.open(key, local, peer, active));
        if let Some(next) = &self.next {
            next.opened(stream, local, peer, active);
        }
    }

    fn sent(&self, stream: u64, bytes: &[u8]) {
        self.with(|writer| writer.data((self.engine, stream), Direction::Out, bytes));
        if let Some(next) = &self.next {
            next.sent(stream, bytes);
        }
    }

    fn received(&self, stream: u64, bytes: &mut [u8]) -> WireVerdict {
        self.with(|writer| writer.data((self.engine, stream), Direction::In, bytes));
        self.next.as_ref().map_or(WireVerdict::Pass, |next| next.received(stream, bytes))
    }

    fn closed(&self, stream: u64) {
        self.with(|writer| writer.close((self.engine, stream)));
        if let Some(next) = &self.next {
            next.closed(stream);
        }
    }
}

/// The file, which is not waited for longer than for [`PIPE_PATIENCE`].
#[derive(Debug)]
struct Sink(File);

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.0.write(bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            written => return written,
        }
        let mut fds = [PollFd::new(&self.0, PollFlags::OUT)];
        match poll(&mut fds, Some(&PIPE_PATIENCE)) {
            Ok(0) => Err(io::Error::new(io::ErrorKind::TimedOut, "its reader takes nothing")),
            // Where the room is gone again, the caller asks once more.
            Ok(_) | Err(Errno::INTR) => Err(io::ErrorKind::Interrupted.into()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[derive(Debug)]
struct Writer {
    file: BufWriter<Sink>,
    /// The time of day of the packets that are written.
    now: SystemTime,
    streams: HashMap<(u64, u64), Stream>,
    packet: Vec<u8>,
    /// The file holds this capture and no other.
    begun: bool,
    failed: bool,
}

impl Writer {
    fn begin(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.begun, true) {
            return Ok(());
        }
        let Sink(file) = self.file.get_ref();
        // A file that existed may be readable by others. A pipe has the rights that its owner gave it.
        if file.metadata()?.is_file() {
            file.set_permissions(Permissions::from_mode(OWNER_ALONE))?;
            file.set_len(0)?;
        }
        self.file.write_all(&FILE_HEADER)
    }
}

fn is_pipe(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.file_type().is_fifo())
}

/// Refuses a file with content of its own, which a capture would replace.
fn check_content(path: &Path, metadata: &Metadata) -> io::Result<()> {
    if metadata.len() > 0 && !is_capture(path)? {
        return Err(io::Error::other("the file is neither empty nor a capture"));
    }
    Ok(())
}

/// Whether a file begins as a capture does, of whatever byte order and clock.
fn is_capture(path: &Path) -> io::Result<bool> {
    let mut magic = [0; 4];
    let there = File::open(path)?.take(4).read(&mut magic)?;
    let magics = [0xa1b2_3c4d_u32, 0xa1b2_c3d4].map(u32::to_be_bytes);
    let reversed = magics.map(|mut magic| {
        magic.reverse();
        magic
    });
    Ok(there == 4 && magics.into_iter().chain(reversed).any(|one| one == magic))
}

/// Addresses and next sequence numbers, ours first.
#[derive(Clone, Copy, Debug)]
struct Stream {
    local: SocketAddr,
    peer: SocketAddr,
    out: u32,
    back: u32,
}

#[derive(Clone, Copy, Debug)]
enum Direction {
    Out,
    In,
}

impl Stream {
    fn packet(&self, direction: Direction, flags: u8) -> PacketRepr {
        let (source, destination, sequence, acknowledgement) = match direction {
            Direction::Out => (self.local, self.peer, self.out, self.back),
            Direction::In => (self.peer, self.local, self.back, self.out),
        };
        PacketRepr { source, destination, sequence, acknowledgement, flags }
    }

    fn advance(&mut self, direction: Direction, by: u32) {
        match direction {
            Direction::Out => self.out = self.out.wrapping_add(by),
            Direction::In => self.back = self.back.wrapping_add(by),
        }
    }
}

impl Writer {
    fn open(
        &mut self,
        key: (u64, u64),
        local: SocketAddr,
        peer: SocketAddr,
        active: bool,
    ) -> io::Result<()> {
        let (first, second) =
            if active { (Direction::Out, Direction::In) } else { (Direction::In, Direction::Out) };
        let mut stream = Stream { local, peer, out: 0, back: 0 };
        self.write(PacketRepr { acknowledgement: 0, ..stream.packet(first, SYN) }, &[])?;
        stream.advance(first, 1);
        self.write(stream.packet(second, SYN | ACK), &[])?;
        stream.advance(second, 1);
        self.write(stream.packet(first, ACK), &[])?;
        self.streams.insert(key, stream);
        Ok(())
    }

    fn data(&mut self, key: (u64, u64), direction: Direction, bytes: &[u8]) -> io::Result<()> {
        let Some(mut stream) = self.streams.get(&key).copied() else { return Ok(()) };
        for piece in bytes.chunks(PAYLOAD_MAX) {
            self.write(stream.packet(direction, PSH | ACK), piece)?;
            let len = u32::try_from(piece.len()).expect("PAYLOAD_MAX fits 16 bits");
            stream.advance(direction, len);
        }
        self.streams.insert(key, stream);
        Ok(())
    }

    fn close(&mut self, key: (u64, u64)) -> io::Result<()> {
        if let Some(stream) = self.streams.remove(&key) {
            self.write(stream.packet(Direction::Out, FIN | ACK), &[])?;
        }
        self.file.flush()
    }

    fn write(&mut self, repr: PacketRepr, payload: &[u8]) -> io::Result<()> {
        repr.emit(payload, &mut self.packet);
        let now = self.now.duration_since(UNIX_EPOCH).unwrap_or_default();
        // The format counts seconds in 32 bits; it ends in 2106.
        let seconds = u32::try_from(now.as_secs()).unwrap_or(u32::MAX);
        let len = u32::try_from(self.packet.len()).expect("a packet is below 64 KiB and headers");
        for number in [seconds, now.subsec_nanos(), len, len] {
            self.file.write_all(&number.to_be_bytes())?;
        }
        self.file.write_all(&self.packet)
    }
}

/// How long an engine, and with it everybody whom it serves, waits for the reader of a pipe, once.
const PIPE_PATIENCE: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// Readable and writable by the owner of the file alone.
const OWNER_ALONE: u32 = 0o600;
const FILE_HEADER: [u8; 24] =
    [0xa1, 0xb2, 0x3c, 0x4d, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 1];
