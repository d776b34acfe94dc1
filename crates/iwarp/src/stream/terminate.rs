//! Maps the reason why a stream ends to the Terminate for the peer.
//!
//! Spec: RFC 5040 §4.8 figures 9 and 10, RFC 5041 §7.2, RFC 5044 §8.

use super::{InboundRequest, Protection, Stream, StreamError};
use crate::ddp::is_tagged;
use crate::rdmap::{ReadRequestRepr, TerminateCode, TerminateRepr, TerminatedSegment};

/// The reason why a stream ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Cause {
    /// The machine refused a frame.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The caller refused the operation of a frame.
    #[error(transparent)]
    Protection(#[from] Protection),
}

/// The received frame that a Terminate echoes. The value is small, so that the caller can keep it
/// with work that may fail later.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct SegmentContext {
    segment: Option<TerminatedSegment>,
    read_request: Option<ReadRequestRepr>,
}

impl SegmentContext {
    fn is_tagged(&self) -> bool {
        self.segment.is_some_and(|segment| is_tagged(segment.header()[0]))
    }
}

impl Stream {
    /// The frame of the last [`Stream::receive`], valid or not.
    pub fn segment_context(&self) -> SegmentContext {
        let inbound = &self.inbound;
        SegmentContext { segment: inbound.segment, read_request: inbound.read_request }
    }

    /// The Terminate for `cause`, found in the frame `context`. `None` if the peer has ended the
    /// stream itself.
    pub fn terminate(
        &self,
        cause: impl Into<Cause>,
        context: SegmentContext,
    ) -> Option<TerminateRepr> {
        let code = cause.into().terminate_code(context.is_tagged())?;
        // RFC 5040 figure 10: the headers that each kind of error carries.
        let (ddp, rdmap) = match (code.layer, code.etype) {
            (LAYER_RDMAP, TYPE_PROTECTION) => (true, true),
            (LAYER_RDMAP, TYPE_OPERATION) => (true, false),
            (LAYER_DDP, etype) => (etype != TYPE_LOCAL, false),
            _ => (false, false),
        };
        let segment = context.segment.filter(|_| ddp);
        let read_request = context.read_request.filter(|_| rdmap && segment.is_some());
        let read_request = read_request.map(|request| self.with_progress(request));
        Some(TerminateRepr { code, segment, read_request })
    }

    /// RFC 5040 §4.8: the echo of a partly answered Read Request names only its unanswered part.
    fn with_progress(&self, request: ReadRequestRepr) -> ReadRequestRepr {
        match self.requests.front() {
            Some(InboundRequest::Read { request: oldest, sent }) if *oldest == request => {
                ReadRequestRepr {
                    sink_offset: request.sink_offset.wrapping_add(u64::from(*sent)),
                    source_offset: request.source_offset.wrapping_add(u64::from(*sent)),
                    size: request.size - sent,
                    ..request
                }
            }
            _ => request,
        }
    }
}

impl Cause {
    /// The code for this cause. `tagged` says that the offending frame was tagged: protection errors
    /// of a tagged frame have codes of DDP, others codes of RDMAP.
    pub fn terminate_code(self, tagged: bool) -> Option<TerminateCode> {
        match self {
            Self::Stream(error) => error.terminate_code(),
            Self::Protection(protection) => Some(protection.terminate_code(tagged)),
        }
    }
}

impl StreamError {
    /// The code for this error; `None` if the peer no longer reads.
    pub fn terminate_code(self) -> Option<TerminateCode> {
        use TerminateCode as Code;
        Some(match self {
            Self::PeerCrc { .. } => Code::MPA_CRC,
            Self::PeerTruncated { .. } => Code::MPA_LENGTH,
            Self::PeerSpokeFirst => Code::MPA_STARTUP,
            Self::PeerDdpVersion { tagged: true, .. } => Code::TAGGED_VERSION,
            Self::PeerDdpVersion { tagged: false, .. } => Code::UNTAGGED_VERSION,
            Self::PeerQueue { .. } => Code::UNTAGGED_QUEUE,
            Self::PeerMsn { .. } => Code::UNTAGGED_MSN,
            Self::PeerMessageOffset { .. } => Code::UNTAGGED_OFFSET,
            Self::PeerMessageTooLong => Code::UNTAGGED_TOO_LONG,
            Self::PeerResponseStag { .. } => Code::TAGGED_INVALID_STAG,
            Self::PeerTaggedOffset { .. } | Self::PeerResponseLength { .. } => Code::TAGGED_BOUNDS,
            Self::PeerOffsetWrap { tagged: true } => Code::TAGGED_OFFSET_WRAP,
            Self::PeerOffsetWrap { tagged: false } => Code::RDMAP_OFFSET_WRAP,
            Self::PeerAtomicWriteLength(_) => Code::RDMAP_BOUNDS,
            Self::PeerInvalidate { .. } => Code::RDMAP_CANNOT_INVALIDATE,
            Self::PeerRdmapVersion(_) => Code::RDMAP_VERSION,
            Self::PeerOpcode(_)
            | Self::PeerModel { .. }
            | Self::PeerInterleaved { .. }
            | Self::PeerResponse(_)
            | Self::PeerAtomicOperation(_) => Code::RDMAP_OPCODE,
            Self::PeerInboundOverflow { .. } => Code::RDMAP_STREAM,
            Self::PeerMessageChanged
            | Self::PeerFragmented { .. }
            | Self::PeerEmptySegment { .. }
            | Self::PeerLength { .. }
            | Self::PeerResponseId { .. } => Code::RDMAP_OPERATION,
            Self::PeerTerminateGarbled { .. } | Self::PeerAfterTerminate | Self::Ended => {
                return None;
            }
        })
    }
}

impl Protection {
    /// The code for this refusal of a tagged or an untagged frame.
    pub fn terminate_code(self, tagged: bool) -> TerminateCode {
        use TerminateCode as Code;
        match (self, tagged) {
            // RFC 5041 §7.2 has no code for rights; siw sends invalid STag, and so does this end.
            (Self::PeerStag | Self::PeerAccess, true) => Code::TAGGED_INVALID_STAG,
            (Self::PeerBounds, true) => Code::TAGGED_BOUNDS,
            (Self::PeerNotThisStream, true) => Code::TAGGED_NOT_THIS_STREAM,
            (Self::PeerStag, false) => Code::RDMAP_INVALID_STAG,
            (Self::PeerAccess, false) => Code::RDMAP_ACCESS,
            (Self::PeerBounds, false) => Code::RDMAP_BOUNDS,
            (Self::PeerNotThisStream, false) => Code::RDMAP_NOT_THIS_STREAM,
            (Self::PeerCannotInvalidate, _) => Code::RDMAP_CANNOT_INVALIDATE,
            (Self::PeerNoReceive, _) => Code::UNTAGGED_NO_BUFFER,
            (Self::PeerReceiveTooSmall, _) => Code::UNTAGGED_TOO_LONG,
            // RFC 7306 §5: a misaligned atomic is catastrophic for the stream.
            (Self::PeerMisaligned | Self::MediaFailed, _) => Code::RDMAP_STREAM,
            (Self::PeerHashMismatch, _) => Code::RDMAP_OPERATION,
            (Self::Local, _) => Code::RDMAP_LOCAL,
        }
    }
}

// RFC 5040 figure 9.
const LAYER_RDMAP: u8 = 0;
const LAYER_DDP: u8 = 1;
const TYPE_LOCAL: u8 = 0;
const TYPE_PROTECTION: u8 = 1;
const TYPE_OPERATION: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ddp::{QueueNumber, Stag};
    use crate::rdmap::Opcode;

    const OPCODE: Opcode = Opcode::SEND;
    const QUEUE: QueueNumber = QueueNumber::SEND;
    const STAG: Stag = Stag(1);

    /// Layer, type and code.
    type Triple = (u8, u8, u8);

    /// Every error with its code as the RFCs print it.
    const ERRORS: &[(StreamError, Option<Triple>)] = &[
        (StreamError::PeerCrc { computed: 0, received: 1 }, Some((2, 0, 2))),
        (StreamError::PeerTruncated { need: 18, got: 1 }, Some((2, 0, 3))),
        (StreamError::PeerSpokeFirst, Some((2, 0, 4))),
        (StreamError::PeerDdpVersion { version: 2, tagged: true }, Some((1, 1, 4))),
        (StreamError::PeerDdpVersion { version: 2, tagged: false }, Some((1, 2, 6))),
        (StreamError::PeerQueue { opcode: OPCODE, queue: QUEUE }, Some((1, 2, 1))),
        (StreamError::PeerMsn { queue: QUEUE, expected: 1, got: 2 }, Some((1, 2, 3))),
        (StreamError::PeerMessageOffset { expected: 0, got: 1 }, Some((1, 2, 4))),
        (StreamError::PeerMessageTooLong, Some((1, 2, 5))),
        (StreamError::PeerResponseStag { expected: STAG, got: STAG }, Some((1, 1, 0))),
        (StreamError::PeerTaggedOffset { expected: 0, got: 1 }, Some((1, 1, 1))),
        (StreamError::PeerResponseLength { expected: 0, got: 1 }, Some((1, 1, 1))),
        (StreamError::PeerOffsetWrap { tagged: true }, Some((1, 1, 3))),
        (StreamError::PeerOffsetWrap { tagged: false }, Some((0, 1, 4))),
        (StreamError::PeerAtomicWriteLength(4), Some((0, 1, 1))),
        (StreamError::PeerInvalidate { opcode: OPCODE, stag: STAG }, Some((0, 1, 9))),
        (StreamError::PeerRdmapVersion(0), Some((0, 2, 5))),
        (StreamError::PeerOpcode(OPCODE), Some((0, 2, 6))),
        (StreamError::PeerModel { opcode: OPCODE, tagged: true }, Some((0, 2, 6))),
        (StreamError::PeerInterleaved { opcode: OPCODE }, Some((0, 2, 6))),
        (StreamError::PeerResponse(OPCODE), Some((0, 2, 6))),
        (StreamError::PeerAtomicOperation(1), Some((0, 2, 6))),
        (StreamError::PeerInboundOverflow { ird: 1 }, Some((0, 2, 7))),
        (StreamError::PeerMessageChanged, Some((0, 2, 0xff))),
        (StreamError::PeerFragmented { opcode: OPCODE }, Some((0, 2, 0xff))),
        (StreamError::PeerEmptySegment { opcode: OPCODE }, Some((0, 2, 0xff))),
        (StreamError::PeerLength { opcode: OPCODE, need: 8, got: 7 }, Some((0, 2, 0xff))),
        (StreamError::PeerResponseId { expected: 1, got: 2 }, Some((0, 2, 0xff))),
        (StreamError::PeerTerminateGarbled { got: 3 }, None),
        (StreamError::PeerAfterTerminate, None),
        (StreamError::Ended, None),
    ];

    /// Every refusal of the caller, with its code on a tagged frame and on an untagged frame.
    const REFUSALS: &[(Protection, Triple, Triple)] = &[
        (Protection::PeerStag, (1, 1, 0), (0, 1, 0)),
        (Protection::PeerBounds, (1, 1, 1), (0, 1, 1)),
        (Protection::PeerAccess, (1, 1, 0), (0, 1, 2)),
        (Protection::PeerNotThisStream, (1, 1, 2), (0, 1, 3)),
        (Protection::PeerCannotInvalidate, (0, 1, 9), (0, 1, 9)),
        (Protection::PeerMisaligned, (0, 2, 7), (0, 2, 7)),
        (Protection::PeerNoReceive, (1, 2, 2), (1, 2, 2)),
        (Protection::PeerReceiveTooSmall, (1, 2, 5), (1, 2, 5)),
        (Protection::PeerHashMismatch, (0, 2, 0xff), (0, 2, 0xff)),
        (Protection::MediaFailed, (0, 2, 7), (0, 2, 7)),
        (Protection::Local, (0, 0, 0), (0, 0, 0)),
    ];

    fn triple(code: TerminateCode) -> Triple {
        (code.layer, code.etype, code.ecode)
    }

    #[test]
    fn every_stream_error_has_a_registered_terminate_code() {
        for (error, expected) in ERRORS {
            let code = Cause::from(*error).terminate_code(false);
            assert_eq!(code.map(triple), *expected, "{error}");
            assert!(code.is_none_or(TerminateCode::is_registered), "{error}");
        }
    }

    #[test]
    fn every_refusal_has_a_terminate_code_in_either_model() {
        for (protection, tagged, untagged) in REFUSALS {
            let code = |tagged| Cause::from(*protection).terminate_code(tagged).map(triple);
            assert_eq!(code(true), Some(*tagged), "{protection}");
            assert_eq!(code(false), Some(*untagged), "{protection}");
        }
    }
}
