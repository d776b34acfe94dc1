//! The order of received frames: the message and the segment that must come next.
//!
//! Spec: RFC 5041 §5 and §7.1.

use super::StreamError;
use super::message::{OpenTagged, OpenUntagged, Sequences};
use crate::ddp::{QueueNumber, TaggedRepr, UntaggedRepr};
use crate::rdmap::{Opcode, ReadRequestRepr, TerminatedSegment};

/// The progress of the receiving half.
#[derive(Debug)]
pub(super) struct Inbound {
    state: State,
    /// At least one frame was valid, also if the half has failed since.
    validated: bool,
    sequences: Sequences,
    tagged: Option<OpenTagged>,
    untagged: Option<OpenUntagged>,
    /// The frame received last, which a Terminate can echo.
    pub(super) segment: Option<TerminatedSegment>,
    pub(super) read_request: Option<ReadRequestRepr>,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// The half accepts frames.
    Open,
    /// The half has found an error.
    Failed,
    /// The peer sent its Terminate.
    Terminated,
}

impl Inbound {
    pub(super) fn new() -> Self {
        Self {
            state: State::Open,
            validated: false,
            sequences: Sequences::new(),
            tagged: None,
            untagged: None,
            segment: None,
            read_request: None,
        }
    }

    /// Refuses once the half has ended.
    pub(super) fn check_open(&self) -> Result<(), StreamError> {
        match self.state {
            State::Open => Ok(()),
            State::Failed => Err(StreamError::Ended),
            State::Terminated => Err(StreamError::PeerAfterTerminate),
        }
    }

    /// Whether a frame was valid, so that a responder may send.
    pub(super) fn is_validated(&self) -> bool {
        self.validated
    }

    pub(super) fn frame_was_good(&mut self) {
        self.validated = true;
    }

    pub(super) fn failed(&mut self) {
        self.state = State::Failed;
    }

    pub(super) fn terminated(&mut self) {
        self.state = State::Terminated;
    }

    /// Takes the next segment of a tagged message.
    pub(super) fn tagged(
        &mut self,
        opcode: Opcode,
        repr: &TaggedRepr,
        len: usize,
    ) -> Result<(), StreamError> {
        if len == 0 && !repr.last {
            return Err(StreamError::PeerEmptySegment { opcode });
        }
        if let Some(open) = self.tagged {
            check_continues(&open, opcode, repr)?;
        } else if len == 0 {
            // RFC 5041 §5.2: STag and offset of an empty message must not be looked at.
            return Ok(());
        }
        let next = u64::try_from(len).ok().and_then(|len| repr.tagged_offset.checked_add(len));
        let next = next.ok_or(StreamError::PeerOffsetWrap { tagged: true })?;
        self.tagged = (!repr.last).then_some(OpenTagged { opcode, stag: repr.stag, next });
        Ok(())
    }

    /// Takes the next segment of an untagged message.
    pub(super) fn untagged(
        &mut self,
        opcode: Opcode,
        repr: &UntaggedRepr,
        len: usize,
    ) -> Result<(), StreamError> {
        let mut expected_offset = 0;
        if let Some(open) = self.untagged {
            if repr.queue != QueueNumber::SEND {
                return Err(StreamError::PeerInterleaved { opcode });
            }
            expected_offset = open.next;
        }
        let expected = self.sequences.next(repr.queue);
        if repr.msn != expected {
            return Err(StreamError::PeerMsn { queue: repr.queue, expected, got: repr.msn });
        }
        if repr.message_offset != expected_offset {
            let got = repr.message_offset;
            return Err(StreamError::PeerMessageOffset { expected: expected_offset, got });
        }
        // RFC 5041 §4.3: all segments of a message carry the same RsvdULP.
        let same = |open: OpenUntagged| open.opcode == opcode && open.ulp_word == repr.ulp_word;
        if !self.untagged.is_none_or(same) {
            return Err(StreamError::PeerMessageChanged);
        }
        self.advance_untagged(opcode, repr, len)
    }

    fn advance_untagged(
        &mut self,
        opcode: Opcode,
        repr: &UntaggedRepr,
        len: usize,
    ) -> Result<(), StreamError> {
        let next = u32::try_from(len).ok().and_then(|len| repr.message_offset.checked_add(len));
        let next = next.ok_or(StreamError::PeerMessageTooLong)?;
        if repr.last {
            self.untagged = None;
            self.sequences.advance(repr.queue);
            return Ok(());
        }
        let may_be_cut = repr.queue == QueueNumber::SEND
            && !matches!(opcode, Opcode::IMMEDIATE | Opcode::IMMEDIATE_SOLICITED);
        if !may_be_cut {
            return Err(StreamError::PeerFragmented { opcode });
        }
        if len == 0 {
            return Err(StreamError::PeerEmptySegment { opcode });
        }
        self.untagged = Some(OpenUntagged { opcode, ulp_word: repr.ulp_word, next });
        Ok(())
    }
}

fn check_continues(
    open: &OpenTagged,
    opcode: Opcode,
    repr: &TaggedRepr,
) -> Result<(), StreamError> {
    if open.opcode != opcode {
        return Err(StreamError::PeerInterleaved { opcode });
    }
    if open.stag != repr.stag {
        return Err(StreamError::PeerMessageChanged);
    }
    if open.next != repr.tagged_offset {
        let got = repr.tagged_offset;
        return Err(StreamError::PeerTaggedOffset { expected: open.next, got });
    }
    Ok(())
}
