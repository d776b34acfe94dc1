//! Our work requests: framed in order, answered in order, completed in order.
//!
//! ```text
//!   queue:  | done | open | open | sent | partly framed | waiting | waiting |
//!             ^front        ^next_answer  ^next_frame                  ^back
//! ```
//!
//! A request at the ORD limit waits in the queue, and everything behind it waits as well: messages
//! go out in posting order (RFC 5040 §5.5). Sends and writes are done when TCP has their last byte;
//! reads, atomics and the placement operations when they are answered. Requests complete from the
//! front only.

use std::collections::VecDeque;

use iwarp::Stag;
use iwarp::stream::ReadResponseSegment;
use pmem::MediumError;

use super::batch::After;
use super::byte_queue::ByteQueue;
use super::fault::Fault;
use super::scope::{Scope, Step};
use super::serial::Serial;
use super::work_frame::{self, Source};
use crate::interface::{
    Access, Event, Operation, Payload, PostError, QpId, WcOpcode, WcStatus, WorkCompletion,
    WorkRequest,
};

/// See the module.
#[derive(Debug)]
pub(super) struct Requester {
    queue: VecDeque<Entry>,
    depth: usize,
    /// First entry that is not framed to its end.
    next_frame: usize,
    /// No entry before this one waits for an answer.
    next_answer: usize,
    /// Inline payloads that could not be framed when they were posted.
    staging: ByteQueue,
    fetched: Vec<u8>,
    fetching: bool,
    next: Serial,
}

/// One work request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) serial: Serial,
    pub(super) wr_id: u64,
    pub(super) signaled: bool,
    pub(super) opcode: WcOpcode,
    pub(super) len: u32,
    /// Payload bytes framed, or bytes received for a read.
    pub(super) done: u32,
    pub(super) work: work_frame::Work,
    stage: Stage,
    result: Answer,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    Waiting,
    /// Framed; done when TCP has everything before this position.
    Sent(u64),
    /// Waits for the peer's answer.
    Open,
    /// Answered; the last bytes are being placed into our memory.
    Placing,
    Done,
}

/// The content of an answer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Answer {
    /// Nothing.
    Empty,
    /// The word before the atomic.
    Word(u64),
    /// A hash.
    Hash(u32),
}

impl Requester {
    pub(super) fn new(depth: u16) -> Self {
        let depth = usize::from(depth);
        Self {
            queue: VecDeque::with_capacity(depth),
            depth,
            next_frame: 0,
            next_answer: 0,
            staging: ByteQueue::unallocated(STAGING_LEN),
            fetched: Vec::new(),
            fetching: false,
            next: Serial::FIRST,
        }
    }

    /// Whether a request is not framed to its end.
    fn has_waiting(&self) -> bool {
        self.next_frame < self.queue.len()
    }

    /// Queues a request; frames it at once if no other is before it.
    pub(super) fn post(
        &mut self,
        scope: &mut Scope<'_>,
        request: &WorkRequest<'_>,
    ) -> Result<Result<(), Fault>, PostError> {
        if self.queue.len() >= self.depth {
            return Err(PostError::QueueFull);
        }
        let serial = self.next;
        let work = work_frame::Work::of(scope, &request.operation, serial)?;
        let inline = inline_of(&request.operation);
        let entry = Entry::new(serial, request, work);
        let fits = scope.transmit.room() >= work_frame::size_bound(scope.stream, &entry);
        let at_once = fits && !self.has_waiting() && entry.may_go(scope);
        self.queue.push_back(entry);
        self.next.draw();
        if at_once && let Err(fault) = self.frame_next(scope, inline) {
            return Ok(Err(fault));
        }
        if self.has_waiting() && !inline.is_empty() && !self.stage(scope, inline) {
            self.queue.pop_back();
            return Err(PostError::QueueFull);
        }
        Ok(Ok(()))
    }

    /// Copies the payload of the newest request aside until its turn comes; `false`: no room.
    fn stage(&mut self, scope: &mut Scope<'_>, inline: &[u8]) -> bool {
        let positions = self.staging.push(inline, &mut scope.stats.bytes_copied);
        let (Some(positions), Some(entry)) = (positions, self.queue.back_mut()) else {
            return false;
        };
        entry.work.set_source(Source::Staged(positions.start));
        true
    }

    /// Frames the next message, or as much of it as there is room for.
    pub(super) fn advance(&mut self, scope: &mut Scope<'_>) -> Result<Step, Fault> {
        self.frame_next(scope, &[])
    }

    fn frame_next(&mut self, scope: &mut Scope<'_>, inline: &[u8]) -> Result<Step, Fault> {
        let Some(entry) = self.queue.get_mut(self.next_frame) else { return Ok(Step::Rest) };
        if self.fetching || !entry.may_go(scope) {
            return Ok(Step::Rest);
        }
        let mut step = Step::Rest;
        loop {
            let bytes = work_frame::Bytes {
                inline,
                staging: &self.staging,
                fetched: &mut self.fetched,
                fetching: &mut self.fetching,
            };
            match work_frame::frame(scope, entry, bytes)? {
                work_frame::Framing::NoRoom => return Ok(step.or_full()),
                work_frame::Framing::Later | work_frame::Framing::Fetching => return Ok(step),
                work_frame::Framing::Segment => step = Step::Progress,
                work_frame::Framing::Message => break,
            }
        }
        if let Some(Source::Staged(start)) = entry.work.source() {
            self.staging.consume_to(start + u64::from(entry.len));
        }
        if entry.is_answered() {
            entry.stage = Stage::Open;
        } else {
            entry.stage = Stage::Sent(scope.transmit.tail_position());
        }
        entry.done = 0;
        self.next_frame += 1;
        Ok(Step::Progress)
    }

    /// Bytes from a worker for a message that is being framed.
    pub(super) fn fetched(&mut self, serial: Serial, bytes: &[u8]) {
        let framed = self.queue.get(self.next_frame).map(|entry| entry.serial);
        if !self.fetching || framed != Some(serial) {
            debug_assert!(false, "{serial:?} is not being framed");
            return;
        }
        self.fetched.clear();
        self.fetched.extend_from_slice(bytes);
        self.fetching = false;
    }

    /// The oldest unanswered request.
    fn open_front(&mut self) -> Option<&mut Entry> {
        // Amortised constant: the index only moves towards the back.
        while self.queue.get(self.next_answer).is_some_and(|entry| entry.stage != Stage::Open) {
            self.next_answer += 1;
        }
        self.queue.get_mut(self.next_answer)
    }

    /// Records the answer to the oldest unanswered request; the stream machine has checked that the
    /// answer is of the right kind.
    pub(super) fn answered(&mut self, result: Answer) {
        if let Some(entry) = self.open_front() {
            entry.stage = Stage::Done;
            entry.result = result;
        }
    }

    /// Places a segment of the answer to the oldest unanswered request, a read.
    pub(super) fn read_segment(
        &mut self,
        scope: &mut Scope<'_>,
        segment: &ReadResponseSegment<'_>,
    ) -> Result<(), Fault> {
        let ReadResponseSegment { stag: Stag(tag), tagged_offset, payload, last, .. } = *segment;
        // The stream machine has matched the segment with the oldest request that is open.
        let Some(entry) = self.open_front() else { return Ok(()) };
        let after = if last { After::ReadPlaced(entry.serial) } else { After::Nothing };
        let placed = payload.is_empty() || place(scope, tag, tagged_offset, payload, after)?;
        if last {
            entry.stage = if placed { Stage::Done } else { Stage::Placing };
        }
        Ok(())
    }

    /// Records that a worker has placed the last bytes of a read.
    pub(super) fn placed(&mut self, serial: Serial) {
        // The queue is sorted: a request that was refused leaves a gap at most.
        let place = self.queue.binary_search_by_key(&serial, |entry| entry.serial);
        let found = place.ok().and_then(|place| self.queue.get_mut(place));
        let Some(entry) = found.filter(|entry| entry.stage == Stage::Placing) else {
            debug_assert!(false, "{serial:?} is not being placed");
            return;
        };
        entry.stage = Stage::Done;
    }

    /// Reports finished requests, in order. `sent` is the position up to which TCP has taken our
    /// bytes.
    pub(super) fn complete(&mut self, qp: QpId, sent: u64, events: &mut Vec<Event>) {
        while let Some(entry) = self.queue.front() {
            let done = match entry.stage {
                Stage::Sent(end) => end <= sent,
                Stage::Done => true,
                Stage::Waiting | Stage::Open | Stage::Placing => false,
            };
            if !done {
                return;
            }
            if entry.signaled {
                events.push(Event::Completion(entry.completion(qp, WcStatus::Success)));
            }
            self.queue.pop_front();
            self.next_frame -= 1;
            self.next_answer = self.next_answer.saturating_sub(1);
        }
    }

    /// Ends every request; `first` is the status of the oldest that was not done.
    pub(super) fn flush(&mut self, qp: QpId, first: WcStatus, events: &mut Vec<Event>) {
        let mut status = first;
        for entry in self.queue.drain(..) {
            events.push(Event::Completion(entry.completion(qp, status)));
            status = WcStatus::Flushed;
        }
        self.next_frame = 0;
        self.next_answer = 0;
    }
}

impl Entry {
    fn new(serial: Serial, request: &WorkRequest<'_>, work: work_frame::Work) -> Self {
        let len = match &request.operation {
            Operation::Send { payload, .. } | Operation::Write { payload, .. } => {
                u32::try_from(payload.len()).expect("inline is bounded, a slice has 32 bits")
            }
            Operation::Read { local, .. } => local.len,
            Operation::Flush { len, .. } | Operation::Verify { len, .. } => *len,
            Operation::Immediate { .. }
            | Operation::AtomicWrite { .. }
            | Operation::FetchAdd { .. }
            | Operation::CompareSwap { .. } => 8,
        };
        Self {
            serial,
            wr_id: request.wr_id,
            signaled: request.signaled,
            opcode: request.operation.opcode(),
            len,
            done: 0,
            work,
            stage: Stage::Waiting,
            result: Answer::Empty,
        }
    }

    fn is_answered(&self) -> bool {
        !matches!(self.opcode, WcOpcode::Send | WcOpcode::Immediate | WcOpcode::Write)
    }

    /// Whether the peer takes one more request of this kind.
    fn may_go(&self, scope: &Scope<'_>) -> bool {
        !self.is_answered() || scope.stream.ord_available() > 0
    }

    fn completion(&self, qp: QpId, status: WcStatus) -> WorkCompletion {
        let mut completion = WorkCompletion::new(qp, self.wr_id, self.opcode, status, self.len);
        match self.result {
            Answer::Empty => {}
            Answer::Word(word) => completion.atomic = Some(word),
            Answer::Hash(hash) => completion.hash = Some(hash),
        }
        completion
    }
}

/// Places bytes that answer a read; `false` if a worker will place them.
fn place(
    scope: &mut Scope<'_>,
    tag: u32,
    offset: u64,
    payload: &[u8],
    after: After,
) -> Result<bool, Fault> {
    let len = u64::try_from(payload.len()).expect("a frame's length fits 64 bits");
    let region = scope
        .regions
        .check(scope.id, tag, offset, len, Access::READ_SINK)
        .map_err(|_| Fault::Local(WcStatus::LocalProtection))?;
    scope.stats.bytes_copied += len;
    if !scope.deferral.is_active() {
        match region.medium.try_place(offset, payload) {
            Ok(()) => return Ok(true),
            Err(MediumError::WouldBlock) => {}
            Err(_) => return Err(Fault::Local(WcStatus::LocalMedia)),
        }
    }
    scope.deferral.push_place(tag, &region.medium, offset, payload, after);
    Ok(false)
}

fn inline_of<'a>(operation: &Operation<'a>) -> &'a [u8] {
    match operation {
        Operation::Send { payload: Payload::Inline(bytes), .. }
        | Operation::Write { payload: Payload::Inline(bytes), .. } => bytes,
        _ => &[],
    }
}

/// Inline bytes of requests that wait behind others, per queue pair.
pub(super) const STAGING_LEN: usize = 64 * 1024;
