//! One connection in full operation, as seen from one end.
//!
//! ```text
//!   bytes --> receive: length, CRC --> DDP: version, T, queue, MSN, MO, interleave
//!                                   --> RDMAP: version, opcode, header, IRD, matching request
//!                                   --> Indication, its payload still in the caller's buffer
//!
//!   frame_*: may we, is there credit --> header, payload (by the caller's closure), pad
//!                                   --> markers if the peer wants them, CRC --> bytes
//! ```
//!
//! The first error ends the receiving half: `receive` fails from then on, and the caller sends the
//! reason ([`Stream::terminate`], [`Stream::frame_terminate`]) and closes. After our own Terminate
//! nothing can be framed any more.
//!
//! Spec: RFC 5044 §7, RFC 5041 §5, RFC 5040 §5 and §7.

mod error;
mod inbound;
mod indication;
mod message;
mod outbound;
mod outstanding;
mod receive;
mod requests;
mod terminate;
mod transmit;
mod transmit_requests;
mod transmit_responses;

use crate::mpa::{
    Agreement, ProfileFlags, ReadyKind, Role, fpdu_size, markers_in, mulpdu_of_emss, mulpdu_of_fpdu,
};
use crate::rdmap::OpcodeWidth;

pub use error::{FrameError, Protection, StreamError};
use inbound::Inbound;
pub use indication::{Indication, ReadResponseSegment, Received, SendSegment, WriteSegment};
use outbound::Outbound;
use outstanding::Outstanding;
pub use requests::InboundRequest;
use requests::Requests;
pub use terminate::{Cause, SegmentContext};
pub use transmit::{Framed, SendKind};

/// The machine of one connection. It holds no payload and after [`Stream::new`] does not allocate.
#[derive(Debug)]
pub struct Stream {
    role: Role,
    width: OpcodeWidth,
    crc: bool,
    markers: bool,
    ready: Option<ReadyKind>,
    /// The offers that this end announced: extended requests that it takes.
    ours: ProfileFlags,
    /// The offers that the peer announced: extended requests that the peer takes.
    theirs: ProfileFlags,
    /// The largest frame that the peer takes, if the peer announced one.
    fpdu_max: Option<usize>,
    mulpdu: u16,
    inbound: Inbound,
    outbound: Outbound,
    /// Our requests that the peer has not answered.
    outstanding: Outstanding,
    /// The peer's requests that this end has not answered.
    requests: Requests,
}

impl Stream {
    /// Starts full operation on the terms of `agreement`, over TCP segments of `emss` bytes.
    pub fn new(agreement: &Agreement, emss: usize) -> Self {
        let extended = agreement.is_extended();
        let flags = |profile: Option<crate::Profile>| match profile {
            Some(profile) if extended => profile.flags,
            _ => ProfileFlags::empty(),
        };
        let theirs = flags(agreement.theirs);
        let large = agreement.theirs.filter(|_| theirs.contains(ProfileFlags::LARGE_FPDU));
        let mut stream = Self {
            role: agreement.role,
            width: if extended { OpcodeWidth::Five } else { OpcodeWidth::Four },
            crc: agreement.crc,
            markers: agreement.markers,
            ready: agreement.ready,
            ours: flags(agreement.ours),
            theirs,
            fpdu_max: large.map(|profile| usize::try_from(profile.fpdu_max).unwrap_or(usize::MAX)),
            mulpdu: 0,
            inbound: Inbound::new(),
            outbound: Outbound::new(),
            outstanding: Outstanding::new(agreement.ord),
            requests: Requests::new(agreement.ird),
        };
        stream.set_emss(emss);
        stream
    }

    /// Tells the machine the present length of TCP's segments. A peer that announced large frames
    /// gets large frames whatever `emss` is.
    pub fn set_emss(&mut self, emss: usize) {
        self.mulpdu = match self.fpdu_max {
            Some(fpdu_max) => mulpdu_of_fpdu(fpdu_max, self.markers),
            None => mulpdu_of_emss(emss, self.markers),
        };
    }

    /// Longest ULPDU that this end sends, in bytes.
    pub fn mulpdu(&self) -> u16 {
        self.mulpdu
    }

    /// Most bytes one call of the `frame_*` family writes. A transmit buffer with this much room
    /// never makes it fail with [`FrameError::NoRoom`].
    pub fn frame_size_max(&self) -> usize {
        let size = fpdu_size(self.mulpdu);
        if self.markers { size + markers_in(size, 0) * crate::mpa::MARKER_LEN } else { size }
    }

    /// Whether frames may be sent yet: a responder must have validated a frame first.
    pub fn is_ready(&self) -> bool {
        match self.role {
            Role::Initiator => self.ready.is_none() || self.outbound.is_started(),
            Role::Responder => self.inbound.is_validated(),
        }
    }

    /// Extended requests that the peer takes.
    pub fn peer_offers(&self) -> ProfileFlags {
        self.theirs
    }

    /// How many more requests (Read, Atomic, Flush, Verify, Atomic Write) may be sent now.
    pub fn ord_available(&self) -> usize {
        self.outstanding.available()
    }

    /// Our requests that are not answered yet.
    pub fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// The peer's oldest request that is not answered yet, and must be answered next.
    pub fn next_request(&self) -> Option<&InboundRequest> {
        self.requests.front()
    }

    /// The peer's requests that are not answered yet.
    pub fn unanswered(&self) -> usize {
        self.requests.len()
    }
}
