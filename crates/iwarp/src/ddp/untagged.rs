//! The DDP untagged segment header: a message for the next buffer of one of *our* queues.
//!
//! ```text
//!  0      1      2             6          10          14         18
//!  +------+------+-------------+-----------+-----------+----------+---------
//!  | ctrl | rsvd | rsvd (word) | QN        | MSN       | MO       | payload
//!  +------+------+-------------+-----------+-----------+----------+---------
//! ```
//!
//! Spec: RFC 5041 §4.3. Big-endian. The MPA length prefix is not part of it.

use zerocopy::byteorder::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::{DdpError, LAST, QueueNumber, TAGGED, VERSION, VERSION_MASK};

/// The header exactly as it lies on the wire; any 18 bytes are a valid value of it.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned)]
#[repr(C)]
struct Header {
    control: u8,
    ulp_control: u8,
    ulp_word: U32,
    queue: U32,
    msn: U32,
    message_offset: U32,
}

const _: () = assert!(size_of::<Header>() == UntaggedRepr::LEN);

/// An untagged header that passed every check DDP itself can make.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct UntaggedRepr {
    /// Opaque to DDP; RDMAP keeps its version and opcode here.
    pub ulp_control: u8,
    /// Opaque to DDP; RDMAP keeps the STag to invalidate here.
    pub ulp_word: u32,
    /// The queue the message is for.
    pub queue: QueueNumber,
    /// Message sequence number within the queue; the first is 1.
    pub msn: u32,
    /// Where in the message this segment's payload begins, in bytes.
    pub message_offset: u32,
    /// Last segment of its message.
    pub last: bool,
}

impl UntaggedRepr {
    /// Bytes the header takes on the wire.
    pub const LEN: usize = 18;

    /// Splits `segment` into header and payload, trusting nothing in it.
    ///
    /// # Errors
    ///
    /// [`DdpError`] names the first rule the bytes break.
    #[inline]
    pub fn parse(segment: &[u8]) -> Result<(Self, &[u8]), DdpError> {
        let (header, payload) = Header::ref_from_prefix(segment)
            .map_err(|_| DdpError::PeerTruncated { need: Self::LEN, got: segment.len() })?;
        if header.control & TAGGED != 0 {
            return Err(DdpError::PeerModel);
        }
        // RFC 5041 §4.1: a receiver must refuse any version but its own. The four reserved bits
        // are ignored.
        if header.control & VERSION_MASK != VERSION {
            return Err(DdpError::PeerVersion(header.control & VERSION_MASK));
        }
        let repr = Self {
            ulp_control: header.ulp_control,
            ulp_word: header.ulp_word.get(),
            queue: QueueNumber(header.queue.get()),
            msn: header.msn.get(),
            message_offset: header.message_offset.get(),
            last: header.control & LAST != 0,
        };
        Ok((repr, payload))
    }

    /// The inverse of [`UntaggedRepr::parse`]. Cannot fail.
    #[inline]
    pub fn emit(&self, out: &mut [u8; Self::LEN]) {
        let header = Header {
            control: VERSION | if self.last { LAST } else { 0 },
            ulp_control: self.ulp_control,
            ulp_word: U32::new(self.ulp_word),
            queue: U32::new(self.queue.0),
            msn: U32::new(self.msn),
            message_offset: U32::new(self.message_offset),
        };
        out.copy_from_slice(header.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 5044 figure 5, the 18 bytes after the length field.
    const GOLDEN: [u8; UntaggedRepr::LEN] =
        [0x41, 0x43, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
    const REPR: UntaggedRepr = UntaggedRepr {
        ulp_control: 0x43,
        ulp_word: 0,
        queue: QueueNumber::SEND,
        msn: 1,
        message_offset: 0,
        last: true,
    };

    #[test]
    fn golden_bytes_parse_and_emit() {
        assert_eq!(UntaggedRepr::parse(&GOLDEN), Ok((REPR, &[][..])));
        let mut out = [0; UntaggedRepr::LEN];
        REPR.emit(&mut out);
        assert_eq!(out, GOLDEN);
    }

    #[test]
    fn every_truncation_is_refused() {
        for got in 0..UntaggedRepr::LEN {
            let refused = DdpError::PeerTruncated { need: 18, got };
            assert_eq!(UntaggedRepr::parse(&GOLDEN[..got]), Err(refused));
        }
    }

    #[test]
    fn a_foreign_version_or_model_is_refused_and_reserved_bits_are_ignored() {
        let with_control = |control| {
            let mut bytes = GOLDEN;
            bytes[0] = control;
            UntaggedRepr::parse(&bytes).map(|(repr, _)| repr)
        };
        assert_eq!(with_control(0x43), Err(DdpError::PeerVersion(3)));
        assert_eq!(with_control(0xc1), Err(DdpError::PeerModel));
        assert_eq!(with_control(0x7d), Ok(REPR));
    }
}
