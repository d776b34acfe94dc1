//! What is known of each granule of an overlay: two bits each, in regions that exist once a granule of theirs has changed.

use std::collections::HashMap;

/// Where the bytes of a granule are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Place {
    /// In the base.
    Base,
    /// In the store.
    Store,
    /// Nowhere: they are zeroes.
    Zero,
    /// Nowhere: the base could not read them when they had to be kept.
    Lost,
}

/// The regions that share a lock, those without a change left out.
#[derive(Debug, Default)]
pub(super) struct Regions(HashMap<u64, Region>);

impl Regions {
    /// What is known of region `number`.
    pub(super) fn region(&self, number: u64) -> &Region {
        self.0.get(&number).unwrap_or(&UNCHANGED)
    }

    /// The same, to be changed.
    pub(super) fn region_mut(&mut self, number: u64) -> &mut Region {
        self.0.entry(number).or_default()
    }
}

/// The granules of a region.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Region {
    is_stored: [u64; WORDS],
    is_zero: [u64; WORDS],
}

impl Region {
    /// Where granule `index` is.
    pub(super) fn place(&self, index: usize) -> Place {
        let bit = |words: &[u64; WORDS]| words[index / 64] >> (index % 64) & 1 == 1;
        match (bit(&self.is_stored), bit(&self.is_zero)) {
            (false, false) => Place::Base,
            (true, false) => Place::Store,
            (false, true) => Place::Zero,
            (true, true) => Place::Lost,
        }
    }

    /// Notes where granule `index` is from now on.
    pub(super) fn set(&mut self, index: usize, place: Place) {
        let (word, bit) = (index / 64, 1 << (index % 64));
        let put = |words: &mut [u64; WORDS], is_set: bool| match is_set {
            true => words[word] |= bit,
            false => words[word] &= !bit,
        };
        put(&mut self.is_stored, matches!(place, Place::Store | Place::Lost));
        put(&mut self.is_zero, matches!(place, Place::Zero | Place::Lost));
    }

    /// How many granules from `index` on, of `count`, are where the first one is.
    pub(super) fn run(&self, index: usize, count: usize) -> (Place, usize) {
        let place = self.place(index);
        let others = (index + 1..index + count).take_while(|next| self.place(*next) == place);
        (place, 1 + others.count())
    }
}

/// Granules of a region.
pub(super) const GRANULES: usize = 256;
const WORDS: usize = GRANULES / 64;
static UNCHANGED: Region = Region { is_stored: [0; WORDS], is_zero: [0; WORDS] };

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_granule_has_its_own_place() {
        let mut regions = Regions::default();
        assert_eq!(regions.region(7).run(0, GRANULES), (Place::Base, GRANULES));
        let places = [Place::Store, Place::Zero, Place::Lost, Place::Base];
        for index in 0..GRANULES {
            regions.region_mut(7).set(index, Place::Lost);
            regions.region_mut(7).set(index, places[index % 4]);
        }
        let region = regions.region(7);
        assert!(
            (0..GRANULES)
                .all(|index| region.run(index, GRANULES - index) == (places[index % 4], 1))
        );
        assert_eq!(regions.region(8).place(3), Place::Base);
    }

    #[test]
    fn a_run_ends_where_it_is_told_or_the_place_changes() {
        let mut region = Region::default();
        (60..70).for_each(|index| region.set(index, Place::Store));
        assert_eq!(region.run(58, 100), (Place::Base, 2));
        assert_eq!(region.run(60, 100), (Place::Store, 10));
        assert_eq!(region.run(60, 3), (Place::Store, 3));
    }
}
