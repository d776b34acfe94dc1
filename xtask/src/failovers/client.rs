//! A client of NBD with one request at a time, over a unix socket.
//!
//! ```text
//!   server: "NBDMAGIC" "IHAVEOPT" flags      client: flags, "IHAVEOPT" 1 (EXPORT_NAME), name      server: size, flags
//!   request: 0x25609513 flags command cookie offset length, data      reply: 0x67446698 error cookie, data
//! ```
//!
//! Spec: NBD protocol, "Fixed newstyle negotiation", "Request message", "Simple reply message".

use std::io::{self, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// A connection to an export.
#[derive(Debug)]
pub(super) struct Client {
    stream: UnixStream,
    cookie: u64,
}

/// Why a request was not done, as far as its client knows.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Trouble {
    /// The server says so, with the number of an error.
    Refused(u32),
    /// The connection has ended, or carries what is no reply.
    Ended,
    /// The client does not wait for the reply any more.
    Left,
}

impl Client {
    /// Connects to an export, whose server has `limit` to agree.
    pub(super) fn connect(path: &Path, export: &str, limit: Duration) -> io::Result<Self> {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting)?;
        if greeting[..8] != *b"NBDMAGIC" || greeting[8..16] != *b"IHAVEOPT" {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut wish = Vec::from((FIXED_NEWSTYLE | NO_ZEROES).to_be_bytes());
        wish.extend_from_slice(b"IHAVEOPT");
        wish.extend_from_slice(&EXPORT_NAME.to_be_bytes());
        wish.extend_from_slice(&u32::try_from(export.len()).unwrap_or(0).to_be_bytes());
        wish.extend_from_slice(export.as_bytes());
        stream.write_all(&wish)?;
        let mut size_and_flags = [0; 10];
        stream.read_exact(&mut size_and_flags)?;
        stream.set_read_timeout(Some(LOOK_EVERY))?;
        Ok(Self { stream, cookie: 0 })
    }

    /// Writes, durable before the answer.
    pub(super) fn write(
        &mut self,
        offset: u64,
        bytes: &[u8],
        leaves: &dyn Fn() -> bool,
    ) -> Result<(), Trouble> {
        self.begin_write(offset, bytes)?;
        self.answer(&mut [], leaves)
    }

    /// Sends a write and does not wait for its reply.
    pub(super) fn begin_write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Trouble> {
        let len = u32::try_from(bytes.len()).map_err(|_| Trouble::Ended)?;
        self.request(FUA, WRITE, offset, len, bytes)
    }

    /// Reads.
    pub(super) fn read(
        &mut self,
        offset: u64,
        bytes: &mut [u8],
        leaves: &dyn Fn() -> bool,
    ) -> Result<(), Trouble> {
        let len = u32::try_from(bytes.len()).map_err(|_| Trouble::Ended)?;
        self.request(0, READ, offset, len, &[])?;
        self.answer(bytes, leaves)
    }

    /// Makes durable what was answered; a server that is not the source refuses it.
    pub(super) fn flush(&mut self, limit: Duration) -> Result<(), Trouble> {
        self.request(0, FLUSH, 0, 0, &[])?;
        let until = Instant::now() + limit;
        self.answer(&mut [], &|| Instant::now() >= until)
    }

    fn request(
        &mut self,
        flags: u16,
        command: u16,
        offset: u64,
        len: u32,
        data: &[u8],
    ) -> Result<(), Trouble> {
        self.cookie += 1;
        let mut bytes = Vec::with_capacity(28 + data.len());
        bytes.extend_from_slice(&REQUEST.to_be_bytes());
        bytes.extend_from_slice(&flags.to_be_bytes());
        bytes.extend_from_slice(&command.to_be_bytes());
        bytes.extend_from_slice(&self.cookie.to_be_bytes());
        bytes.extend_from_slice(&offset.to_be_bytes());
        bytes.extend_from_slice(&len.to_be_bytes());
        bytes.extend_from_slice(data);
        self.stream.write_all(&bytes).map_err(|_| Trouble::Ended)
    }

    /// The reply to the request that was sent last; the data of a read go into `data`.
    pub(super) fn answer(
        &mut self,
        data: &mut [u8],
        leaves: &dyn Fn() -> bool,
    ) -> Result<(), Trouble> {
        let mut head = [0; 16];
        self.fill(&mut head, leaves)?;
        let word =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let cookie = u64::from(word(8)) << 32 | u64::from(word(12));
        if word(0) != REPLY || cookie != self.cookie {
            return Err(Trouble::Ended);
        }
        match word(4) {
            0 => self.fill(data, leaves),
            error => Err(Trouble::Refused(error)),
        }
    }

    fn fill(&mut self, mut left: &mut [u8], leaves: &dyn Fn() -> bool) -> Result<(), Trouble> {
        while !left.is_empty() {
            match self.stream.read(left) {
                Ok(0) => return Err(Trouble::Ended),
                Ok(count) => left = &mut left[count..],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if leaves() {
                        return Err(Trouble::Left);
                    }
                }
                Err(_) => return Err(Trouble::Ended),
            }
        }
        Ok(())
    }
}

const FIXED_NEWSTYLE: u32 = 1;
const NO_ZEROES: u32 = 1 << 1;
const EXPORT_NAME: u32 = 1;
const REQUEST: u32 = 0x2560_9513;
const REPLY: u32 = 0x6744_6698;
const READ: u16 = 0;
const WRITE: u16 = 1;
const FLUSH: u16 = 3;
const FUA: u16 = 1;
/// How often a client that waits looks whether it is to wait on.
const LOOK_EVERY: Duration = Duration::from_millis(20);
