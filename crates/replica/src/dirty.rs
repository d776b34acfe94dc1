//! Which blocks a member lacks: a bit for each granule of a volume.

use std::collections::BTreeSet;

use crate::format::Extent;

/// Which blocks a member lacks.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct DirtyMap {
    sizes: Vec<u64>,
    granules: BTreeSet<(u8, u64)>,
    has_changed: bool,
}

/// Bytes of a granule.
const GRANULE: u64 = 64 << 10;

impl DirtyMap {
    /// Nothing is lacking.
    pub fn clean(sizes: &[u64]) -> Self {
        Self { sizes: sizes.to_vec(), ..Self::default() }
    }

    /// Everything is lacking.
    pub fn full(sizes: &[u64]) -> Self {
        let mut map = Self::clean(sizes);
        for (volume, size) in (0..).zip(sizes) {
            map.mark(Extent { volume, offset: 0, len: *size });
        }
        map
    }

    /// The range is lacking.
    pub fn mark(&mut self, extent: Extent) {
        let end = extent.offset + extent.len;
        for granule in extent.offset / GRANULE..end.div_ceil(GRANULE) {
            self.has_changed |= self.granules.insert((extent.volume, granule));
        }
    }

    /// The granules of the range are there.
    pub fn clear(&mut self, extent: Extent) {
        let end = extent.offset + extent.len;
        for granule in extent.offset / GRANULE..end.div_ceil(GRANULE) {
            self.has_changed |= self.granules.remove(&(extent.volume, granule));
        }
    }

    /// The next granules in a row that are lacking, behind `after`, of at most `len_max` bytes.
    pub fn next(&self, after: Option<Extent>, len_max: u64) -> Option<Extent> {
        let from = after.map_or((0, 0), |it| (it.volume, (it.offset + it.len).div_ceil(GRANULE)));
        let mut granules = self.granules.range(from..);
        let (volume, first) = *granules.next()?;
        let mut last = first + 1;
        while (last - first) * GRANULE < len_max && granules.next() == Some(&(volume, last)) {
            last += 1;
        }
        let size = *self.sizes.get(usize::from(volume))?;
        let offset = first * GRANULE;
        Some(Extent { volume, offset, len: (last * GRANULE).min(size) - offset })
    }

    /// Bytes that are lacking.
    pub fn bytes(&self) -> u64 {
        self.granules.len() as u64 * GRANULE
    }

    /// Whether nothing is lacking.
    pub fn is_clean(&self) -> bool {
        self.granules.is_empty()
    }

    /// Whether it has changed since the last call: it is to be stored then.
    pub fn take_changed(&mut self) -> bool {
        std::mem::take(&mut self.has_changed)
    }
}
