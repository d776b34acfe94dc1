//! The 64-byte header in front of every SMB2 message.
//!
//! ```text
//!  0          4       6        8          12       14       16       20           24
//!  +----------+-------+--------+----------+--------+--------+--------+------------+-----------+
//!  | FE 'SMB' | 64    | credit | status / | command| credits| flags  | next       | message   |
//!  |          |       | charge | chan.seq |        |        |        | command    | id (8)    |
//!  +----------+-------+--------+----------+--------+--------+--------+------------+-----------+
//!  32                            40            48                                            64
//!  +--------------+--------------+-------------+---------------------------------------------+
//!  | reserved (4) | tree id (4)  | session id  | signature                                   |
//!  |   or async id (8)           |             |                                             |
//!  +-----------------------------+-------------+---------------------------------------------+
//! ```
//!
//! Spec: MS-SMB2 §2.2.1.

use bitflags::bitflags;
use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::command::Command;
use crate::parse_error::{Field, ParseError};
use crate::status::NtStatus;
use crate::wire;

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    protocol_id: [u8; 4],
    structure_size: U16,
    credit_charge: U16,
    status: U32,
    command: U16,
    credits: U16,
    flags: U32,
    next_command: U32,
    message_id: U64,
    route: U64,
    session_id: U64,
    signature: [u8; 16],
}

const _: () = assert!(size_of::<Wire>() == Header::LEN);

/// A header of a request or a response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Header {
    /// Credits this request consumes; 0 counts as 1 (and is all 2.0.2 knows).
    pub credit_charge: u16,
    /// Status of a response. In a request of 3.x the low 16 bits are the channel sequence.
    pub status: NtStatus,
    /// What is asked or answered.
    pub command: Command,
    /// Credits asked for in a request, granted in a response.
    pub credits: u16,
    /// Flags; [`HeaderFlags::ASYNC`] is derived from `route` when emitted.
    pub flags: HeaderFlags,
    /// Offset of the next PDU of the compound, 0 in the last.
    pub next_command: u32,
    /// Which message of the connection.
    pub message_id: MessageId,
    /// Tree of a synchronous message, async id of an asynchronous one.
    pub route: Route,
    /// Session, 0 before there is one.
    pub session_id: SessionId,
    /// Signature, zeros when unsigned.
    pub signature: [u8; 16],
}

/// The eight bytes whose meaning the ASYNC flag decides.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Route {
    /// A synchronous message.
    Sync {
        /// Reserved (a process id for old clients): echo it.
        process_id: u32,
        /// The tree connect it belongs to.
        tree_id: TreeId,
    },
    /// An interim or final asynchronous response, or the CANCEL of one.
    Async(AsyncId),
}

impl Header {
    /// Bytes the header takes on the wire.
    pub const LEN: usize = 64;
    /// Where the signature lies.
    pub const SIGNATURE: std::ops::Range<usize> = 48..64;
    /// The first four bytes of every plain SMB2 message.
    pub const PROTOCOL_ID: [u8; 4] = *b"\xfeSMB";

    /// A request header with everything else zero.
    pub fn request(command: Command, message_id: MessageId) -> Self {
        Self {
            credit_charge: 0,
            status: NtStatus::SUCCESS,
            command,
            credits: 0,
            flags: HeaderFlags::empty(),
            next_command: 0,
            message_id,
            route: Route::Sync { process_id: 0, tree_id: TreeId(0) },
            session_id: SessionId(0),
            signature: [0; 16],
        }
    }

    /// The header that answers `self`: same ids, response flag, no signature, no credits yet.
    ///
    /// Of the flags only RELATED and the priority go back; whether the answer is signed is decided later.
    #[must_use]
    pub fn response(&self, status: NtStatus) -> Self {
        let kept = HeaderFlags::RELATED | HeaderFlags::PRIORITY_MASK;
        Self {
            status,
            credits: 0,
            flags: (self.flags & kept) | HeaderFlags::RESPONSE,
            next_command: 0,
            signature: [0; 16],
            ..*self
        }
    }

    /// Reads the header of a PDU.
    ///
    /// # Errors
    /// Too short, another protocol id, or a StructureSize that is not 64. NextCommand is checked
    /// by [`crate::compound`], which knows the frame.
    pub fn parse(pdu: &[u8]) -> Result<Self, ParseError> {
        let (wire, _) = wire::view::<Wire>(pdu)?;
        if wire.protocol_id != Self::PROTOCOL_ID {
            return Err(ParseError::PeerProtocolId(u32::from_be_bytes(wire.protocol_id)));
        }
        if usize::from(wire.structure_size.get()) != Self::LEN {
            let got = wire.structure_size.get();
            return Err(ParseError::PeerStructureSize { expected: 64, got });
        }
        let flags = HeaderFlags::from_bits_retain(wire.flags.get());
        Ok(Self {
            credit_charge: wire.credit_charge.get(),
            status: NtStatus(wire.status.get()),
            command: Command(wire.command.get()),
            credits: wire.credits.get(),
            flags,
            next_command: wire.next_command.get(),
            message_id: MessageId(wire.message_id.get()),
            route: Route::from_wire(wire.route.get(), flags),
            session_id: SessionId(wire.session_id.get()),
            signature: wire.signature,
        })
    }

    /// Appends the header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let mut flags = self.flags;
        flags.set(HeaderFlags::ASYNC, matches!(self.route, Route::Async(_)));
        wire::put(
            out,
            &Wire {
                protocol_id: Self::PROTOCOL_ID,
                structure_size: U16::new(64),
                credit_charge: U16::new(self.credit_charge),
                status: U32::new(self.status.0),
                command: U16::new(self.command.0),
                credits: U16::new(self.credits),
                flags: U32::new(flags.bits()),
                next_command: U32::new(self.next_command),
                message_id: U64::new(self.message_id.0),
                route: U64::new(self.route.to_wire()),
                session_id: U64::new(self.session_id.0),
                signature: self.signature,
            },
        );
    }

    /// The tree a synchronous message belongs to.
    pub fn tree_id(&self) -> Option<TreeId> {
        match self.route {
            Route::Sync { tree_id, .. } => Some(tree_id),
            Route::Async(_) => None,
        }
    }

    /// The async id of an asynchronous message.
    pub fn async_id(&self) -> Option<AsyncId> {
        match self.route {
            Route::Sync { .. } => None,
            Route::Async(id) => Some(id),
        }
    }

    /// The channel sequence of a 3.x request.
    pub fn channel_sequence(&self) -> u16 {
        let [low, high, _, _] = self.status.0.to_le_bytes();
        u16::from_le_bytes([low, high])
    }

    /// Reads the signature of an emitted or received PDU.
    ///
    /// # Errors
    /// The PDU is shorter than a header.
    pub fn signature(pdu: &[u8]) -> Result<[u8; 16], ParseError> {
        Ok(wire::view::<Wire>(pdu)?.0.signature)
    }

    /// Writes the signature into an emitted PDU and sets the SIGNED flag.
    ///
    /// # Errors
    /// The PDU is shorter than a header.
    pub fn set_signature(pdu: &mut [u8], signature: [u8; 16]) -> Result<(), ParseError> {
        let got = pdu.len();
        let (wire, _) = Wire::mut_from_prefix(pdu)
            .map_err(|_| ParseError::PeerTruncated { need: Self::LEN, got })?;
        wire.flags = U32::new(wire.flags.get() | HeaderFlags::SIGNED.bits());
        wire.signature = signature;
        Ok(())
    }
}

impl Route {
    fn from_wire(bits: u64, flags: HeaderFlags) -> Self {
        if flags.contains(HeaderFlags::ASYNC) {
            return Self::Async(AsyncId(bits));
        }
        let [a, b, c, d, e, f, g, h] = bits.to_le_bytes();
        Self::Sync {
            process_id: u32::from_le_bytes([a, b, c, d]),
            tree_id: TreeId(u32::from_le_bytes([e, f, g, h])),
        }
    }

    fn to_wire(self) -> u64 {
        match self {
            Self::Sync { process_id, tree_id } => {
                u64::from(tree_id.0) << 32 | u64::from(process_id)
            }
            Self::Async(id) => id.0,
        }
    }
}

bitflags! {
    /// Header flags; unknown bits survive.
    #[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
    pub struct HeaderFlags: u32 {
        /// SMB2_FLAGS_SERVER_TO_REDIR: a response.
        const RESPONSE = 0x0000_0001;
        /// The route is an async id.
        const ASYNC = 0x0000_0002;
        /// Uses session, tree and file of the PDU before it.
        const RELATED = 0x0000_0004;
        /// The signature is there.
        const SIGNED = 0x0000_0008;
        /// I/O priority, three bits (3.1.1).
        const PRIORITY_MASK = 0x0000_0070;
        /// Path names are DFS names.
        const DFS_OPERATIONS = 0x1000_0000;
        /// A replay of an earlier request.
        const REPLAY = 0x2000_0000;
        const _ = !0;
    }
}

/// Sequence number of a message within its connection.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct MessageId(pub u64);

impl MessageId {
    /// What unsolicited messages (oplock breaks) carry.
    pub const UNSOLICITED: Self = Self(u64::MAX);
}

/// An authenticated context.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SessionId(pub u64);

impl SessionId {
    /// In a related request: the session of the request before.
    pub const RELATED: Self = Self(u64::MAX);
}

/// A connection to a share.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct TreeId(pub u32);

impl TreeId {
    /// In a related request: the tree of the request before.
    pub const RELATED: Self = Self(u32::MAX);
}

/// Names a request that was answered with PENDING.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AsyncId(pub u64);

/// Both halves of the name of an open.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FileId {
    /// Survives a reconnect of a durable open.
    pub persistent: u64,
    /// Valid on this session.
    pub volatile: u64,
}

impl FileId {
    /// Bytes on the wire.
    pub const LEN: usize = 16;
    /// In a related request: the open of the request before.
    pub const RELATED: Self = Self { persistent: u64::MAX, volatile: u64::MAX };
}

/// A file id inside a message's wire structure.
#[derive(Clone, Copy, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct WireFileId {
    persistent: U64,
    volatile: U64,
}

impl From<FileId> for WireFileId {
    fn from(id: FileId) -> Self {
        Self { persistent: U64::new(id.persistent), volatile: U64::new(id.volatile) }
    }
}

impl From<WireFileId> for FileId {
    fn from(id: WireFileId) -> Self {
        Self { persistent: id.persistent.get(), volatile: id.volatile.get() }
    }
}

/// Refuses flags that only the other direction may carry.
///
/// # Errors
/// The RESPONSE flag is not `response`.
pub fn expect_direction(header: &Header, response: bool) -> Result<(), ParseError> {
    if header.flags.contains(HeaderFlags::RESPONSE) != response {
        let value = u64::from(header.flags.bits());
        return Err(ParseError::PeerValue { field: Field::Flags, value });
    }
    Ok(())
}
