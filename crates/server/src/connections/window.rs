//! Message ids and credits of one connection.
//!
//! ```text
//!        low                                   high = low + what the client still holds
//!  -------|-----x--x-x--------------------------|--------
//!  used up    ids in the window; x = used         not granted yet
//! ```
//!
//! Every credit is one message id the client may use once. A request of charge *n* uses *n*
//! consecutive ids. The window never spans more than [`CREDITS_MAX`] ids, so a client that holds
//! back one id forever only starves itself.
//!
//! As each id is used once, so is the turn to sign its answer.
//!
//! Spec: MS-SMB2 §3.3.1.1, §3.3.1.2, §3.3.5.2.3.

use smb::crypto::{Lane, LaneId, Turn};
use thiserror::Error;

/// The ids a client may use, and how many more it can be given.
#[derive(Debug)]
pub(crate) struct Window {
    low: u64,
    high: u64,
    used: Box<[u64; WORDS]>,
    credits_max: u16,
    lane: Lane,
}

impl Window {
    /// A new connection holds exactly message id 0.
    pub(crate) fn new(credits_max: u16) -> Self {
        let credits_max = credits_max.clamp(1, CREDITS_MAX);
        Self { low: 0, high: 1, used: Box::new([0; WORDS]), credits_max, lane: Lane::new() }
    }

    /// Uses up `charge` ids from `first` on: the turn of the first, which the answer has.
    pub(crate) fn claim(&mut self, first: u64, charge: u16) -> Result<Turn, WindowError> {
        let charge = u64::from(charge.max(1));
        let outside = WindowError::PeerMessageId { first, charge, low: self.low, high: self.high };
        let end = first.checked_add(charge).ok_or(outside)?;
        if first < self.low || end > self.high {
            return Err(outside);
        }
        if (first..end).any(|id| self.is_used(id)) {
            return Err(WindowError::PeerRepeatedId { first, charge });
        }
        for id in first..end {
            let (word, bit) = place(id);
            self.used[word] |= bit;
        }
        while self.low < self.high && self.is_used(self.low) {
            let (word, bit) = place(self.low);
            self.used[word] &= !bit;
            self.low += 1;
        }
        Ok(self.lane.turn(first))
    }

    /// All ids below are used up.
    pub(crate) fn low(&self) -> u64 {
        self.low
    }

    /// The lane its turns are of.
    pub(crate) fn lane(&self) -> LaneId {
        self.lane.id()
    }

    /// Grants what the client asks for, at least one credit if it would hold none, and never
    /// more than the window can span. Returns what the response header shall say.
    pub(crate) fn grant(&mut self, asked: u16) -> u16 {
        let room = u64::from(self.credits_max).saturating_sub(self.high - self.low);
        let granted = u64::from(asked.max(1)).min(room);
        self.high += granted;
        u16::try_from(granted).expect("bounded by a u16")
    }

    /// Lets the client have more from now on: it has proved who it is.
    pub(crate) fn widen(&mut self, credits_max: u16) {
        self.credits_max = self.credits_max.max(credits_max.min(CREDITS_MAX));
    }

    /// Credits the client holds, gaps included.
    #[cfg(test)]
    fn outstanding(&self) -> u64 {
        self.high - self.low
    }

    fn is_used(&self, id: u64) -> bool {
        let (word, bit) = place(id);
        self.used[word] & bit != 0
    }
}

// The bitmap is a ring: ids CREDITS_MAX apart never are in the window together.
fn place(id: u64) -> (usize, u64) {
    let slot = id % u64::from(CREDITS_MAX);
    (usize::try_from(slot / 64).expect("below WORDS"), 1 << (slot % 64))
}

/// A client used an id it does not hold. MS-SMB2 §3.3.5.2.3: the connection is dropped.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub(crate) enum WindowError {
    /// The id was never granted, or lies below the window.
    #[error("message ids {first}+{charge} are outside the window {low}..{high}")]
    PeerMessageId { first: u64, charge: u64, low: u64, high: u64 },
    /// The id was used before.
    #[error("message ids {first}+{charge} were used before")]
    PeerRepeatedId { first: u64, charge: u64 },
}

/// Widest window: what Windows grants at most, and 1 KiB of bitmap.
pub(crate) const CREDITS_MAX: u16 = 8192;
const WORDS: usize = CREDITS_MAX as usize / 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_is_used_once_and_the_window_follows() {
        let mut window = Window::new(512);
        window.claim(0, 0).unwrap();
        assert!(window.claim(0, 1).unwrap_err().to_string().contains("outside"));
        assert_eq!(window.grant(31), 31);
        window.claim(3, 1).unwrap();
        assert_eq!(
            window.claim(3, 1).map(drop),
            Err(WindowError::PeerRepeatedId { first: 3, charge: 1 })
        );
        window.claim(1, 2).unwrap();
        assert_eq!(window.low, 4);
        window.claim(31, 2).expect_err("one id of the charge is not granted");
    }

    #[test]
    fn a_charge_with_a_used_id_in_its_middle_or_at_its_end_is_refused() {
        for used in 2..=4 {
            let mut window = Window::new(512);
            window.claim(0, 1).unwrap();
            assert_eq!(window.grant(31), 31);
            window.claim(used, 1).unwrap();
            let refused = window.claim(1, 4).map(drop);
            assert_eq!(refused, Err(WindowError::PeerRepeatedId { first: 1, charge: 4 }), "{used}");
        }
    }

    #[test]
    fn grants_are_bounded_and_never_leave_a_client_without() {
        let mut window = Window::new(10);
        window.claim(0, 1).unwrap();
        assert_eq!(window.grant(1000), 10);
        assert_eq!(window.grant(1), 0);
        window.claim(5, 1).unwrap();
        assert_eq!(window.grant(1), 0, "the gap at 1..5 still spans the window");
        window.claim(1, 4).unwrap();
        assert_eq!(window.grant(0), 1);
        assert_eq!(window.outstanding(), 6);
    }

    #[test]
    fn who_has_logged_on_can_have_more() {
        let mut window = Window::new(4);
        window.claim(0, 1).unwrap();
        assert_eq!(window.grant(100), 4);
        window.widen(60_000);
        assert_eq!(window.grant(u16::MAX), CREDITS_MAX - 4);
        window.widen(2);
        assert_eq!(window.credits_max, CREDITS_MAX, "never fewer");
    }

    #[test]
    fn ids_near_the_end_of_time_do_not_wrap() {
        let mut window = Window::new(10);
        window.claim(u64::MAX, 2).unwrap_err();
    }

    #[test]
    fn the_ring_is_reused_for_a_million_ids() {
        let mut window = Window::new(CREDITS_MAX);
        window.claim(0, 1).unwrap();
        window.grant(CREDITS_MAX);
        for id in 1..1_000_000 {
            window.claim(id, 1).unwrap();
            assert_eq!(window.grant(1), 1);
        }
    }
}
