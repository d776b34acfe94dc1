//! Atomic operations on eight bytes of remote memory, which return the previous value.
//!
//! ```text
//!  request (52)
//!  0        4          8       12           20           28           36          44          52
//!  +--------+----------+-------+------------+------------+------------+-----------+-----------+
//!  | AOp    | id       | STag  | TO         | add / swap | its mask   | compare   | its mask  |
//!  +--------+----------+-------+------------+------------+------------+-----------+-----------+
//!  response (12)
//!  +----------+------------------+
//!  | id       | original value   |
//!  +----------+------------------+
//! ```
//!
//! Spec: RFC 7306 §5. Big-endian on the wire, host order in memory. The text of §4 speaks of
//! a 32-byte response header; figure 6 has 12 bytes, and the figure is what this file follows.

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::RdmapError;
use crate::ddp::Stag;

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Request {
    operation: U32,
    request_id: U32,
    stag: U32,
    tagged_offset: U64,
    add_swap: U64,
    add_swap_mask: U64,
    compare: U64,
    compare_mask: U64,
}

#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Response {
    request_id: U32,
    original: U64,
}

const _: () = assert!(size_of::<Request>() == AtomicRequestRepr::LEN);
const _: () = assert!(size_of::<Response>() == AtomicResponseRepr::LEN);

/// The operation on the eight bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum AtomicOperation {
    /// Add, in fields whose top bits `mask` marks: no carry leaves a marked bit.
    FetchAdd {
        /// The number to add.
        add: u64,
        /// The top bit of each field; zero means one field of 64 bits.
        mask: u64,
    },
    /// Replace the bits of `swap_mask` if the bits of `compare_mask` are as in `compare`.
    CompareSwap {
        /// The expected value.
        compare: u64,
        /// The bits of `compare` that count.
        compare_mask: u64,
        /// The new value.
        swap: u64,
        /// The bits of `swap` to write.
        swap_mask: u64,
    },
}

/// An Atomic Request.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AtomicRequestRepr {
    /// The operation.
    pub operation: AtomicOperation,
    /// The requester's identifier of this request; the response repeats it.
    pub request_id: u32,
    /// Region to work on. Not yet authorised.
    pub stag: Stag,
    /// Offset in the region; the address that it names must be 8-aligned.
    pub tagged_offset: u64,
}

impl AtomicRequestRepr {
    /// Bytes the header takes on the wire.
    pub const LEN: usize = 52;

    /// Reads a whole message.
    ///
    /// # Errors
    ///
    /// A wrong length and an undefined operation are refused.
    pub fn parse(message: &[u8]) -> Result<Self, RdmapError> {
        let header = Request::ref_from_bytes(message)
            .map_err(|_| RdmapError::PeerLength { need: Self::LEN, got: message.len() })?;
        // RFC 7306 §5.2.1: 28 reserved bits, then the operation. The mask leaves four bits.
        let operation = match header.operation.get().to_be_bytes()[3] & OPERATION_MASK {
            FETCH_ADD => AtomicOperation::FetchAdd {
                add: header.add_swap.get(),
                mask: header.add_swap_mask.get(),
            },
            COMPARE_SWAP => AtomicOperation::CompareSwap {
                compare: header.compare.get(),
                compare_mask: header.compare_mask.get(),
                swap: header.add_swap.get(),
                swap_mask: header.add_swap_mask.get(),
            },
            unknown => return Err(RdmapError::PeerAtomicOperation(unknown)),
        };
        Ok(Self {
            operation,
            request_id: header.request_id.get(),
            stag: Stag(header.stag.get()),
            tagged_offset: header.tagged_offset.get(),
        })
    }

    /// The inverse of [`AtomicRequestRepr::parse`]. Cannot fail.
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        let (code, add_swap, add_swap_mask, compare, compare_mask) = match self.operation {
            // RFC 7306 §5.2.1: a FetchAdd sends compare data 0 and a compare mask of all ones.
            AtomicOperation::FetchAdd { add, mask } => (FETCH_ADD, add, mask, 0, u64::MAX),
            AtomicOperation::CompareSwap { compare, compare_mask, swap, swap_mask } => {
                (COMPARE_SWAP, swap, swap_mask, compare, compare_mask)
            }
        };
        let header = Request {
            operation: U32::new(u32::from(code)),
            request_id: U32::new(self.request_id),
            stag: U32::new(self.stag.0),
            tagged_offset: U64::new(self.tagged_offset),
            add_swap: U64::new(add_swap),
            add_swap_mask: U64::new(add_swap_mask),
            compare: U64::new(compare),
            compare_mask: U64::new(compare_mask),
        };
        out.copy_from_slice(header.as_bytes());
    }
}

/// An Atomic Response.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AtomicResponseRepr {
    /// The identifier of the request.
    pub request_id: u32,
    /// The previous value of the eight bytes, as the responder's host reads them.
    pub original: u64,
}

impl AtomicResponseRepr {
    /// Bytes the header takes on the wire.
    pub const LEN: usize = 12;

    /// Reads a whole message.
    ///
    /// # Errors
    ///
    /// Any length but [`AtomicResponseRepr::LEN`] is refused.
    pub fn parse(message: &[u8]) -> Result<Self, RdmapError> {
        let header = Response::ref_from_bytes(message)
            .map_err(|_| RdmapError::PeerLength { need: Self::LEN, got: message.len() })?;
        Ok(Self { request_id: header.request_id.get(), original: header.original.get() })
    }

    /// The inverse of [`AtomicResponseRepr::parse`]. Cannot fail.
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        let header =
            Response { request_id: U32::new(self.request_id), original: U64::new(self.original) };
        out.copy_from_slice(header.as_bytes());
    }
}

// RFC 7306 §5.2.1 and its IANA registry.
const OPERATION_MASK: u8 = 0x0f;
const FETCH_ADD: u8 = 0;
const COMPARE_SWAP: u8 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    // Laid out by hand from RFC 7306 figure 4.
    const GOLDEN: [u8; AtomicRequestRepr::LEN] = [
        0, 0, 0, 2, 0, 0, 0, 7, 0, 0, 0xab, 0xcd, 0, 0, 0, 0, 0, 0, 0x10, 0, 0x11, 0x11, 0x11,
        0x11, 0x11, 0x11, 0x11, 0x11, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x22, 0x22,
        0x22, 0x22, 0x22, 0x22, 0x22, 0x22, 0, 0, 0, 0, 0, 0, 0, 0xff,
    ];
    const REPR: AtomicRequestRepr = AtomicRequestRepr {
        operation: AtomicOperation::CompareSwap {
            compare: 0x2222_2222_2222_2222,
            compare_mask: 0xff,
            swap: 0x1111_1111_1111_1111,
            swap_mask: u64::MAX,
        },
        request_id: 7,
        stag: Stag(0xabcd),
        tagged_offset: 0x1000,
    };

    #[test]
    fn a_golden_request_parses_and_emits() {
        assert_eq!(AtomicRequestRepr::parse(&GOLDEN), Ok(REPR));
        let mut out = [0; AtomicRequestRepr::LEN];
        REPR.emit(&mut out);
        assert_eq!(out, GOLDEN);
    }

    #[test]
    fn a_golden_fetch_add_has_a_compare_mask_of_ones() {
        let golden = [&GOLDEN[..3], &[0], &GOLDEN[4..36], &[0; 8], &[0xff; 8]].concat();
        let operation = AtomicOperation::FetchAdd { add: 0x1111_1111_1111_1111, mask: u64::MAX };
        let repr = AtomicRequestRepr { operation, ..REPR };
        assert_eq!(AtomicRequestRepr::parse(&golden), Ok(repr));
        let mut out = [0; AtomicRequestRepr::LEN];
        repr.emit(&mut out);
        assert_eq!(out[..], golden);
    }

    #[test]
    fn an_undefined_operation_is_refused_and_reserved_bits_are_not() {
        let with_operation = |bytes: [u8; 4]| {
            let mut message = GOLDEN;
            message[..4].copy_from_slice(&bytes);
            AtomicRequestRepr::parse(&message)
        };
        assert_eq!(with_operation([0, 0, 0, 1]), Err(RdmapError::PeerAtomicOperation(1)));
        assert_eq!(with_operation([0xff, 0xff, 0xff, 0xf2]), Ok(REPR));
    }

    #[test]
    fn a_golden_response_parses_and_emits() {
        let golden = [0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7, 8];
        let repr = AtomicResponseRepr { request_id: 7, original: 0x0102_0304_0506_0708 };
        assert_eq!(AtomicResponseRepr::parse(&golden), Ok(repr));
        let mut out = [0; AtomicResponseRepr::LEN];
        repr.emit(&mut out);
        assert_eq!(out, golden);
        let refused = RdmapError::PeerLength { need: 12, got: 11 };
        assert_eq!(AtomicResponseRepr::parse(&golden[..11]), Err(refused));
    }
}
