//! From received bytes to operations: one `recv`, then frame after frame.
//!
//! ```text
//!   bounce (engine):  | residue, copied | received ................. | frame | frame | fra
//!   residue (qp):                                                                    | fra
//! ```
//!
//! A `recv` puts bytes into the engine's bounce buffer behind the residue of the queue pair, and
//! the engine parses them there: 64-byte frames cost 0.3 ns per byte so, against 9 with a `recv`
//! each for header and payload. The rest of a long frame that is still incomplete is received
//! behind its beginning instead, so that no byte is copied aside twice.

use iwarp::rdmap::{AtomicOperation, PlacementFlags, TerminateCode as WireCode};
use iwarp::stream::WriteSegment;
use iwarp::{Indication, Protection, Received, Stag};
use pmem::AtomicOp;

use super::byte_queue::ByteQueue;
use super::context::Context;
use super::fault::Fault;
use super::link::RECEIVE_LEN;
use super::qp::{End, Halves, Phase, Qp};
use super::requester::Answer;
use super::responder::{Request, RequestKind, Responder};
use crate::interface::{DisconnectReason, Event, TerminateCode};

/// The outcome of one `recv`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Input {
    /// No bytes: none had arrived, or the queue pair may take none now.
    Nothing,
    /// All the bytes that had arrived.
    All,
    /// As many bytes as there was room for: most likely more have arrived.
    Full,
}

impl Input {
    fn of(received: usize, room: usize) -> Self {
        if received < room { Self::All } else { Self::Full }
    }
}

impl Qp {
    /// Handles the bytes of one `recv`.
    pub(super) fn receive(&mut self, context: &mut Context) -> Result<Input, End> {
        let Phase::Up(link) = &mut self.phase else { return Ok(Input::Nothing) };
        if link.parked {
            return Ok(Input::Nothing);
        }
        if link.residue.len() > RESIDUE_COPIED_MAX {
            return self.receive_behind_residue(context);
        }
        let mut bounce = std::mem::take(&mut context.bounce);
        let outcome = self.receive_into(&mut bounce, context);
        context.bounce = bounce;
        outcome
    }

    /// Receives as usual: through the bounce buffer.
    fn receive_into(&mut self, bounce: &mut [u8], context: &mut Context) -> Result<Input, End> {
        let Phase::Up(link) = &mut self.phase else { return Ok(Input::Nothing) };
        let kept = link.residue.len();
        let (front, room) = bounce.split_at_mut(kept);
        let Some(received) = link.receive(context, room)? else { return Ok(Input::Nothing) };
        let input = Input::of(received, room.len());
        if kept > 0 {
            front.copy_from_slice(link.residue.queued());
            context.stats.bytes_copied += as_u64(kept);
            link.residue.consume(kept);
        }
        let bytes = bounce.get(..kept + received).unwrap_or_default();
        let taken = self.take_frames(bytes, context)?;
        let rest = bytes.get(taken..).unwrap_or_default();
        if !rest.is_empty()
            && let Phase::Up(link) = &mut self.phase
        {
            context.stats.bytes_copied += as_u64(rest.len());
            // Never refused: the bounce buffer is as long as the residue may be.
            link.residue.push(rest, &mut context.stats.bytes_copied);
        }
        Ok(input)
    }

    /// Receives the rest of a long frame that has begun.
    fn receive_behind_residue(&mut self, context: &mut Context) -> Result<Input, End> {
        let Phase::Up(link) = &mut self.phase else { return Ok(Input::Nothing) };
        let mut residue = std::mem::replace(&mut link.residue, ByteQueue::unallocated(RECEIVE_LEN));
        let room_len = residue.room();
        let received = match residue.room_of(room_len, &mut context.stats.bytes_copied) {
            Some(room) if !room.is_empty() => link.receive(context, room)?,
            _ => None,
        };
        residue.commit(received.unwrap_or(0));
        let taken = match received {
            Some(_) => self.take_frames(residue.queued(), context)?,
            None => 0,
        };
        residue.consume(taken);
        if let Phase::Up(link) = &mut self.phase {
            link.residue = residue;
        }
        Ok(received.map_or(Input::Nothing, |received| Input::of(received, room_len)))
    }

    /// Handles the bytes that were received before the queue pair was parked.
    pub(super) fn resume(&mut self, context: &mut Context) -> Result<(), End> {
        let Phase::Up(link) = &mut self.phase else { return Ok(()) };
        if link.parked || link.residue.is_empty() {
            return Ok(());
        }
        let mut residue = std::mem::replace(&mut link.residue, ByteQueue::unallocated(RECEIVE_LEN));
        let taken = self.take_frames(residue.queued(), context)?;
        residue.consume(taken);
        if let Phase::Up(link) = &mut self.phase {
            link.residue = residue;
        }
        Ok(())
    }

    /// Carries out the whole frames at the front of `bytes`; returns how many bytes they took.
    fn take_frames(&mut self, bytes: &[u8], context: &mut Context) -> Result<usize, End> {
        let Some(mut halves) = self.halves(context) else { return Ok(0) };
        let mut taken = 0;
        let mut full = false;
        while let Some(rest) = bytes.get(taken..)
            && !rest.is_empty()
        {
            full = halves.scope.deferral.is_full();
            if full {
                break;
            }
            let received = halves.scope.stream.receive(rest).map_err(Fault::Stream)?;
            let Received::Frame { consumed, indication } = received else { break };
            taken += consumed;
            halves.scope.stats.frames_received += 1;
            halves.carry_out(indication)?;
        }
        if taken > 0 {
            self.heard(context);
        }
        if full {
            self.park(context);
        }
        Ok(taken)
    }

    /// The peer's first frame makes the connection usable for the accepting side.
    fn heard(&mut self, context: &mut Context) {
        let qp = self.id();
        let Phase::Up(link) = &mut self.phase else { return };
        link.heard();
        if !link.announced {
            link.announced = true;
            context.events.push(Event::Established { qp, private_data: Vec::new() });
        }
    }

    fn park(&mut self, context: &mut Context) {
        let key = self.key;
        if let Some(link) = self.link() {
            link.parked = true;
            link.watch(context, key);
            context.stats.parks += 1;
        }
    }
}

impl Halves<'_> {
    fn carry_out(&mut self, indication: Indication<'_>) -> Result<(), End> {
        let Self { scope, receives, requester, responder } = self;
        match indication {
            Indication::Write(WriteSegment { stag: Stag(tag), tagged_offset, payload, .. }) => {
                Responder::write(scope, tag, tagged_offset, payload)?;
            }
            Indication::Send(segment) => receives.segment(scope, &segment)?,
            Indication::Immediate { data, solicited, .. } => {
                receives.immediate(scope, data, solicited)?;
            }
            Indication::ReadResponse(segment) => requester.read_segment(scope, &segment)?,
            Indication::AtomicResponse(repr) => requester.answered(Answer::Word(repr.original)),
            Indication::FlushResponse | Indication::AtomicWriteResponse => {
                requester.answered(Answer::Empty);
            }
            Indication::VerifyResponse(hash) => {
                let hash = <[u8; 4]>::try_from(hash)
                    .map_err(|_| Fault::Refused(Protection::PeerHashMismatch))?;
                requester.answered(Answer::Hash(u32::from_be_bytes(hash)));
            }
            Indication::Terminate(repr) => {
                let code = code_of(repr.code);
                return Err(End::Reason(DisconnectReason::PeerTerminated(code)));
            }
            Indication::Ready => {}
            Indication::ReadRequest(_)
            | Indication::FlushRequest(_)
            | Indication::VerifyRequest(_)
            | Indication::AtomicWriteRequest(_)
            | Indication::AtomicRequest(_) => {
                if let Some(request) = request_of(indication)? {
                    responder.request(scope, request)?;
                }
            }
        }
        Ok(())
    }
}

/// Translates an indication into a request for the responder.
fn request_of(indication: Indication<'_>) -> Result<Option<Request>, Fault> {
    Ok(Some(match indication {
        Indication::ReadRequest(repr) => Request {
            tag: repr.source_stag.0,
            offset: repr.source_offset,
            len: repr.size,
            kind: RequestKind::Read,
        },
        Indication::FlushRequest(repr) => Request {
            tag: repr.stag.0,
            offset: repr.tagged_offset,
            len: repr.length,
            kind: RequestKind::Flush {
                visibility: repr.flags.contains(PlacementFlags::GLOBAL_VISIBILITY),
                persistence: repr.flags.contains(PlacementFlags::PERSISTENCE),
            },
        },
        Indication::VerifyRequest(repr) => {
            let expected = match repr.expected {
                [] => None,
                // A hash of another length belongs to another algorithm: it never matches.
                hash => Some(u32::from_be_bytes(
                    hash.try_into().map_err(|_| Fault::Refused(Protection::PeerHashMismatch))?,
                )),
            };
            let kind = RequestKind::Verify { expected };
            Request { tag: repr.stag.0, offset: repr.tagged_offset, len: repr.length, kind }
        }
        Indication::AtomicWriteRequest(repr) => Request {
            tag: repr.stag.0,
            offset: repr.tagged_offset,
            len: WORD_LEN,
            kind: RequestKind::AtomicWrite { value: repr.data },
        },
        Indication::AtomicRequest(repr) => {
            let op = match repr.operation {
                AtomicOperation::FetchAdd { add, mask } => AtomicOp::FetchAdd { add, mask },
                AtomicOperation::CompareSwap { compare, compare_mask, swap, swap_mask } => {
                    AtomicOp::CompareSwap { compare, compare_mask, swap, swap_mask }
                }
            };
            let kind = RequestKind::Atomic(op);
            Request { tag: repr.stag.0, offset: repr.tagged_offset, len: WORD_LEN, kind }
        }
        _ => return Ok(None),
    }))
}

pub(super) fn code_of(code: WireCode) -> TerminateCode {
    TerminateCode { layer: code.layer, etype: code.etype, code: code.ecode }
}

fn as_u64(len: usize) -> u64 {
    u64::try_from(len).expect("a buffer's length fits 64 bits")
}

/// Up to this length the beginning of a frame is copied in front of the next input; beyond it, the
/// next input is received behind the beginning.
const RESIDUE_COPIED_MAX: usize = 4096;
const WORD_LEN: u32 = 8;
