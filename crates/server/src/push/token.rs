//! One-time tokens that bind a push connection to the session and open they were issued for.
//!
//! A token is 32 random bytes, good once and for a short time. Looking one up compares with every
//! token there is, each in constant time, so that how long it takes says nothing about how close
//! a guess was; at [`TOKENS_MAX`] that is some ten microseconds.

use std::time::Instant;

use smb::push::{PushToken, TOKEN_LEN};

/// What a token stands for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Bearer {
    pub(super) session_id: u64,
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
    /// Issues a token; `None` when a session or the server has too many unused ones.
    pub(super) fn issue(
        &mut self,
        bytes: [u8; TOKEN_LEN],
        bearer: Bearer,
        now: Instant,
        expires: Instant,
    ) -> Option<PushToken> {
        self.issued.retain(|one| one.expires > now);
        let same = self.issued.iter().filter(|one| one.bearer == bearer).count();
        if self.issued.len() >= TOKENS_MAX || same >= TOKENS_PER_SESSION_MAX {
            return None;
        }
        let token = PushToken::new(bytes);
        self.issued.push(Issued { token: token.clone(), bearer, expires });
        Some(token)
    }

    /// Spends a token.
    pub(super) fn spend(&mut self, token: &PushToken, now: Instant) -> Option<Bearer> {
        let mut found = None;
        for (index, one) in self.issued.iter().enumerate() {
            // No early end: see above.
            if one.token == *token {
                found = Some(index);
            }
        }
        let one = self.issued.swap_remove(found?);
        (one.expires > now).then_some(one.bearer)
    }

    /// Forgets the tokens of a session that ended.
    pub(super) fn revoke(&mut self, session_id: u64) {
        self.issued.retain(|one| one.bearer.session_id != session_id);
    }
}

/// Unused tokens of the whole server.
const TOKENS_MAX: usize = 4096;
/// Unused tokens of one session: a client dials right after it got one.
const TOKENS_PER_SESSION_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const BEARER: Bearer = Bearer { session_id: 7 };
    const LIFETIME: Duration = Duration::from_secs(30);

    #[test]
    fn a_token_is_good_once() {
        let now = Instant::now();
        let mut table = TokenTable::default();
        let token = table.issue([1; 32], BEARER, now, now + LIFETIME).unwrap();
        assert_eq!(table.spend(&PushToken::new([2; 32]), now), None);
        assert_eq!(table.spend(&token, now), Some(BEARER));
        assert_eq!(table.spend(&token, now), None);
    }

    #[test]
    fn a_token_expires_and_goes_with_its_session() {
        let now = Instant::now();
        let mut table = TokenTable::default();
        let token = table.issue([1; 32], BEARER, now, now + LIFETIME).unwrap();
        assert_eq!(table.spend(&token, now + LIFETIME), None);
        let token = table.issue([2; 32], BEARER, now, now + LIFETIME).unwrap();
        table.revoke(BEARER.session_id);
        assert_eq!(table.spend(&token, now), None);
    }

    #[test]
    fn unused_tokens_of_one_session_are_bounded() {
        let now = Instant::now();
        let mut table = TokenTable::default();
        for index in 0..64 {
            assert!(table.issue([index; 32], BEARER, now, now + LIFETIME).is_some());
        }
        assert!(table.issue([64; 32], BEARER, now, now + LIFETIME).is_none());
        assert!(table.issue([64; 32], BEARER, now + LIFETIME, now + LIFETIME * 2).is_some());
    }
}
