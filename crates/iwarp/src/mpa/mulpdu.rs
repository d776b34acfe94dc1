//! The longest ULPDU (MULPDU).
//!
//! Spec: RFC 5044 §4.5 and §5.1 (EMSS and MULPDU); the large frames are our own, by agreement.

use super::fpdu::{CRC_LEN, FPDU_SIZE_MAX, LENGTH_LEN, ULPDU_SIZE_MAX};
use super::marker::{MARKER_LEN, SPACING};

/// MULPDU never goes below this, however small TCP's segments are.
pub const MULPDU_FLOOR: u16 = 128;

/// The MULPDU whose frame fills one TCP segment of `emss` bytes, markers included if any.
pub fn mulpdu_of_emss(emss: usize, markers: bool) -> u16 {
    // A marker's back pointer has sixteen bits.
    let emss = if markers { emss.min(MARKED_SIZE_MAX) } else { emss };
    // RFC 5044 §4.5: length field, CRC, the bytes that would break the alignment, markers.
    let overhead = LENGTH_LEN + CRC_LEN + emss % 4 + marker_bytes(emss, markers);
    clamp(emss.saturating_sub(overhead))
}

/// The MULPDU whose frame takes at most `fpdu_max` bytes, markers included if any.
pub fn mulpdu_of_fpdu(fpdu_max: usize, markers: bool) -> u16 {
    mulpdu_of_emss(fpdu_max.min(FPDU_SIZE_MAX), markers)
}

fn marker_bytes(size: usize, markers: bool) -> usize {
    if markers { MARKER_LEN * size.div_ceil(SPACING) } else { 0 }
}

const MARKED_SIZE_MAX: usize = 0xfffc;

fn clamp(ulpdu: usize) -> u16 {
    u16::try_from(ulpdu.min(ULPDU_SIZE_MAX)).unwrap_or(u16::MAX).max(MULPDU_FLOOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpa::{fpdu_size, markers_in};

    #[test]
    fn mulpdu_has_the_values_of_the_specification() {
        assert_eq!(mulpdu_of_emss(1460, false), 1454);
        assert_eq!(mulpdu_of_emss(1460, true), 1460 - (6 + 4 * 3));
        assert_eq!(mulpdu_of_emss(1463, false), 1454);
        assert_eq!(mulpdu_of_emss(0, true), 128);
        assert_eq!(mulpdu_of_fpdu(0x1_0000, false), 65530);
        assert_eq!(mulpdu_of_fpdu(usize::MAX, false), 65535);
    }

    #[test]
    fn a_frame_with_its_markers_fits_the_limit() {
        for limit in (300..70_000).step_by(37) {
            for phase in (0..512).step_by(4) {
                let frame = fpdu_size(mulpdu_of_fpdu(limit, true));
                assert!(frame + markers_in(frame, phase) * 4 <= limit, "{limit} at {phase}");
            }
        }
    }
}
