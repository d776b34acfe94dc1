//! One connection of a link: messages both ways between two members that have proved who they are.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use super::codec::{self, HEAD_LEN, Head, WireError};
use super::error::LinkError;
use super::handshake::{Secured, ended, failed, is_of_key};
use super::options::LinkOptions;
use super::pace::Pace;
use super::record::{
    CONTENT_MAX, OVERHEAD, Opened, Opener, RECORD_HEAD_LEN, RecordError, SEAL_ROOM, Sealer,
};
use super::socket::Socket;
use crate::message::Message;

/// Sends messages.
pub(super) struct OneSender {
    socket: Arc<Socket>,
    sealer: Sealer,
    pace: Arc<Mutex<Pace>>,
    /// Head and body of a frame.
    frame: Vec<u8>,
    /// Content that fills no record yet.
    staged: Vec<u8>,
    /// Records; so many bytes of it are used.
    out: Box<[u8]>,
    used: usize,
}

impl OneSender {
    pub(super) fn new(socket: &Arc<Socket>, sealer: Sealer, options: &LinkOptions) -> Self {
        Self {
            socket: Arc::clone(socket),
            sealer,
            pace: Pace::shared(options),
            frame: Vec::new(),
            staged: Vec::with_capacity(CONTENT_MAX),
            out: vec![0; OUT_LEN].into_boxed_slice(),
            used: 0,
        }
    }

    /// Sends a message and the payload beside it, which lies in several parts.
    ///
    /// # Errors
    ///
    /// The link has ended, or ends with this error; but a message that is none, or not that of the payload, leaves the
    /// link as it was: [`LinkError::Frame`].
    pub(super) fn send(&mut self, message: &Message, payload: &[&[u8]]) -> Result<(), LinkError> {
        let len: usize = payload.iter().map(|part| part.len()).sum();
        let payload_len = u32::try_from(len)
            .map_err(|_| WireError::PayloadLen { len: u64::try_from(len).unwrap_or(u64::MAX) })?;
        self.frame.clear();
        codec::encode(message, payload_len, &mut self.frame)?;
        self.send_frame(payload)
    }

    /// Sends messages without payloads at once.
    ///
    /// # Errors
    ///
    /// Those of [`Self::send`]; after [`LinkError::Frame`] none has been sent.
    pub(super) fn send_all(&mut self, messages: &[Message]) -> Result<(), LinkError> {
        self.frame.clear();
        for message in messages {
            codec::encode(message, 0, &mut self.frame)?;
        }
        self.send_frame(&[])
    }

    /// Sends bytes that are a frame.
    pub(super) fn send_bytes(&mut self, frame: Vec<u8>) -> Result<(), LinkError> {
        self.frame = frame;
        self.send_frame(&[])
    }

    /// Sends bytes that are frames, and the payload of the last one.
    pub(super) fn send_frames(
        &mut self,
        frames: &[&[u8]],
        payload: &[u8],
    ) -> Result<(), LinkError> {
        self.frame.clear();
        frames.iter().for_each(|frame| self.frame.extend_from_slice(frame));
        self.send_frame(&[payload])
    }

    /// What it sends counts with what others send, who have the same.
    pub(super) fn share(&mut self, pace: &Arc<Mutex<Pace>>) {
        self.pace = Arc::clone(pace);
    }

    pub(super) fn socket(&self) -> &Arc<Socket> {
        &self.socket
    }

    fn send_frame(&mut self, payload: &[&[u8]]) -> Result<(), LinkError> {
        let sent = self.write_frame(payload);
        if sent.is_err() {
            self.socket.close();
        }
        // The longest bodies are rare.
        if self.frame.capacity() > KEPT_MAX {
            self.frame = Vec::new();
        }
        sent
    }

    fn write_frame(&mut self, payload: &[&[u8]]) -> Result<(), LinkError> {
        if self.socket.is_closed() {
            return Err(LinkError::Closed);
        }
        let frame = std::mem::take(&mut self.frame);
        let put = self.put(&frame);
        self.frame = frame;
        put?;
        payload.iter().try_for_each(|part| self.put(part))?;
        self.seal_staged()?;
        self.flush()
    }

    // What fills records is encrypted from where it lies; what does not is collected.
    fn put(&mut self, mut bytes: &[u8]) -> Result<(), LinkError> {
        if bytes.len() >= CONTENT_MAX {
            self.seal_staged()?;
        }
        while let Some((content, rest)) = bytes.split_at_checked(CONTENT_MAX)
            && self.staged.is_empty()
        {
            self.make_room(content.len())?;
            self.used += self.sealer.seal(content, &mut self.out[self.used..])?;
            bytes = rest;
        }
        while !bytes.is_empty() {
            let count = bytes.len().min(CONTENT_MAX - self.staged.len());
            self.staged.extend_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            if self.staged.len() == CONTENT_MAX {
                self.seal_staged()?;
            }
        }
        Ok(())
    }

    fn seal_staged(&mut self) -> Result<(), LinkError> {
        if !self.staged.is_empty() {
            self.make_room(self.staged.len())?;
            self.used += self.sealer.seal(&self.staged, &mut self.out[self.used..])?;
            self.staged.clear();
        }
        Ok(())
    }

    fn make_room(&mut self, len: usize) -> Result<(), LinkError> {
        if self.out.len() - self.used < len + SEAL_ROOM { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), LinkError> {
        let len = std::mem::take(&mut self.used);
        let mut left = &self.out[..len];
        while !left.is_empty() {
            let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
            let (piece, rest) = left.split_at(pace.piece(left.len()));
            let wait = pace.wait(piece.len(), Instant::now());
            drop(pace);
            if !wait.is_zero() {
                self.socket.sleep(wait);
            }
            self.socket.write_all(piece).map_err(|error| failed(&self.socket, error))?;
            left = rest;
        }
        Ok(())
    }
}

impl Drop for OneSender {
    fn drop(&mut self) {
        // Between two frames the other end may be told that nothing comes any more.
        if !self.socket.is_closed() {
            let mut out = [0; OVERHEAD + 2];
            if let Ok(len) = self.sealer.close(&mut out) {
                self.socket.write_now(&out[..len]);
            }
            self.socket.close();
        }
    }
}

impl fmt::Debug for OneSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OneSender(to {})", self.socket.peer())
    }
}

/// Receives messages.
pub(super) struct OneReceiver {
    socket: Arc<Socket>,
    opener: Opener,
    /// What the socket gave: the bytes from `at` to `end` are no opened records.
    raw: Vec<u8>,
    at: usize,
    end: usize,
    /// Where opened content lies in `raw` that nobody has taken.
    plain: Range<usize>,
    /// What came with the handshake, and comes before all else.
    early: Vec<u8>,
    body: Vec<u8>,
    payload_left: u32,
    until: Option<Instant>,
}

impl OneReceiver {
    pub(super) fn limit(&mut self, until: Option<Instant>) {
        self.until = until;
    }

    /// Waits for the next message. Its payload is of so many bytes, and has to be taken by [`Self::payload`].
    ///
    /// # Errors
    ///
    /// The link has ended, or ends with this error.
    pub(super) fn receive(&mut self) -> Result<(Message, u32), LinkError> {
        let received = self.receive_frame().and_then(|head| {
            let message = head.message(&self.body)?;
            Ok((message, head.payload_len()))
        });
        if self.body.capacity() > KEPT_MAX {
            self.body = Vec::new();
        }
        match &received {
            Ok((_, payload_len)) => self.payload_left = *payload_len,
            Err(_) => self.socket.close(),
        }
        received
    }

    /// Takes the next bytes of the payload, as many as fit.
    ///
    /// # Errors
    ///
    /// `out` is longer than what is left of the payload, or the link ends; what `out` holds then is nothing.
    pub(super) fn payload(&mut self, out: &mut [u8]) -> Result<(), LinkError> {
        let wanted = out.len();
        let beyond = LinkError::PayloadBeyond { wanted, left: self.payload_left };
        let left = u32::try_from(wanted).ok().and_then(|len| self.payload_left.checked_sub(len));
        let taken = left.ok_or(beyond).and_then(|left| {
            self.take(out, false)?;
            self.payload_left = left;
            Ok(())
        });
        if taken.is_err() {
            self.socket.close();
        }
        taken
    }

    /// The bytes of the payload of the last message that have not been taken.
    pub(super) fn payload_left(&self) -> u32 {
        self.payload_left
    }

    /// Waits for a frame; its body is in `body` then.
    pub(super) fn receive_frame(&mut self) -> Result<Head, LinkError> {
        if self.payload_left > 0 {
            return Err(LinkError::PayloadUnread(self.payload_left));
        }
        let mut head = [0; HEAD_LEN];
        self.take(&mut head, true)?;
        let head = Head::decode(&head)?;
        let mut body = std::mem::take(&mut self.body);
        body.resize(head.body_len(), 0);
        let taken = self.take(&mut body, false);
        self.body = body;
        taken.map(|()| head)
    }

    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    fn take(&mut self, mut out: &mut [u8], begins: bool) -> Result<(), LinkError> {
        let wanted = out.len();
        while !out.is_empty() {
            let from = match self.early.is_empty() {
                true => &self.raw[self.plain.clone()],
                false => &self.early[..],
            };
            if from.is_empty() {
                match self.fill(out)? {
                    Filled::Here => {}
                    Filled::There(count) => out = &mut out[count..],
                    // Only between frames may the other end say that nothing comes any more.
                    Filled::End if begins && out.len() == wanted => {
                        return Err(LinkError::PeerClosed);
                    }
                    Filled::End => return Err(LinkError::PeerCut),
                }
                continue;
            }
            let count = from.len().min(out.len());
            let (front, rest) = out.split_at_mut(count);
            front.copy_from_slice(&from[..count]);
            out = rest;
            match self.early.is_empty() {
                true => self.plain.start += count,
                false => drop(self.early.drain(..count)),
            }
        }
        Ok(())
    }

    /// Opens the next record that holds data: into `out` where all of it is wanted there.
    fn fill(&mut self, out: &mut [u8]) -> Result<Filled, LinkError> {
        loop {
            let Some((head, len)) = self.next_record()? else {
                self.read()?;
                continue;
            };
            let begin = self.at + RECORD_HEAD_LEN;
            self.at = begin + len;
            let record = &mut self.raw[begin..begin + len];
            let there = out.get_mut(..Opener::plain_len(len));
            let is_there = there.is_some();
            let opened = match there {
                Some(there) => self.opener.open_into(head, record, there),
                None => self.opener.open(head, record),
            };
            match opened.map_err(blame)? {
                Opened::Data(0) | Opened::Nothing => {}
                Opened::Data(len) if is_there => return Ok(Filled::There(len)),
                Opened::Data(len) => {
                    self.plain = begin..begin + len;
                    return Ok(Filled::Here);
                }
                Opened::End => return Ok(Filled::End),
            }
        }
    }

    /// The head of the record at `at` and its length, if it is whole.
    fn next_record(&self) -> Result<Option<([u8; RECORD_HEAD_LEN], usize)>, LinkError> {
        let Some((head, rest)) = self.raw[self.at..self.end].split_first_chunk() else {
            return Ok(None);
        };
        let len = Opener::len(*head)?;
        Ok((rest.len() >= len).then_some((*head, len)))
    }

    /// Reads more of the socket's bytes. No opened content lies in `raw` that is wanted.
    fn read(&mut self) -> Result<(), LinkError> {
        self.raw.copy_within(self.at..self.end, 0);
        (self.at, self.end) = (0, self.end - self.at);
        self.plain = 0..0;
        if self.until.is_some() {
            self.socket.limit(self.until).map_err(|error| failed(&self.socket, error))?;
        }
        let read = self.socket.read(&mut self.raw[self.end..]);
        match read.map_err(|error| failed(&self.socket, error))? {
            0 => Err(ended(&self.socket)),
            count => {
                self.end += count;
                Ok(())
            }
        }
    }
}

impl Drop for OneReceiver {
    fn drop(&mut self) {
        self.socket.close();
    }
}

impl fmt::Debug for OneReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OneReceiver(from {})", self.socket.peer())
    }
}

/// Where the content of a record is.
enum Filled {
    /// In the receiver.
    Here,
    /// So many bytes of it, all, where they are wanted.
    There(usize),
    /// Nothing comes any more.
    End,
}

/// The two directions of a connection whose ends have shown their keys.
pub(super) fn halves(
    socket: &Arc<Socket>,
    secured: Secured,
    options: &LinkOptions,
) -> (OneSender, OneReceiver) {
    let Secured { sealer, opener, mut unread, data, .. } = secured;
    let end = unread.len();
    unread.resize(RAW_LEN.max(end), 0);
    let receiver = OneReceiver {
        socket: Arc::clone(socket),
        opener,
        raw: unread,
        at: 0,
        end,
        plain: 0..0,
        early: data,
        body: Vec::new(),
        payload_left: 0,
        until: None,
    };
    (OneSender::new(socket, sealer, options), receiver)
}

fn blame(error: RecordError) -> LinkError {
    match error {
        RecordError::PeerAlert(alert) if is_of_key(alert) => LinkError::PeerRefusesKey,
        error => LinkError::PeerRecord(error),
    }
}

/// Bytes of records that are written at once: four full ones, so that they are still in the cache, and the other end opens
/// them while the next ones are sealed. With sixteen the link was slower on loopback.
const OUT_LEN: usize = 4 * (CONTENT_MAX + OVERHEAD) + SEAL_ROOM;
/// Bytes that are read at once; more than a record and what is read in the handshake.
const RAW_LEN: usize = 256 << 10;
/// Memory that a link keeps for heads and bodies.
const KEPT_MAX: usize = 64 << 10;
