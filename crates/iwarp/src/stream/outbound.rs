//! The order of sent frames: message numbers, open messages, the position in TCP's stream.

use super::message::{OpenTagged, OpenUntagged, Sequences};
use crate::ddp::QueueNumber;
use crate::mpa::MARKER_SPACING;

/// The progress of the sending half.
#[derive(Debug)]
pub(super) struct Outbound {
    state: State,
    sequences: Sequences,
    /// Octets since the last marker position.
    phase: usize,
    /// An incomplete RDMA Write or Read Response, and its bytes still to send.
    pub(super) tagged: Option<(OpenTagged, u32)>,
    /// An incomplete Send, and its bytes still to send.
    pub(super) untagged: Option<(OpenUntagged, u32)>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    Fresh,
    Started,
    Terminated,
}

impl Outbound {
    pub(super) fn new() -> Self {
        Self {
            state: State::Fresh,
            sequences: Sequences::new(),
            phase: 0,
            tagged: None,
            untagged: None,
        }
    }

    pub(super) fn is_started(&self) -> bool {
        self.state != State::Fresh
    }

    pub(super) fn is_terminated(&self) -> bool {
        self.state == State::Terminated
    }

    pub(super) fn phase(&self) -> usize {
        self.phase
    }

    /// Counts a frame of `size` bytes, markers included.
    pub(super) fn sent(&mut self, size: usize) {
        self.phase = (self.phase + size) % MARKER_SPACING;
        if self.state == State::Fresh {
            self.state = State::Started;
        }
    }

    pub(super) fn terminated(&mut self) {
        self.state = State::Terminated;
    }

    pub(super) fn next_msn(&self, queue: QueueNumber) -> u32 {
        self.sequences.next(queue)
    }

    pub(super) fn message_sent(&mut self, queue: QueueNumber) {
        self.sequences.advance(queue);
    }
}
