//! One end of a conversation: it carries out its script, answers, and records what it receives.

use std::collections::VecDeque;

use iwarp::rdmap::{
    AtomicOperation, AtomicRequestRepr, AtomicWriteRequestRepr, FlushRequestRepr, PlacementFlags,
    ReadRequestRepr, VerifyRequestRepr,
};
use iwarp::stream::{InboundRequest, SendKind};
use iwarp::{Agreement, FrameError, Indication, Received, Stag, Stream};

use crate::operation::{Operation, Seen, pattern};
use crate::support::copy;
use crate::support::unmark::Unmarker;

/// One end: its stream, the rest of its script, and the record of what it received.
pub(crate) struct End {
    pub(crate) stream: Stream,
    pub(crate) script: VecDeque<Operation>,
    pub(crate) out: Vec<u8>,
    pub(crate) inbox: Vec<u8>,
    pub(crate) unmarker: Unmarker,
    pub(crate) seen: Vec<Seen>,
    pub(crate) write: Option<(u32, u64, Vec<u8>)>,
    pub(crate) send: Vec<u8>,
    pub(crate) read: Vec<u8>,
}

impl End {
    pub(crate) fn new(agreement: &Agreement, emss: usize, script: &[Operation]) -> Self {
        Self {
            stream: Stream::new(agreement, emss),
            script: script.iter().cloned().collect(),
            out: Vec::new(),
            inbox: Vec::new(),
            unmarker: Unmarker::default(),
            seen: Vec::new(),
            write: None,
            send: Vec::new(),
            read: Vec::new(),
        }
    }

    /// Frames with a buffer of exactly the size that must always suffice.
    pub(crate) fn frame<T, E: std::fmt::Debug>(
        &mut self,
        frame: impl FnOnce(&mut Stream, &mut [u8]) -> Result<T, FrameError<E>>,
        size: impl FnOnce(&T) -> usize,
    ) -> Option<T> {
        let mut buffer = vec![0xee; self.stream.frame_size_max()];
        match frame(&mut self.stream, &mut buffer) {
            Ok(framed) => {
                self.out.extend_from_slice(&buffer[..size(&framed)]);
                Some(framed)
            }
            Err(FrameError::OrdExhausted { .. }) => None,
            Err(error) => panic!("{error:?}"),
        }
    }

    pub(crate) fn write_segment(
        &mut self,
        stag: u32,
        offset: u64,
        bytes: &[u8],
        done: &mut usize,
    ) -> bool {
        let rest = bytes[*done..].to_vec();
        let (remaining, at) = (u32::try_from(rest.len()).unwrap(), offset + *done as u64);
        let framed = self.frame(
            |stream, out| stream.frame_write(out, Stag(stag), at, remaining, copy(&rest)),
            |framed| framed.size,
        );
        *done += framed.unwrap().payload as usize;
        framed.unwrap().last
    }

    pub(crate) fn send_segment(&mut self, kind: SendKind, bytes: &[u8], done: &mut usize) -> bool {
        let rest = bytes[*done..].to_vec();
        let remaining = u32::try_from(rest.len()).unwrap();
        let framed = self.frame(
            |stream, out| stream.frame_send(out, kind, remaining, copy(&rest)),
            |framed| framed.size,
        );
        *done += framed.unwrap().payload as usize;
        framed.unwrap().last
    }

    pub(crate) fn both(&mut self, len: u32) {
        let bytes = pattern(len);
        let (mut written, mut sent) = (0, 0);
        let (mut wrote, mut said) = (false, false);
        while !(wrote && said) {
            wrote = wrote || self.write_segment(7, 0, &bytes, &mut written);
            said = said || self.send_segment(SendKind::default(), &bytes, &mut sent);
        }
    }

    /// Carries out the next operation of the script, if that is possible now.
    pub(crate) fn act(&mut self) -> bool {
        if !self.stream.is_ready() {
            return false;
        }
        let Some(operation) = self.script.front().cloned() else { return false };
        // An answer that was begun is ended first: a Write may not interrupt it.
        while matches!(self.stream.next_request(), Some(InboundRequest::Read { sent: 1.., .. })) {
            self.answer();
        }
        if !self.perform(&operation) {
            return false;
        }
        self.script.pop_front();
        true
    }

    pub(crate) fn perform(&mut self, operation: &Operation) -> bool {
        let size = |size: &usize| *size;
        match *operation {
            Operation::Write { stag, offset, len } => {
                let (bytes, mut done) = (pattern(len), 0);
                while !self.write_segment(stag, offset, &bytes, &mut done) {}
                true
            }
            Operation::Send { len, solicited, invalidate } => {
                let kind = SendKind { solicited, invalidate: invalidate.map(Stag) };
                let (bytes, mut done) = (pattern(len), 0);
                while !self.send_segment(kind, &bytes, &mut done) {}
                true
            }
            Operation::WriteAndSend { len } => {
                self.both(len);
                true
            }
            Operation::Immediate { data, solicited } => self
                .frame(|stream, out| stream.frame_immediate(out, data, solicited), size)
                .is_some(),
            _ => self.request(operation),
        }
    }

    pub(crate) fn request(&mut self, operation: &Operation) -> bool {
        let stag = Stag(0xabcd);
        let size = |size: &usize| *size;
        let framed = match operation.clone() {
            Operation::Read { offset: source_offset, size: len } => {
                let (sink_stag, sink_offset) = (Stag(5), 1000);
                let request = ReadRequestRepr {
                    sink_stag,
                    sink_offset,
                    size: len,
                    source_stag: stag,
                    source_offset,
                };
                self.frame(|stream, out| stream.frame_read_request(out, &request), size)
            }
            Operation::Atomic { id: request_id, add } => {
                let operation = AtomicOperation::FetchAdd { add, mask: 0 };
                let request = AtomicRequestRepr { operation, request_id, stag, tagged_offset: 8 };
                self.frame(|stream, out| stream.frame_atomic_request(out, &request), size)
            }
            Operation::Flush { offset: tagged_offset, length } => {
                let flags = PlacementFlags::PERSISTENCE | PlacementFlags::GLOBAL_VISIBILITY;
                let request = FlushRequestRepr { stag, length, tagged_offset, flags };
                self.frame(|stream, out| stream.frame_flush_request(out, &request), size)
            }
            Operation::Verify { offset: tagged_offset, hash } => {
                let request = VerifyRequestRepr { stag, length: 9, tagged_offset, expected: &hash };
                self.frame(|stream, out| stream.frame_verify_request(out, &request), size)
            }
            Operation::AtomicWrite { offset: tagged_offset, data } => {
                let request = AtomicWriteRequestRepr { stag, tagged_offset, data };
                self.frame(|stream, out| stream.frame_atomic_write_request(out, &request), size)
            }
            other => panic!("{other:?} is no request"),
        };
        framed.is_some()
    }

    /// Answers the peer's oldest request, or frames one segment of the answer.
    pub(crate) fn answer(&mut self) -> bool {
        let size = |size: &usize| *size;
        let Some(request) = self.stream.next_request().copied() else { return false };
        let framed = match request {
            InboundRequest::Read { request, sent } => {
                let bytes = pattern(request.size)[sent as usize..].to_vec();
                let framed = self.frame(
                    |stream, out| stream.frame_read_response(out, copy(&bytes)),
                    |framed| framed.size,
                );
                return framed.is_some();
            }
            InboundRequest::Atomic { request_id } => {
                let original = u64::from(request_id) + 1;
                self.frame(|stream, out| stream.frame_atomic_response(out, original), size)
            }
            InboundRequest::Flush => self.frame(Stream::frame_flush_response, size),
            InboundRequest::Verify => {
                self.frame(|stream, out| stream.frame_verify_response(out, b"hash"), size)
            }
            InboundRequest::AtomicWrite => self.frame(Stream::frame_atomic_write_response, size),
        };
        framed.is_some()
    }

    /// Takes all whole frames out of the inbox.
    pub(crate) fn listen(&mut self) {
        let inbox = std::mem::take(&mut self.inbox);
        let mut rest = &inbox[..];
        while let Received::Frame { consumed, indication } = self.stream.receive(rest).unwrap() {
            rest = &rest[consumed..];
            self.see(indication);
        }
        self.inbox = rest.to_vec();
    }

    pub(crate) fn see(&mut self, indication: Indication<'_>) {
        let seen = match indication {
            Indication::Write(segment) => {
                let first = (segment.stag.0, segment.tagged_offset, Vec::new());
                let write = self.write.get_or_insert(first);
                write.2.extend_from_slice(segment.payload);
                if !segment.last {
                    return;
                }
                let (stag, offset, bytes) = self.write.take().unwrap();
                Seen::Write(stag, offset, bytes)
            }
            Indication::Send(segment) => {
                assert_eq!(self.send.len(), segment.offset as usize);
                self.send.extend_from_slice(segment.payload);
                if !segment.last {
                    return;
                }
                let bytes = std::mem::take(&mut self.send);
                Seen::Send(bytes, segment.solicited, segment.invalidate.map(|stag| stag.0))
            }
            Indication::ReadResponse(segment) => {
                assert_eq!(self.read.len(), segment.offset as usize);
                self.read.extend_from_slice(segment.payload);
                if !segment.last {
                    return;
                }
                Seen::Answer(std::mem::take(&mut self.read))
            }
            Indication::Immediate { data, solicited, .. } => Seen::Immediate(data, solicited),
            Indication::ReadRequest(request) => Seen::Read(request.source_offset, request.size),
            Indication::AtomicRequest(request) => match request.operation {
                AtomicOperation::FetchAdd { add, .. } => Seen::Atomic(request.request_id, add),
                other => panic!("{other:?}"),
            },
            Indication::FlushRequest(request) => Seen::Flush(request.tagged_offset, request.length),
            Indication::VerifyRequest(request) => {
                Seen::Verify(request.tagged_offset, request.expected.to_vec())
            }
            Indication::AtomicWriteRequest(request) => {
                Seen::AtomicWrite(request.tagged_offset, request.data)
            }
            Indication::AtomicResponse(response) => {
                Seen::Answer(response.original.to_be_bytes().to_vec())
            }
            Indication::FlushResponse | Indication::AtomicWriteResponse => Seen::Answer(Vec::new()),
            Indication::VerifyResponse(hash) => Seen::Answer(hash.to_vec()),
            Indication::Ready | Indication::Terminate(_) => panic!("{indication:?}"),
        };
        self.seen.push(seen);
    }
}
