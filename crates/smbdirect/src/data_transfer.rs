//! The only message after the negotiation: it carries payload, credits and keepalives.
//!
//! ```text
//!  0      2      4      6      8            12           16           20       24
//!  +------+------+------+------+------------+------------+------------+--------+---------
//!  | req. |grant.| flags| rsvd | remaining  | offset     | length     | (zero) | payload
//!  +------+------+------+------+------------+------------+------------+--------+---------
//!  a message without payload ends at 20; with one, offset is 24
//! ```
//!
//! `requested` is the total of credits that the sender wants to hold, `granted` the credits that its
//! peer gains, `remaining` the bytes that later fragments of the same SMB2 message carry.
//!
//! Spec: MS-SMBD §2.2.3, §3.1.5.4 (sending), §3.1.5.8 (receiving). Little-endian.

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::error::CloseReason;

/// The header exactly as it lies on the wire; any 20 bytes are a valid value of it.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    credits_requested: U16,
    credits_granted: U16,
    flags: U16,
    reserved: U16,
    remaining_data_length: U32,
    data_offset: U32,
    data_length: U32,
}

const _: () = assert!(size_of::<Header>() == DataTransfer::LEN);

/// A header that passed every check of a receiver except those that need the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DataTransfer {
    /// Send credits that the sender wants to hold in total. Never zero.
    pub credits_requested: u16,
    /// Send credits that the receiver gains.
    pub credits_granted: u16,
    /// The sender requests a message in answer.
    pub response_requested: bool,
    /// Bytes of the same SMB2 message that later fragments carry.
    pub remaining: u32,
}

impl DataTransfer {
    /// Bytes of a message without payload.
    pub const LEN: usize = 20;
    /// Offset at which the payload of a message begins.
    pub const PAYLOAD_OFFSET: usize = 24;

    /// Splits a received message into header and payload, trusting nothing in it.
    ///
    /// # Errors
    /// A broken rule of MS-SMBD §3.1.5.8, of those that need no state of the connection.
    pub fn parse(message: &[u8]) -> Result<(Self, &[u8]), CloseReason> {
        let got = message.len();
        let (header, _) = Header::ref_from_prefix(message)
            .map_err(|_| CloseReason::PeerTruncated { need: Self::LEN, got })?;
        if header.credits_requested.get() == 0 {
            return Err(CloseReason::PeerRequestsNoCredits);
        }
        let payload = payload_of(header, message)?;
        let remaining = header.remaining_data_length.get();
        if payload.is_empty() && remaining != 0 {
            // MS-SMBD §3.1.5.4: a message without payload announces no further payload.
            return Err(CloseReason::PeerEmptyFragment(remaining));
        }
        let repr = Self {
            credits_requested: header.credits_requested.get(),
            credits_granted: header.credits_granted.get(),
            // MS-SMBD §2.2.3: a receiver ignores unknown flags, which later versions may define.
            response_requested: header.flags.get() & RESPONSE_REQUESTED != 0,
            remaining,
        };
        Ok((repr, payload))
    }

    /// Bytes a message with a payload of `payload_len` bytes takes.
    pub fn message_len(payload_len: u32) -> u64 {
        if payload_len == 0 {
            Self::LEN as u64
        } else {
            Self::PAYLOAD_OFFSET as u64 + u64::from(payload_len)
        }
    }

    /// Writes the header, and the padding if a payload of `payload_len` bytes follows it.
    ///
    /// Returns the number of bytes written; the caller puts the payload behind them.
    pub fn emit(&self, payload_len: u32, out: &mut [u8; Self::PAYLOAD_OFFSET]) -> usize {
        let with_payload = payload_len != 0;
        let header = Header {
            credits_requested: U16::new(self.credits_requested),
            credits_granted: U16::new(self.credits_granted),
            flags: U16::new(if self.response_requested { RESPONSE_REQUESTED } else { 0 }),
            reserved: U16::ZERO,
            remaining_data_length: U32::new(self.remaining),
            data_offset: U32::new(if with_payload { PAYLOAD_OFFSET } else { 0 }),
            data_length: U32::new(payload_len),
        };
        let (head, padding) = out.split_at_mut(Self::LEN);
        head.copy_from_slice(header.as_bytes());
        padding.fill(0);
        if with_payload { Self::PAYLOAD_OFFSET } else { Self::LEN }
    }
}

fn payload_of<'a>(header: &Header, message: &'a [u8]) -> Result<&'a [u8], CloseReason> {
    let offset = header.data_offset.get();
    if !offset.is_multiple_of(8) {
        return Err(CloseReason::PeerMisaligned(offset));
    }
    // Both are 32 bits wide: the sum is taken in 64, where it cannot wrap.
    let end = u64::from(offset) + u64::from(header.data_length.get());
    let beyond = CloseReason::PeerPayloadBeyondEnd { end, got: message.len() };
    let start = usize::try_from(offset).map_err(|_| beyond)?;
    let end = usize::try_from(end).map_err(|_| beyond)?;
    let payload = message.get(start..end).ok_or(beyond)?;
    // This check is stricter than §3.1.5.8, which lets the payload begin inside the header.
    if !payload.is_empty() && start < DataTransfer::PAYLOAD_OFFSET {
        return Err(CloseReason::PeerPayloadInHeader(offset));
    }
    Ok(payload)
}

const RESPONSE_REQUESTED: u16 = 0x0001;
const PAYLOAD_OFFSET: u32 = 24;

#[cfg(test)]
mod tests {
    use super::*;

    // MS-SMBD §4.3, first fragment of 64 KiB sent 1000 bytes at a time with ten credits.
    const FRAGMENT: [u8; 24] = [
        0x0a, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, // credits 10, grants 1, no flags
        0x18, 0xfc, 0x00, 0x00, // 64536 bytes remain
        0x18, 0x00, 0x00, 0x00, // offset 24
        0xe8, 0x03, 0x00, 0x00, // 1000 bytes here
        0x00, 0x00, 0x00, 0x00, // padding
    ];
    const FRAGMENT_REPR: DataTransfer = DataTransfer {
        credits_requested: 10,
        credits_granted: 1,
        response_requested: false,
        remaining: 64_536,
    };
    // A keepalive: no payload, an answer wanted.
    const KEEPALIVE: [u8; 20] = [0xff, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    #[test]
    fn a_fragment_parses_and_emits() {
        let mut message = FRAGMENT.to_vec();
        message.extend_from_slice(&[0x5a; 1000]);
        assert_eq!(DataTransfer::parse(&message).unwrap(), (FRAGMENT_REPR, &[0x5a; 1000][..]));
        let mut out = [0xff; 24];
        assert_eq!(FRAGMENT_REPR.emit(1000, &mut out), 24);
        assert_eq!(out, FRAGMENT);
        assert_eq!(DataTransfer::message_len(1000), 1024);
    }

    #[test]
    fn a_message_without_payload_is_exactly_twenty_bytes() {
        let (repr, payload) = DataTransfer::parse(&KEEPALIVE).unwrap();
        assert!(repr.response_requested && payload.is_empty());
        let mut out = [0xff; 24];
        assert_eq!(repr.emit(0, &mut out), 20);
        assert_eq!(out[..20], KEEPALIVE);
        assert_eq!(DataTransfer::message_len(0), 20);
    }

    #[test]
    fn every_truncation_is_refused() {
        for got in 0..DataTransfer::LEN {
            let error = DataTransfer::parse(&KEEPALIVE[..got]).unwrap_err();
            assert_eq!(error, CloseReason::PeerTruncated { need: 20, got });
        }
    }

    fn with(field: usize, value: u32, len: usize) -> Result<usize, CloseReason> {
        let mut message = FRAGMENT.to_vec();
        message.resize(len, 0);
        message[field..field + 4].copy_from_slice(&value.to_le_bytes());
        DataTransfer::parse(&message).map(|(_, payload)| payload.len())
    }

    #[test]
    fn a_payload_must_lie_aligned_and_within_the_message() {
        const OFFSET: usize = 12;
        const LENGTH: usize = 16;
        assert_eq!(with(OFFSET, 24, 1024), Ok(1000));
        assert_eq!(with(OFFSET, 32, 1032), Ok(1000));
        assert_eq!(with(OFFSET, 28, 1032), Err(CloseReason::PeerMisaligned(28)));
        assert_eq!(with(OFFSET, 16, 1024), Err(CloseReason::PeerPayloadInHeader(16)));
        assert_eq!(with(OFFSET, 0, 1024), Err(CloseReason::PeerPayloadInHeader(0)));
        let beyond = |end, got| Err(CloseReason::PeerPayloadBeyondEnd { end, got });
        assert_eq!(with(OFFSET, 32, 1024), beyond(1032, 1024));
        assert_eq!(with(LENGTH, 1001, 1024), beyond(1025, 1024));
        assert_eq!(with(LENGTH, u32::MAX, 1024), beyond(24 + u64::from(u32::MAX), 1024));
        assert_eq!(with(OFFSET, 0xffff_fff8, 1024), beyond(0xffff_fff8 + 1000, 1024));
    }

    #[test]
    fn an_empty_message_that_announces_further_payload_is_refused() {
        let mut message = KEEPALIVE;
        message[8] = 9;
        assert_eq!(DataTransfer::parse(&message), Err(CloseReason::PeerEmptyFragment(9)));
    }

    #[test]
    fn a_message_that_asks_for_no_credits_is_refused() {
        let mut message = KEEPALIVE;
        message[0] = 0;
        assert_eq!(DataTransfer::parse(&message), Err(CloseReason::PeerRequestsNoCredits));
    }

    #[test]
    fn unknown_flags_and_reserved_bits_are_ignored() {
        let mut message = KEEPALIVE;
        message[4..8].copy_from_slice(&[0xfe, 0xff, 0xff, 0xff]);
        let (repr, _) = DataTransfer::parse(&message).unwrap();
        assert!(!repr.response_requested);
    }
}
