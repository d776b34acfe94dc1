//! Frames requests, counts them against ORD and remembers the terms that their answers must match.
//!
//! Spec: RFC 5040 §4.4 and §5.2, RFC 7306 §5, draft-talpey-rdma-commit-01 §3.

use super::outstanding::OutboundRequest;
use super::{FrameError, Stream};
use crate::ddp::{QueueNumber, Stag};
use crate::mpa::ProfileFlags;
use crate::rdmap::{
    AtomicRequestRepr, AtomicWriteRequestRepr, FlushRequestRepr, Opcode, ReadRequestRepr,
    VERIFY_HASH_SIZE_MAX, VerifyRequestRepr,
};

impl Stream {
    /// Frames a Read Request and returns its size. The request takes one of [`Stream::ord_available`]
    /// until the last segment of the answer has come.
    ///
    /// # Errors
    ///
    /// [`FrameError`] says why nothing was framed; the stream is as it was.
    pub fn frame_read_request(
        &mut self,
        out: &mut [u8],
        request: &ReadRequestRepr,
    ) -> Result<usize, FrameError> {
        check_range(request.sink_offset, request.size)?;
        check_range(request.source_offset, request.size)?;
        let mut body = [0; ReadRequestRepr::LEN];
        request.emit(&mut body);
        let pending = OutboundRequest::Read { request: *request, received: 0 };
        self.frame_request(out, Opcode::READ_REQUEST, pending, &body)
    }

    /// Frames an Atomic Request and returns its size. The caller must know that the peer takes Atomic
    /// Requests: the start-up does not tell.
    ///
    /// # Errors
    ///
    /// [`FrameError`] says why nothing was framed; the stream is as it was.
    pub fn frame_atomic_request(
        &mut self,
        out: &mut [u8],
        request: &AtomicRequestRepr,
    ) -> Result<usize, FrameError> {
        let mut body = [0; AtomicRequestRepr::LEN];
        request.emit(&mut body);
        let pending = OutboundRequest::Atomic { request_id: request.request_id };
        self.frame_request(out, Opcode::ATOMIC_REQUEST, pending, &body)
    }

    /// Frames a Flush Request and returns its size.
    ///
    /// # Errors
    ///
    /// [`FrameError`] says why nothing was framed; the stream is as it was.
    pub fn frame_flush_request(
        &mut self,
        out: &mut [u8],
        request: &FlushRequestRepr,
    ) -> Result<usize, FrameError> {
        self.check_offered(Opcode::FLUSH_REQUEST, ProfileFlags::FLUSH)?;
        check_range(request.tagged_offset, request.length)?;
        let mut body = [0; FlushRequestRepr::LEN];
        request.emit(&mut body);
        self.frame_request(out, Opcode::FLUSH_REQUEST, OutboundRequest::Flush, &body)
    }

    /// Frames a Verify Request and returns its size.
    ///
    /// # Errors
    ///
    /// [`FrameError`] says why nothing was framed; the stream is as it was.
    pub fn frame_verify_request(
        &mut self,
        out: &mut [u8],
        request: &VerifyRequestRepr<'_>,
    ) -> Result<usize, FrameError> {
        self.check_offered(Opcode::VERIFY_REQUEST, ProfileFlags::VERIFY)?;
        check_range(request.tagged_offset, request.length)?;
        let hash = request.expected;
        let mut body = [0; VerifyRequestRepr::HEADER_LEN + VERIFY_HASH_SIZE_MAX];
        let (header, room) = body
            .split_first_chunk_mut::<{ VerifyRequestRepr::HEADER_LEN }>()
            .expect("the body begins with the header");
        request.emit(header);
        let room = room.get_mut(..hash.len());
        room.ok_or(FrameError::HashTooLong { got: hash.len() })?.copy_from_slice(hash);
        let len = VerifyRequestRepr::HEADER_LEN + hash.len();
        self.frame_request(out, Opcode::VERIFY_REQUEST, OutboundRequest::Verify, &body[..len])
    }

    /// Frames an Atomic Write Request and returns its size.
    ///
    /// # Errors
    ///
    /// [`FrameError`] says why nothing was framed; the stream is as it was.
    pub fn frame_atomic_write_request(
        &mut self,
        out: &mut [u8],
        request: &AtomicWriteRequestRepr,
    ) -> Result<usize, FrameError> {
        self.check_offered(Opcode::ATOMIC_WRITE_REQUEST, ProfileFlags::ATOMIC_WRITE)?;
        let mut body = [0; AtomicWriteRequestRepr::LEN];
        request.emit(&mut body);
        self.frame_request(out, Opcode::ATOMIC_WRITE_REQUEST, OutboundRequest::AtomicWrite, &body)
    }

    /// The empty Read that tells a responder that it may send. It is allowed even where ORD is 0.
    pub(super) fn frame_ready_read(&mut self, out: &mut [u8]) -> Result<usize, FrameError> {
        let request = ReadRequestRepr {
            sink_stag: READY_STAG,
            sink_offset: 0,
            size: 0,
            source_stag: READY_STAG,
            source_offset: 0,
        };
        let mut body = [0; ReadRequestRepr::LEN];
        request.emit(&mut body);
        let size = self.frame_untagged(out, Opcode::READ_REQUEST, QueueNumber::REQUEST, &body)?;
        self.outstanding.push(OutboundRequest::Ready);
        Ok(size)
    }

    fn frame_request(
        &mut self,
        out: &mut [u8],
        opcode: Opcode,
        pending: OutboundRequest,
        body: &[u8],
    ) -> Result<usize, FrameError> {
        if self.outstanding.available() == 0 {
            return Err(FrameError::OrdExhausted { ord: self.outstanding.ord() });
        }
        let size = self.frame_untagged(out, opcode, QueueNumber::REQUEST, body)?;
        self.outstanding.push(pending);
        Ok(size)
    }

    fn check_offered(&self, opcode: Opcode, flag: ProfileFlags) -> Result<(), FrameError> {
        if self.theirs.contains(flag) {
            return Ok(());
        }
        Err(FrameError::NotOffered(opcode))
    }
}

fn check_range(offset: u64, len: u32) -> Result<(), FrameError> {
    offset.checked_add(u64::from(len)).map(|_| ()).ok_or(FrameError::OffsetWrap)
}

/// The STag in an empty Read, as other implementations set it; receivers ignore it.
const READY_STAG: Stag = Stag(1);
