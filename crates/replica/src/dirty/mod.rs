//! Which blocks a member lacks: a bit for each granule of a volume.
//!
//! ```text
//!   volume 0: page 0, page 1 ... page 257 | volume 1: page 0 ...            each page 4096 bytes:
//!   0 crc 4 | page of the volume 4 | volume 1 | granule 1, as a power of two | 0 6 | bits 4080
//! ```
//! Little-endian; bit `n` of a page is bit `n % 8` of its byte `n / 8`. A page that is not sound, because a crash tore it
//! or it was never stored, is read as all ones: a member gets too much rather than too little.
//!
//! Bits are set before what they speak of leaves the ring, and durable before that room is used again.
//!
//! Spec: ours, docs/replica-format.md.

mod bits;

pub use self::bits::{BITS_MAX, DIRTY_PAGE_LEN, DIRTY_PAGES};
use self::bits::{Bits, granules, page_offset, shift_of};
use crate::format::{Extent, VOLUMES_MAX};

/// Which blocks of the volumes of a group a member lacks.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DirtyMap {
    volumes: Vec<Bits>,
    /// Bytes of all granules that are set.
    bytes: u64,
}

impl DirtyMap {
    /// Nothing is lacking of volumes of these sizes. A volume that does not exist has size 0.
    ///
    /// # Panics
    ///
    /// If there are more than [`VOLUMES_MAX`] volumes, or one is longer than [`VOLUME_LEN_MAX`](crate::format::VOLUME_LEN_MAX).
    pub fn clean(sizes: &[u64]) -> Self {
        assert!(sizes.len() <= usize::from(VOLUMES_MAX), "volumes of a group");
        Self { volumes: sizes.iter().map(|size| Bits::clean(*size)).collect(), bytes: 0 }
    }

    /// Everything is lacking.
    ///
    /// # Panics
    ///
    /// As [`DirtyMap::clean`].
    pub fn full(sizes: &[u64]) -> Self {
        let mut map = Self::clean(sizes);
        map.volumes.iter_mut().for_each(Bits::fill);
        map.bytes = sizes.iter().sum();
        map
    }

    /// Every granule of which a byte lies in the range is lacking. What lies beyond the volume is left out.
    pub fn mark(&mut self, extent: Extent) {
        if let Some(bits) = self.volumes.get_mut(usize::from(extent.volume)) {
            let first = extent.offset >> bits.shift;
            let end = extent.offset.saturating_add(extent.len).min(bits.size);
            if extent.offset < end {
                self.bytes += bits.set(first, granules(end, bits.shift));
            }
        }
    }

    /// The granules that lie wholly in the range are there. Granules that the range covers in part stay as they are.
    pub fn clear(&mut self, extent: Extent) {
        if let Some(bits) = self.volumes.get_mut(usize::from(extent.volume)) {
            let first = granules(extent.offset, bits.shift);
            let end = extent.offset.saturating_add(extent.len);
            // The last granule of a volume may be shorter than the others.
            let end = if end >= bits.size { bits.count } else { end >> bits.shift };
            self.bytes -= bits.unset(first, end);
        }
    }

    /// Whether any granule that the range touches is lacking.
    pub fn contains(&self, extent: Extent) -> bool {
        self.volumes.get(usize::from(extent.volume)).is_some_and(|bits| {
            let end = extent.offset.saturating_add(extent.len).min(bits.size);
            let first = bits.next_set(extent.offset >> bits.shift);
            extent.offset < end && first.is_some_and(|first| first < granules(end, bits.shift))
        })
    }

    /// The next granules in a row that are lacking, behind `after` or from the beginning.
    ///
    /// The run is of at most `len_max` bytes, but of at least one granule, which is longer than 64 KiB in volumes of more
    /// than 512 GiB; and it ends where the volume ends.
    pub fn next(&self, after: Option<Extent>, len_max: u64) -> Option<Extent> {
        let (volume, from) =
            after.map_or((0, 0), |after| (after.volume, after.offset.saturating_add(after.len)));
        (volume..).zip(self.volumes.get(usize::from(volume)..)?).find_map(|(at, bits)| {
            let from = if at == volume { granules(from, bits.shift) } else { 0 };
            let first = bits.next_set(from)?;
            let most = (len_max >> bits.shift).max(1);
            let end = bits.next_unset(first, first.saturating_add(most).min(bits.count));
            let offset = first << bits.shift;
            Some(Extent { volume: at, offset, len: bits.byte_of(end) - offset })
        })
    }

    /// Bytes that are lacking.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing is lacking.
    pub fn is_clean(&self) -> bool {
        self.bytes == 0
    }

    /// What `other`, of the same volumes, says is lacking is lacking here too.
    pub fn merge(&mut self, other: &Self) {
        let mut after = None;
        while let Some(extent) = other.next(after, u64::MAX) {
            self.mark(extent);
            after = Some(extent);
        }
    }

    /// A volume has another size from here on. What is new is not lacking.
    ///
    /// # Panics
    ///
    /// As [`DirtyMap::clean`].
    pub fn resize(&mut self, volume: u8, size: u64) {
        let at = usize::from(volume);
        assert!(volume < VOLUMES_MAX, "volumes of a group");
        if at >= self.volumes.len() {
            self.volumes.resize_with(at + 1, || Bits::clean(0));
        }
        let old = &self.volumes[at];
        let shift = old.shift.max(shift_of(size));
        let mut bits = Bits::with_granules(size, shift);
        let mut after = None;
        let before = old.bytes();
        while let Some((first, end)) = old.run(after) {
            let end_byte = old.byte_of(end).min(size);
            bits.set((first << old.shift) >> shift, granules(end_byte, shift));
            after = Some(end);
        }
        self.bytes = self.bytes - before + bits.bytes();
        self.volumes[at] = bits;
    }

    /// The sizes of the volumes.
    pub fn sizes(&self) -> Vec<u64> {
        self.volumes.iter().map(|bits| bits.size).collect()
    }

    /// Whether the map has changed since the last call, or was never stored. It is to be stored then: as it is now, or a
    /// clone of it, and in the order of the calls, as [`DirtyMap::pages_to_store`] has what changed between two calls.
    pub fn take_changed(&mut self) -> bool {
        self.volumes.iter_mut().fold(false, |has_changed, bits| bits.take_changed() | has_changed)
    }

    /// The pages of the persistent form that differ from what was stored before: where each lies, and its bytes.
    pub fn pages_to_store(&self) -> impl Iterator<Item = (u64, [u8; DIRTY_PAGE_LEN])> {
        (0_u8..).zip(&self.volumes).flat_map(|(volume, bits)| {
            let pages = (0..).zip(&bits.to_store).filter(|(_, is)| **is);
            pages.map(move |(page, _)| (page_offset(volume, page), bits.emit(volume, page)))
        })
    }

    /// The map of volumes of these sizes as it was stored; `read` gives the page at an offset of the persistent form.
    ///
    /// # Errors
    ///
    /// Those of `read`.
    ///
    /// # Panics
    ///
    /// As [`DirtyMap::clean`].
    pub fn load<E>(
        sizes: &[u64],
        mut read: impl FnMut(u64) -> Result<[u8; DIRTY_PAGE_LEN], E>,
    ) -> Result<Self, E> {
        let mut map = Self::clean(sizes);
        for (volume, bits) in (0_u8..).zip(&mut map.volumes) {
            bits.load(volume, &mut read)?;
            map.bytes += bits.bytes();
        }
        Ok(map)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::convert::Infallible;

    use super::*;
    use crate::format::VOLUME_LEN_MAX;

    const GRANULE: u64 = 64 << 10;

    fn extent(volume: u8, offset: u64, len: u64) -> Extent {
        Extent { volume, offset, len }
    }

    /// What was stored of a map.
    type Pages = BTreeMap<u64, Vec<u8>>;

    fn take(map: &mut DirtyMap) -> Vec<(u64, Vec<u8>)> {
        let has_changed = map.take_changed();
        let pages: Vec<_> = map.pages_to_store().map(|(at, page)| (at, page.to_vec())).collect();
        assert_eq!(has_changed, !pages.is_empty());
        pages
    }

    /// Whether the same is lacking.
    fn is_same(one: &DirtyMap, other: &DirtyMap) -> bool {
        let words = |map: &DirtyMap| -> Vec<_> {
            map.volumes.iter().map(|bits| (bits.shift, bits.words.clone())).collect()
        };
        one.bytes() == other.bytes() && words(one) == words(other)
    }

    fn load(sizes: &[u64], pages: &Pages) -> DirtyMap {
        let read = |offset| {
            let page = pages.get(&offset).map(|page| *page.first_chunk().unwrap());
            Ok::<_, Infallible>(page.unwrap_or([0; DIRTY_PAGE_LEN]))
        };
        DirtyMap::load(sizes, read).unwrap()
    }

    #[test]
    fn a_range_marks_every_granule_that_it_touches() {
        let mut map = DirtyMap::clean(&[0, 10 * GRANULE + 5]);
        map.mark(extent(1, GRANULE - 1, 2));
        map.mark(extent(1, 5 * GRANULE, 0));
        map.mark(extent(1, 10 * GRANULE, u64::MAX));
        map.mark(extent(1, 11 * GRANULE, 1));
        map.mark(extent(2, 0, 1));
        assert_eq!(map.next(None, u64::MAX), Some(extent(1, 0, 2 * GRANULE)));
        let last = extent(1, 10 * GRANULE, 5);
        assert_eq!(map.next(Some(extent(1, 0, 2 * GRANULE)), u64::MAX), Some(last));
        assert_eq!(map.next(Some(last), u64::MAX), None);
        assert_eq!(map.bytes(), 2 * GRANULE + 5);
        assert!(map.contains(extent(1, 2 * GRANULE - 1, 1)));
        assert!(!map.contains(extent(1, 2 * GRANULE, 8 * GRANULE)));
    }

    #[test]
    fn only_whole_granules_are_cleared() {
        let mut map = DirtyMap::full(&[3 * GRANULE + 7]);
        map.clear(extent(0, 1, 2 * GRANULE - 1));
        assert_eq!(map.bytes(), 2 * GRANULE + 7);
        map.clear(extent(0, 3 * GRANULE, 6));
        assert_eq!(map.bytes(), 2 * GRANULE + 7, "the end of the volume is lacking");
        map.clear(extent(0, 2 * GRANULE, GRANULE + 7));
        assert_eq!(map.next(None, 1), Some(extent(0, 0, GRANULE)));
        map.clear(extent(0, 0, u64::MAX));
        assert!(map.is_clean());
    }

    #[test]
    fn a_run_is_no_longer_than_wanted_and_no_shorter_than_a_granule() {
        let map = DirtyMap::full(&[200 * GRANULE]);
        let run = map.next(None, 70 * GRANULE + 1).unwrap();
        assert_eq!(run, extent(0, 0, 70 * GRANULE));
        assert_eq!(map.next(Some(run), 1), Some(extent(0, 70 * GRANULE, GRANULE)));
        let mut runs = 0;
        let mut after = None;
        while let Some(run) = map.next(after, 70 * GRANULE) {
            after = Some(run);
            runs += 1;
        }
        assert_eq!(runs, 3);
    }

    #[test]
    fn a_large_volume_has_larger_granules() {
        let map = DirtyMap::full(&[(BITS_MAX + 1) * GRANULE, VOLUME_LEN_MAX - 1]);
        assert_eq!(map.next(None, 1), Some(extent(0, 0, 2 * GRANULE)));
        let last = extent(1, VOLUME_LEN_MAX - (1 << 36), (1 << 36) - 1);
        let before = extent(1, 0, last.offset);
        assert_eq!(map.next(Some(before), u64::MAX), Some(last));
    }

    #[test]
    fn a_volume_that_grows_keeps_what_is_lacking_under_larger_granules() {
        let mut map = DirtyMap::clean(&[GRANULE, BITS_MAX * GRANULE]);
        map.mark(extent(1, 5 * GRANULE, 1));
        map.mark(extent(1, (BITS_MAX - 1) * GRANULE, 1));
        map.resize(1, 3 * BITS_MAX * GRANULE);
        assert_eq!(map.next(None, u64::MAX), Some(extent(1, 4 * GRANULE, 4 * GRANULE)));
        assert_eq!(map.bytes(), 8 * GRANULE);
        map.resize(1, 6 * GRANULE);
        assert_eq!(map.bytes(), 2 * GRANULE);
        map.resize(3, 7);
        assert_eq!(map.sizes(), [GRANULE, 6 * GRANULE, 0, 7]);
    }

    #[test]
    fn a_merged_map_lacks_what_either_lacked() {
        let sizes = [9 * GRANULE, 2 * BITS_MAX * GRANULE];
        let (mut one, mut other) = (DirtyMap::clean(&sizes), DirtyMap::clean(&sizes));
        one.mark(extent(0, 0, 1));
        other.mark(extent(0, 0, 2 * GRANULE));
        other.mark(extent(1, 1 << 39, 1));
        one.merge(&other);
        assert_eq!(one.bytes(), 4 * GRANULE);
    }

    #[test]
    fn what_was_stored_is_loaded() {
        let sizes = [70_000 * GRANULE + 9, 0, 3];
        let mut map = DirtyMap::clean(&sizes);
        let mut pages: Pages = take(&mut map).into_iter().collect();
        assert_eq!(pages.len(), 4, "three of the first volume, one of the last");
        assert!(load(&sizes, &pages).is_clean());
        assert_eq!(take(&mut map), []);
        map.mark(extent(0, 40_000 * GRANULE, 5));
        map.mark(extent(0, 70_000 * GRANULE, 5));
        let changes = take(&mut map);
        assert_eq!(changes.iter().map(|page| page.0).collect::<Vec<_>>(), [4096, 8192]);
        pages.extend(changes);
        assert!(is_same(&load(&sizes, &pages), &map));
        assert_eq!(map.bytes(), GRANULE + 9);
    }

    #[test]
    fn a_page_that_is_torn_missing_or_elsewhere_lacks_everything() {
        let sizes = [70_000 * GRANULE];
        let mut map = DirtyMap::clean(&sizes);
        let pages: Pages = take(&mut map).into_iter().collect();
        let page = 32_640 * GRANULE;
        let mut torn = pages.clone();
        torn.get_mut(&4096).unwrap()[600] ^= 1;
        let mut missing = pages.clone();
        missing.remove(&4096);
        let mut elsewhere = pages.clone();
        elsewhere.insert(4096, pages[&0].clone());
        for pages in [torn, missing, elsewhere] {
            let mut map = load(&sizes, &pages);
            assert_eq!(map.next(None, u64::MAX), Some(extent(0, page, page)));
            assert_eq!(map.bytes(), page);
            assert_eq!(take(&mut map).len(), 1, "the page is stored again");
        }
    }

    #[test]
    fn pages_of_two_granules_say_nothing() {
        let small = 70_000 * 16 * GRANULE;
        let mut map = DirtyMap::clean(&[small]);
        let mut pages: Pages = take(&mut map).into_iter().collect();
        map.resize(0, 10 * BITS_MAX * GRANULE);
        map.resize(0, small);
        let changes = take(&mut map);
        pages.extend(changes.iter().take(1).cloned());
        let mixed = load(&[small], &pages);
        assert_eq!(mixed.bytes(), small);
        // A volume that was larger once keeps its granule.
        let pages = changes.into_iter().collect();
        assert!(is_same(&load(&[small], &pages), &map));
    }

    #[test]
    fn marks_and_clears_agree_with_a_set_of_granules() {
        let size = 300 * GRANULE + 77;
        let mut map = DirtyMap::clean(&[size]);
        let mut pages: Pages = take(&mut map).into_iter().collect();
        let mut model = [false; 301];
        let mut random = 1_u64;
        let mut below = |bound: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % bound
        };
        for _ in 0..20_000 {
            let (offset, len) = (below(size), below(40 * GRANULE));
            let is_mark = below(2) == 0;
            let range = extent(0, offset, len);
            for (at, granule) in (0_u64..).zip(&mut model) {
                let (from, to) = (at * GRANULE, ((at + 1) * GRANULE).min(size));
                if is_mark && len > 0 && from < offset + len && offset < to {
                    *granule = true;
                } else if !is_mark && offset <= from && to <= offset + len {
                    *granule = false;
                }
            }
            if is_mark {
                map.mark(range)
            } else {
                map.clear(range)
            }
            pages.extend(take(&mut map));
        }
        let full = model.iter().filter(|is| **is).count() as u64;
        let short = if model[300] { GRANULE - 77 } else { 0 };
        assert_eq!(map.bytes(), full * GRANULE - short);
        for (at, is) in (0_u64..).zip(model) {
            assert_eq!(map.contains(extent(0, at * GRANULE, 1)), is, "granule {at}");
        }
        assert!(is_same(&load(&[size], &pages), &map));
    }
}
