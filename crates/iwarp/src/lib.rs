//! MPA, DDP and RDMAP without sockets: software iWARP as a set of machines.
//!
//! ```text
//!   mpa     start-up frames, the two handshake machines, the dial order, FPDU framing, CRC, markers
//!   ddp     tagged and untagged segment headers
//!   rdmap   operations: opcodes and the headers of requests, responses and Terminate
//!   stream  one connection in full operation: FPDUs in, indications out; operations in, FPDUs out
//! ```
//!
//! A caller owns the TCP connection, the clock and the memory. The caller feeds bytes to
//! [`mpa::Initiator`] or [`mpa::Responder`] until there is an [`mpa::Agreement`], makes a
//! [`Stream`] of the agreement, then pulls one frame after the other with [`Stream::receive`] and writes
//! frames into its own transmit buffer with the `frame_*` family. Nothing here allocates per
//! frame, and no payload is copied except by the caller's own closure.
//!
//! The machine does not know the memory: whether an STag exists, how long the region is and which
//! operations it allows. The caller checks that, and refuses a frame with a [`Protection`].
//!
//! Spec: RFC 5044, RFC 6581 (mpa); RFC 5041 (ddp); RFC 5040, RFC 7306 (rdmap);
//! draft-talpey-rdma-commit-01 for Flush, Verify and Atomic Write between two ends that both
//! announced a [`mpa::Profile`].
#![forbid(unsafe_code)]

pub mod ddp;
pub mod mpa;
pub mod rdmap;
pub mod stream;

pub use ddp::Stag;
pub use mpa::{Agreement, Profile, Role};
pub use stream::{
    Cause, FrameError, Framed, Indication, Protection, Received, Stream, StreamError,
};
