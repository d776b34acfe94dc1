//! The stream machine against a peer that sends anything.
//!
//! The peer's frames are raw bytes, or well-formed frames around any ULPDU, or segments whose
//! numbers are right so that the checks behind them are reached. In between our own side sends
//! and answers. What the machine hands out must lie in what came in, and its queues must stay
//! within the depths that were agreed.

use iwarp::mpa::{
    Agreement, FPDU_SIZE_MAX, HashId, Profile, ProfileFlags, ReadyKind, Role, crc32c, fpdu_size,
};
use iwarp::rdmap::{Opcode, OpcodeWidth};
use iwarp::stream::InboundRequest;
use iwarp::{Indication, Protection, Received, Stream};

use super::pair::{self, Request};
use crate::Input;

enum Operation<'a> {
    /// Bytes as they come.
    Raw(&'a [u8]),
    /// A frame around a ULPDU.
    Frame(&'a [u8]),
    /// An untagged segment that is the next of its queue.
    Untagged { control: u8, last: bool, word: u32, offset: u32, payload: &'a [u8] },
    /// A tagged segment.
    Tagged { control: u8, last: bool, stag: u32, offset: u64, payload: &'a [u8] },
    /// We send something.
    Request(Request),
    /// We answer the oldest request.
    Answer,
    /// The memory said no.
    Refuse(Protection),
}

impl<'a> Operation<'a> {
    fn read(input: &mut Input<'a>) -> Self {
        match input.byte() % 8 {
            0 => Self::Raw(input.chunk()),
            1 => Self::Frame(input.chunk()),
            2 | 3 => {
                let control = input.byte();
                let last = input.byte() & 1 == 0;
                let (word, offset) = (input.u32(), input.u32());
                Self::Untagged { control, last, word, offset, payload: input.chunk() }
            }
            4 => {
                let control = input.byte();
                let last = input.byte() & 1 == 0;
                let (stag, offset) = (input.u32(), input.u64());
                Self::Tagged { control, last, stag, offset, payload: input.chunk() }
            }
            5 => Self::Request(Request::read(input)),
            6 => Self::Answer,
            _ => Self::Refuse(match input.byte() % 4 {
                0 => Protection::PeerStag,
                1 => Protection::PeerBounds,
                2 => Protection::PeerAccess,
                _ => Protection::PeerCannotInvalidate,
            }),
        }
    }
}

struct Run {
    stream: Stream,
    crc: bool,
    depth: usize,
    pending: Vec<u8>,
    /// The number the peer's next message of each queue has to have.
    msn: [u32; 4],
    out: Vec<u8>,
    failed: bool,
}

/// One byte for what was agreed, then operations.
pub(crate) fn stream(data: &[u8]) {
    let mut input = Input::new(data);
    let agreement = agreement(input.byte());
    let stream = Stream::new(&agreement, 1460);
    let out = vec![0; stream.frame_size_max()];
    let (crc, depth) = (agreement.crc, usize::from(agreement.ird));
    let mut run = Run { stream, crc, depth, pending: Vec::new(), msn: [1; 4], out, failed: false };
    while !input.is_empty() && !run.failed {
        run.apply(Operation::read(&mut input));
        assert!(run.stream.unanswered() <= run.depth);
        assert!(run.stream.outstanding() <= run.depth.max(1));
    }
}

fn agreement(choice: u8) -> Agreement {
    let role = if choice & 1 == 0 { Role::Initiator } else { Role::Responder };
    let profile = Profile::new(
        ProfileFlags::FLUSH | ProfileFlags::VERIFY | ProfileFlags::ATOMIC_WRITE,
        65_536,
        &[HashId::CRC32C],
    );
    let profile = (choice & 2 != 0).then(|| profile.expect("one hash id is within the limit"));
    let ready = match (choice >> 2) & 3 {
        0 => None,
        1 => Some(ReadyKind::Write),
        2 => Some(ReadyKind::Read),
        _ => Some(ReadyKind::Send),
    };
    Agreement {
        crc: choice & 0x10 == 0,
        markers: choice & 0x20 != 0,
        ready,
        ours: profile,
        theirs: profile,
        ..Agreement::plain(role, 4, 4)
    }
}

impl Run {
    fn apply(&mut self, operation: Operation<'_>) {
        match operation {
            Operation::Raw(bytes) => self.pending.extend_from_slice(bytes),
            Operation::Frame(ulpdu) => self.frame(&[ulpdu]),
            Operation::Untagged { control, last, word, offset, payload } => {
                let opcode = Opcode::parse(control, OpcodeWidth::Five);
                let queue = opcode.ok().and_then(Opcode::queue).map_or(0, |queue| queue.0);
                let slot = usize::try_from(queue).unwrap_or(0) & 3;
                let mut header = vec![if last { 0x41 } else { 0x01 }, control];
                for field in [word, queue, self.msn[slot], offset] {
                    header.extend_from_slice(&field.to_be_bytes());
                }
                if last {
                    self.msn[slot] = self.msn[slot].wrapping_add(1);
                }
                self.frame(&[&header, payload]);
            }
            Operation::Tagged { control, last, stag, offset, payload } => {
                let mut header = vec![if last { 0xc1 } else { 0x81 }, control];
                header.extend_from_slice(&stag.to_be_bytes());
                header.extend_from_slice(&offset.to_be_bytes());
                self.frame(&[&header, payload]);
            }
            Operation::Request(request) => self.request(&request),
            Operation::Answer => self.answer(),
            Operation::Refuse(protection) => self.end(protection),
        }
        self.receive();
    }

    /// Puts a frame around the parts of a ULPDU, as the peer would.
    fn frame(&mut self, ulpdu: &[&[u8]]) {
        let ulpdu = ulpdu.concat();
        let Ok(len) = u16::try_from(ulpdu.len()) else { return };
        let size = fpdu_size(len);
        if size > FPDU_SIZE_MAX {
            return;
        }
        let mut frame = len.to_be_bytes().to_vec();
        frame.extend_from_slice(&ulpdu);
        frame.resize(size - 4, 0);
        let crc = if self.crc { crc32c(&frame) } else { 0 };
        frame.extend_from_slice(&crc.to_le_bytes());
        self.pending.extend_from_slice(&frame);
    }

    fn receive(&mut self) {
        let pending = std::mem::take(&mut self.pending);
        let mut rest = &pending[..];
        loop {
            match self.stream.receive(rest) {
                Ok(Received::Incomplete { missing }) => {
                    assert!(missing > 0);
                    break;
                }
                Ok(Received::Frame { consumed, indication }) => {
                    assert!((8..=rest.len()).contains(&consumed));
                    within(rest, &indication);
                    rest = &rest[consumed..];
                    if matches!(indication, Indication::Terminate(_)) {
                        self.failed = true;
                        return;
                    }
                }
                Err(error) => {
                    assert!(self.stream.receive(rest).is_err(), "the first error is final");
                    self.end(error);
                    return;
                }
            }
        }
        self.pending = rest.to_vec();
    }

    /// Says why and stops.
    fn end(&mut self, cause: impl Into<iwarp::Cause>) {
        self.failed = true;
        let context = self.stream.segment_context();
        let Some(terminate) = self.stream.terminate(cause, context) else { return };
        if let Ok(size) = self.stream.frame_terminate(&mut self.out, &terminate) {
            assert!(size <= self.out.len());
            let kick = self.stream.frame_kick(&mut self.out);
            assert!(kick.is_err(), "nothing follows a Terminate");
        }
    }

    fn request(&mut self, request: &Request) {
        if let Some(size) = pair::frame_request(&mut self.stream, &mut self.out, request) {
            assert!((8..=self.out.len()).contains(&size));
        }
    }

    fn answer(&mut self) {
        let Some(request) = self.stream.next_request().copied() else { return };
        let before = self.stream.unanswered();
        let Some(size) = pair::frame_answer(&mut self.stream, &mut self.out, 7) else { return };
        assert!(size <= self.out.len());
        if !matches!(request, InboundRequest::Read { .. }) {
            assert_eq!(self.stream.unanswered(), before - 1);
        }
    }
}

/// Payload is handed out where it was received.
fn within(bytes: &[u8], indication: &Indication<'_>) {
    let payload = match indication {
        Indication::Write(segment) => {
            assert!(segment.tagged_offset.checked_add(segment.payload.len() as u64).is_some());
            segment.payload
        }
        Indication::Send(segment) => {
            let len = u32::try_from(segment.payload.len()).expect("a frame is short");
            assert!(segment.offset.checked_add(len).is_some());
            segment.payload
        }
        Indication::ReadResponse(segment) => segment.payload,
        Indication::VerifyRequest(request) => request.expected,
        Indication::VerifyResponse(hash) => hash,
        _ => return,
    };
    let outer = bytes.as_ptr_range();
    let inner = payload.as_ptr_range();
    assert!(payload.is_empty() || (outer.start <= inner.start && inner.end <= outer.end));
}
