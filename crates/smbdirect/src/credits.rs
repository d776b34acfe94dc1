//! Credits: how many messages each side may send, and when a message must grant credits.
//!
//! ```text
//!   receive buffers of ours              send credits of ours
//!     (being read by the caller)           held  <--- credits_granted in a message of the peer
//!        | posted                            |
//!        v                                   | spend: one for each message
//!     available --- granted --> with_peer    v
//!        ^          (credits_granted)  |   (gone)
//!        +----- a message arrives -----+
//! ```
//!
//! A credit stands for one receive buffer that is posted and that no other credit stands for.
//! Three rules keep two sides from waiting for each other for ever:
//!
//! 1. A side spends its last credit only on a message that grants at least one credit (§3.1.5.1):
//!    a side without credits has just enabled its peer.
//! 2. One buffer stays in reserve for that grant, so that the message never waits for the peer.
//! 3. A peer without credits gets some unasked, as soon as a buffer is free; a peer with at most half
//!    of the credits that it requested gets more once it has sent payload. Messages without payload
//!    do not count for the second part, or two idle sides would grant each other credits for ever.
//!
//! Spec: MS-SMBD §3.1.5.1, §3.1.5.8, §3.1.5.9.

use crate::config::RECEIVE_CREDITS_FLOOR;
use crate::error::CloseReason;

/// The credits of one connection, both directions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Credits {
    held: u16,
    available: u16,
    with_peer: u16,
    target: u16,
    receive_max: u16,
    payload_since_grant: bool,
}

impl Credits {
    /// No credits on either side, for at most `receive_max` buffers.
    pub(crate) fn new(receive_max: u16) -> Self {
        Self {
            held: 0,
            available: 0,
            with_peer: 0,
            target: 1,
            receive_max: receive_max.max(RECEIVE_CREDITS_FLOOR),
            payload_since_grant: false,
        }
    }

    /// Messages that this side may send now.
    pub(crate) fn held(&self) -> u16 {
        self.held
    }

    /// Messages that the peer may still send, as far as this side knows.
    pub(crate) fn with_peer(&self) -> u16 {
        self.with_peer
    }

    /// The caller posted `count` more receive buffers.
    pub(crate) fn posted(&mut self, count: u16) {
        self.available = self.available.saturating_add(count);
    }

    /// The peer requested to hold `target` credits.
    pub(crate) fn requested(&mut self, target: u16) {
        self.target = target.clamp(1, self.receive_max);
    }

    /// The peer granted `count` more credits.
    pub(crate) fn gained(&mut self, count: u16) {
        self.held = self.held.saturating_add(count);
    }

    /// A message of the peer arrived in one of our buffers.
    pub(crate) fn arrived(&mut self, with_payload: bool) -> Result<(), CloseReason> {
        self.with_peer = self.with_peer.checked_sub(1).ok_or(CloseReason::PeerWithoutCredit)?;
        self.payload_since_grant |= with_payload;
        Ok(())
    }

    /// The grant of the negotiation response, which costs no credit. `None` if no buffer is posted.
    pub(crate) fn first_grant(&mut self) -> Option<u16> {
        let grant = self.next_grant();
        self.record(grant);
        (grant > 0).then_some(grant)
    }

    /// Spends a credit on one message and returns its grant; `None` if the message has to wait.
    pub(crate) fn spend(&mut self) -> Option<u16> {
        let grant = self.next_grant();
        // MS-SMBD §3.1.5.1: a message that spends the last credit must grant one.
        if self.held == 0 || (self.held == 1 && grant == 0) {
            return None;
        }
        self.held -= 1;
        self.record(grant);
        Some(grant)
    }

    /// Whether the peer should get credits even if this side has nothing else to send.
    pub(crate) fn grant_due(&self) -> bool {
        let needed =
            self.with_peer == 0 || (self.payload_since_grant && self.with_peer <= self.target / 2);
        needed && self.held > 0 && self.next_grant() > 0
    }

    fn next_grant(&self) -> u16 {
        let missing = self.target().saturating_sub(self.with_peer);
        let grant = missing.min(self.available.saturating_sub(RESERVE));
        let must = self.held <= 1 || self.with_peer == 0;
        if must && grant == 0 { self.available.min(RESERVE) } else { grant }
    }

    // Deviates: §3.1.5.8 takes the peer's requested number as it is. Where both sides hold at most one credit,
    // a message that grants the last credit leaves its sender without any, so the peer grants one back at
    // once, and so on for ever between idle sides. So a side that spends its last credit grants two.
    fn target(&self) -> u16 {
        if self.held == 1 { self.target.max(2) } else { self.target }
    }

    fn record(&mut self, grant: u16) {
        self.available -= grant;
        self.with_peer = self.with_peer.saturating_add(grant);
        self.payload_since_grant &= grant == 0;
    }
}

const RESERVE: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn credits(held: u16, target: u16, posted: u16) -> Credits {
        let mut credits = Credits::new(255);
        credits.requested(target);
        credits.posted(posted);
        credits.gained(held);
        credits
    }

    #[test]
    fn a_grant_fills_up_to_the_target_and_keeps_one_buffer_back() {
        assert_eq!(credits(9, 10, 255).spend(), Some(10));
        assert_eq!(credits(9, 255, 100).spend(), Some(99));
    }

    #[test]
    fn a_peer_that_asks_for_one_credit_is_granted_one() {
        let mut credits = credits(9, 1, 100);
        assert_eq!((credits.spend(), credits.with_peer()), (Some(1), 1));
        assert_eq!((credits.spend(), credits.with_peer()), (Some(0), 1));
        let mut first = Credits::new(255);
        first.requested(1);
        first.posted(16);
        assert_eq!(first.first_grant(), Some(1));
    }

    #[test]
    fn a_last_credit_grants_two_so_that_idle_sides_fall_silent() {
        let mut sides = [credits(1, 1, 8), credits(0, 1, 8)];
        sides[1].with_peer = 1;
        let mut messages = 0;
        let mut turn = 0;
        while sides[turn].grant_due() {
            messages += 1;
            assert!(messages < 4, "nothing to say, and no end of saying it");
            let granted = sides[turn].spend().unwrap();
            turn = 1 - turn;
            sides[turn].arrived(false).unwrap();
            sides[turn].posted(1);
            sides[turn].gained(granted);
        }
        assert!(messages > 0);
    }

    #[test]
    fn a_buffer_is_granted_once_and_only_when_posted() {
        let mut credits = credits(9, 10, 4);
        assert_eq!(credits.spend(), Some(3));
        assert_eq!(credits.spend(), Some(0));
        credits.posted(2);
        assert_eq!(credits.spend(), Some(2));
        assert_eq!(credits.with_peer(), 5);
    }

    #[test]
    fn a_last_credit_is_not_spent_without_a_buffer_to_grant() {
        let mut credits = credits(1, 10, 0);
        assert_eq!(credits.spend(), None);
        credits.posted(1);
        assert_eq!(credits.spend(), Some(1), "the reserve is for exactly this message");
        assert_eq!(credits.held(), 0);
        assert_eq!(credits.spend(), None);
    }

    #[test]
    fn a_last_credit_grants_even_if_the_peer_has_its_target() {
        let mut credits = credits(2, 2, 3);
        assert_eq!(credits.spend(), Some(2));
        assert_eq!(credits.spend(), Some(1));
    }

    #[test]
    fn a_message_without_a_credit_is_a_fault_of_the_peer() {
        let mut credits = credits(9, 10, 3);
        assert_eq!(credits.arrived(false), Err(CloseReason::PeerWithoutCredit));
        assert_eq!(credits.spend(), Some(2));
        assert_eq!((credits.arrived(true), credits.arrived(true)), (Ok(()), Ok(())));
        assert_eq!(credits.arrived(true), Err(CloseReason::PeerWithoutCredit));
    }

    #[test]
    fn an_empty_message_grants_to_peers_with_no_or_half_their_credits() {
        let mut credits = credits(9, 4, 5);
        assert!(credits.grant_due(), "the peer has none yet");
        assert_eq!(credits.spend(), Some(4));
        assert!(!credits.grant_due());
        credits.arrived(false).unwrap();
        credits.arrived(false).unwrap();
        credits.posted(2);
        assert!(!credits.grant_due(), "half is left and only empty messages came");
        credits.arrived(true).unwrap();
        assert!(credits.grant_due());
        assert_eq!(credits.spend(), Some(2));
        assert!(!credits.grant_due());
    }

    #[test]
    fn grants_of_a_peer_cannot_overflow_the_credits_held() {
        let mut credits = credits(u16::MAX, 10, 10);
        credits.gained(u16::MAX);
        assert_eq!(credits.held(), u16::MAX);
    }

    #[test]
    fn more_than_half_of_what_a_peer_asked_for_needs_no_grant() {
        let mut credits = credits(9, 10, 255);
        assert_eq!(credits.spend(), Some(10));
        for left in (6..10).rev() {
            credits.arrived(true).unwrap();
            assert!(!credits.grant_due(), "{left} of 10 are left");
        }
        credits.arrived(true).unwrap();
        assert!(credits.grant_due(), "5 of 10 are left");
    }

    #[test]
    fn no_grant_is_due_that_could_not_leave_or_would_grant_nothing() {
        assert!(credits(1, 10, 2).grant_due());
        assert!(!credits(0, 10, 2).grant_due(), "no credit to send it with");
        assert!(!credits(1, 10, 0).grant_due(), "no buffer to grant");
    }
}
