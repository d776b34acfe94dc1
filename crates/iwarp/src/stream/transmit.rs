//! The sending half: frames written straight into the caller's buffer.
//!
//! The machine writes the header first, then the caller's closure fills exactly the payload of this
//! segment, then the machine adds pad, markers and CRC over that private copy. If the bytes change at
//! their source afterwards, the CRC still fits the bytes that are sent.

use super::message::{OpenTagged, OpenUntagged};
use super::{FrameError, Stream};
use crate::ddp::{QueueNumber, Stag, TaggedRepr, UntaggedRepr};
use crate::mpa::{
    CRC_LEN, LENGTH_LEN, MARKER_LEN, ReadyKind, Role, fpdu_size, insert_markers, markers_in, seal,
};
use crate::rdmap::{ImmediateRepr, Opcode, TerminateRepr};

/// One segment, written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Framed {
    /// Bytes written to the buffer.
    pub size: usize,
    /// Bytes of the message in this frame.
    pub payload: u32,
    /// The message is complete.
    pub last: bool,
}

/// The properties of a Send.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SendKind {
    /// The peer shall wake its consumer if that waits for solicited events.
    pub solicited: bool,
    /// The region of the peer that the peer shall invalidate.
    pub invalidate: Option<Stag>,
}

impl Stream {
    /// Frames the next segment of an RDMA Write of which `remaining` bytes are left, the first of
    /// them for `tagged_offset`. `fill` copies the bytes of this segment.
    ///
    /// The caller calls again with the remaining bytes until [`Framed::last`]; in between it may send
    /// only Sends.
    ///
    /// # Errors
    ///
    /// [`FrameError`] says why nothing was framed; the stream is as it was.
    pub fn frame_write<E>(
        &mut self,
        out: &mut [u8],
        stag: Stag,
        tagged_offset: u64,
        remaining: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Framed, FrameError<E>> {
        let segment = OpenTagged { opcode: Opcode::WRITE, stag, next: tagged_offset };
        self.frame_tagged(out, segment, remaining, fill)
    }

    /// Frames the next segment of a Send of which `remaining` bytes are left. `fill` copies the bytes
    /// of this segment.
    ///
    /// The caller calls again with the remaining bytes until [`Framed::last`]; in between it may send
    /// only Writes and Read Responses.
    ///
    /// # Errors
    ///
    /// [`FrameError`] says why nothing was framed; the stream is as it was.
    pub fn frame_send<E>(
        &mut self,
        out: &mut [u8],
        kind: SendKind,
        remaining: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Framed, FrameError<E>> {
        let opcode = Opcode::send(kind.solicited, kind.invalidate.is_some());
        let ulp_word = kind.invalidate.map_or(0, |stag| stag.0);
        let mut message = OpenUntagged { opcode, ulp_word, next: 0 };
        if let Some((open, expected)) = self.outbound.untagged {
            message.next = open.next;
            if (message, remaining) != (open, expected) {
                return Err(FrameError::MessageOpen);
            }
        }
        self.may_send()?;
        let payload = remaining.min(self.payload_max(UntaggedRepr::LEN));
        let last = payload == remaining;
        let header = self.untagged_header(&message, QueueNumber::SEND, last);
        let size = self.frame(out, &header, payload, fill)?;
        self.outbound.untagged = if last {
            self.outbound.message_sent(QueueNumber::SEND);
            None
        } else {
            message.next += payload;
            Some((message, remaining - payload))
        };
        Ok(Framed { size, payload, last })
    }

    /// Frames an Immediate Data message and returns its size.
    ///
    /// # Errors
    ///
    /// [`FrameError`] says why nothing was framed; the stream is as it was.
    pub fn frame_immediate(
        &mut self,
        out: &mut [u8],
        data: u64,
        solicited: bool,
    ) -> Result<usize, FrameError> {
        let opcode = if solicited { Opcode::IMMEDIATE_SOLICITED } else { Opcode::IMMEDIATE };
        let mut body = [0; ImmediateRepr::LEN];
        ImmediateRepr { data }.emit(&mut body);
        self.frame_untagged(out, opcode, QueueNumber::SEND, &body)
    }

    /// Frames the agreed ready-to-receive message and returns its size. An initiator sends this
    /// message before any other.
    ///
    /// # Errors
    ///
    /// [`FrameError::ReadyNotDue`] if none was agreed on.
    pub fn frame_ready(&mut self, out: &mut [u8]) -> Result<usize, FrameError> {
        if self.role != Role::Initiator || self.outbound.is_started() {
            return Err(FrameError::ReadyNotDue);
        }
        match self.ready.take().ok_or(FrameError::ReadyNotDue)? {
            kind @ ReadyKind::Write => self.or_ready(kind, |stream| stream.frame_kick(out)),
            kind @ ReadyKind::Read => self.or_ready(kind, |stream| stream.frame_ready_read(out)),
            kind @ ReadyKind::Send => self.or_ready(kind, |stream| {
                stream.frame_untagged(out, Opcode::SEND, QueueNumber::SEND, &[])
            }),
        }
    }

    /// Frames an empty RDMA Write and returns its size. An empty Write names no memory, changes nothing,
    /// and wakes a responder that missed the frame before it.
    ///
    /// # Errors
    ///
    /// [`FrameError`] says why nothing was framed; the stream is as it was.
    pub fn frame_kick(&mut self, out: &mut [u8]) -> Result<usize, FrameError> {
        let segment = OpenTagged { opcode: Opcode::WRITE, stag: KICK_STAG, next: 0 };
        self.frame_tagged(out, segment, 0, nothing).map(|framed| framed.size)
    }

    /// Frames a Terminate and returns its size. Nothing can be framed after it.
    ///
    /// # Errors
    ///
    /// A responder that has validated no frame yet may not send: its caller closes the connection.
    pub fn frame_terminate(
        &mut self,
        out: &mut [u8],
        terminate: &TerminateRepr,
    ) -> Result<usize, FrameError> {
        self.may_terminate()?;
        let mut body = [0; TerminateRepr::LEN_MAX];
        let len = terminate.emit(&mut body);
        let message = OpenUntagged { opcode: Opcode::TERMINATE, ulp_word: 0, next: 0 };
        let header = self.untagged_header(&message, QueueNumber::TERMINATE, true);
        let size = self.frame_body(out, &header, &body[..len])?;
        self.outbound.terminated();
        Ok(size)
    }

    /// Frames the next segment of a tagged message that continues at `segment.next`.
    pub(super) fn frame_tagged<E>(
        &mut self,
        out: &mut [u8],
        segment: OpenTagged,
        remaining: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Framed, FrameError<E>> {
        self.may_send()?;
        if self.outbound.tagged.is_some_and(|open| open != (segment, remaining)) {
            return Err(FrameError::MessageOpen);
        }
        if segment.next.checked_add(u64::from(remaining)).is_none() {
            return Err(FrameError::OffsetWrap);
        }
        let payload = remaining.min(self.payload_max(TaggedRepr::LEN));
        let last = payload == remaining;
        let repr = TaggedRepr {
            stag: segment.stag,
            tagged_offset: segment.next,
            last,
            ulp_control: segment.opcode.emit(),
        };
        let mut header = [0; TaggedRepr::LEN];
        repr.emit(&mut header);
        let size = self.frame(out, &header, payload, fill)?;
        let rest = OpenTagged { next: segment.next + u64::from(payload), ..segment };
        self.outbound.tagged = (!last).then_some((rest, remaining - payload));
        Ok(Framed { size, payload, last })
    }

    /// Frames an untagged message of one segment.
    pub(super) fn frame_untagged(
        &mut self,
        out: &mut [u8],
        opcode: Opcode,
        queue: QueueNumber,
        body: &[u8],
    ) -> Result<usize, FrameError> {
        self.may_send()?;
        if self.outbound.untagged.is_some() {
            return Err(FrameError::MessageOpen);
        }
        let message = OpenUntagged { opcode, ulp_word: 0, next: 0 };
        let header = self.untagged_header(&message, queue, true);
        let size = self.frame_body(out, &header, body)?;
        self.outbound.message_sent(queue);
        Ok(size)
    }

    fn frame_body(
        &mut self,
        out: &mut [u8],
        header: &[u8],
        body: &[u8],
    ) -> Result<usize, FrameError> {
        let len = u32::try_from(body.len()).expect("bodies are shorter than the smallest MULPDU");
        self.frame(out, header, len, |room| {
            room.copy_from_slice(body);
            Ok(())
        })
    }

    /// Writes one frame. The callers keep header and payload within MULPDU.
    fn frame<E>(
        &mut self,
        out: &mut [u8],
        header: &[u8],
        payload: u32,
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<usize, FrameError<E>> {
        let start = LENGTH_LEN + header.len();
        let end = start + usize::try_from(payload).expect("a payload fits its frame");
        let len = u16::try_from(end - LENGTH_LEN).expect("callers stay within MULPDU");
        let size = fpdu_size(len);
        let phase = self.outbound.phase();
        let markers = if self.markers { markers_in(size, phase) } else { 0 };
        let need = size + markers * MARKER_LEN;
        let out = out.get_mut(..need).ok_or(FrameError::NoRoom { need })?;
        out[..LENGTH_LEN].copy_from_slice(&len.to_be_bytes());
        out[LENGTH_LEN..start].copy_from_slice(header);
        fill(&mut out[start..end]).map_err(FrameError::Fill)?;
        out[end..size - CRC_LEN].fill(0);
        if markers > 0 {
            insert_markers(out, size, phase);
        }
        seal(out, self.crc);
        self.outbound.sent(need);
        Ok(need)
    }

    fn untagged_header(
        &self,
        message: &OpenUntagged,
        queue: QueueNumber,
        last: bool,
    ) -> [u8; UntaggedRepr::LEN] {
        let repr = UntaggedRepr {
            ulp_control: message.opcode.emit(),
            ulp_word: message.ulp_word,
            queue,
            msn: self.outbound.next_msn(queue),
            message_offset: message.next,
            last,
        };
        let mut header = [0; UntaggedRepr::LEN];
        repr.emit(&mut header);
        header
    }

    /// The most payload bytes behind a header of this length.
    fn payload_max(&self, header_len: usize) -> u32 {
        let header_len = u32::try_from(header_len).expect("DDP headers are short");
        u32::from(self.mulpdu) - header_len
    }

    pub(super) fn may_send<E>(&self) -> Result<(), FrameError<E>> {
        if self.role == Role::Initiator && self.ready.is_some() {
            return Err(FrameError::ReadyFirst);
        }
        self.may_terminate()
    }

    fn may_terminate<E>(&self) -> Result<(), FrameError<E>> {
        if self.outbound.is_terminated() {
            return Err(FrameError::Ended);
        }
        // RFC 5044 §7.1.2: a responder is silent until it has received and validated a frame.
        if self.role == Role::Responder && !self.inbound.is_validated() {
            return Err(FrameError::NotReady);
        }
        Ok(())
    }

    /// Keeps the ready-to-receive message due if it could not be framed.
    fn or_ready(
        &mut self,
        kind: ReadyKind,
        frame: impl FnOnce(&mut Self) -> Result<usize, FrameError>,
    ) -> Result<usize, FrameError> {
        let framed = frame(self);
        if framed.is_err() {
            self.ready = Some(kind);
        }
        framed
    }
}

/// Fills the payload of a message without payload.
pub(super) fn nothing(_: &mut [u8]) -> Result<(), core::convert::Infallible> {
    Ok(())
}

/// The STag in an empty Write, as other implementations set it; receivers ignore it.
const KICK_STAG: Stag = Stag(1);
