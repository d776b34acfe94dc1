//! OPLOCK_BREAK: the server takes back a caching right. Oplock and lease forms, told apart by
//! StructureSize.
//!
//! ```text
//!  oplock: notification, acknowledgement, response
//!  64   66      67  72         88
//!  +----+-------+---+----------+
//!  | 24 | level | 0 | file id  |
//!  +----+-------+---+----------+
//!  lease notification
//!  64   66      68      72          88        92    96       100           108
//!  +----+-------+-------+-----------+---------+-----+--------+-------------+
//!  | 44 | epoch | flags | lease key | current | new | reason | hints (8)   |
//!  +----+-------+-------+-----------+---------+-----+--------+-------------+
//!  lease acknowledgement, response
//!  64   66  68      72          88      92           100
//!  +----+---+-------+-----------+-------+------------+
//!  | 36 | 0 | flags | lease key | state | duration 0 |
//!  +----+---+-------+-----------+-------+------------+
//! ```
//!
//! Spec: MS-SMB2 §2.2.23, §2.2.24, §2.2.25.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::create::{LeaseKey, LeaseState, OplockLevel};
use crate::header::{FileId, Header, WireFileId};
use crate::parse_error::ParseError;
use crate::wire::{self, Reader};

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct WireOplock {
    structure_size: U16,
    level: u8,
    reserved: u8,
    reserved2: U32,
    file_id: WireFileId,
}

const _: () = assert!(size_of::<WireOplock>() == 24);

/// An oplock and what it becomes: notification, acknowledgement and response alike.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct OplockBreak {
    /// The new level.
    pub level: OplockLevel,
    /// Which open.
    pub file_id: FileId,
}

impl OplockBreak {
    /// Appends the body behind a header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        wire::put(
            out,
            &WireOplock {
                structure_size: U16::new(24),
                level: self.level.0,
                reserved: 0,
                reserved2: U32::new(0),
                file_id: self.file_id.into(),
            },
        );
    }

    fn parse(pdu: &[u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<WireOplock>(pdu, 24)?;
        Ok(Self { level: OplockLevel(wire.level), file_id: wire.file_id.into() })
    }
}

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct WireLease {
    structure_size: U16,
    reserved: U16,
    flags: U32,
    lease_key: [u8; 16],
    state: U32,
    duration: U64,
}

const _: () = assert!(size_of::<WireLease>() == 36);

/// The state a client keeps of a lease, and the server's word on it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LeaseBreakAck {
    /// Which lease.
    pub lease_key: LeaseKey,
    /// What is left of it.
    pub state: LeaseState,
}

impl LeaseBreakAck {
    /// Appends the body behind a header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        wire::put(
            out,
            &WireLease {
                structure_size: U16::new(36),
                reserved: U16::new(0),
                flags: U32::new(0),
                lease_key: self.lease_key.0,
                state: U32::new(self.state.bits()),
                duration: U64::new(0),
            },
        );
    }

    fn parse(pdu: &[u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<WireLease>(pdu, 36)?;
        let state = LeaseState::from_bits_retain(wire.state.get());
        Ok(Self { lease_key: LeaseKey(wire.lease_key), state })
    }
}

#[derive(FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct WireNotification {
    structure_size: U16,
    epoch: U16,
    flags: U32,
    lease_key: [u8; 16],
    current: U32,
    new: U32,
    reason: U32,
    access_hint: U32,
    share_hint: U32,
}

const _: () = assert!(size_of::<WireNotification>() == 44);

/// The server takes back part of a lease.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LeaseBreakNotification {
    /// Epoch of a v2 lease, 0 for v1.
    pub epoch: u16,
    /// The client must acknowledge.
    pub ack_required: bool,
    /// Which lease.
    pub lease_key: LeaseKey,
    /// What it is now.
    pub current: LeaseState,
    /// What it shall be.
    pub new: LeaseState,
}

impl LeaseBreakNotification {
    /// Appends the body behind a header.
    pub fn emit(&self, out: &mut Vec<u8>) {
        wire::put(
            out,
            &WireNotification {
                structure_size: U16::new(44),
                epoch: U16::new(self.epoch),
                flags: U32::new(if self.ack_required { ACK_REQUIRED } else { 0 }),
                lease_key: self.lease_key.0,
                current: U32::new(self.current.bits()),
                new: U32::new(self.new.bits()),
                // MS-SMB2 §2.2.23.2: all three are reserved, zero.
                reason: U32::new(0),
                access_hint: U32::new(0),
                share_hint: U32::new(0),
            },
        );
    }

    fn parse(pdu: &[u8]) -> Result<Self, ParseError> {
        let wire = wire::body::<WireNotification>(pdu, 44)?;
        Ok(Self {
            epoch: wire.epoch.get(),
            ack_required: wire.flags.get() & ACK_REQUIRED != 0,
            lease_key: LeaseKey(wire.lease_key),
            current: LeaseState::from_bits_retain(wire.current.get()),
            new: LeaseState::from_bits_retain(wire.new.get()),
        })
    }
}

/// An acknowledgement from a client, and the response to it: the two look the same.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BreakAck {
    /// Of an oplock.
    Oplock(OplockBreak),
    /// Of a lease.
    Lease(LeaseBreakAck),
}

impl BreakAck {
    /// Reads an acknowledgement or the response to one.
    ///
    /// # Errors
    /// Malformed, or neither form.
    pub fn parse(pdu: &[u8]) -> Result<Self, ParseError> {
        match structure_size(pdu)? {
            36 => LeaseBreakAck::parse(pdu).map(Self::Lease),
            _ => OplockBreak::parse(pdu).map(Self::Oplock),
        }
    }
}

/// A break from the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum BreakNotification {
    /// Of an oplock.
    Oplock(OplockBreak),
    /// Of a lease.
    Lease(LeaseBreakNotification),
}

impl BreakNotification {
    /// Reads a notification.
    ///
    /// # Errors
    /// Malformed, or neither form.
    pub fn parse(pdu: &[u8]) -> Result<Self, ParseError> {
        match structure_size(pdu)? {
            44 => LeaseBreakNotification::parse(pdu).map(Self::Lease),
            _ => OplockBreak::parse(pdu).map(Self::Oplock),
        }
    }
}

fn structure_size(pdu: &[u8]) -> Result<u16, ParseError> {
    Reader::new(pdu.get(Header::LEN..).unwrap_or_default()).u16()
}

const ACK_REQUIRED: u32 = 1;
