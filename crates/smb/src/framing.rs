//! Direct TCP framing: four bytes in front of every frame.
//!
//! ```text
//!  0      1                     4
//!  +------+---------------------+---------------
//!  | 0    | length (big-endian) | frame
//!  +------+---------------------+---------------
//! ```
//!
//! SMB Direct has no prefix: its messages have a length of their own. QUIC streams carry the same one.
//!
//! Spec: MS-SMB2 §2.1.

use crate::parse_error::{Field, ParseError};
use crate::wire;

/// Bytes of the prefix.
pub const PREFIX_LEN: usize = 4;

/// The longest frame three bytes of length can announce.
pub const FRAME_LEN_MAX: usize = 0x00ff_ffff;

/// Room a frame needs beside the data of its largest READ or WRITE: transform header, SMB2
/// header, fixed part, and a compound's worth of small neighbours.
pub const FRAME_OVERHEAD_MAX: usize = 64 * 1024;

/// The length of the frame that follows `prefix`.
///
/// # Errors
/// The first byte is not zero (a NetBIOS session packet), or the frame is longer than `max`.
pub fn frame_len(prefix: [u8; PREFIX_LEN], max: usize) -> Result<usize, ParseError> {
    if prefix[0] != 0 {
        let value = u64::from(prefix[0]);
        return Err(ParseError::PeerValue { field: Field::Frame, value });
    }
    let len = u32::from_be_bytes(prefix);
    let len = usize::try_from(len).expect("24 bits fit usize");
    wire::limit(Field::Frame, len, max.min(FRAME_LEN_MAX))?;
    Ok(len)
}

/// The prefix of a frame of `len` bytes, or `None` when no prefix can say so.
pub fn prefix(len: usize) -> Option<[u8; PREFIX_LEN]> {
    if len > FRAME_LEN_MAX {
        return None;
    }
    u32::try_from(len).ok().map(u32::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_three_bytes_big_endian() {
        assert_eq!(frame_len([0, 0x01, 0x02, 0x03], FRAME_LEN_MAX).unwrap(), 0x010203);
        assert_eq!(prefix(0x010203).unwrap(), [0, 1, 2, 3]);
        assert_eq!(prefix(FRAME_LEN_MAX + 1), None);
    }

    #[test]
    fn a_netbios_packet_type_and_a_frame_over_the_limit_are_refused() {
        frame_len([0x85, 0, 0, 0], FRAME_LEN_MAX).unwrap_err();
        frame_len([0, 0, 1, 1], 256).unwrap_err();
        assert_eq!(frame_len([0, 0, 1, 0], 256), Ok(256));
    }
}
