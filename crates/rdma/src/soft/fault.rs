//! The faults that end a queue pair from inside, and what the peer and the owner learn of them.
//!
//! Spec: RFC 5040 §4.8, RFC 5041 §7.2; draft-talpey-rdma-commit-01 adds no codes of its own.

use iwarp::stream::SegmentContext;
use iwarp::{Cause, Protection, Stream, StreamError};
use pmem::MediumError;

use super::batch::Failure;
use super::regions::AccessError;
use crate::interface::{DisconnectReason, WcStatus};

/// The end of a queue pair.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fault {
    /// The peer broke the protocol.
    Stream(StreamError),
    /// The peer has no right to what the frame at hand asks.
    Refused(Protection),
    /// The peer had no right to what an earlier frame asked.
    RefusedLater(Protection),
    /// The peer had the right, and our medium failed.
    Medium(MediumError),
    /// The memory of one of our own requests or receives is gone or failed.
    Local(WcStatus),
}

impl Fault {
    /// The cause to send to the peer, and the frame it concerns.
    pub(super) fn cause(&self, stream: &Stream) -> (Cause, SegmentContext) {
        match *self {
            Self::Stream(error) => (error.into(), stream.segment_context()),
            Self::Refused(protection) => (protection.into(), stream.segment_context()),
            Self::RefusedLater(protection) => (protection.into(), SegmentContext::default()),
            Self::Medium(error) => (of_medium(error).into(), SegmentContext::default()),
            Self::Local(_) => (Protection::Local.into(), SegmentContext::default()),
        }
    }

    /// The reason for the owner, given the code that the peer gets.
    pub(super) fn reason(&self, code: crate::interface::TerminateCode) -> DisconnectReason {
        match self {
            Self::Stream(_) | Self::Refused(_) | Self::RefusedLater(_) => {
                DisconnectReason::PeerViolation(code)
            }
            Self::Medium(_) => DisconnectReason::MediaFailed(code),
            Self::Local(_) => DisconnectReason::LocalFault(code),
        }
    }

    /// How our oldest unanswered request ends.
    pub(super) fn status(&self) -> WcStatus {
        match self {
            Self::Local(status) => *status,
            _ => WcStatus::Flushed,
        }
    }
}

impl From<StreamError> for Fault {
    fn from(error: StreamError) -> Self {
        Self::Stream(error)
    }
}

impl From<AccessError> for Protection {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Tag => Self::PeerStag,
            AccessError::Stream => Self::PeerNotThisStream,
            AccessError::Rights => Self::PeerAccess,
            // The stream machine refuses offsets that wrap before we see them.
            AccessError::Bounds | AccessError::Wrap => Self::PeerBounds,
        }
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Medium(error) => Self::Medium(error),
            Failure::HashDiffers => Self::RefusedLater(Protection::PeerHashMismatch),
            Failure::Panicked => Self::Local(WcStatus::LocalMedia),
            // The peer must not continue as if the operation had been carried out.
            Failure::Withdrawn => Self::RefusedLater(Protection::PeerStag),
            Failure::Stopped => Self::Local(WcStatus::Flushed),
        }
    }
}

fn of_medium(error: MediumError) -> Protection {
    match error {
        MediumError::ReadOnly | MediumError::VolatileRefused => Protection::PeerAccess,
        MediumError::Misaligned { .. } => Protection::PeerMisaligned,
        MediumError::WouldBlock
        | MediumError::OutOfBounds { .. }
        | MediumError::Truncated
        | MediumError::Poisoned
        | MediumError::MediaIo(_) => Protection::MediaFailed,
    }
}
