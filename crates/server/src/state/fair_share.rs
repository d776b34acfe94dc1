//! Places that holders share without a bound for each: whoever has many gets one more only while more than that are
//! left.
//!
//! So a holder alone gets half of them, the next one half of what is left, and so on: whoever keeps its places for
//! ever keeps nobody else out. (Choudhury and Hahne, 1998; `rdma`'s workers do the same.)

use std::collections::HashMap;
use std::hash::Hash;

/// How many places each holder has.
#[derive(Debug)]
pub(crate) struct FairShare<H> {
    max: usize,
    taken: usize,
    held: HashMap<H, usize>,
}

impl<H: Clone + Eq + Hash> FairShare<H> {
    /// So many places, all of them free.
    pub(crate) fn new(max: usize) -> Self {
        Self { max, taken: 0, held: HashMap::new() }
    }

    /// Whether a holder may have one more.
    pub(crate) fn may_take(&self, holder: &H) -> bool {
        self.held.get(holder).copied().unwrap_or(0) < self.max.saturating_sub(self.taken)
    }

    /// One more place of a holder, asked for or not.
    pub(crate) fn take(&mut self, holder: &H) {
        self.taken += 1;
        *self.held.entry(holder.clone()).or_default() += 1;
    }

    /// A holder has one less.
    pub(crate) fn give_back(&mut self, holder: &H) {
        let Some(held) = self.held.get_mut(holder) else { return };
        self.taken -= 1;
        *held -= 1;
        if *held == 0 {
            self.held.remove(holder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_that_take_all_they_can_leave_places_to_the_next() {
        let mut places = FairShare::new(256);
        let mut shares = Vec::new();
        for holder in ["first", "second", "third", "fourth"] {
            let mut share = 0;
            while places.may_take(&holder) {
                places.take(&holder);
                share += 1;
            }
            shares.push(share);
        }
        assert_eq!(shares, [128, 64, 32, 16]);
        assert!(places.may_take(&"fifth") && !places.may_take(&"fourth"));
        (0..128).for_each(|_| places.give_back(&"first"));
        assert!(places.may_take(&"fourth"));
        assert_eq!((places.taken, places.held.len()), (112, 3));
    }

    #[test]
    fn a_single_place_is_for_whoever_comes_first_and_none_is_for_nobody() {
        let mut places = FairShare::new(1);
        assert!(places.may_take(&"first"));
        places.take(&"first");
        assert!(!places.may_take(&"first") && !places.may_take(&"second"));
        assert!(!FairShare::new(0).may_take(&"first"));
    }
}
