//! Frames responses, only in the order of the requests.
//!
//! Spec: RFC 5040 §5.2.1 and §5.5, RFC 7306 §7, draft-talpey-rdma-commit-01 §3.

use super::message::OpenTagged;
use super::{FrameError, Framed, InboundRequest, Stream};
use crate::ddp::QueueNumber;
use crate::rdmap::{AtomicResponseRepr, Opcode, VERIFY_HASH_SIZE_MAX};

impl Stream {
    /// Frames the next segment of the answer to the oldest request, which must be a Read
    /// ([`Stream::next_request`] says from where and how far). `fill` copies this segment's
    /// bytes. The answer to an empty Read is one empty segment.
    ///
    /// The caller calls again until [`Framed::last`]; in between it may send only Sends.
    ///
    /// # Errors
    ///
    /// [`FrameError`] says why nothing was framed; the stream is as it was.
    pub fn frame_read_response<E>(
        &mut self,
        out: &mut [u8],
        fill: impl FnOnce(&mut [u8]) -> Result<(), E>,
    ) -> Result<Framed, FrameError<E>> {
        let opcode = Opcode::READ_RESPONSE;
        let Some(&InboundRequest::Read { request, sent }) = self.requests.front() else {
            return Err(FrameError::NotDue(opcode));
        };
        // A request whose sink wraps was refused when it came.
        let next = request.sink_offset.wrapping_add(u64::from(sent));
        let segment = OpenTagged { opcode, stag: request.sink_stag, next };
        let framed = self.frame_tagged(out, segment, request.size - sent, fill)?;
        self.requests.read_sent(framed.payload, framed.last);
        Ok(framed)
    }

    /// Frames the answer to the oldest request, which must be an Atomic, and returns its size.
    ///
    /// # Errors
    ///
    /// [`FrameError`] says why nothing was framed; the stream is as it was.
    pub fn frame_atomic_response(
        &mut self,
        out: &mut [u8],
        original: u64,
    ) -> Result<usize, FrameError> {
        let Some(&InboundRequest::Atomic { request_id }) = self.requests.front() else {
            return Err(FrameError::NotDue(Opcode::ATOMIC_RESPONSE));
        };
        let mut body = [0; AtomicResponseRepr::LEN];
        AtomicResponseRepr { request_id, original }.emit(&mut body);
        self.frame_response(out, Opcode::ATOMIC_RESPONSE, &body)
    }

    /// Frames the answer to the oldest request, which must be a Flush, and returns its size.
    ///
    /// # Durability
    ///
    /// The answer is the promise: if the request asked for [`PlacementFlags::PERSISTENCE`], every byte
    /// of the range must be durable before the call.
    ///
    /// # Errors
    ///
    /// [`FrameError`] says why nothing was framed; the stream is as it was.
    ///
    /// [`PlacementFlags::PERSISTENCE`]: crate::rdmap::PlacementFlags::PERSISTENCE
    pub fn frame_flush_response(&mut self, out: &mut [u8]) -> Result<usize, FrameError> {
        self.frame_response(out, Opcode::FLUSH_RESPONSE, &[])
    }

    /// Frames the answer to the oldest request, which must be a Verify, and returns its size.
    ///
    /// # Errors
    ///
    /// [`FrameError`] says why nothing was framed; the stream is as it was.
    pub fn frame_verify_response(
        &mut self,
        out: &mut [u8],
        hash: &[u8],
    ) -> Result<usize, FrameError> {
        if hash.len() > VERIFY_HASH_SIZE_MAX {
            return Err(FrameError::HashTooLong { got: hash.len() });
        }
        self.frame_response(out, Opcode::VERIFY_RESPONSE, hash)
    }

    /// Frames the answer to the oldest request, which must be an Atomic Write, and returns its
    /// size.
    ///
    /// # Errors
    ///
    /// [`FrameError`] says why nothing was framed; the stream is as it was.
    pub fn frame_atomic_write_response(&mut self, out: &mut [u8]) -> Result<usize, FrameError> {
        self.frame_response(out, Opcode::ATOMIC_WRITE_RESPONSE, &[])
    }

    fn frame_response(
        &mut self,
        out: &mut [u8],
        opcode: Opcode,
        body: &[u8],
    ) -> Result<usize, FrameError> {
        if self.requests.front().map(InboundRequest::response) != Some(opcode) {
            return Err(FrameError::NotDue(opcode));
        }
        let size = self.frame_untagged(out, opcode, QueueNumber::RESPONSE, body)?;
        self.requests.answered();
        Ok(size)
    }
}
