//! Credits: how many requests the server lets the client have open.
//!
//! ```text
//!   owned = free + bound to open requests
//!   request:   free -= charge, asks for charge and a part of the difference to CREDITS_WANTED
//!   response:  free += granted, owned changes by granted - charge
//! ```
//!
//! Spec: MS-SMB2 §3.2.4.1.2, §3.2.4.1.5, §3.2.5.1.4.

use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::{Notify, Semaphore};

#[derive(Debug)]
pub(super) struct Credits {
    free: Semaphore,
    owned: AtomicU32,
    /// Wakes those that wait for credits when no open request can bring any.
    drained: Notify,
}

impl Credits {
    /// MS-SMB2 §3.2.5.1.4: a connection begins with one credit.
    pub(super) fn new() -> Self {
        Self { free: Semaphore::new(1), owned: AtomicU32::new(1), drained: Notify::new() }
    }

    /// Waits for `charge` credits, takes them, and returns how many to ask for. `None` if the credits
    /// cannot come, or the connection is gone. `is_hopeless`: whether no open request can bring
    /// credits; it is asked at first and whenever [`Credits::drained`] is called.
    pub(super) async fn acquire(&self, charge: u16, is_hopeless: impl Fn() -> bool) -> Option<u16> {
        let is_out = || self.owned() < u32::from(charge) && is_hopeless();
        tokio::select! {
            biased;
            () = basics::until(&self.drained, is_out) => None,
            taken = self.free.acquire_many(u32::from(charge)) => {
                taken.ok()?.forget();
                Some(self.ask(charge))
            }
        }
    }

    /// No request is open any more, so no credits come but by a request that costs those that are left.
    pub(super) fn drained(&self) {
        self.drained.notify_waiters();
    }

    /// Takes `charge` credits if so many are free.
    pub(super) fn try_acquire(&self, charge: u16) -> Option<u16> {
        self.free.try_acquire_many(u32::from(charge)).ok()?.forget();
        Some(self.ask(charge))
    }

    /// Credits the server has given us, free or not.
    pub(super) fn owned(&self) -> u32 {
        self.owned.load(Ordering::Relaxed)
    }

    /// Adds the credits that a response grants. `charge` is what its request cost, 0 for the second
    /// response to the same request.
    pub(super) fn grant(&self, granted: u16, charge: u16) {
        // A server may take credits away by granting none, so `owned` can shrink as well.
        let change = |owned: u32| {
            Some(owned.saturating_add(u32::from(granted)).saturating_sub(u32::from(charge)))
        };
        let _ = self.owned.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        // A server that grants without end must not make the semaphore panic.
        if self.free.available_permits() < CREDITS_MAX {
            self.free.add_permits(usize::from(granted));
        }
    }

    /// Ends all waits for credits.
    pub(super) fn close(&self) {
        self.free.close();
    }

    fn ask(&self, charge: u16) -> u16 {
        let missing = CREDITS_WANTED.saturating_sub(self.owned());
        charge.saturating_add(u16::try_from(missing).unwrap_or(u16::MAX).min(ASK_MORE_MAX))
    }
}

/// 32 MiB in flight: more than a fast link holds.
const CREDITS_WANTED: u32 = 512;
/// The most credits that Windows clients ask for at once.
const ASK_MORE_MAX: u16 = 128;
/// Twice the 16-bit range of a grant.
const CREDITS_MAX: usize = 1 << 17;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_begins_with_one_credit_and_asks_for_more() {
        let credits = Credits::new();
        assert_eq!(credits.try_acquire(1), Some(1 + ASK_MORE_MAX));
        assert_eq!(credits.try_acquire(1), None);
        credits.grant(33, 1);
        assert_eq!(credits.owned(), 33);
        assert_eq!(credits.try_acquire(34), None);
        assert!(credits.try_acquire(33).is_some());
    }

    #[test]
    fn a_client_with_enough_credits_asks_only_for_its_charge() {
        let credits = Credits::new();
        credits.grant(u16::MAX, 0);
        assert_eq!(credits.try_acquire(16), Some(16));
    }

    #[test]
    fn endless_grants_of_credits_do_no_harm() {
        let credits = Credits::new();
        for _ in 0..1000 {
            credits.grant(u16::MAX, 0);
        }
        assert!(credits.try_acquire(1).is_some());
    }
}
