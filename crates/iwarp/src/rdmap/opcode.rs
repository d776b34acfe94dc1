//! The RDMAP control byte: version and opcode.
//!
//! ```text
//!    7   6   5   4   3   2   1   0
//!  +---+---+---+---+---+---+---+---+
//!  |  RV   |  rsvd | opcode        |   RFC 5040: four bits of opcode, two reserved
//!  +---+---+---+---+---+---+---+---+
//!  |  RV   |rs | opcode            |   between two ends that announced a profile
//!  +---+---+---+---+---+---+---+---+
//! ```
//!
//! Spec: RFC 5040 §4.1, RFC 7306 §4, draft-talpey-rdma-commit-01 §3.

use core::fmt;

use super::RdmapError;
use crate::ddp::QueueNumber;

/// The kind of an RDMAP message. Unknown values survive.
#[derive(Clone, Copy, Eq, Hash, PartialEq)]
pub struct Opcode(pub u8);

impl Opcode {
    /// RDMA Write.
    pub const WRITE: Self = Self(0x00);
    /// RDMA Read Request.
    pub const READ_REQUEST: Self = Self(0x01);
    /// RDMA Read Response.
    pub const READ_RESPONSE: Self = Self(0x02);
    /// Send.
    pub const SEND: Self = Self(0x03);
    /// Send with Invalidate.
    pub const SEND_INVALIDATE: Self = Self(0x04);
    /// Send with Solicited Event.
    pub const SEND_SOLICITED: Self = Self(0x05);
    /// Send with Solicited Event and Invalidate.
    pub const SEND_SOLICITED_INVALIDATE: Self = Self(0x06);
    /// Terminate.
    pub const TERMINATE: Self = Self(0x07);
    /// Immediate Data.
    pub const IMMEDIATE: Self = Self(0x08);
    /// Immediate Data with Solicited Event.
    pub const IMMEDIATE_SOLICITED: Self = Self(0x09);
    /// Atomic Request.
    pub const ATOMIC_REQUEST: Self = Self(0x0a);
    /// Atomic Response.
    pub const ATOMIC_RESPONSE: Self = Self(0x0b);
    /// Flush Request. Ours by agreement, not assigned by IANA.
    pub const FLUSH_REQUEST: Self = Self(0x0c);
    /// Flush Response. Ours by agreement, not assigned by IANA.
    pub const FLUSH_RESPONSE: Self = Self(0x0d);
    /// Verify Request. Ours by agreement, not assigned by IANA.
    pub const VERIFY_REQUEST: Self = Self(0x0e);
    /// Verify Response. Ours by agreement; to IANA 0xF is "experimental" (RFC 6580 §3.4).
    pub const VERIFY_RESPONSE: Self = Self(0x0f);
    /// Atomic Write Request. Needs the fifth opcode bit.
    pub const ATOMIC_WRITE_REQUEST: Self = Self(0x10);
    /// Atomic Write Response. Needs the fifth opcode bit.
    pub const ATOMIC_WRITE_RESPONSE: Self = Self(0x11);

    /// Reads a control byte, ignoring its reserved bits.
    ///
    /// # Errors
    ///
    /// Any version but 1 is refused.
    #[inline]
    pub fn parse(control: u8, width: OpcodeWidth) -> Result<Self, RdmapError> {
        let version = control >> VERSION_SHIFT;
        if version != VERSION {
            return Err(RdmapError::PeerVersion(version));
        }
        Ok(Self(control & width.mask()))
    }

    /// The control byte with this opcode.
    #[inline]
    pub fn emit(self) -> u8 {
        (VERSION << VERSION_SHIFT) | (self.0 & OpcodeWidth::Five.mask())
    }

    /// Whether messages of this kind follow DDP's tagged model.
    #[inline]
    pub fn is_tagged(self) -> bool {
        matches!(self, Self::WRITE | Self::READ_RESPONSE)
    }

    /// The queue an untagged message of this kind is for; none for tagged and unknown ones.
    #[inline]
    pub fn queue(self) -> Option<QueueNumber> {
        match self {
            Self::SEND
            | Self::SEND_INVALIDATE
            | Self::SEND_SOLICITED
            | Self::SEND_SOLICITED_INVALIDATE
            | Self::IMMEDIATE
            | Self::IMMEDIATE_SOLICITED => Some(QueueNumber::SEND),
            Self::READ_REQUEST
            | Self::ATOMIC_REQUEST
            | Self::FLUSH_REQUEST
            | Self::VERIFY_REQUEST
            | Self::ATOMIC_WRITE_REQUEST => Some(QueueNumber::REQUEST),
            Self::TERMINATE => Some(QueueNumber::TERMINATE),
            Self::ATOMIC_RESPONSE
            | Self::FLUSH_RESPONSE
            | Self::VERIFY_RESPONSE
            | Self::ATOMIC_WRITE_RESPONSE => Some(QueueNumber::RESPONSE),
            _ => None,
        }
    }

    /// The Send opcode with these two properties.
    #[inline]
    pub fn send(solicited: bool, invalidates: bool) -> Self {
        match (solicited, invalidates) {
            (false, false) => Self::SEND,
            (false, true) => Self::SEND_INVALIDATE,
            (true, false) => Self::SEND_SOLICITED,
            (true, true) => Self::SEND_SOLICITED_INVALIDATE,
        }
    }

    /// Whether the message wakes a receiver that waits for solicited events.
    #[inline]
    pub fn is_solicited(self) -> bool {
        matches!(
            self,
            Self::SEND_SOLICITED | Self::SEND_SOLICITED_INVALIDATE | Self::IMMEDIATE_SOLICITED
        )
    }

    /// Whether the message carries an STag for its receiver to invalidate.
    #[inline]
    pub fn is_invalidating(self) -> bool {
        matches!(self, Self::SEND_INVALIDATE | Self::SEND_SOLICITED_INVALIDATE)
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opcode({:#04x})", self.0)
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "opcode {:#04x}", self.0)
    }
}

/// The width of the opcode in the control byte of a stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OpcodeWidth {
    /// RFC 5040: bit 0x10 is reserved and ignored.
    Four,
    /// Both ends announced a [`Profile`](crate::mpa::Profile).
    Five,
}

impl OpcodeWidth {
    fn mask(self) -> u8 {
        match self {
            Self::Four => 0x0f,
            Self::Five => 0x1f,
        }
    }
}

const VERSION: u8 = 1;
const VERSION_SHIFT: u32 = 6;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fifth_opcode_bit_counts_only_if_both_ends_agreed() {
        assert_eq!(Opcode::parse(0x50, OpcodeWidth::Four), Ok(Opcode::WRITE));
        assert_eq!(Opcode::parse(0x50, OpcodeWidth::Five), Ok(Opcode::ATOMIC_WRITE_REQUEST));
        assert_eq!(Opcode::parse(0x71, OpcodeWidth::Five), Ok(Opcode::ATOMIC_WRITE_RESPONSE));
        assert_eq!(Opcode::ATOMIC_WRITE_REQUEST.emit(), 0x50);
    }

    #[test]
    fn the_consortium_version_is_refused() {
        for (control, version) in [(0x03, 0), (0x83, 2), (0xc3, 3)] {
            let refused = Err(RdmapError::PeerVersion(version));
            assert_eq!(Opcode::parse(control, OpcodeWidth::Four), refused);
        }
    }

    #[test]
    fn every_known_opcode_is_tagged_or_has_a_queue() {
        for value in 0..0x20 {
            let opcode = Opcode(value);
            let known = value <= Opcode::ATOMIC_WRITE_RESPONSE.0;
            assert_eq!(opcode.is_tagged() || opcode.queue().is_some(), known, "{opcode}");
            assert_eq!(Opcode::parse(opcode.emit(), OpcodeWidth::Five), Ok(opcode));
        }
    }

    #[test]
    fn an_opcode_is_named_by_its_number() {
        assert_eq!(Opcode(0x12).to_string(), "opcode 0x12");
        assert_eq!(format!("{:?}", Opcode(0x12)), "Opcode(0x12)");
    }
}
