//! One-time tokens that bind a push connection to the bearer they were issued for.
//!
//! A token is valid once and for a short time. A lookup compares with every token, each in constant time, so that
//! its time does not reveal how close a guess was; with 4,096 tokens a lookup takes some ten microseconds.

use std::time::Instant;

/// The tokens that may still be used. The equality of two `T` is computed in constant time.
#[derive(Debug)]
pub struct TokenTable<T, B> {
    issued: Vec<Issued<T, B>>,
    len_max: usize,
}

#[derive(Debug)]
struct Issued<T, B> {
    token: T,
    bearer: B,
    expires: Instant,
}

impl<T: Eq, B> TokenTable<T, B> {
    /// A table for at most `len_max` tokens.
    pub const fn new(len_max: usize) -> Self {
        Self { issued: Vec::new(), len_max }
    }

    /// The bearers of the tokens that are valid at `now`, with those of equal bearers as often as they occur.
    pub fn bearers(&mut self, now: Instant) -> impl ExactSizeIterator<Item = &B> {
        self.issued.retain(|one| one.expires > now);
        self.issued.iter().map(|one| &one.bearer)
    }

    /// Issues a token; `false` when the table is full of valid ones.
    pub fn issue(&mut self, token: T, bearer: B, now: Instant, expires: Instant) -> bool {
        let len = self.bearers(now).len();
        let has_room = len < self.len_max;
        if has_room {
            self.issued.push(Issued { token, bearer, expires });
        }
        has_room
    }

    /// The bearer of a token, while the token is valid.
    pub fn bearer(&self, token: &T, now: Instant) -> Option<&B> {
        let one = &self.issued[self.find(token)?];
        (one.expires > now).then_some(&one.bearer)
    }

    /// Spends a token.
    pub fn spend(&mut self, token: &T, now: Instant) -> Option<B> {
        let index = self.find(token)?;
        let one = self.issued.swap_remove(index);
        (one.expires > now).then_some(one.bearer)
    }

    /// Voids the tokens of some bearers.
    pub fn revoke(&mut self, is_revoked: impl Fn(&B) -> bool) {
        self.issued.retain(|one| !is_revoked(&one.bearer));
    }

    fn find(&self, token: &T) -> Option<usize> {
        let mut found = None;
        for (index, one) in self.issued.iter().enumerate() {
            // No early end of the loop: see the module.
            if one.token == *token {
                found = Some(index);
            }
        }
        found
    }
}
