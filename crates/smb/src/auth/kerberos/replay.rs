//! Which authenticators have been here: each is good for one logon.
//!
//! An authenticator is known by the digest of its sealed bytes, and remembered for as long as its time
//! would be taken: twice the difference of clocks that is allowed. It lasts as long as the process: what
//! was seen before a restart could come again within that time, and whoever sends it has no key to sign with.
//!
//! Spec: RFC 4120 §3.2.3.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use aws_lc_rs::digest;

use super::TicketFault;

/// The authenticators seen of late. A leaf of every lock order.
#[derive(Debug, Default)]
pub struct ReplayCache(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    digests: HashSet<[u8; 16]>,
    /// The same, with the second each is forgotten at; the oldest in front.
    until: VecDeque<(i64, [u8; 16])>,
}

impl ReplayCache {
    /// Nothing has been seen.
    pub fn new() -> Self {
        Self::default()
    }

    /// Remembers an authenticator until `until`; both times are seconds since 1970.
    pub(super) fn admit(&self, sealed: &[u8], now: i64, until: i64) -> Result<(), TicketFault> {
        let whole = digest::digest(&digest::SHA256, sealed);
        let digest = *whole.as_ref().first_chunk().expect("SHA-256 has 32 bytes");
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while let Some((_, old)) = seen.until.pop_front_if(|(until, _)| *until < now) {
            seen.digests.remove(&old);
        }
        if seen.digests.contains(&digest) {
            return Err(TicketFault::PeerReplay);
        }
        if seen.digests.len() >= AUTHENTICATORS_MAX {
            return Err(TicketFault::PeerTooMany);
        }
        seen.digests.insert(digest);
        seen.until.push_back((until, digest));
        Ok(())
    }
}

/// 400 logons a second for ten minutes; 20 MiB.
const AUTHENTICATORS_MAX: usize = 1 << 18;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authenticator_is_good_once_until_it_is_too_old_anyway() {
        let cache = ReplayCache::new();
        assert_eq!(cache.admit(b"one", 1000, 1600), Ok(()));
        assert_eq!(cache.admit(b"two", 1000, 1600), Ok(()));
        assert_eq!(cache.admit(b"one", 1600, 2200), Err(TicketFault::PeerReplay));
        assert_eq!(cache.admit(b"one", 1601, 2201), Ok(()));
    }

    #[test]
    fn a_full_cache_refuses_rather_than_forgets() {
        let cache = ReplayCache::new();
        for number in 0..AUTHENTICATORS_MAX {
            cache.admit(&number.to_be_bytes(), 0, 600).unwrap();
        }
        assert_eq!(cache.admit(b"one more", 0, 600), Err(TicketFault::PeerTooMany));
        assert_eq!(cache.admit(&7_usize.to_be_bytes(), 0, 600), Err(TicketFault::PeerReplay));
        assert_eq!(cache.admit(b"one more", 601, 1201), Ok(()));
    }
}
