//! The peer's requests that this end has not answered: at most IRD of them, answered in order.
//!
//! Spec: RFC 5040 §5.5, RFC 7306 §7.

use std::collections::VecDeque;

use super::StreamError;
use crate::rdmap::{Opcode, ReadRequestRepr};

/// A ring that never grows.
#[derive(Debug)]
pub(super) struct Requests {
    ring: VecDeque<InboundRequest>,
    ird: u16,
}

/// A request of the peer, with the data that its answer needs.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum InboundRequest {
    /// Answered by `frame_read_response`, called until the last segment is framed.
    Read {
        /// The request.
        request: ReadRequestRepr,
        /// Bytes of the answer that are framed already.
        sent: u32,
    },
    /// Answer with `frame_atomic_response`.
    Atomic {
        /// The identifier of the request.
        request_id: u32,
    },
    /// Answer with `frame_flush_response`.
    Flush,
    /// Answer with `frame_verify_response`.
    Verify,
    /// Answer with `frame_atomic_write_response`.
    AtomicWrite,
}

impl InboundRequest {
    /// The opcode of the answer.
    pub fn response(&self) -> Opcode {
        match self {
            Self::Read { .. } => Opcode::READ_RESPONSE,
            Self::Atomic { .. } => Opcode::ATOMIC_RESPONSE,
            Self::Flush => Opcode::FLUSH_RESPONSE,
            Self::Verify => Opcode::VERIFY_RESPONSE,
            Self::AtomicWrite => Opcode::ATOMIC_WRITE_RESPONSE,
        }
    }
}

impl Requests {
    pub(super) fn new(ird: u16) -> Self {
        Self { ring: VecDeque::with_capacity(usize::from(ird)), ird }
    }

    pub(super) fn len(&self) -> usize {
        self.ring.len()
    }

    pub(super) fn front(&self) -> Option<&InboundRequest> {
        self.ring.front()
    }

    /// Takes a request, if the agreed IRD allows one more.
    pub(super) fn push(&mut self, request: InboundRequest) -> Result<(), StreamError> {
        if self.ring.len() >= usize::from(self.ird) {
            return Err(StreamError::PeerInboundOverflow { ird: self.ird });
        }
        self.ring.push_back(request);
        Ok(())
    }

    /// Counts `len` bytes of the oldest Read as answered; the last ones end it.
    pub(super) fn read_sent(&mut self, len: u32, last: bool) {
        if last {
            self.answered();
        } else if let Some(InboundRequest::Read { sent, .. }) = self.ring.front_mut() {
            *sent += len;
        }
    }

    /// Removes the oldest request.
    pub(super) fn answered(&mut self) {
        self.ring.pop_front();
    }
}
