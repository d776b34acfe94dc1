//! One-time tokens that bind a push connection to the session and open they were issued for: 32 random bytes
//! each, shared fairly between users. A peer shows a proof of a token, made for one of the addresses of its grant.

use std::time::Instant;

use remote::host;
use smb::push::{PushAddress, PushProof, PushToken, TOKEN_LEN};

use crate::access::Identity;

/// The open and the user that a token stands for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Bearer {
    pub(super) session_id: u64,
    pub(super) holder: Identity,
}

/// The tokens that may still be used, shared fairly between users.
#[derive(Debug)]
pub(super) struct TokenTable(host::TokenTable<PushProof, Bearer>);

impl Default for TokenTable {
    fn default() -> Self {
        Self(host::TokenTable::new(TOKENS_MAX))
    }
}

impl TokenTable {
    /// Issues a token; `None` when a session, its user or the server has too many unused ones. A user gets
    /// another token only while more can be issued than the user has.
    pub(super) fn issue(
        &mut self,
        bytes: [u8; TOKEN_LEN],
        places: &[PushAddress],
        bearer: Bearer,
        now: Instant,
        expires: Instant,
    ) -> Option<PushToken> {
        let (mut all, mut of_user, mut of_session) = (0, 0, 0);
        for other in self.0.bearers(now) {
            all += 1;
            of_user += usize::from(other.holder == bearer.holder);
            of_session += usize::from(*other == bearer);
        }
        if of_user >= TOKENS_MAX.saturating_sub(all) || of_session >= TOKENS_PER_SESSION_MAX {
            return None;
        }
        let token = PushToken::new(bytes);
        let proofs = places.iter().map(|place| token.proof(*place)).collect();
        self.0.issue(proofs, bearer, now, expires).then_some(token)
    }

    /// The bearer of a token by a proof, while the token is valid.
    pub(super) fn bearer(&self, proof: &PushProof, now: Instant) -> Option<&Bearer> {
        self.0.bearer(proof, now)
    }

    /// Spends a token, for all its addresses.
    pub(super) fn spend(&mut self, proof: &PushProof, now: Instant) -> Option<Bearer> {
        self.0.spend(proof, now)
    }

    /// Removes the tokens of a session that ended.
    pub(super) fn revoke(&mut self, session_id: u64) {
        self.0.revoke(|bearer| bearer.session_id == session_id);
    }
}

/// Unused tokens of the whole server.
const TOKENS_MAX: usize = 4096;
/// Unused tokens of one session: a client dials right after it gets one.
const TOKENS_PER_SESSION_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr};
    use std::time::Duration;

    use super::*;

    fn bearer(session_id: u64, name: &str) -> Bearer {
        Bearer { session_id, holder: Identity::user(name) }
    }

    const HERE: PushAddress = at(1);
    const THERE: PushAddress = at(2);

    const fn at(port: u16) -> PushAddress {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        PushAddress::Network(SocketAddr::new(ip, port))
    }

    const LIFETIME: Duration = Duration::from_secs(30);

    #[test]
    fn a_token_is_good_once() {
        let now = Instant::now();
        let mut table = TokenTable::default();
        let places = [HERE, THERE];
        let token = table.issue([1; 32], &places, bearer(7, "user"), now, now + LIFETIME).unwrap();
        assert_eq!(table.spend(&PushToken::new([2; 32]).proof(HERE), now), None);
        assert_eq!(table.spend(&token.proof(THERE), now), Some(bearer(7, "user")));
        assert_eq!(table.spend(&token.proof(HERE), now), None);
    }

    #[test]
    fn a_token_opens_no_connection_for_an_address_outside_its_grant() {
        let now = Instant::now();
        let mut table = TokenTable::default();
        let token = table.issue([1; 32], &[HERE], bearer(7, "user"), now, now + LIFETIME).unwrap();
        assert_eq!(table.spend(&token.proof(THERE), now), None);
        let elsewhere = PushAddress::SameHost("[::1]:1".parse().unwrap());
        assert_eq!(table.spend(&token.proof(elsewhere), now), None);
        assert_eq!(table.spend(&token.proof(HERE), now), Some(bearer(7, "user")));
    }

    #[test]
    fn a_token_expires_and_goes_with_its_session() {
        let now = Instant::now();
        let mut table = TokenTable::default();
        let token = table.issue([1; 32], &[HERE], bearer(7, "user"), now, now + LIFETIME).unwrap();
        assert_eq!(table.spend(&token.proof(HERE), now + LIFETIME), None);
        let token = table.issue([2; 32], &[HERE], bearer(7, "user"), now, now + LIFETIME).unwrap();
        table.revoke(7);
        assert_eq!(table.spend(&token.proof(HERE), now), None);
    }

    #[test]
    fn unused_tokens_of_one_session_are_bounded() {
        let now = Instant::now();
        let mut table = TokenTable::default();
        for index in 0..64 {
            assert!(
                table.issue([index; 32], &[HERE], bearer(7, "user"), now, now + LIFETIME).is_some()
            );
        }
        assert!(table.issue([64; 32], &[HERE], bearer(7, "user"), now, now + LIFETIME).is_none());
        assert!(
            table
                .issue([64; 32], &[HERE], bearer(7, "user"), now + LIFETIME, now + LIFETIME * 2)
                .is_some()
        );
    }

    #[test]
    fn a_user_of_many_sessions_leaves_tokens_to_others() {
        let now = Instant::now();
        let mut table = TokenTable::default();
        let mut issue = |session, name: &str| {
            let random = [0; 32];
            table.issue(random, &[HERE], bearer(session, name), now, now + LIFETIME).is_some()
        };
        let issued = (0..TOKENS_MAX as u64).filter(|count| issue(count / 64, "user")).count();
        assert_eq!(issued, TOKENS_MAX / 2);
        assert!(issue(1 << 32, "other"));
    }
}
