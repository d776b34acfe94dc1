//! The negotiation response: an acceptance with the first credits, or a refusal with a status alone.
//!
//! ```text
//!  0        2        4        6        8        10       12            16
//!  +--------+--------+--------+--------+--------+--------+-------------+
//!  | min    | max    | chosen | rsvd   | credits| credits| status      |
//!  | version| version| version|        | wanted | granted|             |
//!  +--------+--------+--------+--------+--------+--------+-------------+
//!  16             20             24             28             32
//!  +--------------+--------------+--------------+--------------+
//!  | read/write   | preferred    | receive size | fragmented   |
//!  | size         | send size    |              | size         |
//!  +--------------+--------------+--------------+--------------+
//! ```
//!
//! Spec: MS-SMBD §2.2.2, §3.1.5.3, §3.1.5.7. Little-endian.

use std::fmt;

use zerocopy::byteorder::little_endian::{U16, U32};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::VERSION;
use super::request::Offer;
use crate::error::CloseReason;

/// The response exactly as it lies on the wire; any 32 bytes are a valid value of it.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Wire {
    min_version: U16,
    max_version: U16,
    negotiated_version: U16,
    reserved: U16,
    credits_requested: U16,
    credits_granted: U16,
    status: U32,
    max_read_write_size: U32,
    preferred_send_size: U32,
    max_receive_size: U32,
    max_fragmented_size: U32,
}

const _: () = assert!(size_of::<Wire>() == NegotiateResponse::LEN);

/// An acceptor's answer that passed every check.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum NegotiateResponse {
    /// The acceptor accepts the connection.
    Accepted {
        /// The limits that the acceptor announces.
        offer: Offer,
        /// First send credits of the initiator. Never zero.
        credits_granted: u16,
        /// Largest RDMA read or write of one request, in bytes.
        read_write_size_max: u32,
    },
    /// The acceptor will drop the connection.
    Refused(Status),
}

impl NegotiateResponse {
    /// Bytes the response takes on the wire.
    pub const LEN: usize = 32;

    /// Reads a received response, trusting nothing in it. Bytes behind it are ignored.
    ///
    /// # Errors
    /// The first broken rule of MS-SMBD §3.1.5.7. A refusal is not an error here.
    pub fn parse(message: &[u8]) -> Result<Self, CloseReason> {
        let (wire, _) = Wire::ref_from_prefix(message)
            .map_err(|_| CloseReason::PeerTruncated { need: Self::LEN, got: message.len() })?;
        // MS-SMBD §3.1.5.3: a refusal has zeroes beside its status, so the status is checked first.
        let status = Status(wire.status.get());
        if status != Status::SUCCESS {
            return Ok(Self::Refused(status));
        }
        let version = wire.negotiated_version.get();
        if version != VERSION {
            return Err(CloseReason::PeerVersion { min: version, max: version });
        }
        let offer = Offer {
            credits_requested: wire.credits_requested.get(),
            preferred_send_size: wire.preferred_send_size.get(),
            receive_size_max: wire.max_receive_size.get(),
            fragmented_size_max: wire.max_fragmented_size.get(),
        };
        if wire.credits_granted.get() == 0 {
            return Err(CloseReason::PeerGrantsNoCredits);
        }
        Ok(Self::Accepted {
            offer: offer.check()?,
            credits_granted: wire.credits_granted.get(),
            read_write_size_max: wire.max_read_write_size.get(),
        })
    }

    /// Writes the response. Cannot fail.
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        let mut wire = Wire::new_zeroed();
        wire.min_version = U16::new(VERSION);
        wire.max_version = U16::new(VERSION);
        match *self {
            Self::Refused(status) => wire.status = U32::new(status.0),
            Self::Accepted { offer, credits_granted, read_write_size_max } => {
                wire.negotiated_version = U16::new(VERSION);
                wire.credits_requested = U16::new(offer.credits_requested);
                wire.credits_granted = U16::new(credits_granted);
                wire.max_read_write_size = U32::new(read_write_size_max);
                wire.preferred_send_size = U32::new(offer.preferred_send_size);
                wire.max_receive_size = U32::new(offer.receive_size_max);
                wire.max_fragmented_size = U32::new(offer.fragmented_size_max);
            }
        }
        out.copy_from_slice(wire.as_bytes());
    }
}

/// The NTSTATUS of a negotiation. Unknown values survive.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Status(pub u32);

impl Status {
    /// The acceptor accepts the connection.
    pub const SUCCESS: Self = Self(0);
    /// The two sides have no version in common.
    pub const NOT_SUPPORTED: Self = Self(0xc000_00bb);
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // MS-SMBD §4.1: version 1.0, 10 credits wanted and granted, 1 MiB reads and writes, 1 KiB
    // sends and receives, 128 KiB fragmented.
    const GOLDEN: [u8; 32] = [
        0x00, 0x01, 0x00, 0x01, 0x00, 0x01, 0x00, 0x00, 0x0a, 0x00, 0x0a, 0x00, 0x00, 0x00, 0x00,
        0x00, 0x00, 0x00, 0x10, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x04, 0x00, 0x00, 0x00, 0x00,
        0x02, 0x00,
    ];
    const REPR: NegotiateResponse = NegotiateResponse::Accepted {
        offer: Offer {
            credits_requested: 10,
            preferred_send_size: 1024,
            receive_size_max: 1024,
            fragmented_size_max: 131_072,
        },
        credits_granted: 10,
        read_write_size_max: 1 << 20,
    };

    #[test]
    fn golden_bytes_parse_and_emit() {
        assert_eq!(NegotiateResponse::parse(&GOLDEN), Ok(REPR));
        let mut out = [0xff; 32];
        REPR.emit(&mut out);
        assert_eq!(out, GOLDEN);
    }

    #[test]
    fn a_refusal_is_a_status_between_zeroes() {
        let mut golden = [0; 32];
        golden[1] = 1;
        golden[3] = 1;
        golden[12..16].copy_from_slice(&[0xbb, 0x00, 0x00, 0xc0]);
        let refused = NegotiateResponse::Refused(Status::NOT_SUPPORTED);
        assert_eq!(NegotiateResponse::parse(&golden), Ok(refused));
        let mut out = [0xff; 32];
        refused.emit(&mut out);
        assert_eq!(out, golden);
        assert_eq!(Status::NOT_SUPPORTED.to_string(), "0xc00000bb");
    }

    #[test]
    fn every_truncation_is_refused() {
        for got in 0..32 {
            let truncated = CloseReason::PeerTruncated { need: 32, got };
            assert_eq!(NegotiateResponse::parse(&GOLDEN[..got]), Err(truncated));
        }
    }

    #[test]
    fn a_response_that_breaks_any_rule_is_refused() {
        let with = |at: usize, bytes: &[u8]| {
            let mut message = GOLDEN;
            message[at..at + bytes.len()].copy_from_slice(bytes);
            NegotiateResponse::parse(&message).unwrap_err()
        };
        let version = CloseReason::PeerVersion { min: 0x0200, max: 0x0200 };
        assert_eq!(with(4, &[0, 2]), version);
        assert_eq!(with(8, &[0, 0]), CloseReason::PeerRequestsNoCredits);
        assert_eq!(with(10, &[0, 0]), CloseReason::PeerGrantsNoCredits);
        assert_eq!(with(24, &[0x7f, 0, 0, 0]), CloseReason::PeerReceiveSize(127));
        assert_eq!(with(28, &[0, 0, 1, 0]), CloseReason::PeerFragmentedSize(65_536));
    }
}
