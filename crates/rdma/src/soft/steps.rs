//! Decides how many queued bytes go to TCP in one call.
//!
//! To a peer with our profile all of them go at once. To any other peer one frame goes at a time,
//! each ended by MSG_EOR, so that TCP lets no frame begin in the segment where another ends (RFC
//! 5044 §5.1 asks for it where TCP allows it). siw of Linux 6.12 needs that: when pad and CRC of a
//! frame reach siw in two pieces, it reports a CRC error and closes; see docs/interop.md.

use iwarp::Agreement;
use iwarp::mpa::fpdu_size;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) enum Steps {
    /// All queued bytes.
    Free,
    /// One frame at a time; `left` bytes of the frame in progress are still to go.
    Frames { left: usize },
}

impl Steps {
    /// The rule for a connection with this agreement. With markers this end could not find the
    /// frames, and a peer that asks for markers finds the frames itself.
    pub(super) fn of(agreement: &Agreement) -> Self {
        if agreement.is_extended() || agreement.markers {
            Self::Free
        } else {
            Self::Frames { left: 0 }
        }
    }

    /// Notes that the first queued bytes are no frame, but a start-up reply of this length.
    pub(super) fn begin_with(&mut self, reply_len: usize) {
        if let Self::Frames { left } = self {
            *left = reply_len;
        }
    }

    /// How many of the `queued` bytes belong to the next call.
    pub(super) fn next(self, queued: &[u8]) -> usize {
        let wanted = match (self, queued) {
            (Self::Frames { left: 0 }, [high, low, ..]) => {
                fpdu_size(u16::from_be_bytes([*high, *low]))
            }
            (Self::Frames { left }, _) if left > 0 => left,
            _ => queued.len(),
        };
        wanted.min(queued.len())
    }

    /// Notes that TCP took `taken` of the `offered` bytes.
    pub(super) fn took(&mut self, taken: usize, offered: usize) {
        if let Self::Frames { left } = self {
            *left = offered.saturating_sub(taken);
        }
    }

    /// Whether the bytes of a call end a segment.
    pub(super) fn ends_segment(self) -> bool {
        matches!(self, Self::Frames { .. })
    }
}

#[cfg(test)]
mod tests {
    use iwarp::Role;

    use super::*;

    // Two frames with ULPDUs of 1 and 5 bytes: two of length, pad to four, four of CRC.
    const QUEUED: [u8; 20] = [0, 1, 9, 0, 7, 7, 7, 7, 0, 5, 1, 2, 3, 4, 5, 0, 8, 8, 8, 8];

    #[test]
    fn a_peer_without_our_profile_gets_one_frame_per_call() {
        let mut steps = Steps::of(&Agreement::plain(Role::Responder, 1, 1));
        assert!(steps.ends_segment());
        assert_eq!(steps.next(&QUEUED), 8);
        steps.took(8, 8);
        assert_eq!(steps.next(&QUEUED[8..]), 12);
        // After a short send the rest of the frame is not taken for the beginning of a frame.
        steps.took(5, 12);
        assert_eq!(steps.next(&QUEUED[13..]), 7);
    }

    #[test]
    fn a_start_up_reply_is_not_parsed_as_a_frame() {
        let mut steps = Steps::of(&Agreement::plain(Role::Responder, 1, 1));
        steps.begin_with(20);
        assert_eq!(steps.next(&[b'M'; 28]), 20);
        steps.took(20, 20);
        assert_eq!(steps.next(&QUEUED), 8);
    }

    #[test]
    fn a_stream_with_markers_is_sent_without_steps() {
        let agreement = Agreement { markers: true, ..Agreement::plain(Role::Initiator, 1, 1) };
        let steps = Steps::of(&agreement);
        assert_eq!((steps.next(&QUEUED), steps.ends_segment()), (20, false));
    }
}
