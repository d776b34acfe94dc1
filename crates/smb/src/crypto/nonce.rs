//! Nonces that cannot repeat under one key.
//!
//! ```text
//!  0             7                11 | 12            16
//!  +-------------+-----------------+----------------+
//!  | counter (7) | session id (4)  | unused, zero   |
//!  +-------------+-----------------+----------------+
//! ```
//!
//! Each direction has a key of its own and each session counts what it seals, so a counter is
//! enough, and unlike random bytes it needs no birthday bound. It is shared by all channels of the
//! session because they share the key. The session's id keeps two sessions apart that have one key:
//! in 3.0 and 3.0.2 keys come of the authentication alone, and a client that shows a Kerberos ticket without a
//! subkey has the ticket's key in each of them. 3.1.1 binds them to the conversation.
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

    /// A nonce field never returned before for this session, or nothing once the limit is reached.
    pub(super) fn next(&self, session_id: u64) -> Option<[u8; 16]> {
        // A fetch_add that overshoots stays refused: it would take 2^63 refused calls to wrap.
        let count = self.0.fetch_add(1, Ordering::Relaxed);
        if count >= NONCES_MAX {
            self.0.store(NONCES_MAX, Ordering::Relaxed);
            return None;
        }
        let mut nonce = [0; 16];
        let (count, id) = (count.to_le_bytes(), session_id.to_le_bytes());
        nonce[..COUNTER].copy_from_slice(&count[..COUNTER]);
        nonce[COUNTER..COUNTER + 4].copy_from_slice(&id[..4]);
        Some(nonce)
    }
}

// 2^56 is beyond NONCES_MAX.
const COUNTER: usize = 7;
const _: () = assert!(NONCES_MAX <= 1 << (8 * COUNTER));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonces_differ_and_end_at_the_limit_for_good() {
        let counter = NonceCounter::new();
        assert_ne!(counter.next(1).unwrap(), counter.next(1).unwrap());
        let counter = NonceCounter(AtomicU64::new(NONCES_MAX - 1));
        assert!(counter.next(1).is_some());
        assert_eq!(counter.next(1), None);
        assert_eq!(counter.next(1), None);
    }

    #[test]
    fn every_byte_of_the_counter_tells_nonces_of_a_session_apart() {
        let counts = (0..48).map(|bit| 1_u64 << bit).chain(0..70_000);
        let counts: std::collections::BTreeSet<_> = counts.collect();
        let nonce = |count: &u64| NonceCounter(AtomicU64::new(*count)).next(u64::MAX).unwrap();
        let nonces: std::collections::HashSet<_> = counts.iter().map(nonce).collect();
        assert_eq!(nonces.len(), counts.len());
    }

    #[test]
    fn two_sessions_of_one_key_share_no_nonce() {
        let of = |id| {
            let counter = NonceCounter::new();
            (0..300).map(|_| counter.next(id).unwrap()).collect::<std::collections::HashSet<_>>()
        };
        assert!(of(0x1_0203_0405).is_disjoint(&of(0x1_0203_0406)));
        assert!(of(1).iter().all(|nonce| nonce[11..] == [0; 5]), "CCM uses eleven bytes");
    }
}
