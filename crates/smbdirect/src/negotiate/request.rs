//! The negotiation request: the sizes that an initiator can send, receive and reassemble.
//!
//! ```text
//!  0        2        4        6        8              12             16             20
//!  +--------+--------+--------+--------+--------------+--------------+--------------+
//!  | min    | max    | rsvd   | credits| preferred    | receive size | fragmented   |
//!  | version| version|        | wanted | send size    |              | size         |
//!  +--------+--------+--------+--------+--------------+--------------+--------------+
//! ```
//!
//! Spec: MS-SMBD §2.2.1, §3.1.5.6. Little-endian.

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::VERSION;
use crate::config::{Config, FRAGMENTED_SIZE_FLOOR, MESSAGE_SIZE_FLOOR};
use crate::error::CloseReason;

/// The request exactly as it lies on the wire; any 20 bytes are a valid value of it.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    min_version: U16,
    max_version: U16,
    reserved: U16,
    credits_requested: U16,
    preferred_send_size: U32,
    max_receive_size: U32,
    max_fragmented_size: U32,
}

const _: () = assert!(size_of::<Wire>() == NegotiateRequest::LEN);

/// The limits that one side announces, in the request and in the response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Offer {
    /// Send credits wanted in total. Never zero.
    pub credits_requested: u16,
    /// Largest message that this side wants to send, in bytes.
    pub preferred_send_size: u32,
    /// Largest message that this side receives, in bytes. At least 128.
    pub receive_size_max: u32,
    /// Largest message that this side reassembles, in bytes. At least 131,072.
    pub fragmented_size_max: u32,
}

impl Offer {
    /// The limits of `config`, as this side announces them.
    pub(super) fn of(config: &Config) -> Self {
        Self {
            credits_requested: config.send_credit_target,
            preferred_send_size: config.send_size_max,
            receive_size_max: config.receive_size_max,
            fragmented_size_max: config.fragmented_receive_size_max,
        }
    }

    /// The floors of MS-SMBD §3.1.5.6 and §3.1.5.7.
    pub(super) fn check(self) -> Result<Self, CloseReason> {
        if self.credits_requested == 0 {
            return Err(CloseReason::PeerRequestsNoCredits);
        }
        if self.receive_size_max < MESSAGE_SIZE_FLOOR {
            return Err(CloseReason::PeerReceiveSize(self.receive_size_max));
        }
        if self.fragmented_size_max < FRAGMENTED_SIZE_FLOOR {
            return Err(CloseReason::PeerFragmentedSize(self.fragmented_size_max));
        }
        Ok(self)
    }
}

/// A request that passed every check.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct NegotiateRequest {
    /// The limits that the initiator announces.
    pub offer: Offer,
}

impl NegotiateRequest {
    /// Bytes the request takes on the wire.
    pub const LEN: usize = 20;

    /// Reads a received request, trusting nothing in it. Bytes behind it are ignored.
    ///
    /// # Errors
    /// The first broken rule of MS-SMBD §3.1.5.6, in the order of that section.
    pub fn parse(message: &[u8]) -> Result<Self, CloseReason> {
        let (wire, _) = Wire::ref_from_prefix(message)
            .map_err(|_| CloseReason::PeerTruncated { need: Self::LEN, got: message.len() })?;
        let (min, max) = (wire.min_version.get(), wire.max_version.get());
        if !(min..=max).contains(&VERSION) {
            return Err(CloseReason::PeerVersion { min, max });
        }
        let offer = Offer {
            credits_requested: wire.credits_requested.get(),
            preferred_send_size: wire.preferred_send_size.get(),
            receive_size_max: wire.max_receive_size.get(),
            fragmented_size_max: wire.max_fragmented_size.get(),
        };
        Ok(Self { offer: offer.check()? })
    }

    /// Writes the request. Cannot fail.
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        let wire = Wire {
            min_version: U16::new(VERSION),
            max_version: U16::new(VERSION),
            reserved: U16::ZERO,
            credits_requested: U16::new(self.offer.credits_requested),
            preferred_send_size: U32::new(self.offer.preferred_send_size),
            max_receive_size: U32::new(self.offer.receive_size_max),
            max_fragmented_size: U32::new(self.offer.fragmented_size_max),
        };
        out.copy_from_slice(wire.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // MS-SMBD §4.1: version 1.0, 10 credits, 1 KiB sends and receives, 128 KiB fragmented.
    const GOLDEN: [u8; 20] = [
        0x00, 0x01, 0x00, 0x01, 0x00, 0x00, 0x0a, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x04, 0x00,
        0x00, 0x00, 0x00, 0x02, 0x00,
    ];
    const REPR: NegotiateRequest = NegotiateRequest {
        offer: Offer {
            credits_requested: 10,
            preferred_send_size: 1024,
            receive_size_max: 1024,
            fragmented_size_max: 131_072,
        },
    };

    #[test]
    fn golden_bytes_parse_and_emit() {
        assert_eq!(NegotiateRequest::parse(&GOLDEN), Ok(REPR));
        let mut out = [0; 20];
        REPR.emit(&mut out);
        assert_eq!(out, GOLDEN);
    }

    #[test]
    fn every_truncation_is_refused_and_a_tail_is_ignored() {
        for got in 0..20 {
            let truncated = CloseReason::PeerTruncated { need: 20, got };
            assert_eq!(NegotiateRequest::parse(&GOLDEN[..got]), Err(truncated));
        }
        let mut long = GOLDEN.to_vec();
        long.push(1);
        assert_eq!(NegotiateRequest::parse(&long), Ok(REPR));
    }

    fn with(at: usize, bytes: &[u8]) -> Result<NegotiateRequest, CloseReason> {
        let mut message = GOLDEN;
        message[at..at + bytes.len()].copy_from_slice(bytes);
        NegotiateRequest::parse(&message)
    }

    #[test]
    fn the_range_of_versions_must_include_ours() {
        assert_eq!(with(0, &[0x00, 0x00, 0xff, 0xff]), Ok(REPR));
        let outside = |min, max| Err(CloseReason::PeerVersion { min, max });
        assert_eq!(with(0, &[0x01, 0x01, 0x00, 0x02]), outside(0x0101, 0x0200));
        assert_eq!(with(0, &[0x00, 0x00, 0xff, 0x00]), outside(0x0000, 0x00ff));
        assert_eq!(with(0, &[0x00, 0x02, 0x00, 0x00]), outside(0x0200, 0x0000));
    }

    #[test]
    fn a_request_below_any_floor_is_refused() {
        assert_eq!(with(6, &[0, 0]), Err(CloseReason::PeerRequestsNoCredits));
        assert_eq!(with(12, &[0x7f, 0, 0, 0]), Err(CloseReason::PeerReceiveSize(127)));
        assert_eq!(with(16, &[0xff, 0xff, 1, 0]), Err(CloseReason::PeerFragmentedSize(131_071)));
        assert!(with(12, &[0x80, 0, 0, 0]).is_ok() && with(4, &[9, 9]).is_ok());
    }
}
