//! Everything that can be wrong: what the peer sent, what memory refuses, what we may not send.

use core::convert::Infallible;

use crate::ddp::{QueueNumber, Stag};
use crate::rdmap::Opcode;

/// Why the receiving half ended. Every `Peer` variant is the peer's doing; none is recoverable.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// A frame's bytes are not those the peer summed.
    #[error("peer's frame has CRC {received:#010x}, its bytes have {computed:#010x}")]
    PeerCrc {
        /// What the bytes sum to.
        computed: u32,
        /// What the frame says.
        received: u32,
    },
    /// A frame is too short for a DDP header.
    #[error("peer sent a segment of {got} bytes, its header alone takes {need}")]
    PeerTruncated {
        /// Bytes a header takes.
        need: usize,
        /// Bytes there were.
        got: usize,
    },
    /// A DDP version we do not speak.
    #[error("peer speaks DDP version {version}")]
    PeerDdpVersion {
        /// Which.
        version: u8,
        /// The segment was tagged.
        tagged: bool,
    },
    /// An RDMAP version we do not speak.
    #[error("peer speaks RDMAP version {0}")]
    PeerRdmapVersion(u8),
    /// An opcode that is unknown, or that was not agreed on.
    #[error("peer sent {0}, which is unknown here or was not agreed on")]
    PeerOpcode(Opcode),
    /// An opcode in a segment of the wrong model.
    #[error("peer sent {opcode} in the wrong model (tagged: {tagged})")]
    PeerModel {
        /// Which.
        opcode: Opcode,
        /// The segment was tagged.
        tagged: bool,
    },
    /// An opcode on a queue it is not for, or a queue that does not exist.
    #[error("peer sent {opcode} to {queue}")]
    PeerQueue {
        /// What was sent.
        opcode: Opcode,
        /// Where to.
        queue: QueueNumber,
    },
    /// A message number out of order.
    #[error("peer sent message {got} to {queue}, {expected} is next")]
    PeerMsn {
        /// Which queue.
        queue: QueueNumber,
        /// The next in order.
        expected: u32,
        /// What came.
        got: u32,
    },
    /// A segment that does not continue its message where the last one ended.
    #[error("peer sent offset {got} of a message, {expected} is next")]
    PeerMessageOffset {
        /// The next in order.
        expected: u32,
        /// What came.
        got: u32,
    },
    /// An untagged message longer than 2^32 - 1 bytes.
    #[error("peer sent a message of more than 4 GiB")]
    PeerMessageTooLong,
    /// A message began before the previous one of its model ended.
    #[error("peer sent {opcode} in the middle of another message")]
    PeerInterleaved {
        /// What came in between.
        opcode: Opcode,
    },
    /// Opcode, STag or invalidate word changed from one segment of a message to the next.
    #[error("peer changed the header of a message halfway")]
    PeerMessageChanged,
    /// A message that always is one segment was cut.
    #[error("peer cut {opcode} into segments")]
    PeerFragmented {
        /// Which.
        opcode: Opcode,
    },
    /// A segment without payload that does not end its message.
    #[error("peer sent an empty segment of {opcode} that ends nothing")]
    PeerEmptySegment {
        /// Which.
        opcode: Opcode,
    },
    /// A tagged segment that does not continue its message where the last one ended.
    #[error("peer sent tagged offset {got:#x}, {expected:#x} is next")]
    PeerTaggedOffset {
        /// The next in order.
        expected: u64,
        /// What came.
        got: u64,
    },
    /// Offset plus length passes 2^64.
    #[error("peer sent an offset that wraps")]
    PeerOffsetWrap {
        /// In a tagged segment, or in a request.
        tagged: bool,
    },
    /// A header of the wrong length, or nonsense in it.
    #[error("peer sent {opcode} with {got} bytes of header where {need} are defined")]
    PeerLength {
        /// Which.
        opcode: Opcode,
        /// Bytes it takes.
        need: usize,
        /// Bytes there were.
        got: usize,
    },
    /// An atomic operation code without a meaning.
    #[error("peer asked for atomic operation {0:#x}")]
    PeerAtomicOperation(u8),
    /// An Atomic Write of anything but eight bytes.
    #[error("peer asked for an atomic write of {0} bytes")]
    PeerAtomicWriteLength(u32),
    /// A request that also wants a region invalidated, which nobody offered.
    #[error("peer asked to invalidate {stag} with {opcode}")]
    PeerInvalidate {
        /// With what.
        opcode: Opcode,
        /// Which region.
        stag: Stag,
    },
    /// More requests at once than we agreed to.
    #[error("peer has more than {ird} requests outstanding")]
    PeerInboundOverflow {
        /// What we agreed to.
        ird: u16,
    },
    /// A response of another kind than our oldest request, or to no request at all.
    #[error("peer sent {0} and no such request is next")]
    PeerResponse(Opcode),
    /// A response that names another request.
    #[error("peer answered atomic request {got}, {expected} is next")]
    PeerResponseId {
        /// Our oldest.
        expected: u32,
        /// What came.
        got: u32,
    },
    /// A Read Response into another region than asked for.
    #[error("peer answered a read into {got}, {expected} was asked for")]
    PeerResponseStag {
        /// The sink we named.
        expected: Stag,
        /// What came.
        got: Stag,
    },
    /// A Read Response longer or shorter than asked for.
    #[error("peer answered {got} bytes of a read of {expected}")]
    PeerResponseLength {
        /// What we asked for.
        expected: u32,
        /// What came, with this segment.
        got: u64,
    },
    /// As responder the peer must be silent until our first frame.
    #[error("peer sent a frame before it had one of ours")]
    PeerSpokeFirst,
    /// A Terminate without even a control word.
    #[error("peer sent a Terminate of {got} bytes")]
    PeerTerminateGarbled {
        /// Bytes there were.
        got: usize,
    },
    /// Nothing may follow a Terminate.
    #[error("peer sent more after its Terminate")]
    PeerAfterTerminate,
    /// An earlier call failed; whatever comes now is not looked at.
    #[error("the stream ended with an earlier error")]
    Ended,
}

/// What the caller found wrong with a frame that the stream machine found nothing wrong with.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Protection {
    /// No region has this STag.
    #[error("no such region")]
    PeerStag,
    /// The range is not inside the region.
    #[error("outside the region")]
    PeerBounds,
    /// The region does not allow this operation.
    #[error("the region does not allow it")]
    PeerAccess,
    /// The region belongs to another stream.
    #[error("the region belongs to another stream")]
    PeerNotThisStream,
    /// The region cannot be invalidated by the peer.
    #[error("the region cannot be invalidated")]
    PeerCannotInvalidate,
    /// An atomic operation on an address that is not a multiple of eight.
    #[error("the address is not 8-aligned")]
    PeerMisaligned,
    /// No receive is posted for a Send or an Immediate.
    #[error("no receive is posted")]
    PeerNoReceive,
    /// The posted receive is too small for the Send.
    #[error("the posted receive is too small")]
    PeerReceiveTooSmall,
    /// The stored bytes do not have the hash that a Verify expects.
    #[error("the stored bytes have another hash")]
    PeerHashMismatch,
    /// The medium could not read, place or flush: nothing on this stream counts any more.
    #[error("the medium failed")]
    MediaFailed,
    /// We cannot go on for reasons of our own, such as a shutdown or a revocation.
    #[error("local trouble")]
    Local,
}

/// Why nothing was framed. The stream is as it was, and so is what the caller meant to send.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError<E = Infallible> {
    /// The buffer has too little room; empty it and ask again.
    #[error("the frame takes {need} bytes")]
    NoRoom {
        /// Bytes it takes.
        need: usize,
    },
    /// As many requests are outstanding as the peer agreed to; wait for a response.
    #[error("{ord} requests are outstanding, which is all the peer takes")]
    OrdExhausted {
        /// How many it takes.
        ord: u16,
    },
    /// A responder may not send before it has received.
    #[error("a responder is silent until the first frame came")]
    NotReady,
    /// The agreed ready-to-receive message must go first.
    #[error("the ready-to-receive message must go first")]
    ReadyFirst,
    /// No ready-to-receive message was agreed on, or it has gone.
    #[error("no ready-to-receive message is due")]
    ReadyNotDue,
    /// Another message of this model is not complete yet.
    #[error("another message is not complete yet")]
    MessageOpen,
    /// The peer did not offer this operation.
    #[error("the peer did not offer {0}")]
    NotOffered(Opcode),
    /// The peer's oldest request wants another answer, or there is none.
    #[error("{0} is not the answer that is due")]
    NotDue(Opcode),
    /// Offset plus length passes 2^64.
    #[error("the offset wraps")]
    OffsetWrap,
    /// A hash longer than any algorithm yields.
    #[error("a hash of {got} bytes is too long")]
    HashTooLong {
        /// How long.
        got: usize,
    },
    /// Our Terminate has gone; nothing may follow it.
    #[error("the stream was terminated")]
    Ended,
    /// The closure could not provide the payload.
    #[error("the payload could not be provided")]
    Fill(E),
}
