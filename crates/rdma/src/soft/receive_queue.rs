//! Posted receives: the buffers for the peer's messages, in order.
//!
//! Spec: RFC 5041 §5.3 (untagged buffers are consumed in the order of message numbers).

use std::collections::VecDeque;

use iwarp::stream::SendSegment;
use iwarp::{Protection, Stag};

use super::batch::After;
use super::fault::Fault;
use super::scope::Scope;
use crate::interface::{
    Access, Event, LocalSlice, PostError, QpId, Rkey, WcOpcode, WcStatus, WorkCompletion,
};

/// See the module.
#[derive(Debug)]
pub(super) struct ReceiveQueue {
    posted: VecDeque<Posted>,
    depth: usize,
}

#[derive(Clone, Copy, Debug)]
struct Posted {
    wr_id: u64,
    buffer: LocalSlice,
}

impl ReceiveQueue {
    pub(super) fn new(depth: u16) -> Self {
        let depth = usize::from(depth);
        Self { posted: VecDeque::with_capacity(depth), depth }
    }

    pub(super) fn post(&mut self, wr_id: u64, buffer: LocalSlice) -> Result<(), PostError> {
        if self.posted.len() >= self.depth {
            return Err(PostError::QueueFull);
        }
        self.posted.push_back(Posted { wr_id, buffer });
        Ok(())
    }

    /// Places a segment into the first posted receive; completes it with the last one.
    pub(super) fn segment(
        &mut self,
        scope: &mut Scope<'_>,
        segment: &SendSegment<'_>,
    ) -> Result<(), Fault> {
        let posted = *self.posted.front().ok_or(Fault::Refused(Protection::PeerNoReceive))?;
        let len = u64::try_from(segment.payload.len()).expect("a frame's length fits 64 bits");
        let end = u64::from(segment.offset) + len;
        if end > u64::from(posted.buffer.len) {
            return Err(Fault::Refused(Protection::PeerReceiveTooSmall));
        }
        let after = if segment.last {
            self.posted.pop_front();
            let end =
                u32::try_from(end).map_err(|_| Fault::Refused(Protection::PeerReceiveTooSmall))?;
            received(scope, &posted, segment, end)
        } else {
            After::Nothing
        };
        place(scope, &posted, segment, after)
    }

    /// An immediate message consumes the first posted receive and leaves its buffer alone.
    pub(super) fn immediate(
        &mut self,
        scope: &mut Scope<'_>,
        data: u64,
        solicited: bool,
    ) -> Result<(), Fault> {
        let posted = self.posted.pop_front().ok_or(Fault::Refused(Protection::PeerNoReceive))?;
        let (opcode, status) = (WcOpcode::RecvImmediate, WcStatus::Success);
        let completion = WorkCompletion {
            solicited,
            immediate: Some(data),
            ..WorkCompletion::new(scope.id, posted.wr_id, opcode, status, 8)
        };
        if scope.deferral.is_active() {
            scope.deferral.push_mark(After::Received(completion));
            return Ok(());
        }
        scope.events.push(Event::Completion(completion));
        Ok(())
    }

    /// Ends every posted receive.
    pub(super) fn flush(&mut self, qp: QpId, events: &mut Vec<Event>) {
        for Posted { wr_id, .. } in self.posted.drain(..) {
            let (opcode, status) = (WcOpcode::Recv, WcStatus::Flushed);
            events.push(Event::Completion(WorkCompletion::new(qp, wr_id, opcode, status, 0)));
        }
    }
}

/// Handles a message whose last segment is placed.
fn received(scope: &Scope<'_>, posted: &Posted, segment: &SendSegment<'_>, len: u32) -> After {
    let (opcode, status) = (WcOpcode::Recv, WcStatus::Success);
    let completion = WorkCompletion {
        solicited: segment.solicited,
        invalidated: segment.invalidate.map(|Stag(tag)| Rkey(tag)),
        ..WorkCompletion::new(scope.id, posted.wr_id, opcode, status, len)
    };
    match segment.invalidate {
        Some(_) => After::ReceivedAndInvalidates(completion),
        None => After::Received(completion),
    }
}

fn place(
    scope: &mut Scope<'_>,
    posted: &Posted,
    segment: &SendSegment<'_>,
    after: After,
) -> Result<(), Fault> {
    let bytes = segment.payload;
    let offset = posted.buffer.offset + u64::from(segment.offset);
    let len = u64::try_from(bytes.len()).expect("a frame's length fits 64 bits");
    let LocalSlice { lkey, .. } = posted.buffer;
    let need = Access::RECEIVE;
    let (region, offset) = scope
        .regions
        .check_local(scope.id, lkey, offset, len, need)
        .map_err(|_| Fault::Local(WcStatus::LocalProtection))?;
    if !scope.deferral.is_active() {
        match region.medium.try_place(offset, bytes) {
            Ok(()) => {
                scope.stats.bytes_copied += len;
                return deliver(scope, after);
            }
            Err(pmem::MediumError::WouldBlock) => {}
            Err(_) => return Err(Fault::Local(WcStatus::LocalMedia)),
        }
    }
    scope.stats.bytes_copied += len;
    scope.deferral.push_place(lkey.0, &region.medium, offset, bytes, after);
    Ok(())
}

/// Reports a receive whose bytes are all placed, and ends the region its message named.
pub(super) fn deliver(scope: &mut Scope<'_>, after: After) -> Result<(), Fault> {
    let completion = match after {
        After::Received(completion) => completion,
        After::ReceivedAndInvalidates(completion) => {
            if let Some(rkey) = completion.invalidated {
                // RFC 5040 §5.1: only what the two sides of this stream share may be ended.
                scope
                    .regions
                    .deregister(scope.id, rkey)
                    .map_err(|_| Fault::RefusedLater(Protection::PeerCannotInvalidate))?;
                if scope.deferral.cut_at(rkey.0) {
                    return Err(Fault::RefusedLater(Protection::PeerCannotInvalidate));
                }
            }
            completion
        }
        _ => return Ok(()),
    };
    scope.events.push(Event::Completion(completion));
    Ok(())
}
