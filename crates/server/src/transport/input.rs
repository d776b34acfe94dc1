//! Frames out of a stream.
//!
//! ```text
//!  stream --> buffer --> short frames, handled where they lie
//!                |
//!                +-- head of a long one --> memory of its own <-- stream: the rest
//! ```
//!
//! Of a long frame a good part has to be there before the stream counts as readable ([`low_water`]).
//!
//! Spec: MS-SMB2 §2.1 (direct TCP).

use std::io;
use std::sync::Arc;

use smb::frame_memory::{InFrame, Spares};
use smb::framing;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::low_water;
use crate::dispatch::Violation;
use crate::limits::IO_INLINE_MAX;
use crate::state::{Frame, Room};

/// What has been read and not handled yet.
#[derive(Debug)]
pub(super) struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    large: Option<Large>,
    /// The length of a frame for which there is no memory yet; its head is in the buffer.
    wanted: Option<usize>,
    /// Bytes of long frames, from the beginning.
    received: u64,
    /// Another long frame is likely to come next.
    follows_large: bool,
    spares: Arc<Spares>,
}

/// A frame too long for the buffer, on its way into memory of its own.
#[derive(Debug)]
struct Large {
    frame: InFrame,
    room: Option<Room>,
    filled: usize,
    /// Bytes that have to come before the socket is readable.
    mark: usize,
}

impl Large {
    /// As [`Input::read`]; woken for a good part of what is missing, not for each segment.
    async fn read(&mut self, stream: &TcpStream) -> io::Result<usize> {
        loop {
            // No more than others of the thread may wait for.
            let most = self.frame.len().min(self.filled + IO_INLINE_MAX);
            match stream.try_read(&mut self.frame[self.filled..most]) {
                Ok(got) => {
                    self.filled += got;
                    if self.is_whole() {
                        self.set_mark(stream, 1)?;
                    }
                    return Ok(got);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            let missing = self.frame.len() - self.filled;
            self.set_mark(stream, missing.min(LOW_WATER))?;
            stream.readable().await?;
        }
    }

    fn is_whole(&self) -> bool {
        self.filled == self.frame.len()
    }

    fn set_mark(&mut self, stream: &TcpStream, mark: usize) -> io::Result<()> {
        if self.mark != mark {
            low_water::set(stream, mark)?;
            self.mark = mark;
        }
        Ok(())
    }
}

impl Input {
    /// Nothing yet, and little memory.
    pub(super) fn new() -> Self {
        let (buffer, spares) = (vec![0; IDLE_BUFFER], Arc::default());
        Self {
            buffer,
            start: 0,
            end: 0,
            large: None,
            wanted: None,
            received: 0,
            follows_large: false,
            spares,
        }
    }

    /// Whether [`Input::idle`] may give memory back.
    pub(super) fn is_large(&self) -> bool {
        self.has_large_buffer() || !self.spares.is_empty()
    }

    fn has_large_buffer(&self) -> bool {
        self.buffer.len() > IDLE_BUFFER && self.start == self.end
    }

    /// Nothing has come for a while.
    pub(super) fn idle(&mut self) {
        self.spares.clear();
        if self.has_large_buffer() {
            *self = Self { large: self.large.take(), ..Self::new() };
        }
    }

    /// Reads once. Cancel-safe: nothing is lost when another branch wins.
    pub(super) async fn read(&mut self, stream: &mut TcpStream) -> io::Result<usize> {
        if let Some(large) = &mut self.large {
            let got = large.read(stream).await?;
            self.received += u64::try_from(got).expect("lengths fit 64 bits");
            return Ok(got);
        }
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.start > 0 && self.buffer.len() - self.end < READ_ROOM_MIN {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        // What is read of a long frame here has to be copied.
        let room = &mut self.buffer[self.end..];
        let most = if self.follows_large { room.len().min(LARGE_HEAD) } else { room.len() };
        let got = stream.read(&mut room[..most]).await?;
        self.end += got;
        if self.end == self.buffer.len() && !self.follows_large {
            // There is more where that came from.
            self.grow();
        }
        Ok(got)
    }

    /// How long the frame is that memory has to be made for, by [`Input::begin_large`], before more is read.
    pub(super) fn wanted(&self) -> Option<usize> {
        self.wanted
    }

    /// Makes memory for the frame that is wanted.
    pub(super) fn begin_large(&mut self, room: Option<Room>) {
        let Some(len) = self.wanted.take() else { return };
        let rest = &self.buffer[self.start + framing::PREFIX_LEN..self.end];
        let mut frame = self.spares.frame(len);
        frame[..rest.len()].copy_from_slice(rest);
        self.large = Some(Large { filled: rest.len(), frame, room, mark: 1 });
        self.follows_large = true;
        (self.start, self.end) = (0, 0);
    }

    /// A long frame is on its way: how much of such has come up to now, and its length if others wait for its memory.
    pub(super) fn under_way(&self) -> Option<(u64, Option<usize>)> {
        let large = self.large.as_ref()?;
        let wanted = large.room.as_ref().filter(|room| room.is_wanted());
        Some((self.received, wanted.map(|_| large.frame.len())))
    }

    fn grow(&mut self) {
        if self.buffer.len() < READ_BUFFER {
            self.buffer.resize(READ_BUFFER, 0);
        }
    }

    /// The next whole frame, or `None` until more is read.
    pub(super) fn next_frame(&mut self, limit: usize) -> Result<Option<Frame<'_>>, Violation> {
        if let Some(large) = &self.large {
            if !large.is_whole() {
                return Ok(None);
            }
            return Ok(self.large.take().map(|large| Frame::Owned(large.frame, large.room)));
        }
        let held = &self.buffer[self.start..self.end];
        let Some(&prefix) = held.first_chunk::<{ framing::PREFIX_LEN }>() else { return Ok(None) };
        let len = framing::frame_len(prefix, limit)?;
        let rest = &held[framing::PREFIX_LEN..];
        if rest.len() >= len {
            let at = self.start + framing::PREFIX_LEN;
            self.start = at + len;
            self.follows_large = false;
            return Ok(Some(Frame::Borrowed(&mut self.buffer[at..at + len])));
        }
        if len > LARGE_FRAME {
            self.wanted = Some(len);
        } else {
            self.follows_large = false;
            if self.start + framing::PREFIX_LEN + len > self.buffer.len() {
                self.grow();
            }
        }
        Ok(None)
    }
}

/// Small frames are handled where they were read; one buffer holds many of them.
const READ_BUFFER: usize = 64 * 1024;
/// What a connection has for a start, and again when nothing has come for a while: most requests
/// that are not WRITEs fit. A thousand idle ones hold 4 MiB that way and not 64.
const IDLE_BUFFER: usize = 4 * 1024;
/// Longer frames get memory of their own, which a worker can keep without a copy. Always smaller
/// than the buffer less a prefix, so that what is shorter fits.
const LARGE_FRAME: usize = 32 * 1024;
/// Of a frame that follows a long one, read to see how long it is: no more than the smallest buffer.
const LARGE_HEAD: usize = 4 * 1024;
/// Of a long frame, what has to have come before it is worth a look.
const LOW_WATER: usize = 256 * 1024;
/// Rather move what is left to the front than read less than this.
const READ_ROOM_MIN: usize = 40 * 1024;
