//! Frames the answers to executed requests.

use std::convert::Infallible;

use iwarp::{FrameError, Framed};
use pmem::MediumError;

use super::fault::Fault;
#[cfg(test)]
use super::planted::Planted;
use super::regions::AccessError;
use super::responder::{Request, RequestKind};
use super::scope::{Scope, Step};
use crate::interface::Access;

/// The outcome of framing a part of a read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Segment {
    /// A segment with so much payload.
    Framed { payload: usize, last: bool },
    /// No segment: no room before TCP has taken queued bytes.
    NoRoom,
    /// No segment now: another message is not complete.
    Later,
    /// No segment: a worker has to fetch the bytes.
    WouldBlock,
}

/// Frames the answer to anything but a read, whole or not at all.
pub(super) fn answer(scope: &mut Scope<'_>, request: &Request, result: u64) -> Step {
    let copied = &mut scope.stats.bytes_copied;
    #[cfg(test)]
    if Planted::ForgetsAFullBuffer.is_here() && scope.transmit.room() < ANSWER_MAX {
        return Step::Rest;
    }
    // Only TCP makes room, so an answer that found none has to be tried again after a send.
    let Some(out) = scope.transmit.room_of(ANSWER_MAX, copied) else { return Step::Full };
    let stream = &mut *scope.stream;
    let framed: Result<usize, FrameError<Infallible>> = match request.kind {
        RequestKind::Read => return Step::Rest,
        RequestKind::Flush { .. } => stream.frame_flush_response(out),
        RequestKind::AtomicWrite { .. } => stream.frame_atomic_write_response(out),
        RequestKind::Atomic(_) => stream.frame_atomic_response(out, result),
        RequestKind::Verify { .. } => {
            let hash = u32::try_from(result).expect("CRC-32C has 32 bits");
            stream.frame_verify_response(out, &hash.to_be_bytes())
        }
    };
    // Answers are framed in the order in which the stream machine saw the requests, and this is the
    // answer to the front request: only a message of ours that is not complete yet can be in the
    // way.
    match framed {
        Ok(size) => {
            scope.transmit.commit(size);
            scope.stats.frames_sent += 1;
            Step::Progress
        }
        Err(FrameError::NoRoom { .. }) => Step::Full,
        Err(_) => Step::Rest,
    }
}

/// Frames the next segment of a read, from `fetched` if there is any.
pub(super) fn read_segment(
    scope: &mut Scope<'_>,
    request: &Request,
    fetched: &[u8],
) -> Result<Segment, Fault> {
    let left = usize::try_from(request.len).unwrap_or(usize::MAX);
    let wanted = scope.stream.frame_size_max().min(left.saturating_add(left / 64 + ANSWER_MAX));
    let copied = &mut scope.stats.bytes_copied;
    let Some(out) = scope.transmit.room_of(wanted, copied) else { return Ok(Segment::NoRoom) };
    let (regions, id) = (&*scope.regions, scope.id);
    let framed = scope.stream.frame_read_response(out, |room| {
        if room.is_empty() {
            return Ok(());
        }
        let len = u64::try_from(room.len()).expect("a frame's length fits 64 bits");
        // Revocation may have come between two segments.
        let region = regions
            .check(id, request.tag, request.offset, len, Access::REMOTE_READ)
            .map_err(FillError::Access)?;
        if let Some(bytes) = fetched.get(..room.len()) {
            room.copy_from_slice(bytes);
            return Ok(());
        }
        region.medium.try_read(request.offset, room).map_err(FillError::Medium)
    });
    match framed {
        Ok(Framed { size, payload, last }) => {
            scope.transmit.commit(size);
            scope.stats.frames_sent += 1;
            scope.stats.bytes_copied += u64::from(payload);
            let payload = usize::try_from(payload).expect("a frame's length fits");
            Ok(Segment::Framed { payload, last })
        }
        Err(FrameError::Fill(FillError::Medium(MediumError::WouldBlock))) => {
            Ok(Segment::WouldBlock)
        }
        Err(FrameError::Fill(FillError::Medium(error))) => Err(Fault::Medium(error)),
        Err(FrameError::Fill(FillError::Access(error))) => Err(Fault::RefusedLater(error.into())),
        Err(FrameError::NoRoom { .. }) => Ok(Segment::NoRoom),
        Err(_) => Ok(Segment::Later),
    }
}

/// Why a segment could not be filled.
enum FillError {
    Access(AccessError),
    Medium(MediumError),
}

/// An upper bound of every answer but a read's, markers included.
const ANSWER_MAX: usize = 128;
