//! Work requests and how they end.
//!
//! Three words are kept apart: bytes are **placed** when they arrived, **visible** when any reader
//! sees them, **durable** when they survive power loss. A completed write or send says none of
//! the three: it says that TCP has taken the bytes. Only an answer to a read, an atomic or a
//! flush is evidence about the other side.

use super::ids::{QpId, Rkey};
use super::region::LocalSlice;

/// One operation, to be given to `Engine::post_send`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WorkRequest<'a> {
    /// Returned in the completion.
    pub wr_id: u64,
    /// Whether success is reported. Failure always is.
    pub signaled: bool,
    /// What to do.
    pub operation: Operation<'a>,
}

impl<'a> WorkRequest<'a> {
    /// A request whose success is reported.
    pub fn signaled(wr_id: u64, operation: Operation<'a>) -> Self {
        Self { wr_id, signaled: true, operation }
    }

    /// A request that only reports its failure.
    pub fn unsignaled(wr_id: u64, operation: Operation<'a>) -> Self {
        Self { wr_id, signaled: false, operation }
    }
}

/// What a work request does.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Operation<'a> {
    /// A message into the peer's next posted receive.
    Send {
        /// The message.
        payload: Payload<'a>,
        /// A region of the peer that ends with this message.
        invalidate: Option<Rkey>,
        /// Asks the peer to wake its waiting owner.
        solicited: bool,
    },
    /// Eight bytes that consume the peer's next posted receive without touching its buffer.
    Immediate {
        /// The bytes, as a number.
        data: u64,
        /// Asks the peer to wake its waiting owner.
        solicited: bool,
    },
    /// Bytes into the peer's memory. Completes when handed to TCP; promises nothing else.
    Write {
        /// The bytes.
        payload: Payload<'a>,
        /// The peer's region.
        rkey: Rkey,
        /// Address of the first byte, counted from the region's `remote_addr_base`.
        remote_addr: u64,
    },
    /// Bytes out of the peer's memory, `local.len` of them.
    Read {
        /// The target of the bytes. Its region needs `Access::READ_SINK`.
        local: LocalSlice,
        /// The peer's region.
        rkey: Rkey,
        /// Address of the first byte.
        remote_addr: u64,
    },
    /// Everything this queue pair placed in the range before reaches the asked state.
    ///
    /// # Durability
    ///
    /// With [`Placement::Persistence`], success means durable in the class of the peer's medium.
    Flush {
        /// The peer's region.
        rkey: Rkey,
        /// Address of the first byte.
        remote_addr: u64,
        /// Length in bytes.
        len: u32,
        /// Which state.
        kind: Placement,
    },
    /// Eight aligned bytes in one store, after every earlier flush and verify has succeeded. Not
    /// durable by itself: follow it with a flush.
    AtomicWrite {
        /// The peer's region.
        rkey: Rkey,
        /// Address, a multiple of 8.
        remote_addr: u64,
        /// The number to store, in the peer's byte order.
        value: u64,
    },
    /// The hash of bytes the peer has stored, see [`HASH_CRC32C`]. Runs after earlier flushes.
    Verify {
        /// The peer's region.
        rkey: Rkey,
        /// Address of the first byte.
        remote_addr: u64,
        /// Length in bytes.
        len: u32,
        /// If given and different, the peer ends the connection before anything later happens.
        expected: Option<u32>,
    },
    /// Adds to eight aligned bytes; the completion carries the number before.
    FetchAdd {
        /// The peer's region.
        rkey: Rkey,
        /// Address, a multiple of 8.
        remote_addr: u64,
        /// What to add.
        add: u64,
        /// Bits at which a carry is cut; 0 for an ordinary 64-bit addition (RFC 7306 §5.2.1).
        mask: u64,
    },
    /// Swaps eight aligned bytes if they compare equal; the completion carries the number before.
    CompareSwap {
        /// The peer's region.
        rkey: Rkey,
        /// Address, a multiple of 8.
        remote_addr: u64,
        /// What to compare with.
        compare: u64,
        /// Which bits to compare.
        compare_mask: u64,
        /// What to store.
        swap: u64,
        /// Which bits to store.
        swap_mask: u64,
    },
}

impl Operation<'_> {
    /// Whether the peer answers the operation: answered operations count against ORD.
    pub fn is_answered(&self) -> bool {
        !matches!(self, Self::Send { .. } | Self::Immediate { .. } | Self::Write { .. })
    }

    /// The opcode its completion will carry.
    pub fn opcode(&self) -> WcOpcode {
        match self {
            Self::Send { .. } => WcOpcode::Send,
            Self::Immediate { .. } => WcOpcode::Immediate,
            Self::Write { .. } => WcOpcode::Write,
            Self::Read { .. } => WcOpcode::Read,
            Self::Flush { .. } => WcOpcode::Flush,
            Self::AtomicWrite { .. } => WcOpcode::AtomicWrite,
            Self::Verify { .. } => WcOpcode::Verify,
            Self::FetchAdd { .. } => WcOpcode::FetchAdd,
            Self::CompareSwap { .. } => WcOpcode::CompareSwap,
        }
    }
}

/// Hash identifier of CRC-32C (as in RFC 3720), the one hash of [`Operation::Verify`] so far. On
/// the wire the hash is four octets, most significant first.
pub const HASH_CRC32C: u8 = 1;

/// Where the bytes of a send or write come from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Payload<'a> {
    /// Copied while posting; at most `Engine::inline_max` bytes.
    Inline(&'a [u8]),
    /// Read from registered memory when transmitted. Must not change until the completion.
    Registered(LocalSlice),
}

impl Payload<'_> {
    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Inline(bytes) => bytes.len(),
            Self::Registered(slice) => {
                usize::try_from(slice.len).expect("usize has at least 32 bits here")
            }
        }
    }

    /// Whether there is nothing to send.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The state that a flush asks for. These are not the bits of any wire: InfiniBand and the iWARP
/// draft number them in opposite orders.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Placement {
    /// Any reader on the peer sees the bytes.
    Visibility,
    /// The bytes survive power loss.
    Persistence,
}

/// The end of one work request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WorkCompletion {
    /// The queue pair it was posted to.
    pub qp: QpId,
    /// The id that the poster gave the request.
    pub wr_id: u64,
    /// The kind of the request.
    pub opcode: WcOpcode,
    /// The outcome. The fields below mean something only on success.
    pub status: WcStatus,
    /// Bytes sent, read or received.
    pub len: u32,
    /// Receives: whether the sender asked to wake the waiting owner.
    pub solicited: bool,
    /// Receives: the number of an immediate message.
    pub immediate: Option<u64>,
    /// Receives: our region that the sender's message ended.
    pub invalidated: Option<Rkey>,
    /// Fetch-and-add and compare-and-swap: the number before.
    pub atomic: Option<u64>,
    /// Verify: the hash of the peer's bytes.
    pub hash: Option<u32>,
}

impl WorkCompletion {
    /// A completion that carries nothing beyond its outcome.
    pub fn new(qp: QpId, wr_id: u64, opcode: WcOpcode, status: WcStatus, len: u32) -> Self {
        Self {
            qp,
            wr_id,
            opcode,
            status,
            len,
            solicited: false,
            immediate: None,
            invalidated: None,
            atomic: None,
            hash: None,
        }
    }

    /// Whether the request did what was asked.
    pub fn is_success(&self) -> bool {
        self.status == WcStatus::Success
    }
}

/// The kind of a completed request.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum WcOpcode {
    /// A send was handed over.
    Send,
    /// An immediate message was handed over.
    Immediate,
    /// A write was handed over.
    Write,
    /// A read was answered.
    Read,
    /// A flush was answered.
    Flush,
    /// An atomic write was answered.
    AtomicWrite,
    /// A verify was answered.
    Verify,
    /// A fetch-and-add was answered.
    FetchAdd,
    /// A compare-and-swap was answered.
    CompareSwap,
    /// A posted receive was filled.
    Recv,
    /// A posted receive was consumed by an immediate message; its buffer is untouched.
    RecvImmediate,
}

/// How a work request ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum WcStatus {
    /// Success.
    Success,
    /// Never carried out, or not known to be: the connection ended first.
    Flushed,
    /// The peer refused to touch the memory named. Given to the oldest unanswered request.
    RemoteAccess,
    /// The peer could not carry out the operation. Given to the oldest unanswered request.
    RemoteOperation,
    /// Our own memory, named by the request, is no longer registered or is too small.
    LocalProtection,
    /// Our own medium failed under the request.
    LocalMedia,
}
