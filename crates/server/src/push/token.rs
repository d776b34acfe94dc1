//! One-time tokens that bind a push connection to the session and open they were issued for.
//!
//! A token is 32 random bytes, valid once and for a short time. A lookup compares with every token,
//! each in constant time, so that its time does not reveal how close a guess was; at [`TOKENS_MAX`]
//! a lookup takes some ten microseconds.

use std::time::Instant;

use smb::push::{PushToken, TOKEN_LEN};

use crate::access::Identity;

/// The open and the user that a token stands for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Bearer {
    pub(super) session_id: u64,
    pub(super) holder: Identity,
}

#[derive(Debug)]
struct Issued {
    token: PushToken,
    bearer: Bearer,
    expires: Instant,
}

/// The tokens that may still be used.
#[derive(Debug, Default)]
pub(super) struct TokenTable {
    issued: Vec<Issued>,
}

impl TokenTable {
    /// Issues a token; `None` when a session, its user or the server has too many unused ones. A user gets
    /// another token only while more can be issued than the user has.
    pub(super) fn issue(
        &mut self,
        bytes: [u8; TOKEN_LEN],
        bearer: Bearer,
        now: Instant,
        expires: Instant,
    ) -> Option<PushToken> {
        self.issued.retain(|one| one.expires > now);
        let count = |is_one: fn(&Bearer, &Bearer) -> bool| {
            self.issued.iter().filter(|one| is_one(&one.bearer, &bearer)).count()
        };
        let of_user = count(|one, other| one.holder == other.holder);
        if of_user >= TOKENS_MAX.saturating_sub(self.issued.len())
            || count(|one, other| one == other) >= TOKENS_PER_SESSION_MAX
        {
            return None;
        }
        let token = PushToken::new(bytes);
        self.issued.push(Issued { token: token.clone(), bearer, expires });
        Some(token)
    }

    /// The bearer of a token, while the token is valid.
    pub(super) fn bearer(&self, token: &PushToken, now: Instant) -> Option<&Bearer> {
        let one = &self.issued[self.find(token)?];
        (one.expires > now).then_some(&one.bearer)
    }

    /// Spends a token.
    pub(super) fn spend(&mut self, token: &PushToken, now: Instant) -> Option<Bearer> {
        let index = self.find(token)?;
        let one = self.issued.swap_remove(index);
        (one.expires > now).then_some(one.bearer)
    }

    fn find(&self, token: &PushToken) -> Option<usize> {
        let mut found = None;
        for (index, one) in self.issued.iter().enumerate() {
            // No early end of the loop: see the module.
            if one.token == *token {
                found = Some(index);
            }
        }
        found
    }

    /// Removes the tokens of a session that ended.
    pub(super) fn revoke(&mut self, session_id: u64) {
        self.issued.retain(|one| one.bearer.session_id != session_id);
    }
}

/// Unused tokens of the whole server.
const TOKENS_MAX: usize = 4096;
/// Unused tokens of one session: a client dials right after it gets one.
const TOKENS_PER_SESSION_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn bearer(session_id: u64, name: &str) -> Bearer {
        Bearer { session_id, holder: Identity::user(name) }
    }

    const LIFETIME: Duration = Duration::from_secs(30);

    #[test]
    fn a_token_is_good_once() {
        let now = Instant::now();
        let mut table = TokenTable::default();
        let token = table.issue([1; 32], bearer(7, "user"), now, now + LIFETIME).unwrap();
        assert_eq!(table.spend(&PushToken::new([2; 32]), now), None);
        assert_eq!(table.spend(&token, now), Some(bearer(7, "user")));
        assert_eq!(table.spend(&token, now), None);
    }

    #[test]
    fn a_token_expires_and_goes_with_its_session() {
        let now = Instant::now();
        let mut table = TokenTable::default();
        let token = table.issue([1; 32], bearer(7, "user"), now, now + LIFETIME).unwrap();
        assert_eq!(table.spend(&token, now + LIFETIME), None);
        let token = table.issue([2; 32], bearer(7, "user"), now, now + LIFETIME).unwrap();
        table.revoke(7);
        assert_eq!(table.spend(&token, now), None);
    }

    #[test]
    fn unused_tokens_of_one_session_are_bounded() {
        let now = Instant::now();
        let mut table = TokenTable::default();
        for index in 0..64 {
            assert!(table.issue([index; 32], bearer(7, "user"), now, now + LIFETIME).is_some());
        }
        assert!(table.issue([64; 32], bearer(7, "user"), now, now + LIFETIME).is_none());
        assert!(
            table.issue([64; 32], bearer(7, "user"), now + LIFETIME, now + LIFETIME * 2).is_some()
        );
    }

    #[test]
    fn a_user_of_many_sessions_leaves_tokens_to_others() {
        let now = Instant::now();
        let mut table = TokenTable::default();
        let mut issue = |session, name: &str| {
            let random = [0; 32];
            table.issue(random, bearer(session, name), now, now + LIFETIME).is_some()
        };
        let issued = (0..TOKENS_MAX as u64).filter(|count| issue(count / 64, "user")).count();
        assert_eq!(issued, TOKENS_MAX / 2);
        assert!(issue(1 << 32, "other"));
    }
}
