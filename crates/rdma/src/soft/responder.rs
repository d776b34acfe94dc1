//! The peer's one-sided operations, carried out against our media without asking the owner.
//!
//! ```text
//!   pending:  | at work | at work | waiting | waiting |      answers leave from the front
//!               ^front                          ^back
//! ```
//!
//! Writes are placed as they arrive. A request (read, flush, verify, atomics) is carried out and answered
//! at once when no request is before it, which is the usual case and touches no queue. Otherwise the
//! request waits here: for the transmit buffer to drain, or for a worker, whose result names the request,
//! since a read at the front may be at work for its next bytes while a request behind it is done. The peer
//! may have at most IRD requests open, so the queue is bounded; a peer that asks and does not drain its
//! answers fills the queue and gets no further. Writes and answers of such a peer are still taken:
//! otherwise two peers that read from each other would wait for each other for ever.
//!
//! Spec: RFC 5040 §5.5, RFC 7306 §7 (order); draft-talpey-rdma-commit-01 §3.1.

use std::collections::VecDeque;

use iwarp::Protection;
use iwarp::ddp::TaggedRepr;
use pmem::{AtomicOp, DurabilityClass, MediumError};

use super::answer_frame;
use super::batch::{After, Hash, Work};
use super::fault::Fault;
#[cfg(test)]
use super::planted::Planted;
use super::regions::Region;
use super::scope::{Scope, Step};
use super::serial::Serial;
use super::work_frame::fetch_len;
use crate::interface::Access;

/// See the module.
#[derive(Debug)]
pub(super) struct Responder {
    /// Numbered without gaps, so that the number of a request gives its place in the queue.
    pending: VecDeque<Pending>,
    next: Serial,
    fetched: Fetched,
    /// Fetches in a row by which the front read got no further.
    fetches: u32,
    inline: Inline,
}

/// The rest of the work that the engine may do itself for one connection in a round.
#[derive(Clone, Copy, Debug)]
struct Inline {
    round: u32,
    left: u64,
}

/// Bytes that a worker read for the response in transmission.
#[derive(Debug)]
struct Fetched {
    /// The read they belong to.
    read: Option<Serial>,
    bytes: Vec<u8>,
    /// How many of the bytes were framed.
    used: usize,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    serial: Serial,
    request: Request,
    state: State,
}

/// The state of a pending request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum State {
    /// Not begun.
    Waiting,
    /// Given to a worker, or queued for one.
    AtWork,
    /// A read whose next bytes the engine has on their way to memory.
    Fetching,
    /// Carried out; a read may be in transmission.
    Ready(u64),
}

/// A request of the peer; its memory is not checked yet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Request {
    pub(super) tag: u32,
    pub(super) offset: u64,
    pub(super) len: u32,
    pub(super) kind: RequestKind,
}

/// When the bytes of a read are used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Wanted {
    /// The read waits for them.
    Now,
    /// When the requests before it have been answered.
    Later,
}

/// What the peer asks for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RequestKind {
    /// Our bytes.
    Read,
    /// That our bytes become visible (they are already) or durable.
    Flush { visibility: bool, persistence: bool },
    /// A hash of our bytes.
    Verify { expected: Option<u32> },
    /// That a word is stored.
    AtomicWrite { value: u64 },
    /// That a word is changed; the word before is returned.
    Atomic(AtomicOp),
}

impl Responder {
    pub(super) fn new(ird: u8) -> Self {
        Self {
            pending: VecDeque::with_capacity(usize::from(ird) + 1),
            next: Serial::FIRST,
            fetched: Fetched { read: None, bytes: Vec::new(), used: 0 },
            fetches: 0,
            inline: Inline { round: 0, left: INLINE_PER_ROUND_MAX },
        }
    }

    /// Places a segment of a write.
    pub(super) fn write(
        scope: &mut Scope<'_>,
        tag: u32,
        offset: u64,
        payload: &[u8],
    ) -> Result<(), Fault> {
        // RFC 5041 §5.2: a zero-length tagged segment names no memory, whatever it says.
        if payload.is_empty() {
            return Ok(());
        }
        let len = u64::try_from(payload.len()).expect("a frame's length fits 64 bits");
        let region = scope
            .regions
            .check(scope.id, tag, offset, len, Access::REMOTE_WRITE)
            .map_err(|error| Fault::Refused(error.into()))?;
        scope.stats.bytes_copied += len;
        if !scope.deferral.is_active() {
            match region.medium.try_place(offset, payload) {
                Ok(()) => return Ok(()),
                Err(MediumError::WouldBlock) => {}
                Err(error) => return Err(Fault::Medium(error)),
            }
        }
        scope.deferral.push_place(tag, &region.medium, offset, payload, After::Nothing);
        Ok(())
    }

    /// Answers a request at once, or queues it.
    pub(super) fn request(&mut self, scope: &mut Scope<'_>, request: Request) -> Result<(), Fault> {
        // Refused while the frame of the request is at hand, to be quoted in the Terminate.
        request.check(scope).map_err(Fault::Refused)?;
        if scope.deferral.is_active() {
            // A request behind one that waits for its turn has to wait as well.
            let waits = self.pending.iter().any(|pending| pending.state == State::Waiting);
            let serial = self.next.draw();
            let state = if waits { State::Waiting } else { request.defer(scope, serial)? };
            self.pending.push_back(Pending { serial, request, state });
            return Ok(());
        }
        if !self.pending.is_empty() || request.kind == RequestKind::Read {
            // The front read asks for its bytes itself; those of the reads behind it come meanwhile.
            if !self.pending.is_empty() && request.kind == RequestKind::Read {
                request.fetch_here(scope, Wanted::Later);
            }
            let (serial, state) = (self.next.draw(), State::Waiting);
            self.pending.push_back(Pending { serial, request, state });
            return Ok(());
        }
        let serial = self.next.draw();
        let state = request.carry_out(scope, serial, &mut self.inline)?;
        if let State::Ready(result) = state
            && answer_frame::answer(scope, &request, result) == Step::Progress
        {
            return Ok(());
        }
        self.pending.push_back(Pending { serial, request, state });
        Ok(())
    }

    /// Carries out and answers the front request, or as much of it as there is room for.
    pub(super) fn advance(&mut self, scope: &mut Scope<'_>) -> Result<Step, Fault> {
        let Some(front) = self.pending.front_mut() else { return Ok(Step::Rest) };
        if front.state == State::Waiting {
            front.state = if scope.deferral.is_active() {
                front.request.defer(scope, front.serial)?
            } else {
                front.request.carry_out(scope, front.serial, &mut self.inline)?
            };
        }
        let State::Ready(result) = front.state else { return Ok(Step::Rest) };
        if matches!(front.request.kind, RequestKind::Read) {
            return self.stream_read(scope);
        }
        let step = answer_frame::answer(scope, &front.request, result);
        if step == Step::Progress {
            self.pending.pop_front();
        }
        Ok(step)
    }

    /// Frames segments of the front read while there is room.
    fn stream_read(&mut self, scope: &mut Scope<'_>) -> Result<Step, Fault> {
        let mut step = Step::Rest;
        while let Some(front) = self.pending.front_mut() {
            let fetched = self.fetched.of(front.serial);
            match answer_frame::read_segment(scope, &front.request, fetched)? {
                answer_frame::Segment::NoRoom => {
                    step = step.or_full();
                    break;
                }
                answer_frame::Segment::Later => break,
                answer_frame::Segment::Framed { payload, last } => {
                    step = Step::Progress;
                    self.fetched.used += fetched.len().min(payload);
                    self.fetches = 0;
                    front.request.advance(payload);
                    if last {
                        self.pending.pop_front();
                        break;
                    }
                }
                answer_frame::Segment::WouldBlock => {
                    self.fetches += 1;
                    // Pages that leave again before they are read, time after time, come by a worker, which reads them.
                    let here =
                        self.fetches <= FETCHES_MAX && front.request.fetch_here(scope, Wanted::Now);
                    front.state = match here {
                        true => State::Fetching,
                        false => front.request.fetch(scope, front.serial)?,
                    };
                    break;
                }
            }
        }
        Ok(step)
    }

    /// Records the result of a request that was at work.
    pub(super) fn answer_ready(&mut self, serial: Serial, result: u64) {
        let Some(pending) = self.named(serial).filter(|found| found.state == State::AtWork) else {
            debug_assert!(false, "{serial:?} is not at work");
            return;
        };
        pending.state = State::Ready(result);
    }

    /// Bytes have come that the front read may have waited for; or could not be read, which a worker then finds as well.
    pub(super) fn fetch_ended(&mut self, has_come: bool) {
        if let Some(front) = self.pending.front_mut()
            && front.state == State::Fetching
        {
            front.state = State::Ready(0);
            if !has_come {
                self.fetches = FETCHES_MAX;
            }
        }
    }

    fn named(&mut self, serial: Serial) -> Option<&mut Pending> {
        #[cfg(test)]
        if Planted::CreditsTheOldest.is_here() {
            return self.pending.iter_mut().find(|pending| pending.state == State::AtWork);
        }
        let place = serial.since(self.pending.front()?.serial)?;
        self.pending.get_mut(place)
    }

    /// Takes bytes from a worker for a read in transmission.
    pub(super) fn fetched(&mut self, read: Serial, bytes: &[u8]) {
        self.fetched.bytes.clear();
        self.fetched.bytes.extend_from_slice(bytes);
        (self.fetched.read, self.fetched.used) = (Some(read), 0);
        self.answer_ready(read, 0);
    }

    /// Drops everything: the connection is over.
    pub(super) fn forget(&mut self) {
        self.pending.clear();
    }
}

impl Fetched {
    /// The next bytes of a read, if a worker fetched them.
    fn of(&self, read: Serial) -> &[u8] {
        let bytes = if self.read == Some(read) { self.bytes.get(self.used..) } else { None };
        bytes.unwrap_or_default()
    }
}

impl Inline {
    /// Whether the engine itself does work of `len` bytes that costs as much as hashing `cost`
    /// bytes.
    fn takes(&mut self, round: u32, len: u64, cost: u64) -> bool {
        if self.round != round {
            *self = Self { round, left: INLINE_PER_ROUND_MAX };
        }
        let takes = len <= INLINE_WORK_MAX && cost <= self.left;
        if takes {
            self.left -= cost;
        }
        takes
    }

    /// Whether the engine itself flushes so much of memory of this class: flushing the cache lines of a long range would delay
    /// other connections.
    fn flushes(&mut self, round: u32, len: u64, class: DurabilityClass) -> bool {
        len <= FLUSH_UNCOUNTED_MAX
            || class != DurabilityClass::Pmem
            || self.takes(round, len, len / FLUSHED_PER_HASHED)
    }

    /// Whether the engine itself hashes so much.
    fn hashes(&mut self, round: u32, len: u64) -> bool {
        self.takes(round, len, len + VERIFY_COST)
    }
}

impl Request {
    /// Looks up the memory and the rights. An empty read or flush needs no bounds, and an empty
    /// read no memory (RFC 5040 §5.2.1; the draft leaves the empty flush open, and this responder
    /// requires a valid tag).
    fn check<'r>(&self, scope: &'r Scope<'_>) -> Result<Option<&'r Region>, Protection> {
        let need = match self.kind {
            RequestKind::Read if self.len == 0 => return Ok(None),
            RequestKind::Read => Access::REMOTE_READ,
            RequestKind::Verify { .. } => Access::REMOTE_VERIFY,
            RequestKind::Flush { visibility, persistence } => {
                let mut need = Access::empty();
                need.set(Access::FLUSH_VISIBILITY, visibility);
                need.set(Access::FLUSH_PERSISTENCE, persistence);
                need
            }
            RequestKind::AtomicWrite { .. } => Access::REMOTE_ATOMIC_WRITE,
            RequestKind::Atomic(_) => Access::REMOTE_ATOMIC,
        };
        if matches!(self.kind, RequestKind::AtomicWrite { .. } | RequestKind::Atomic(_))
            && !self.offset.is_multiple_of(AtomicOp::LEN)
        {
            return Err(Protection::PeerMisaligned);
        }
        let region = scope
            .regions
            .check(scope.id, self.tag, self.offset, u64::from(self.len), need)
            .map_err(Protection::from)?;
        Ok(Some(region))
    }

    /// Carries out the request on this thread if that needs no waiting, else gives it to a worker.
    fn carry_out(
        &self,
        scope: &mut Scope<'_>,
        serial: Serial,
        inline: &mut Inline,
    ) -> Result<State, Fault> {
        let Some(region) = self.check(scope).map_err(Fault::RefusedLater)? else {
            return Ok(State::Ready(0));
        };
        let medium = &region.medium;
        let len = u64::from(self.len);
        let mut persisted = 0;
        let outcome = match self.kind {
            RequestKind::Read | RequestKind::Flush { persistence: false, .. } => Ok(0),
            RequestKind::Flush { .. } if !inline.flushes(scope.round, len, medium.class()) => {
                Err(MediumError::WouldBlock)
            }
            RequestKind::Verify { .. } if !inline.hashes(scope.round, len) => {
                Err(MediumError::WouldBlock)
            }
            RequestKind::Flush { .. } => {
                persisted = 1;
                medium.try_persist(self.offset, len).map(|()| 0)
            }
            RequestKind::Verify { expected } => match hash_inline(region, self.offset, len) {
                Ok(hash) if expected.is_some_and(|expected| expected != hash) => {
                    return Err(Fault::RefusedLater(Protection::PeerHashMismatch));
                }
                outcome => outcome.map(u64::from),
            },
            RequestKind::AtomicWrite { value } => {
                medium.try_atomic(self.offset, AtomicOp::Store(value))
            }
            RequestKind::Atomic(op) => medium.try_atomic(self.offset, op),
        };
        match outcome {
            Ok(result) => {
                scope.stats.persists += persisted;
                Ok(State::Ready(result))
            }
            Err(MediumError::WouldBlock) => self.defer(scope, serial),
            Err(error) => Err(Fault::Medium(error)),
        }
    }

    /// Queues the request for a worker, behind everything queued already.
    fn defer(&self, scope: &mut Scope<'_>, serial: Serial) -> Result<State, Fault> {
        let work = match self.kind {
            RequestKind::Read | RequestKind::Flush { persistence: false, .. } => {
                scope.deferral.push_mark(After::Answer(serial));
                return Ok(State::AtWork);
            }
            RequestKind::Flush { .. } => Work::Persist,
            RequestKind::Verify { expected } => Work::Hash(expected),
            RequestKind::AtomicWrite { value } => Work::Atomic(AtomicOp::Store(value)),
            RequestKind::Atomic(op) => Work::Atomic(op),
        };
        self.push(scope, self.offset, u64::from(self.len), work, After::Answer(serial))
    }

    /// Has the engine bring the next bytes of a read to memory. `false`: a worker has to.
    fn fetch_here(&self, scope: &mut Scope<'_>, wanted: Wanted) -> bool {
        if !scope.fetches.are_possible() {
            return false;
        }
        let (regions, len) = (&*scope.regions, u64::from(self.len));
        let region = regions.check(scope.id, self.tag, self.offset, len, Access::REMOTE_READ);
        let Ok(region) = region else { return false };
        let len = fetch_len(len, scope.stream.mulpdu(), TaggedRepr::LEN);
        let waiter = (wanted == Wanted::Now).then_some(scope.id);
        scope.fetches.begin(&region.medium, self.offset, len, waiter)
    }

    /// Asks a worker for the next bytes of a read.
    fn fetch(&self, scope: &mut Scope<'_>, serial: Serial) -> Result<State, Fault> {
        let len = fetch_len(u64::from(self.len), scope.stream.mulpdu(), TaggedRepr::LEN);
        self.push(scope, self.offset, len, Work::Fetch, After::FetchedForResponse(serial))
    }

    fn push(
        &self,
        scope: &mut Scope<'_>,
        offset: u64,
        len: u64,
        work: Work,
        after: After,
    ) -> Result<State, Fault> {
        let medium = match self.check(scope).map_err(Fault::RefusedLater)? {
            Some(region) => std::sync::Arc::clone(&region.medium),
            None => return Ok(State::Ready(0)),
        };
        scope.deferral.push(self.tag, &medium, offset, len, work, after);
        Ok(State::AtWork)
    }

    /// Notes that the first bytes of a read have been framed.
    fn advance(&mut self, framed: usize) {
        let len = u32::try_from(framed).expect("a frame's length fits 32 bits");
        self.offset += u64::from(len);
        self.len -= len;
    }
}

/// CRC-32C of bytes of a region, without waiting.
fn hash_inline(region: &Region, offset: u64, len: u64) -> Result<u32, MediumError> {
    let mut hash = Hash::new();
    let mut piece = [0; HASH_PIECE];
    let mut done = 0;
    while done < len {
        let part = usize::try_from(len - done).unwrap_or(HASH_PIECE).min(HASH_PIECE);
        let Some(piece) = piece.get_mut(..part) else { break };
        region.medium.try_read(offset + done, piece)?;
        hash.update(piece);
        done += u64::try_from(part).expect("a piece is short");
    }
    Ok(hash.finish())
}

/// Longest flush of persistent memory and longest verify that the engine does itself: some 20 us
/// at the measured write-back rate.
const INLINE_WORK_MAX: u64 = 128 * 1024;
/// Bytes that the engine hashes itself for one connection in a round, [`VERIFY_COST`] of each verify included:
/// the frames of a round can ask for 7,000 hashes. A worker does the rest.
const INLINE_PER_ROUND_MAX: u64 = INLINE_WORK_MAX + VERIFY_COST;
/// The fixed cost of a verify, in bytes hashed: a system call where the file is on storage.
const VERIFY_COST: u64 = 256;
/// Bytes of a persistent-memory flush that cost as much as a hashed byte. So the flushes of everything
/// that a connection writes in a round stay within the share.
const FLUSHED_PER_HASHED: u64 = 4;
/// A flush of persistent memory up to this length costs no more than the frame it came in.
const FLUSH_UNCOUNTED_MAX: u64 = 4096;
const HASH_PIECE: usize = 4096;
/// Fetches for one segment of a read before a worker reads it.
const FETCHES_MAX: u32 = 4;

#[cfg(test)]
mod tests {
    use basics::Random;

    use super::super::regions::Regions;
    use super::*;
    use crate::interface::QpId;

    #[test]
    fn an_engine_does_so_much_of_a_connections_long_work_itself_in_a_round() {
        let mut inline = Inline { round: 0, left: INLINE_PER_ROUND_MAX };
        let all = INLINE_WORK_MAX + VERIFY_COST;
        assert!(!inline.takes(1, INLINE_WORK_MAX + 1, 1), "each is bounded");
        assert!(inline.takes(1, INLINE_WORK_MAX, all), "the longest one");
        assert!(!inline.takes(1, 1, 1), "and nothing else");
        assert!(inline.takes(1, 1, 0));
        assert!(inline.takes(2, 8, all - 10), "another round");
        assert!(!inline.takes(2, 8, 11));
        assert!(inline.takes(2, 8, 10));
        assert!(!inline.takes(2, 8, 1));
    }

    #[test]
    fn a_flush_of_memory_counts_a_quarter_and_a_hash_its_bytes_and_the_call() {
        let mut inline = Inline { round: 1, left: INLINE_PER_ROUND_MAX };
        let pmem = DurabilityClass::Pmem;
        assert!(inline.flushes(1, FLUSH_UNCOUNTED_MAX, pmem));
        for class in [DurabilityClass::Storage, DurabilityClass::Volatile] {
            assert!(inline.flushes(1, u64::MAX, class), "{class:?} has no lines to flush");
        }
        assert_eq!(inline.left, INLINE_PER_ROUND_MAX, "none of these counts");
        assert!(!inline.flushes(1, INLINE_WORK_MAX + 1, pmem));
        assert!(inline.flushes(1, FLUSH_UNCOUNTED_MAX + 4, pmem));
        assert!(inline.hashes(1, 1000));
        assert_eq!(
            INLINE_PER_ROUND_MAX - inline.left,
            FLUSH_UNCOUNTED_MAX / 4 + 1 + 1000 + VERIFY_COST
        );
        assert!(!inline.hashes(1, inline.left - VERIFY_COST + 1));
        assert!(inline.hashes(1, inline.left - VERIFY_COST));
        assert!(!inline.flushes(1, FLUSH_UNCOUNTED_MAX + 4, pmem), "nothing is left");
        assert!(inline.flushes(1, FLUSH_UNCOUNTED_MAX, pmem));
    }

    fn read_of(offset: u64, len: u32) -> Request {
        Request { tag: 7, offset, len, kind: RequestKind::Read }
    }

    #[test]
    fn a_read_goes_on_behind_the_bytes_that_were_framed() {
        let mut read = read_of(64, 100);
        read.advance(30);
        assert_eq!(read, read_of(94, 70));
        read.advance(70);
        assert_eq!(read, read_of(164, 0));
    }

    #[test]
    fn a_hash_without_waiting_is_that_of_all_bytes_in_their_order() {
        let medium = pmem::anonymous(16_384).unwrap();
        let bytes: Vec<u8> = (0..16_384_u32).map(|at| u8::try_from(at % 253).unwrap()).collect();
        medium.place(0, &bytes).unwrap();
        let qp = QpId { index: 0, generation: 0 };
        let mut regions = Regions::new(1, Random::host());
        let registered = regions.register(qp, medium, 0..16_384, Access::REMOTE_VERIFY);
        let tag = registered.unwrap().rkey.0;
        let region = regions.check(qp, tag, 0, 1, Access::REMOTE_VERIFY).unwrap();
        for len in [0, 1, 4095, 4096, 4097, 9000] {
            let end = 7 + usize::try_from(len).unwrap();
            let mut expected = Hash::new();
            expected.update(&bytes[7..end]);
            assert_eq!(hash_inline(region, 7, len), Ok(expected.finish()), "{len}");
        }
    }
}
