//! Our requests that the peer has not answered: at most ORD of them, answered in order.
//!
//! Spec: RFC 5040 §5.5, RFC 7306 §7. Reads, Atomics, Flushes, Verifies and Atomic Writes share
//! the credit and the order.

use std::collections::VecDeque;

use super::StreamError;
use crate::ddp::TaggedRepr;
use crate::rdmap::{Opcode, ReadRequestRepr};

/// A ring that never grows.
#[derive(Debug)]
pub(super) struct Outstanding {
    ring: VecDeque<OutboundRequest>,
    ord: u16,
}

/// A request, with the terms that its response must match.
#[derive(Clone, Copy, Debug)]
pub(super) enum OutboundRequest {
    Read {
        request: ReadRequestRepr,
        received: u32,
    },
    /// The empty Read that is the ready-to-receive message.
    Ready,
    Atomic {
        request_id: u32,
    },
    Flush,
    Verify,
    AtomicWrite,
}

/// The part of a Read that a response segment answers.
pub(super) struct ReadProgress {
    pub(super) offset: u32,
    /// The whole answer was to the ready-to-receive Read.
    pub(super) ready: bool,
}

impl Outstanding {
    pub(super) fn new(ord: u16) -> Self {
        // RFC 6581 §9.1: a ready-to-receive Read may go even where ORD is 0.
        Self { ring: VecDeque::with_capacity(usize::from(ord.max(1))), ord }
    }

    pub(super) fn ord(&self) -> u16 {
        self.ord
    }

    pub(super) fn len(&self) -> usize {
        self.ring.len()
    }

    pub(super) fn available(&self) -> usize {
        usize::from(self.ord).saturating_sub(self.ring.len())
    }

    /// Remembers a framed request; the caller has checked [`Outstanding::available`].
    pub(super) fn push(&mut self, request: OutboundRequest) {
        self.ring.push_back(request);
    }

    /// Matches an untagged response with the oldest request and removes the request.
    pub(super) fn complete(
        &mut self,
        opcode: Opcode,
        matches: impl FnOnce(&OutboundRequest) -> bool,
    ) -> Result<OutboundRequest, StreamError> {
        let unexpected = StreamError::PeerResponse(opcode);
        if !self.ring.front().is_some_and(matches) {
            return Err(unexpected);
        }
        self.ring.pop_front().ok_or(unexpected)
    }

    /// Matches an Atomic Response with the oldest request and removes the request.
    pub(super) fn complete_atomic(&mut self, got: u32) -> Result<(), StreamError> {
        let is_atomic =
            |request: &OutboundRequest| matches!(request, OutboundRequest::Atomic { .. });
        match self.complete(Opcode::ATOMIC_RESPONSE, is_atomic)? {
            OutboundRequest::Atomic { request_id } if request_id != got => {
                Err(StreamError::PeerResponseId { expected: request_id, got })
            }
            _ => Ok(()),
        }
    }

    /// Matches a segment of a Read Response with the oldest request, and removes the request after
    /// the last segment.
    pub(super) fn read_response(
        &mut self,
        repr: &TaggedRepr,
        len: usize,
    ) -> Result<ReadProgress, StreamError> {
        let (expected, offset, ready) = match self.ring.front_mut() {
            Some(OutboundRequest::Ready) => (0, 0, true),
            Some(OutboundRequest::Read { request, received }) => {
                let offset = *received;
                check_sink(request, offset, repr, len)?;
                *received = u32::try_from(len).map_or(u32::MAX, |len| received.saturating_add(len));
                (request.size, offset, false)
            }
            _ => return Err(StreamError::PeerResponse(Opcode::READ_RESPONSE)),
        };
        // RFC 5040 §4.5: the answer has the requested length, and its last segment is marked.
        let got = u64::from(offset) + u64::try_from(len).unwrap_or(u64::MAX >> 1);
        let whole = u64::from(expected);
        if got > whole || (got == whole) != repr.last {
            return Err(StreamError::PeerResponseLength { expected, got });
        }
        if repr.last {
            self.ring.pop_front();
        }
        Ok(ReadProgress { offset, ready })
    }
}

/// RFC 5041 §5.2: the receiver must ignore the STag and the offset of an empty segment.
fn check_sink(
    request: &ReadRequestRepr,
    offset: u32,
    repr: &TaggedRepr,
    len: usize,
) -> Result<(), StreamError> {
    if len == 0 {
        return Ok(());
    }
    if repr.stag != request.sink_stag {
        let (expected, got) = (request.sink_stag, repr.stag);
        return Err(StreamError::PeerResponseStag { expected, got });
    }
    // A request that wraps was never framed.
    let expected = request.sink_offset.wrapping_add(u64::from(offset));
    if repr.tagged_offset != expected {
        return Err(StreamError::PeerTaggedOffset { expected, got: repr.tagged_offset });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_requests_may_be_under_way_as_were_agreed() {
        let mut outstanding = Outstanding::new(3);
        assert_eq!((outstanding.ord(), outstanding.available()), (3, 3));
        outstanding.push(OutboundRequest::Flush);
        assert_eq!((outstanding.ord(), outstanding.available()), (3, 2));
    }
}
