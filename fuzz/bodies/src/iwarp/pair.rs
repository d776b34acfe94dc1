//! Two stream machines that talk to each other, each with its own caller.
//!
//! Whatever one of them frames the other must accept, and must hand out as it was meant, in
//! order. The callers choose operations at random; what the machine refuses to frame is dropped.

use std::collections::VecDeque;
use std::convert::Infallible;

use iwarp::mpa::{Agreement, HashId, Profile, ProfileFlags, ReadyKind, Role};
use iwarp::rdmap::{
    AtomicOperation, AtomicRequestRepr, AtomicWriteRequestRepr, FlushRequestRepr, PlacementFlags,
    ReadRequestRepr, VerifyRequestRepr,
};
use iwarp::stream::{InboundRequest, SendKind};
use iwarp::{Indication, Received, Stag, Stream};

use crate::Input;

/// Something one side asks its machine to frame.
pub(crate) struct Request {
    kind: u8,
    stag: Stag,
    offset: u64,
    length: u32,
}

impl Request {
    /// A kind of operation with all the numbers any of them needs.
    pub(crate) fn read(input: &mut Input<'_>) -> Self {
        let kind = input.byte();
        let stag = Stag(input.u32());
        let offset = u64::from(input.u32()) << 16;
        Self { kind, stag, offset, length: u32::from(input.u16()) }
    }
}

/// Frames a request of one frame; returns its size, or nothing where it is not allowed now.
pub(crate) fn frame_request(
    stream: &mut Stream,
    out: &mut [u8],
    request: &Request,
) -> Option<usize> {
    let &Request { kind, stag, offset, length } = request;
    match kind % 8 {
        0 => stream.frame_immediate(out, offset, length & 1 != 0).ok(),
        1 => {
            let source_stag = Stag(!stag.0);
            let (sink_stag, sink_offset, size, source_offset) = (stag, offset, length, offset);
            let read = ReadRequestRepr { sink_stag, sink_offset, size, source_stag, source_offset };
            stream.frame_read_request(out, &read).ok()
        }
        2 => {
            let operation = AtomicOperation::FetchAdd { add: offset, mask: 0 };
            let request_id = length;
            let atomic = AtomicRequestRepr { operation, request_id, stag, tagged_offset: offset };
            stream.frame_atomic_request(out, &atomic).ok()
        }
        3 => {
            let flags = PlacementFlags::PERSISTENCE;
            let flush = FlushRequestRepr { stag, length, tagged_offset: offset, flags };
            stream.frame_flush_request(out, &flush).ok()
        }
        4 => {
            let verify =
                VerifyRequestRepr { stag, length, tagged_offset: offset, expected: b"hash" };
            stream.frame_verify_request(out, &verify).ok()
        }
        5 => {
            let write = AtomicWriteRequestRepr { stag, tagged_offset: offset, data: offset };
            stream.frame_atomic_write_request(out, &write).ok()
        }
        6 => stream.frame_ready(out).ok(),
        _ => stream.frame_kick(out).ok(),
    }
}

/// Frames an answer, or part of one, to the peer's oldest request.
pub(crate) fn frame_answer(stream: &mut Stream, out: &mut [u8], fill: u8) -> Option<usize> {
    match stream.next_request()? {
        InboundRequest::Read { .. } => {
            stream.frame_read_response(out, pattern(fill)).ok().map(|framed| framed.size)
        }
        InboundRequest::Atomic { .. } => stream.frame_atomic_response(out, 9).ok(),
        InboundRequest::Flush => stream.frame_flush_response(out).ok(),
        InboundRequest::Verify => stream.frame_verify_response(out, b"hash").ok(),
        InboundRequest::AtomicWrite => stream.frame_atomic_write_response(out).ok(),
    }
}

fn pattern(fill: u8) -> impl FnOnce(&mut [u8]) -> Result<(), Infallible> {
    move |room| {
        room.fill(fill);
        Ok(())
    }
}

/// What the other side has to see of a frame: a fill byte and a length, where there is payload.
type Expected = Option<(u8, u32)>;

struct End {
    stream: Stream,
    /// A Send or Write that is not complete: kind, STag, place, bytes left.
    send: Option<(SendKind, u32)>,
    write: Option<(Stag, u64, u32)>,
    incoming: VecDeque<(Vec<u8>, Expected)>,
}

/// One byte for what was agreed, then operations, each with a byte for the side.
pub(crate) fn pair(data: &[u8]) {
    let mut input = Input::new(data);
    let mut ends = ends(input.byte());
    let mut out = vec![0; ends[0].stream.frame_size_max()];
    while !input.is_empty() {
        let choice = input.byte();
        let side = usize::from(choice & 1);
        let fill = choice.rotate_left(3) | 1;
        let framed = match (choice >> 1) % 8 {
            0 | 1 => {
                let request = Request::read(&mut input);
                frame_request(&mut ends[side].stream, &mut out, &request).map(|size| (size, None))
            }
            2 => ends[side].send(&mut out, &mut input, fill),
            3 => ends[side].write(&mut out, &mut input, fill),
            4 => frame_answer(&mut ends[side].stream, &mut out, fill).map(|size| (size, None)),
            _ => {
                ends[side].deliver();
                None
            }
        };
        if let Some((size, expected)) = framed {
            ends[1 - side].incoming.push_back((out[..size].to_vec(), expected));
        }
    }
    for _ in 0..2 {
        for end in &mut ends {
            while end.deliver() {}
        }
    }
}

fn ends(choice: u8) -> [End; 2] {
    let flags = ProfileFlags::all();
    let profile = Profile::new(flags, 4096, &[HashId::CRC32C]);
    let profile = (choice & 1 != 0).then(|| profile.expect("one hash id is within the limit"));
    let ready = match (choice >> 1) & 3 {
        0 => None,
        1 => Some(ReadyKind::Write),
        2 => Some(ReadyKind::Read),
        _ => Some(ReadyKind::Send),
    };
    [Role::Initiator, Role::Responder].map(|role| {
        let plain = Agreement::plain(role, 4, 4);
        let crc = choice & 8 == 0;
        let agreement = Agreement { ready, crc, ours: profile, theirs: profile, ..plain };
        let stream = Stream::new(&agreement, 512);
        End { stream, send: None, write: None, incoming: VecDeque::new() }
    })
}

impl End {
    /// Begins a Send or continues the one that is open.
    fn send(
        &mut self,
        out: &mut [u8],
        input: &mut Input<'_>,
        fill: u8,
    ) -> Option<(usize, Expected)> {
        let (kind, left) = self.send.unwrap_or_else(|| {
            let word = input.u32();
            let invalidate = (word & 1 != 0).then_some(Stag(word));
            (SendKind { solicited: word & 2 != 0, invalidate }, u32::from(input.u16()))
        });
        let framed = self.stream.frame_send(out, kind, left, pattern(fill)).ok()?;
        self.send = (!framed.last).then_some((kind, left - framed.payload));
        Some((framed.size, Some((fill, framed.payload))))
    }

    /// Begins a Write or continues the one that is open.
    fn write(
        &mut self,
        out: &mut [u8],
        input: &mut Input<'_>,
        fill: u8,
    ) -> Option<(usize, Expected)> {
        let (stag, offset, left) = self
            .write
            .unwrap_or_else(|| (Stag(input.u32()), u64::from(input.u32()), u32::from(input.u16())));
        let framed = self.stream.frame_write(out, stag, offset, left, pattern(fill)).ok()?;
        let sent = framed.payload;
        self.write = (!framed.last).then_some((stag, offset + u64::from(sent), left - sent));
        Some((framed.size, Some((fill, sent))))
    }

    /// Takes the next frame the other side sent, which must be all right.
    fn deliver(&mut self) -> bool {
        let Some((frame, expected)) = self.incoming.pop_front() else { return false };
        match self.stream.receive(&frame) {
            Ok(Received::Frame { consumed, indication }) => {
                assert_eq!(consumed, frame.len());
                match (expected, indication) {
                    (Some(expected), Indication::Write(segment)) => same(expected, segment.payload),
                    (Some(expected), Indication::Send(segment)) => same(expected, segment.payload),
                    // An empty Send or Write may be taken for the ready-to-receive message.
                    (Some((_, 0)), Indication::Ready) => {}
                    (Some(_), other) => panic!("payload became {other:?}"),
                    (None, _) => {}
                }
            }
            other => panic!("a frame of ours became {other:?}"),
        }
        true
    }
}

fn same((fill, len): (u8, u32), payload: &[u8]) {
    assert_eq!(u32::try_from(payload.len()), Ok(len));
    assert!(payload.iter().all(|byte| *byte == fill));
}
