//! One-time tokens that bind a push connection to the bearer they were issued for.
//!
//! A token is valid once and for a short time. It may be shown in several forms, such as one for each address of
//! the host, and is spent in all of them. A lookup compares with every form, each in constant time, so that
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
    forms: Vec<T>,
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

    /// Issues a token, which is shown in one of the `forms`; `false` when the table is full of valid ones.
    pub fn issue(&mut self, forms: Vec<T>, bearer: B, now: Instant, expires: Instant) -> bool {
        let len = self.bearers(now).len();
        let has_room = len < self.len_max;
        if has_room {
            self.issued.push(Issued { forms, bearer, expires });
        }
        has_room
    }

    /// The bearer of a token by one of its forms, while the token is valid.
    pub fn bearer(&self, shown: &T, now: Instant) -> Option<&B> {
        let one = &self.issued[self.find(shown)?];
        (one.expires > now).then_some(&one.bearer)
    }

    /// Spends a token by one of its forms.
    pub fn spend(&mut self, shown: &T, now: Instant) -> Option<B> {
        let index = self.find(shown)?;
        let one = self.issued.swap_remove(index);
        (one.expires > now).then_some(one.bearer)
    }

    /// Voids the tokens of some bearers.
    pub fn revoke(&mut self, is_revoked: impl Fn(&B) -> bool) {
        self.issued.retain(|one| !is_revoked(&one.bearer));
    }

    fn find(&self, shown: &T) -> Option<usize> {
        let mut found = None;
        for (index, one) in self.issued.iter().enumerate() {
            for form in &one.forms {
                // No early end of the loops: see the module.
                if form == shown {
                    found = Some(index);
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn a_token_is_valid_in_each_of_its_forms_until_its_time_is_over() {
        let now = Instant::now();
        let mut table = TokenTable::new(2);
        assert!(table.issue(vec![1, 2], "alice", now, now + MINUTE));
        let almost = now + MINUTE - Duration::from_nanos(1);
        for form in [1, 2] {
            assert_eq!(table.bearer(&form, almost), Some(&"alice"));
            assert_eq!(table.bearer(&form, now + MINUTE), None, "its time is over");
        }
        assert_eq!(table.bearer(&3, now), None);
        assert_eq!(table.spend(&2, almost), Some("alice"));
        assert_eq!(table.spend(&1, almost), None, "it is spent in all its forms");
    }

    #[test]
    fn a_token_that_is_over_admits_nobody_and_takes_no_room() {
        let now = Instant::now();
        let mut table = TokenTable::new(2);
        assert!(table.issue(vec![1], "alice", now, now + MINUTE));
        assert!(table.issue(vec![2], "bob", now, now + 2 * MINUTE));
        assert!(!table.issue(vec![3], "carol", now, now + MINUTE), "two at most");
        let almost = now + MINUTE - Duration::from_nanos(1);
        assert_eq!(table.bearers(almost).len(), 2);
        assert_eq!(table.spend(&1, now + MINUTE), None);
        assert_eq!(table.bearers(now + MINUTE).collect::<Vec<_>>(), [&"bob"]);
        assert!(table.issue(vec![1], "dave", now, now + MINUTE));
        assert_eq!(table.bearers(now + MINUTE).collect::<Vec<_>>(), [&"bob"]);
        table.revoke(|bearer| *bearer == "bob");
        assert_eq!(table.bearer(&2, now), None);
    }
}
