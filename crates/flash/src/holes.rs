//! The holes of a file, as far as somebody has asked: reads there are answered with zeros.
//!
//! What is noted here must stay true while others place pages. A hole is noted only if no page was cut out since before
//! the file system was asked ([`Holes::version`]), and never beyond a page that was dirty then. A placement makes its pages
//! dirty, then cuts them out, and only then lets their bytes be seen. So a page that was ever placed is in no noted hole.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Holes(RwLock<Noted>);

#[derive(Debug, Default)]
struct Noted {
    /// First page of each noted hole, and the page behind its last.
    ranges: BTreeMap<u64, u64>,
    version: u64,
    /// The stretch of bytes found last, so that misses in it ask the file system nothing. Bytes do not become holes but by
    /// [`super::FlashFile::around`], which forgets.
    data: Range<u64>,
}

impl Noted {
    fn end_of(&self, page: u64) -> Option<u64> {
        let (_, end) = self.ranges.range(..=page).next_back()?;
        (*end > page).then_some(*end)
    }
}

impl Holes {
    /// Whether the page is in a noted hole. `false` also where another thread is changing the notes.
    pub(crate) fn try_contains(&self, page: u64) -> bool {
        self.0.try_read().is_ok_and(|noted| noted.end_of(page).is_some())
    }

    /// The end of the noted hole around a page.
    pub(crate) fn end_of(&self, page: u64) -> Option<u64> {
        self.read().end_of(page)
    }

    /// The end of the stretch of bytes around a page, if it is the one found last.
    pub(crate) fn data_end_of(&self, page: u64) -> Option<u64> {
        let noted = self.read();
        noted.data.contains(&page).then_some(noted.data.end)
    }

    /// [`Holes::data_end_of`]; `None` also where another thread is changing the notes.
    pub(crate) fn try_data_end_of(&self, page: u64) -> Option<u64> {
        let noted = self.0.try_read().ok()?;
        noted.data.contains(&page).then_some(noted.data.end)
    }

    /// Notes a stretch of bytes.
    pub(crate) fn note_data(&self, data: Range<u64>) {
        self.write().data = data;
    }

    /// To be taken before the file system is asked.
    pub(crate) fn version(&self) -> u64 {
        self.read().version
    }

    /// Notes a hole, unless pages were placed since `version` was taken.
    pub(crate) fn note(&self, hole: Range<u64>, version: u64) -> bool {
        let mut noted = self.write();
        if noted.version != version || hole.is_empty() {
            return false;
        }
        if noted.ranges.len() >= RANGES_MAX {
            // They are asked for again.
            noted.ranges.clear();
        }
        let before =
            noted.ranges.range(..=hole.start).next_back().map(|(start, end)| (*start, *end));
        let (mut start, mut end) = (hole.start, hole.end);
        if let Some((from, to)) = before
            && to >= start
        {
            (start, end) = (from, end.max(to));
        }
        let within: Vec<u64> = noted.ranges.range(start..=end).map(|(start, _)| *start).collect();
        for from in within {
            end = end.max(noted.ranges.remove(&from).unwrap_or(end));
        }
        noted.ranges.insert(start, end);
        true
    }

    /// The pages are about to be placed.
    pub(crate) fn cut(&self, pages: Range<u64>) {
        let mut noted = self.write();
        noted.version += 1;
        let first = noted.ranges.range(..=pages.start).next_back().map(|(start, _)| *start);
        let from = first.unwrap_or(pages.start);
        let touched: Vec<(u64, u64)> =
            noted.ranges.range(from..pages.end).map(|(start, end)| (*start, *end)).collect();
        for (start, end) in touched {
            if end <= pages.start {
                continue;
            }
            noted.ranges.remove(&start);
            if start < pages.start {
                noted.ranges.insert(start, pages.start);
            }
            if end > pages.end {
                noted.ranges.insert(pages.end, end);
            }
        }
    }

    /// Nothing is known any more.
    pub(crate) fn forget(&self) {
        let mut noted = self.write();
        noted.version += 1;
        noted.ranges.clear();
        noted.data = 0..0;
    }

    fn read(&self) -> RwLockReadGuard<'_, Noted> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Noted> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Noted holes of a file: some 300 KiB.
const RANGES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_placed_page_is_cut_out_of_its_hole() {
        let holes = Holes::default();
        assert!(holes.note(10..20, holes.version()));
        holes.cut(12..14);
        let inside: Vec<_> = (8..22).filter(|page| holes.try_contains(*page)).collect();
        assert_eq!(inside, [10, 11, 14, 15, 16, 17, 18, 19]);
        assert_eq!(holes.end_of(15), Some(20));
        assert!(holes.note(12..14, holes.version()));
        assert_eq!(holes.end_of(10), Some(20), "neighbours join");
    }

    #[test]
    fn a_stretch_of_bytes_is_known_until_the_file_changes_below() {
        let holes = Holes::default();
        assert_eq!(holes.data_end_of(0), None);
        holes.note_data(4..10);
        assert_eq!((holes.data_end_of(9), holes.data_end_of(10)), (Some(10), None));
        holes.forget();
        assert_eq!(holes.data_end_of(4), None);
    }

    #[test]
    fn a_hole_found_before_a_placement_is_not_noted_after_it() {
        let holes = Holes::default();
        let version = holes.version();
        holes.cut(3..4);
        assert!(!holes.note(0..100, version));
        assert!(!holes.try_contains(3) && !holes.try_contains(50));
    }

    #[test]
    fn the_noted_holes_of_a_file_are_bounded() {
        let holes = Holes::default();
        for hole in 0..2 * RANGES_MAX as u64 {
            assert!(holes.note(2 * hole..2 * hole + 1, holes.version()));
        }
        assert!(holes.read().ranges.len() <= RANGES_MAX);
    }
}
