//! The bits of one volume, and the pages in which they are stored.

use crate::format::{VOLUME_LEN_MAX, crc32c};

/// Where a page lies in the persistent form.
pub(super) fn page_offset(volume: u8, page: u32) -> u64 {
    (u64::from(volume) * u64::from(DIRTY_PAGES) + u64::from(page)) * DIRTY_PAGE_LEN as u64
}

/// Granules that a range from 0 to `end` touches.
pub(super) fn granules(end: u64, shift: u8) -> u64 {
    end.div_ceil(1 << shift)
}

/// The granule of a volume, as a power of two.
pub(super) fn shift_of(size: u64) -> u8 {
    (SHIFT_MIN..SHIFT_MAX).find(|shift| granules(size, *shift) <= BITS_MAX).unwrap_or(SHIFT_MAX)
}

/// The bits of a volume.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Bits {
    pub(super) size: u64,
    pub(super) shift: u8,
    /// Granules of the volume, the last one perhaps shorter.
    pub(super) count: u64,
    pub(super) words: Vec<u64>,
    /// Pages of the persistent form that have changed since [`DirtyMap::take_changed`].
    pub(super) changed: Vec<bool>,
    /// Those that had changed then.
    pub(super) to_store: Vec<bool>,
}

impl Bits {
    pub(super) fn clean(size: u64) -> Self {
        Self::with_granules(size, shift_of(size))
    }

    /// With all pages to be stored.
    pub(super) fn with_granules(size: u64, shift: u8) -> Self {
        assert!(size <= VOLUME_LEN_MAX, "the length of a volume");
        let count = granules(size, shift);
        let len = |bits: u64, unit| usize::try_from(bits.div_ceil(unit)).expect("at most BITS_MAX");
        let words = vec![0; len(count, 64)];
        let pages = len(count, PAGE_BITS);
        Self { size, shift, count, words, changed: vec![true; pages], to_store: vec![false; pages] }
    }

    pub(super) fn fill(&mut self) {
        self.set(0, self.count);
    }

    /// Where the granule `at` begins, or where the volume ends.
    pub(super) fn byte_of(&self, at: u64) -> u64 {
        if at >= self.count { self.size } else { at << self.shift }
    }

    /// Bytes of granule `at`.
    pub(super) fn len_of(&self, at: u64) -> u64 {
        self.byte_of(at + 1) - self.byte_of(at)
    }

    /// Sets bits; the bytes that this adds.
    pub(super) fn set(&mut self, first: u64, end: u64) -> u64 {
        self.change(first, end, |word, mask| word | mask)
    }

    /// Unsets bits; the bytes that this takes.
    pub(super) fn unset(&mut self, first: u64, end: u64) -> u64 {
        self.change(first, end, |word, mask| word & !mask)
    }

    /// Changes the bits from `first` to `end`; the bytes of the granules that are another than before.
    pub(super) fn change(&mut self, first: u64, end: u64, new: impl Fn(u64, u64) -> u64) -> u64 {
        let end = end.min(self.count);
        let (mut at, mut differ) = (first, 0);
        while at < end {
            let word_end = ((at | 63) + 1).min(end);
            let mask = (u64::MAX >> (64 - (word_end - at))) << (at % 64);
            let word = &mut self.words[index(at / 64)];
            let changed = new(*word, mask) ^ *word;
            if changed != 0 {
                *word ^= changed;
                differ += u64::from(changed.count_ones()) << self.shift;
                self.changed[index(at / PAGE_BITS)] = true;
                let last = at / 64 * 64 + 63 - u64::from(changed.leading_zeros());
                // Only the last granule of the volume can be shorter than the others.
                differ -= (1 << self.shift) - self.len_of(last);
            }
            at = word_end;
        }
        differ
    }

    pub(super) fn is_set(&self, at: u64) -> bool {
        self.words[index(at / 64)] >> (at % 64) & 1 != 0
    }

    /// The first bit from `from` on that is set.
    pub(super) fn next_set(&self, from: u64) -> Option<u64> {
        if from >= self.count {
            return None;
        }
        let mut mask = u64::MAX << (from % 64);
        for (at, word) in (from / 64..).zip(&self.words[index(from / 64)..]) {
            if word & mask != 0 {
                return Some(at * 64 + u64::from((word & mask).trailing_zeros()));
            }
            mask = u64::MAX;
        }
        None
    }

    /// The first bit from `from` on that is not set, or `end`.
    pub(super) fn next_unset(&self, from: u64, end: u64) -> u64 {
        let mut at = from;
        while at < end {
            let word = self.words[index(at / 64)] >> (at % 64);
            let ones = u64::from(word.trailing_ones()).min(64 - at % 64);
            at += ones;
            if !at.is_multiple_of(64) || ones == 0 {
                break;
            }
        }
        at.min(end)
    }

    /// The next bits in a row that are set, from `from` on.
    pub(super) fn run(&self, from: Option<u64>) -> Option<(u64, u64)> {
        let first = self.next_set(from.unwrap_or(0))?;
        Some((first, self.next_unset(first, self.count)))
    }

    /// Bytes of the granules that are set.
    pub(super) fn bytes(&self) -> u64 {
        let ones: u64 = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
        let short = match self.count.checked_sub(1) {
            Some(last) if self.is_set(last) => (1 << self.shift) - self.len_of(last),
            _ => 0,
        };
        (ones << self.shift) - short
    }

    pub(super) fn take_changed(&mut self) -> bool {
        std::mem::swap(&mut self.changed, &mut self.to_store);
        self.changed.fill(false);
        self.to_store.contains(&true)
    }

    /// A page of the persistent form.
    pub(super) fn emit(&self, volume: u8, page: u32) -> [u8; DIRTY_PAGE_LEN] {
        let mut bytes = [0; DIRTY_PAGE_LEN];
        bytes[4..8].copy_from_slice(&page.to_le_bytes());
        bytes[8..10].copy_from_slice(&[volume, self.shift]);
        // A page has 510 words.
        let first = index(u64::from(page) * PAGE_WORDS);
        let words = self.words[first..].iter().take(index(PAGE_WORDS));
        for (out, word) in bytes[PAGE_HEADER_LEN..].as_chunks_mut().0.iter_mut().zip(words) {
            *out = word.to_le_bytes();
        }
        let crc = crc32c(&[&bytes[4..]]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads all pages. A page that is not sound has every bit; a granule that not all pages agree on is one for which
    /// nothing can be said, so every bit of the volume is set then.
    pub(super) fn load<E>(
        &mut self,
        volume: u8,
        read: &mut impl FnMut(u64) -> Result<[u8; DIRTY_PAGE_LEN], E>,
    ) -> Result<(), E> {
        let mut page = 0;
        let mut is_known = true;
        while usize::try_from(page).is_ok_and(|page| page < self.changed.len()) {
            let bytes = read(page_offset(volume, page))?;
            let shift = Self::check(&bytes, volume, page);
            if page == 0
                && let Some(shift) = shift
                && shift > self.shift
            {
                // The granule of a volume that was larger once.
                *self = Self::with_granules(self.size, shift.min(SHIFT_MAX));
            }
            is_known &= shift.is_none_or(|shift| shift == self.shift);
            self.take_page(page, shift.map(|_| &bytes));
            page += 1;
        }
        if !is_known {
            self.fill();
            self.changed.fill(true);
        }
        Ok(())
    }

    /// The granule of a page that is sound.
    pub(super) fn check(bytes: &[u8; DIRTY_PAGE_LEN], volume: u8, page: u32) -> Option<u8> {
        #[cfg(test)]
        if crate::planted::Planted::TakesTornPages.is_here() {
            return Some(SHIFT_MIN);
        }
        let is_sound = bytes[..4] == crc32c(&[&bytes[4..]]).to_le_bytes()
            && bytes[4..8] == page.to_le_bytes()
            && bytes[8] == volume
            && bytes[10..PAGE_HEADER_LEN] == [0; PAGE_HEADER_LEN - 10];
        is_sound.then_some(bytes[9])
    }

    /// Takes the bits of a page; all of them, and a page to be stored again, without bytes.
    pub(super) fn take_page(&mut self, page: u32, bytes: Option<&[u8; DIRTY_PAGE_LEN]>) {
        let first = u64::from(page) * PAGE_BITS;
        let Some(bytes) = bytes else {
            self.set(first, first + PAGE_BITS);
            return;
        };
        let words = self.words[index(first / 64)..].iter_mut();
        for (word, bytes) in words.zip(bytes[PAGE_HEADER_LEN..].as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        // Bits beyond the volume are none.
        if let Some(last) = self.words.last_mut()
            && !self.count.is_multiple_of(64)
        {
            *last &= u64::MAX >> (64 - self.count % 64);
        }
        self.changed[index(first / PAGE_BITS)] = false;
    }
}

pub(super) fn index(number: u64) -> usize {
    usize::try_from(number).expect("at most BITS_MAX")
}

/// Bits of a volume at most; they take 1 MiB.
pub const BITS_MAX: u64 = 1 << 23;
/// Bytes of a page of the persistent form.
pub const DIRTY_PAGE_LEN: usize = 4096;
/// Pages of the persistent form of a volume.
pub const DIRTY_PAGES: u32 = 258;
const PAGE_HEADER_LEN: usize = 16;
/// Words of 8 bytes, and bits, of a page.
const PAGE_WORDS: u64 = 510;
const PAGE_BITS: u64 = PAGE_WORDS * 64;
/// The smallest granule is 64 KiB.
const SHIFT_MIN: u8 = 16;
/// That of the longest volume.
const SHIFT_MAX: u8 = 36;

const _: () = assert!(PAGE_HEADER_LEN as u64 + PAGE_WORDS * 8 == DIRTY_PAGE_LEN as u64);
const _: () = assert!(BITS_MAX << SHIFT_MAX == VOLUME_LEN_MAX);
const _: () = assert!(DIRTY_PAGES as u64 * PAGE_BITS >= BITS_MAX);
