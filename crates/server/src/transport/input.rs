//! Splits a stream into frames.
//!
//! ```text
//!   stream --> buffer --> short frames, handled in the buffer
//!                |
//!                 +-- head of a long frame --> memory of its own <-- stream: the rest
//! ```
//!
//! For a long frame the stream counts as readable only once a good part of the frame is there
//! ([`low_water`]).
//!
//! Spec: MS-SMB2 §2.1 (direct TCP).

use std::io;
use std::sync::Arc;

use smb::frame_memory::{InFrame, SPARES_MAX, Spares};
use smb::framing;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::low_water;
use super::spare_room::SpareRoom;
use crate::connections::Frame;
use crate::dispatch::Violation;
use crate::limits::IO_INLINE_MAX;
use crate::state::Room;

/// Bytes that were read and not handled yet.
#[derive(Debug)]
pub(super) struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    large: Option<Large>,
    /// The length of a frame that has no memory yet; its head is in the buffer.
    wanted: Option<usize>,
    /// Bytes of long frames received since the start.
    received: u64,
    /// Another long frame will probably follow.
    follows_large: bool,
    spares: Arc<Spares>,
    spare_room: SpareRoom,
    /// A long frame came since [`Input::look`].
    had_large: bool,
}

/// A frame too long for the buffer, being received into memory of its own.
#[derive(Debug)]
struct Large {
    frame: InFrame,
    room: Option<Room>,
    filled: usize,
    /// Bytes that have to arrive before the socket is readable.
    mark: usize,
}

impl Large {
    /// As [`Input::read`]; woken for a good part of the missing bytes, not for each segment.
    async fn read(&mut self, stream: &TcpStream) -> io::Result<usize> {
        loop {
            // No more than other connections of the thread may wait for.
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
    /// An input without bytes, in little memory.
    pub(super) fn new(spare_room: SpareRoom) -> Self {
        Self {
            buffer: vec![0; IDLE_BUFFER],
            start: 0,
            end: 0,
            large: None,
            wanted: None,
            received: 0,
            follows_large: false,
            spares: Arc::new(Spares::keeping(0)),
            spare_room,
            had_large: false,
        }
    }

    /// Whether [`Input::look`] may give memory back.
    pub(super) fn is_large(&self) -> bool {
        self.has_large_buffer() || self.spares.most() > 0
    }

    fn has_large_buffer(&self) -> bool {
        self.buffer.len() > IDLE_BUFFER && self.start == self.end
    }

    /// To be called now and then: frees memory of long frames where none has come since the last call, and of all frames
    /// where nothing has.
    pub(super) fn look(&mut self, was_busy: bool) {
        if !std::mem::take(&mut self.had_large) {
            self.spares.keep_at_most(0);
            self.spare_room.clear();
        }
        if !was_busy && self.has_large_buffer() {
            self.buffer = vec![0; IDLE_BUFFER];
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads once. Cancel-safe: no byte is lost when another branch wins.
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
        // Bytes of a long frame that are read here have to be copied.
        let room = &mut self.buffer[self.end..];
        let most = if self.follows_large { room.len().min(LARGE_HEAD) } else { room.len() };
        let got = stream.read(&mut room[..most]).await?;
        self.end += got;
        if self.end == self.buffer.len() && !self.follows_large {
            // The stream has more bytes than fitted.
            self.grow();
        }
        Ok(got)
    }

    /// The length of the frame for which [`Input::begin_large`] has to make memory before more is read.
    pub(super) fn wanted(&self) -> Option<usize> {
        self.wanted
    }

    /// Makes memory for the wanted frame.
    pub(super) fn begin_large(&mut self, room: Option<Room>) {
        let Some(len) = self.wanted.take() else { return };
        let rest = &self.buffer[self.start + framing::PREFIX_LEN..self.end];
        self.had_large = true;
        let most = self.spares.most();
        // One that is longer is never kept.
        let grows = len <= SPARES_MAX && !self.spares.has_for(len);
        let wanted = if grows { most.saturating_add(len).min(SPARES_MAX) } else { most };
        let allowed = self.spare_room.grow(wanted);
        if allowed != most {
            self.spares.keep_at_most(allowed);
        }
        let mut frame = self.spares.frame(len);
        frame[..rest.len()].copy_from_slice(rest);
        self.large = Some(Large { filled: rest.len(), frame, room, mark: 1 });
        self.follows_large = true;
        (self.start, self.end) = (0, 0);
    }

    /// If a long frame is being received: the bytes of long frames received so far, and the frame's length if others
    /// wait for its memory.
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

/// Short frames are handled where they were read; one buffer holds many of them.
const READ_BUFFER: usize = 64 * 1024;
/// The buffer of a new connection, and of a connection that has been idle for a while: most
/// requests that are not WRITEs fit. A thousand idle connections hold 4 MiB that way and not 64.
const IDLE_BUFFER: usize = 4 * 1024;
/// Longer frames get memory of their own, which a worker can keep without a copy. Always smaller
/// than the buffer less a prefix, so that shorter frames fit.
const LARGE_FRAME: usize = 32 * 1024;
/// The part of a frame behind a long one that is read to learn its length: no more than the smallest
/// buffer.
const LARGE_HEAD: usize = 4 * 1024;
/// The part of a long frame that has to arrive before the socket counts as readable.
const LOW_WATER: usize = 256 * 1024;
/// The rest is moved to the front if fewer bytes than this could be read.
const READ_ROOM_MIN: usize = 40 * 1024;
