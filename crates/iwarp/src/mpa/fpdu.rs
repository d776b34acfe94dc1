//! One frame on the byte stream.
//!
//! ```text
//!  0          2                          2 + n                    4k         4k + 4
//!  +----------+--------------------------+------------------------+----------+
//!  | length n | ULPDU (a DDP segment)    | 0 to 3 bytes of zero   | CRC-32C  |
//!  +----------+--------------------------+------------------------+----------+
//!  |<------------------- covered by the CRC ---------------------->|
//! ```
//!
//! The CRC field is always there; if both ends do without the CRC, its value means nothing.
//!
//! Spec: RFC 5044 §4.1 and §4.4. Big-endian but for the CRC.

use super::crc::crc32c;

/// A whole frame at the front of some bytes, its CRC verified if there is one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fpdu<'b> {
    /// The ULPDU that the frame carries.
    pub ulpdu: &'b [u8],
    /// Bytes the frame takes, length field, pad and CRC included.
    pub size: usize,
}

impl<'b> Fpdu<'b> {
    /// Takes one frame off the front of `bytes`, wherever TCP cut them.
    ///
    /// # Errors
    ///
    /// [`FpduError::Incomplete`] asks for more bytes and is no fault of the peer;
    /// [`FpduError::PeerCrc`] means that the stream cannot be trusted any more.
    #[inline]
    pub fn parse(bytes: &'b [u8], crc: bool) -> Result<Self, FpduError> {
        let size = match bytes {
            [high, low, ..] => fpdu_size(u16::from_be_bytes([*high, *low])),
            _ => FPDU_SIZE_MIN,
        };
        let Some((frame, _)) = bytes.split_at_checked(size) else {
            return Err(FpduError::Incomplete { missing: size - bytes.len() });
        };
        if crc {
            check(frame)?;
        }
        let len = usize::from(u16::from_be_bytes([frame[0], frame[1]]));
        Ok(Self { ulpdu: &frame[LENGTH_LEN..LENGTH_LEN + len], size })
    }
}

/// Bytes a frame around `ulpdu_len` takes on the wire, markers not counted.
#[inline]
pub const fn fpdu_size(ulpdu_len: u16) -> usize {
    // No `From` in a const fn; the cast widens.
    (LENGTH_LEN + ulpdu_len as usize).next_multiple_of(ALIGNMENT) + CRC_LEN
}

/// Fills in the CRC field that ends `frame`; zero when neither end wants one.
#[inline]
pub(crate) fn seal(frame: &mut [u8], crc: bool) {
    let (covered, field) = frame.split_at_mut(frame.len() - CRC_LEN);
    let value = if crc { crc32c(covered) } else { 0 };
    field.copy_from_slice(&value.to_le_bytes());
}

#[inline]
fn check(frame: &[u8]) -> Result<(), FpduError> {
    let (covered, field) = frame.split_at(frame.len() - CRC_LEN);
    let received = field.try_into().map(u32::from_le_bytes).expect("split CRC_LEN from the end");
    let computed = crc32c(covered);
    if computed != received {
        return Err(FpduError::PeerCrc { computed, received });
    }
    Ok(())
}

/// The reason why the bytes give no frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FpduError {
    /// The rest of the frame has not arrived yet.
    #[error("at least {missing} more bytes are needed")]
    Incomplete {
        /// How many more bytes to wait for at least.
        missing: usize,
    },
    /// The CRC of the bytes differs from the CRC field.
    #[error("peer's frame has CRC {received:#010x}, its bytes have {computed:#010x}")]
    PeerCrc {
        /// The CRC computed over the bytes.
        computed: u32,
        /// The CRC field of the frame.
        received: u32,
    },
}

/// Longest ULPDU that the length field can express.
pub const ULPDU_SIZE_MAX: usize = 0xffff;
/// Longest frame a peer may send, markers not counted. RFC 5044 §4.5: any must be accepted, so a
/// receive buffer that holds less than this can stall.
pub const FPDU_SIZE_MAX: usize = fpdu_size(u16::MAX);
const FPDU_SIZE_MIN: usize = fpdu_size(0);
const ALIGNMENT: usize = 4;
pub(crate) const LENGTH_LEN: usize = 2;
pub(crate) const CRC_LEN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 5044 figure 5 without its marker; the CRC recomputed with iscsi-crc.
    fn golden() -> [u8; 48] {
        let mut frame = [0; 48];
        frame[..4].copy_from_slice(&[0, 0x2a, 0x41, 0x43]);
        frame[15] = 1;
        frame[44..].copy_from_slice(&[0xb7, 0x24, 0x3e, 0xc3]);
        frame
    }

    #[test]
    fn a_golden_frame_is_taken_whole_and_sealed_alike() {
        let frame = golden();
        let mut bytes = frame.to_vec();
        bytes.push(0xee);
        let fpdu = Fpdu::parse(&bytes, true).unwrap();
        assert_eq!((fpdu.size, fpdu.ulpdu), (48, &frame[2..44]));
        let mut sealed = frame;
        sealed[44..].fill(0xff);
        seal(&mut sealed, true);
        assert_eq!(sealed, frame);
    }

    #[test]
    fn the_missing_byte_count_is_exact_once_the_length_is_known() {
        let frame = golden();
        for len in 0..frame.len() {
            let missing = if len < 2 { 8 - len } else { 48 - len };
            assert_eq!(Fpdu::parse(&frame[..len], true), Err(FpduError::Incomplete { missing }));
        }
    }

    #[test]
    fn a_flipped_bit_anywhere_but_in_the_length_fails_the_crc() {
        for index in 2..48 {
            let mut frame = golden();
            frame[index] ^= 0x10;
            let outcome = Fpdu::parse(&frame, true);
            assert!(matches!(outcome, Err(FpduError::PeerCrc { .. })), "byte {index}");
            assert!(Fpdu::parse(&frame, false).is_ok(), "nobody looks when CRC is off");
        }
    }

    #[test]
    fn frame_sizes_with_the_crc_are_multiples_of_four() {
        let sizes = [(0, 8), (1, 8), (2, 8), (3, 12), (1454, 1460), (0xffff, 65544)];
        for (ulpdu, size) in sizes {
            assert_eq!(fpdu_size(ulpdu), size);
        }
    }
}
