//! What a connection over TCP sends: answers are gathered, and leave as the socket takes them.

use std::io;

use tokio::net::TcpStream;

use super::end::End;
use super::out_queue;
use super::write_buffer::WriteBuffer;
use crate::state::Room;
use crate::state::reads::Rest;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Output {
    buffer: WriteBuffer,
    /// What is in the buffer takes this, until it has left.
    rooms: Vec<Room>,
    /// Bytes the kernel has taken, from the beginning.
    written: u64,
}

impl Output {
    /// What is to be sent, for appending.
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        self.buffer.bytes()
    }

    /// Bytes that are to be sent.
    pub(super) fn len(&self) -> usize {
        self.buffer.as_slice().len()
    }

    /// Keeps this until what is to be sent has left.
    pub(super) fn keep(&mut self, room: Option<Room>) {
        self.rooms.extend(room);
    }

    /// See [`WriteBuffer::replace`].
    pub(super) fn replace(&mut self, frame: Vec<u8>) {
        self.buffer.replace(frame);
    }

    /// See [`WriteBuffer::is_large`].
    pub(super) fn is_large(&self) -> bool {
        self.buffer.is_large()
    }

    /// See [`WriteBuffer::idle`].
    pub(super) fn idle(&mut self) {
        self.buffer.idle();
    }

    /// Gathers the rest of an answer, and sends all but the last of it piece by piece as long as
    /// the socket takes that without waiting. Then the rest is read at once: an answer says what
    /// the file was when the request came, however slow the peer is.
    pub(super) fn finish(&mut self, stream: &TcpStream, mut rest: Rest) -> Result<(), End> {
        let mut piece = PIECE;
        while rest.left() > 0 {
            rest.try_read(self.bytes(), piece).map_err(End::File)?;
            if rest.left() > 0 && piece == PIECE && !self.send(stream)? {
                piece = rest.left();
            }
        }
        Ok(())
    }

    /// Bytes that the peer has taken, from the beginning.
    pub(super) fn taken(&self, stream: &TcpStream) -> io::Result<u64> {
        Ok(self.written.saturating_sub(out_queue::len(stream)?))
    }

    /// Sends what the socket takes now. Whether that was all.
    pub(super) fn send(&mut self, stream: &TcpStream) -> Result<bool, End> {
        let out = self.buffer.as_slice();
        if out.is_empty() {
            return Ok(true);
        }
        let sent = match stream.try_write(out) {
            Ok(sent) => sent,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(error.into()),
        };
        self.written += u64::try_from(sent).expect("lengths fit 64 bits");
        if sent < out.len() {
            self.buffer.advance(sent);
            return Ok(false);
        }
        self.buffer.sent();
        self.rooms.clear();
        Ok(true)
    }
}

/// Of an answer that is read while it is sent: what stays in the cache of a core between.
const PIECE: usize = 512 * 1024;
