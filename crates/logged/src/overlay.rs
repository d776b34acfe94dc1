//! Bytes of a file that the base does not have yet.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::base::to_u64;

/// Extents that do not overlap, by their offset, and how far the base counts.
#[derive(Debug)]
pub(crate) struct Overlay {
    extents: BTreeMap<u64, Vec<u8>>,
    /// Bytes of the base from here on are void: the file was cut there.
    pub(crate) base_until: u64,
    /// Bytes in the extents.
    held: u64,
}

impl Default for Overlay {
    fn default() -> Self {
        Self { extents: BTreeMap::new(), base_until: u64::MAX, held: 0 }
    }
}

impl Overlay {
    /// Whether the base has everything.
    pub(crate) fn is_empty(&self) -> bool {
        self.extents.is_empty() && self.base_until == u64::MAX
    }

    /// Bytes of memory it takes.
    pub(crate) fn held(&self) -> u64 {
        self.held
    }

    /// The bytes at `offset` become these.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        // A write within an extent changes it in place: databases write pages again.
        if let Some((start, extent)) = self.extents.range_mut(..=offset).next_back() {
            let at = index(offset - start);
            if let Some(there) = extent.get_mut(at..at + bytes.len()) {
                there.copy_from_slice(bytes);
                return;
            }
        }
        self.clear(offset, offset + to_u64(bytes.len()));
        self.held += to_u64(bytes.len());
        self.extents.insert(offset, bytes.to_vec());
    }

    /// The file ends at `len`.
    pub(crate) fn cut(&mut self, len: u64) {
        self.clear(len, u64::MAX);
        self.base_until = self.base_until.min(len);
    }

    /// Forgets the extents: what they say is void.
    pub(crate) fn forget(&mut self) {
        self.extents.clear();
        self.held = 0;
    }

    /// Everything is in the base.
    pub(crate) fn settle(&mut self) {
        *self = Self::default();
    }

    /// Lays the extents over `out`, which holds the bytes of the base from `offset` on.
    pub(crate) fn lay_over(&self, offset: u64, out: &mut [u8]) {
        let end = offset + to_u64(out.len());
        let first = self.extents.range(..offset).next_back();
        for (start, extent) in first.into_iter().chain(self.extents.range(offset..end)) {
            let from = (*start).max(offset);
            let to = (start + to_u64(extent.len())).min(end);
            if from < to {
                let bytes = &extent[index(from - start)..index(to - start)];
                out[index(from - offset)..index(to - offset)].copy_from_slice(bytes);
            }
        }
    }

    /// Whether the extents have every byte of the range.
    pub(crate) fn covers(&self, range: Range<u64>) -> bool {
        if range.is_empty() {
            return true;
        }
        let (mut at, end) = (range.start, range.end);
        let first = self.extents.range(..at).next_back();
        for (start, extent) in first.into_iter().chain(self.extents.range(range)) {
            if *start > at {
                break;
            }
            at = at.max(start + to_u64(extent.len()));
        }
        at >= end
    }

    /// Neighbouring extents as one, at most about `RUN` bytes each.
    pub(crate) fn runs(&self) -> Vec<(u64, Vec<u8>)> {
        let mut runs: Vec<(u64, Vec<u8>)> = Vec::new();
        for (start, extent) in &self.extents {
            match runs.last_mut() {
                Some((first, run)) if *first + to_u64(run.len()) == *start && run.len() < RUN => {
                    run.extend_from_slice(extent);
                }
                _ => runs.push((*start, extent.clone())),
            }
        }
        runs
    }

    /// Takes a range out of the extents.
    fn clear(&mut self, from: u64, to: u64) {
        if let Some((start, extent)) = self.extents.range_mut(..from).next_back() {
            let end = *start + to_u64(extent.len());
            if end > from {
                let tail = extent.split_off(index(from - *start));
                self.held -= to_u64(tail.len());
                if end > to {
                    let kept = tail[index(to - from)..].to_vec();
                    self.held += to_u64(kept.len());
                    self.extents.insert(to, kept);
                    return;
                }
            }
        }
        let within: Vec<u64> = self.extents.range(from..to).map(|(start, _)| *start).collect();
        for start in within {
            let extent = self.extents.remove(&start).expect("found above");
            self.held -= to_u64(extent.len());
            let end = start + to_u64(extent.len());
            if end > to {
                let kept = extent[index(to - start)..].to_vec();
                self.held += to_u64(kept.len());
                self.extents.insert(to, kept);
            }
        }
    }
}

/// Bytes of memory that are held here, so that they fit.
fn index(len: u64) -> usize {
    usize::try_from(len).expect("a part of a buffer")
}

/// Bytes after which a run grows no more.
const RUN: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn an_overlay_reads_as_the_file_that_took_the_writes(
            changes in prop::collection::vec((0_u64..300, 0_usize..80, any::<u8>(), 0_u8..8), 0..60)
        ) {
            let base = vec![0xbb_u8; 200];
            let (mut model, mut overlay) = (base.clone(), Overlay::default());
            for (offset, len, byte, kind) in changes {
                if kind == 0 {
                    let at = index(offset);
                    if at < model.len() { model.truncate(at); }
                    overlay.cut(offset);
                    model.resize(at, 0);
                } else if len > 0 {
                    let end = index(offset) + len;
                    if end > model.len() { model.resize(end, 0); }
                    model[index(offset)..end].fill(byte);
                    overlay.write(offset, &vec![byte; len]);
                }
                let mut out = vec![0; model.len()];
                let counts = model.len().min(base.len()).min(usize::try_from(overlay.base_until).unwrap_or(usize::MAX));
                out[..counts].copy_from_slice(&base[..counts]);
                overlay.lay_over(0, &mut out);
                prop_assert_eq!(&out, &model);
                let is_held = |at: u64| {
                    let mut extents = overlay.extents.iter();
                    extents.any(|(start, held)| (*start..start + to_u64(held.len())).contains(&at))
                };
                for (from, to) in [(offset, offset + 40), (0, 100), (offset, 0)] {
                    prop_assert_eq!(overlay.covers(from..to), (from..to).all(is_held));
                }
                let held: usize = overlay.extents.values().map(Vec::len).sum();
                prop_assert_eq!(to_u64(held), overlay.held());
                for pair in overlay.extents.iter().collect::<Vec<_>>().windows(2) {
                    prop_assert!(pair[0].0 + to_u64(pair[0].1.len()) <= *pair[1].0);
                }
            }
        }
    }
}
