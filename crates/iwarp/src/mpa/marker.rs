//! Markers: four bytes every 512 bytes that tell how far back the current frame began.
//!
//! ```text
//!  octet of the stream   0      4                 512    516               1024
//!                        +------+-----------------+------+-----------------+------+--
//!                        | 0, 0 | 508 bytes       | 0, p | 508 bytes       | 0, p | ...
//!                        +------+-----------------+------+-----------------+------+--
//! ```
//!
//! `p` counts from the length field of the frame the marker lies in; 0 says that the next octet
//! begins a frame, and then the marker belongs to that frame. This end never asks for markers, so
//! this file only inserts markers, for a peer that asks.
//!
//! Spec: RFC 5044 §4.2 and §4.3.

/// How many markers fall into a frame of `frame_size` bytes that begins `phase` octets after a
/// marker position (0: right at one).
pub(crate) fn markers_in(frame_size: usize, phase: usize) -> usize {
    frame_size.saturating_sub(gap(phase)).div_ceil(SPACING - MARKER_LEN)
}

/// Spreads the frame that lies in the first `frame_size` bytes of `out` and puts the markers in;
/// returns its new size. `out` has room for them.
///
/// Only frames to a peer that wants markers pay for this extra move of the bytes.
pub(crate) fn insert(out: &mut [u8], frame_size: usize, phase: usize) -> usize {
    let count = markers_in(frame_size, phase);
    let gap = gap(phase);
    // The length field comes after a marker that lies right before the frame.
    let frame_start = if gap == 0 { MARKER_LEN } else { 0 };
    let mut end = frame_size;
    for index in (0..count).rev() {
        let start = gap + index * (SPACING - MARKER_LEN);
        let marker = gap + index * SPACING;
        out.copy_within(start..end, marker + MARKER_LEN);
        let back = u16::try_from(marker.saturating_sub(frame_start))
            .expect("MULPDU leaves room for the markers in 64 KiB");
        let [high, low] = back.to_be_bytes();
        out[marker..marker + MARKER_LEN].copy_from_slice(&[0, 0, high, low]);
        end = start;
    }
    frame_size + count * MARKER_LEN
}

/// Octets until the next marker position.
fn gap(phase: usize) -> usize {
    if phase == 0 { 0 } else { SPACING - phase }
}

/// Distance between markers, in octets of the TCP stream.
pub(crate) const SPACING: usize = 512;
/// Bytes of a marker.
pub(crate) const MARKER_LEN: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpa::fpdu::seal;

    /// The frame of RFC 5044 figures 5 and 6, without marker and CRC.
    fn frame(msn: u8) -> [u8; 64] {
        let mut bytes = [0; 64];
        bytes[..4].copy_from_slice(&[0, 0x2a, 0x41, 0x43]);
        bytes[15] = msn;
        bytes
    }

    #[test]
    fn the_frame_of_figure_5_begins_with_a_marker() {
        let mut bytes = frame(1);
        let size = insert(&mut bytes, 48, 0);
        seal(&mut bytes[..size], true);
        assert_eq!(size, 52);
        assert_eq!(bytes[..8], [0, 0, 0, 0, 0, 0x2a, 0x41, 0x43]);
        assert_eq!(bytes[48..52], [0x52, 0x23, 0x99, 0x83]);
    }

    #[test]
    fn the_frame_of_figure_6_has_a_marker_in_its_middle() {
        let mut bytes = frame(2);
        let size = insert(&mut bytes, 48, 0x1ec);
        seal(&mut bytes[..size], true);
        assert_eq!(size, 52);
        assert_eq!(bytes[0x14..0x18], [0, 0, 0, 0x14]);
        assert_eq!(bytes[48..52], [0x84, 0x92, 0x58, 0x98]);
    }

    #[test]
    fn a_marker_right_behind_a_frame_is_left_to_the_next() {
        assert_eq!(markers_in(48, 512 - 48), 0);
        assert_eq!(markers_in(52, 512 - 48), 1);
        assert_eq!(markers_in(508, 0), 1);
        assert_eq!(markers_in(512, 0), 2);
    }

    #[test]
    fn all_markers_of_a_long_frame_point_to_its_length() {
        let mut bytes = vec![0xaa; 1400];
        let size = insert(&mut bytes, 1200, 100);
        assert_eq!(size, 1200 + 2 * 4);
        for marker in [412_u16, 924] {
            let [high, low] = marker.to_be_bytes();
            let at = usize::from(marker);
            assert_eq!(bytes[at..at + 4], [0, 0, high, low]);
        }
    }
}
