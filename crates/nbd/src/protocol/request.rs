//! A request of the transmission phase.
//!
//! ```text
//!   0 magic 0x25609513   4 flags   6 command   8 cookie   16 offset   24 length   28 data of a write
//! ```
//!
//! Spec: NBD protocol, "Request message", "Request types", "Command flags".

use super::error::PeerError;
use super::limits::PAYLOAD_MAX;

/// A request. Whether its range lies in the export is not known yet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Request {
    /// What is asked for.
    pub command: Command,
    /// How.
    pub flags: u16,
    /// The client's name for the request, which its reply carries.
    pub cookie: u64,
    /// Where the range begins, in bytes.
    pub offset: u64,
    /// How long it is.
    pub len: u32,
}

/// The number of a command.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Command(pub u16);

impl Command {
    /// Read the range.
    pub const READ: Self = Self(0);
    /// Write the bytes that follow the request.
    pub const WRITE: Self = Self(1);
    /// The client takes its leave; there is no reply.
    pub const DISCONNECT: Self = Self(2);
    /// Make durable what was answered.
    pub const FLUSH: Self = Self(3);
    /// Give the range up.
    pub const TRIM: Self = Self(4);
    /// Make the range zeroes.
    pub const WRITE_ZEROES: Self = Self(6);
    /// Tell the states of the range.
    pub const BLOCK_STATUS: Self = Self(7);
}

impl Request {
    /// Bytes of a request without data.
    pub const LEN: usize = 28;

    /// The request that `bytes` begin with; `None` if its head has not arrived whole.
    ///
    /// # Errors
    ///
    /// [`PeerError::PeerMagic`], and [`PeerError::PeerPayloadTooLong`] for a write whose bytes nobody will wait for.
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>, PeerError> {
        let Some((head, _)) = bytes.split_first_chunk::<{ Self::LEN }>() else { return Ok(None) };
        let word =
            |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let half = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
        let long = |at: usize| u64::from(word(at)) << 32 | u64::from(word(at + 4));
        if word(0) != MAGIC {
            return Err(PeerError::PeerMagic { magic: u64::from(word(0)) });
        }
        let request = Self {
            command: Command(half(6)),
            flags: half(4),
            cookie: long(8),
            offset: long(16),
            len: word(24),
        };
        match request.command {
            Command::WRITE if request.len > PAYLOAD_MAX => {
                Err(PeerError::PeerPayloadTooLong { len: request.len })
            }
            _ => Ok(Some(request)),
        }
    }

    /// The bytes of the request, without data.
    pub fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&MAGIC.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&self.command.0.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_be_bytes());
        bytes[24..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }

    /// Bytes that follow the head.
    pub fn data_len(&self) -> usize {
        match self.command {
            Command::WRITE => usize::try_from(self.len).expect("PAYLOAD_MAX at most"),
            _ => 0,
        }
    }

    pub(super) const fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Whether the command has no flags but these.
    pub(super) const fn has_only(&self, flags: u16) -> bool {
        self.flags & !flags == 0
    }
}

const MAGIC: u32 = 0x2560_9513;
/// The change is durable before its reply.
pub(super) const FUA: u16 = 1;
/// Zeroes keep their space.
pub(super) const NO_HOLE: u16 = 1 << 1;
/// One chunk of data.
pub(super) const DF: u16 = 1 << 2;
/// One extent.
pub(super) const REQ_ONE: u16 = 1 << 3;
