//! The meaning of a received frame. The payload stays where it was received.

use crate::ddp::Stag;
use crate::rdmap::{
    AtomicRequestRepr, AtomicResponseRepr, AtomicWriteRequestRepr, FlushRequestRepr,
    ReadRequestRepr, TerminateRepr, VerifyRequestRepr,
};

/// The result of [`Stream::receive`](super::Stream::receive) at the front of the bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Received<'b> {
    /// No whole frame yet; the caller offers the bytes again with more behind them.
    Incomplete {
        /// How many more bytes to wait for at least.
        missing: usize,
    },
    /// One frame.
    Frame {
        /// Bytes to take off the front.
        consumed: usize,
        /// The meaning of the frame.
        indication: Indication<'b>,
    },
}

/// The meaning of one frame. The caller checks STags, bounds and rights; the machine does not.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Indication<'b> {
    /// The agreed ready-to-receive message came, or the peer answered ours. The caller has nothing to do.
    Ready,
    /// An RDMA Write: place these bytes.
    Write(WriteSegment<'b>),
    /// A Send: copy these bytes into the receive posted for the message.
    Send(SendSegment<'b>),
    /// Immediate Data: consume a receive, without bytes.
    Immediate {
        /// Message number on queue 0.
        msn: u32,
        /// The eight bytes, read as a big-endian number.
        data: u64,
        /// The peer asks for an event.
        solicited: bool,
    },
    /// Answer with `frame_read_response`, in the order requests came. Size 0 names no memory.
    ReadRequest(ReadRequestRepr),
    /// Place these bytes: part of the answer to our oldest request.
    ReadResponse(ReadResponseSegment<'b>),
    /// Answer with `frame_atomic_response`.
    AtomicRequest(AtomicRequestRepr),
    /// The answer to our oldest request.
    AtomicResponse(AtomicResponseRepr),
    /// Answer with `frame_flush_response` once the range is in the state asked for.
    FlushRequest(FlushRequestRepr),
    /// The answer to our oldest request.
    FlushResponse,
    /// Answer with `frame_verify_response`.
    VerifyRequest(VerifyRequestRepr<'b>),
    /// The answer to our oldest request: the hash.
    VerifyResponse(&'b [u8]),
    /// Answer with `frame_atomic_write_response`.
    AtomicWriteRequest(AtomicWriteRequestRepr),
    /// The answer to our oldest request.
    AtomicWriteResponse,
    /// The peer ended the stream. Nothing more will be received.
    Terminate(TerminateRepr),
}

/// Part of an RDMA Write. An empty one names no memory: `stag` must not be checked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WriteSegment<'b> {
    /// Region to place into. Not yet authorised.
    pub stag: Stag,
    /// Offset in the region; offset plus length does not wrap.
    pub tagged_offset: u64,
    /// The bytes.
    pub payload: &'b [u8],
    /// Last of its message.
    pub last: bool,
}

/// Part of a Send.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SendSegment<'b> {
    /// Message number on queue 0; the first is 1.
    pub msn: u32,
    /// Offset of these bytes in the message.
    pub offset: u32,
    /// The bytes.
    pub payload: &'b [u8],
    /// Last of its message.
    pub last: bool,
    /// The peer asks for an event.
    pub solicited: bool,
    /// The peer asks to invalidate this region of this end. Not yet authorised.
    pub invalidate: Option<Stag>,
}

/// Part of a Read Response, which follows the request exactly and in order.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReadResponseSegment<'b> {
    /// The sink that the request named.
    pub stag: Stag,
    /// Offset in the sink region.
    pub tagged_offset: u64,
    /// Offset of these bytes in the answer.
    pub offset: u32,
    /// The bytes.
    pub payload: &'b [u8],
    /// The request is answered with this segment.
    pub last: bool,
}
