//! The errors of a stream: faults of the peer, refusals of memory, operations that may not be framed.

use core::convert::Infallible;

use crate::ddp::{QueueNumber, Stag};
use crate::rdmap::Opcode;

/// The reason why the receiving half ended. Every `Peer` variant is the peer's fault; none is recoverable.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The CRC of a frame differs from its CRC field.
    #[error("peer's frame has CRC {received:#010x}, its bytes have {computed:#010x}")]
    PeerCrc {
        /// The CRC computed over the bytes.
        computed: u32,
        /// The CRC field of the frame.
        received: u32,
    },
    /// A frame is too short for a DDP header.
    #[error("peer sent a segment of {got} bytes, its header alone takes {need}")]
    PeerTruncated {
        /// Bytes a header takes.
        need: usize,
        /// Bytes received.
        got: usize,
    },
    /// A DDP version that this crate does not implement.
    #[error("peer speaks DDP version {version}")]
    PeerDdpVersion {
        /// Which.
        version: u8,
        /// The segment was tagged.
        tagged: bool,
    },
    /// An RDMAP version that this crate does not implement.
    #[error("peer speaks RDMAP version {0}")]
    PeerRdmapVersion(u8),
    /// An opcode that is unknown, or that the ends did not agree on.
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
        /// The opcode received.
        opcode: Opcode,
        /// The queue of the message.
        queue: QueueNumber,
    },
    /// A message number out of order.
    #[error("peer sent message {got} to {queue}, {expected} is next")]
    PeerMsn {
        /// The queue.
        queue: QueueNumber,
        /// The expected value.
        expected: u32,
        /// The received value.
        got: u32,
    },
    /// A segment that does not continue its message where the last one ended.
    #[error("peer sent offset {got} of a message, {expected} is next")]
    PeerMessageOffset {
        /// The expected value.
        expected: u32,
        /// The received value.
        got: u32,
    },
    /// An untagged message longer than 2^32 - 1 bytes.
    #[error("peer sent a message of more than 4 GiB")]
    PeerMessageTooLong,
    /// A message began before the previous one of its model ended.
    #[error("peer sent {opcode} in the middle of another message")]
    PeerInterleaved {
        /// The opcode that came in between.
        opcode: Opcode,
    },
    /// Opcode, STag or invalidate word changed from one segment of a message to the next.
    #[error("peer changed the header of a message halfway")]
    PeerMessageChanged,
    /// A message that must be one segment came in several.
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
        /// The expected value.
        expected: u64,
        /// The received value.
        got: u64,
    },
    /// Offset plus length passes 2^64.
    #[error("peer sent an offset that wraps")]
    PeerOffsetWrap {
        /// In a tagged segment, or in a request.
        tagged: bool,
    },
    /// A header of the wrong length, or with an invalid field.
    #[error("peer sent {opcode} with {got} bytes of header where {need} are defined")]
    PeerLength {
        /// Which.
        opcode: Opcode,
        /// Bytes needed.
        need: usize,
        /// Bytes received.
        got: usize,
    },
    /// An atomic operation code without a meaning.
    #[error("peer asked for atomic operation {0:#x}")]
    PeerAtomicOperation(u8),
    /// An Atomic Write of anything but eight bytes.
    #[error("peer asked for an atomic write of {0} bytes")]
    PeerAtomicWriteLength(u32),
    /// A request that also asks to invalidate a region, which this end does not offer.
    #[error("peer asked to invalidate {stag} with {opcode}")]
    PeerInvalidate {
        /// The opcode of the request.
        opcode: Opcode,
        /// The region to invalidate.
        stag: Stag,
    },
    /// More requests at once than the agreed IRD.
    #[error("peer has more than {ird} requests outstanding")]
    PeerInboundOverflow {
        /// The agreed IRD.
        ird: u16,
    },
    /// A response of another kind than our oldest request, or without any request.
    #[error("peer sent {0} and no such request is next")]
    PeerResponse(Opcode),
    /// An Atomic Response with the identifier of another request.
    #[error("peer answered atomic request {got}, {expected} is next")]
    PeerResponseId {
        /// The identifier of our oldest request.
        expected: u32,
        /// The received value.
        got: u32,
    },
    /// A Read Response into another region than the request named.
    #[error("peer answered a read into {got}, {expected} was asked for")]
    PeerResponseStag {
        /// The sink that our request named.
        expected: Stag,
        /// The received value.
        got: Stag,
    },
    /// A Read Response that is longer or shorter than the request.
    #[error("peer answered {got} bytes of a read of {expected}")]
    PeerResponseLength {
        /// Bytes that our request asked for.
        expected: u32,
        /// Bytes received, this segment included.
        got: u64,
    },
    /// The peer, as responder, sent a frame before our first frame.
    #[error("peer sent a frame before it had one of ours")]
    PeerSpokeFirst,
    /// A Terminate shorter than its control word.
    #[error("peer sent a Terminate of {got} bytes")]
    PeerTerminateGarbled {
        /// Bytes received.
        got: usize,
    },
    /// The peer sent a frame after its Terminate.
    #[error("peer sent more after its Terminate")]
    PeerAfterTerminate,
    /// An earlier call failed; the machine reads no further bytes.
    #[error("the stream ended with an earlier error")]
    Ended,
}

/// The caller's reason to refuse a frame that the stream machine accepted.
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
    /// The medium could not read, place or flush, so the stream must end.
    #[error("the medium failed")]
    MediaFailed,
    /// This end cannot continue for reasons of its own, such as a shutdown or a revocation.
    #[error("local trouble")]
    Local,
}

/// The reason why nothing was framed. The stream and the caller's message are unchanged.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError<E = Infallible> {
    /// The buffer has too little room; the caller empties the buffer and tries again.
    #[error("the frame takes {need} bytes")]
    NoRoom {
        /// Bytes needed.
        need: usize,
    },
    /// All the requests that the peer agreed to are outstanding; the caller waits for a response.
    #[error("{ord} requests are outstanding, which is all the peer takes")]
    OrdExhausted {
        /// The agreed ORD.
        ord: u16,
    },
    /// A responder may not send before it has received a valid frame.
    #[error("a responder is silent until the first frame came")]
    NotReady,
    /// The agreed ready-to-receive message must go first.
    #[error("the ready-to-receive message must go first")]
    ReadyFirst,
    /// No ready-to-receive message was agreed on, or it was sent already.
    #[error("no ready-to-receive message is due")]
    ReadyNotDue,
    /// Another message of this model is not complete yet.
    #[error("another message is not complete yet")]
    MessageOpen,
    /// The peer did not offer this operation.
    #[error("the peer did not offer {0}")]
    NotOffered(Opcode),
    /// The peer's oldest request needs another kind of answer, or there is no request.
    #[error("{0} is not the answer that is due")]
    NotDue(Opcode),
    /// Offset plus length passes 2^64.
    #[error("the offset wraps")]
    OffsetWrap,
    /// A hash longer than any algorithm yields.
    #[error("a hash of {got} bytes is too long")]
    HashTooLong {
        /// Length of the hash in bytes.
        got: usize,
    },
    /// Our Terminate was framed; nothing may follow it.
    #[error("the stream was terminated")]
    Ended,
    /// The closure could not provide the payload.
    #[error("the payload could not be provided")]
    Fill(E),
}
