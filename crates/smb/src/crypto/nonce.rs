//! Nonces that cannot repeat under one key.
//!
//! ```text
//!  0                8              11 | 12            16
//!  +----------------+-----------------+----------------+
//!  | counter (8, LE)| zero            | unused, zero   |
//!  +----------------+-----------------+----------------+
//! ```
//!
//! Each direction has a key of its own and each key lives in one process, so a counter is
//! enough, and unlike random bytes it needs no birthday bound. The counter is shared by all
//! channels of the session because they share the key.
//!
//! Spec: MS-SMB2 §2.2.41, §3.1.4.3.

use std::sync::atomic::{AtomicU64, Ordering};

/// Frames one key may seal; then the session has to authenticate anew.
///
/// 2^48 frames of 4 KiB are 2^56 cipher blocks, where the advantage against GCM is still below
/// 2^-16; at a million frames a second that is nine years.
pub const NONCES_MAX: u64 = 1 << 48;

#[derive(Debug)]
pub(super) struct NonceCounter(AtomicU64);

impl NonceCounter {
    pub(super) const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// A nonce field never returned before, or nothing once the limit is reached.
    pub(super) fn next(&self) -> Option<[u8; 16]> {
        // A fetch_add that overshoots stays refused: it would take 2^63 refused calls to wrap.
        let count = self.0.fetch_add(1, Ordering::Relaxed);
        if count >= NONCES_MAX {
            self.0.store(NONCES_MAX, Ordering::Relaxed);
            return None;
        }
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&count.to_le_bytes());
        Some(nonce)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonces_differ_and_end_at_the_limit_for_good() {
        let counter = NonceCounter::new();
        assert_ne!(counter.next().unwrap(), counter.next().unwrap());
        let counter = NonceCounter(AtomicU64::new(NONCES_MAX - 1));
        assert!(counter.next().is_some());
        assert_eq!(counter.next(), None);
        assert_eq!(counter.next(), None);
    }
}
