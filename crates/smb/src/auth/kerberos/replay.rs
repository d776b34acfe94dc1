//! Which authenticators have been here: each is good for one logon.
//!
//! An authenticator is known by the digest of its sealed bytes, and remembered for as long as its time
//! would be taken: twice the difference of clocks that is allowed. Only those of owners who are let in are
//! remembered, and of each owner so many that no one of them fills the room of the others. It lasts as long as the process: what
//! was seen before a restart could come again within that time, and whoever sends it has no key to sign with.
//!
//! Spec: RFC 4120 §3.2.3.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use aws_lc_rs::digest;

use super::TicketFault;

/// The authenticators seen of late. A leaf of every lock order.
#[derive(Debug, Default)]
pub struct ReplayCache(Mutex<Seen>);

#[derive(Debug, Default)]
struct Seen {
    digests: HashSet<[u8; 16]>,
    /// The same, with the second each is forgotten at and its owner; the oldest in front.
    until: VecDeque<(i64, [u8; 16], Arc<str>)>,
    of_owner: HashMap<Arc<str>, usize>,
}

impl ReplayCache {
    /// Nothing has been seen.
    pub fn new() -> Self {
        Self::default()
    }

    /// Remembers an authenticator of `owner` until `until`; both times are seconds since 1970.
    pub(super) fn admit(
        &self,
        owner: &str,
        sealed: &[u8],
        now: i64,
        until: i64,
    ) -> Result<(), TicketFault> {
        let whole = digest::digest(&digest::SHA256, sealed);
        let digest = *whole.as_ref().first_chunk().expect("SHA-256 has 32 bytes");
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        seen.forget(now);
        if seen.digests.contains(&digest) {
            return Err(TicketFault::PeerReplay);
        }
        let owner: Arc<str> = owner.to_lowercase().into();
        let owned = seen.of_owner.get(&owner).copied().unwrap_or(0);
        if seen.digests.len() >= AUTHENTICATORS_MAX || owned >= AUTHENTICATORS_PER_OWNER_MAX {
            return Err(TicketFault::PeerTooMany);
        }
        seen.of_owner.insert(Arc::clone(&owner), owned + 1);
        seen.digests.insert(digest);
        seen.until.push_back((until, digest, owner));
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn remembered(&self) -> usize {
        self.0.lock().unwrap().digests.len()
    }
}

impl Seen {
    fn forget(&mut self, now: i64) {
        while let Some((_, old, owner)) = self.until.pop_front_if(|(until, ..)| *until < now) {
            self.digests.remove(&old);
            if let Some(owned) = self.of_owner.get_mut(&owner) {
                *owned -= 1;
                if *owned == 0 {
                    self.of_owner.remove(&owner);
                }
            }
        }
    }
}

/// 400 logons a second for ten minutes; 30 MiB.
const AUTHENTICATORS_MAX: usize = 1 << 18;
/// 27 logons a second of one owner: a cluster's common account does not come near.
const AUTHENTICATORS_PER_OWNER_MAX: usize = 1 << 14;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authenticator_is_accepted_once_until_it_expires() {
        let cache = ReplayCache::new();
        assert_eq!(cache.admit("alice", b"one", 1000, 1600), Ok(()));
        assert_eq!(cache.admit("alice", b"two", 1000, 1600), Ok(()));
        assert_eq!(cache.admit("alice", b"one", 1600, 2200), Err(TicketFault::PeerReplay));
        assert_eq!(cache.admit("alice", b"one", 1601, 2201), Ok(()));
    }

    #[test]
    fn a_full_replay_cache_refuses_new_and_replayed_authenticators() {
        let cache = ReplayCache::new();
        for number in 0..AUTHENTICATORS_MAX {
            let owner = (number / AUTHENTICATORS_PER_OWNER_MAX).to_string();
            cache.admit(&owner, &number.to_be_bytes(), 0, 600).unwrap();
        }
        assert_eq!(cache.admit("x", b"one more", 0, 600), Err(TicketFault::PeerTooMany));
        let replay = cache.admit("0", &7_usize.to_be_bytes(), 0, 600);
        assert_eq!(replay, Err(TicketFault::PeerReplay));
        assert_eq!(cache.admit("x", b"one more", 601, 1201), Ok(()));
        assert_eq!(cache.0.lock().unwrap().of_owner.len(), 1, "who is forgotten is not counted");
    }

    #[test]
    fn an_owner_is_counted_as_long_as_one_authenticator_is_remembered() {
        let cache = ReplayCache::new();
        cache.admit("alice", b"one", 0, 10).unwrap();
        cache.admit("alice", b"two", 0, 100).unwrap();
        cache.admit("bob", b"three", 11, 100).unwrap();
        assert_eq!(cache.0.lock().unwrap().of_owner.get("alice"), Some(&1));
    }

    #[test]
    fn one_owner_cannot_fill_the_replay_cache() {
        let cache = ReplayCache::new();
        for number in 0..AUTHENTICATORS_PER_OWNER_MAX {
            cache.admit("alice", &number.to_be_bytes(), 0, 600).unwrap();
        }
        assert_eq!(cache.admit("ALICE", b"one more", 0, 600), Err(TicketFault::PeerTooMany));
        assert_eq!(cache.admit("bob", b"one more", 0, 600), Ok(()));
    }
}
