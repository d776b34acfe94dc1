//! The flog: for each lane a group of 64 bytes, whose newer half says what the lane's last write did.
//!
//! ```text
//!    0         16        32        48       64
//!    | half 0  | half 1  | zeroes  | zeroes |   UEFI, and Linux since 4.15
//!    | half 0  | zeroes  | half 1  | zeroes |   Linux before
//!
//!    half:  0 sector   4 old block   8 new block   12 sequence (1, 2, 3, 1, ...; 0 never written)
//! ```
//!
//! A write overwrites the older half. Its last 8 bytes, new block and sequence, are stored after the first 8 and in the
//! same cache line, whose stores become durable in their order; so the sequence commits the half, and a half that a
//! crash has torn keeps the sequence that it had and stays the older one.
//!
//! Spec: UEFI 2.7 §6.2 `EFI_BTT_FLOG`; Linux drivers/nvdimm/btt.h `struct log_group`.

use crate::map_entry::{BLOCK, ERROR};

/// The bytes of a group.
pub(crate) type GroupBytes = [u8; 64];
/// The bytes of a half.
pub(crate) type HalfBytes = [u8; 16];

/// What a write did.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct FlogEntry {
    /// The sector that was written.
    pub(crate) sector: u32,
    /// The block that held it before, and is free now.
    pub(crate) old: u32,
    /// Whether the medium had lost the bytes of the old block.
    pub(crate) old_is_lost: bool,
    /// The block that holds it now.
    pub(crate) new: u32,
    /// Which of two halves is newer.
    pub(crate) sequence: Sequence,
}

/// A sequence number: 1, 2, 3, 1, ...
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Sequence(u32);

impl Sequence {
    /// That of a lane that has written nothing.
    pub(crate) const FIRST: Self = Self(1);

    pub(crate) const fn next(self) -> Self {
        Self(self.0 % 3 + 1)
    }

    const fn parse(raw: u32) -> Option<Self> {
        match raw {
            1..=3 => Some(Self(raw)),
            _ => None,
        }
    }
}

impl FlogEntry {
    /// The note of a lane that has written nothing, whose free block is `block`. Linux gives the sector the lane's number.
    pub(crate) const fn untouched(lane: u32, block: u32) -> Self {
        Self { sector: lane, old: block, old_is_lost: false, new: block, sequence: Sequence::FIRST }
    }

    pub(crate) fn emit(&self) -> HalfBytes {
        let old = self.old | if self.old_is_lost { ERROR } else { 0 };
        let mut bytes = [0; 16];
        for (field, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip([
            self.sector,
            old,
            self.new,
            self.sequence.0,
        ]) {
            *field = word.to_le_bytes();
        }
        bytes
    }

    /// A half with a sequence number; `None` for one that was never written to its end.
    fn parse(bytes: &HalfBytes) -> Option<Self> {
        let [sector, old, new, sequence] = words(bytes);
        // Linux before 4.14 put the flags of the map here; both set mean a normal block.
        let old_is_lost = old & !BLOCK == ERROR;
        let sequence = Sequence::parse(sequence)?;
        Some(Self { sector, old: old & BLOCK, old_is_lost, new: new & BLOCK, sequence })
    }
}

/// Where in a group the halves lie.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Halves {
    /// Side by side: quarters 0 and 1.
    Adjacent,
    /// With padding between them: quarters 0 and 2.
    Apart,
}

impl Halves {
    /// Where half 0 or 1 begins in its group.
    pub(crate) const fn offset(self, half: Half) -> u64 {
        match (half, self) {
            (Half::First, _) => 0,
            (Half::Second, Self::Adjacent) => 16,
            (Half::Second, Self::Apart) => 32,
        }
    }

    /// How the groups of an arena are laid out, given all of them; the number of the first group that fits no way of
    /// laying them out. Groups that nobody has written to fit both, and the newer way is the default.
    pub(crate) fn of<'g>(groups: impl Iterator<Item = &'g GroupBytes>) -> Result<Self, usize> {
        let mut found = None;
        for (number, group) in groups.enumerate() {
            let used = quarters(group).map(|quarter| *quarter != [0; 16]);
            let halves = match used {
                [true, false, false, false] => continue,
                [true, true, false, false] => Self::Adjacent,
                [true, false, true, false] => Self::Apart,
                _ => return Err(number),
            };
            if *found.get_or_insert(halves) != halves {
                return Err(number);
            }
        }
        Ok(found.unwrap_or(Self::Adjacent))
    }

    /// The newer half of a group and its contents; `None` if neither half is newer.
    pub(crate) fn newest(self, group: &GroupBytes) -> Option<(Half, FlogEntry)> {
        let quarters = quarters(group);
        let second = match self {
            Self::Adjacent => quarters[1],
            Self::Apart => quarters[2],
        };
        match (FlogEntry::parse(quarters[0]), FlogEntry::parse(second)) {
            // The second half of a new lane is empty, or torn by a crash of its first write.
            (Some(first), None) if has_no_sequence(second) => Some((Half::First, first)),
            (Some(first), Some(second)) if first.sequence.next() == second.sequence => {
                Some((Half::Second, second))
            }
            (Some(first), Some(second)) if second.sequence.next() == first.sequence => {
                Some((Half::First, first))
            }
            _ => None,
        }
    }
}

/// One of the two halves of a group.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Half {
    First,
    Second,
}

impl Half {
    pub(crate) const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }
}

fn quarters(group: &GroupBytes) -> [&HalfBytes; 4] {
    let (quarters, _) = group.as_chunks::<16>();
    [&quarters[0], &quarters[1], &quarters[2], &quarters[3]]
}

fn has_no_sequence(half: &HalfBytes) -> bool {
    words(half)[3] == 0
}

fn words(half: &HalfBytes) -> [u32; 4] {
    let (words, _) = half.as_chunks::<4>();
    [words[0], words[1], words[2], words[3]].map(u32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: u32, sequence: u32) -> FlogEntry {
        let sequence = Sequence(sequence);
        FlogEntry { sector: number, old: number + 1, old_is_lost: false, new: number + 2, sequence }
    }

    fn group(halves: Halves, first: Option<FlogEntry>, second: Option<FlogEntry>) -> GroupBytes {
        let mut group = [0; 64];
        for (half, entry) in [(Half::First, first), (Half::Second, second)] {
            let at = usize::try_from(halves.offset(half)).unwrap();
            if let Some(entry) = entry {
                group[at..at + 16].copy_from_slice(&entry.emit());
            }
        }
        group
    }

    #[test]
    fn the_half_whose_sequence_follows_the_others_is_newer() {
        for halves in [Halves::Adjacent, Halves::Apart] {
            for (first, second, newer) in [
                (1, 2, Half::Second),
                (2, 3, Half::Second),
                (3, 1, Half::Second),
                (2, 1, Half::First),
                (3, 2, Half::First),
                (1, 3, Half::First),
            ] {
                let group = group(halves, Some(entry(10, first)), Some(entry(20, second)));
                assert_eq!(halves.newest(&group).unwrap().0, newer, "{first} {second}");
            }
        }
    }

    #[test]
    fn a_new_lane_has_one_half_and_a_torn_second_half_counts_for_nothing() {
        let mut bytes = group(Halves::Adjacent, Some(entry(10, 1)), None);
        assert_eq!(Halves::Adjacent.newest(&bytes), Some((Half::First, entry(10, 1))));
        bytes[16..24].copy_from_slice(&entry(20, 2).emit()[..8]);
        assert_eq!(Halves::Adjacent.newest(&bytes), Some((Half::First, entry(10, 1))));
    }

    #[test]
    fn equal_absent_or_unknown_sequences_have_no_newer_half() {
        for (first, second) in [(1, 1), (0, 1), (0, 0), (4, 1), (1, 7)] {
            let group = group(Halves::Adjacent, Some(entry(10, first)), Some(entry(20, second)));
            assert_eq!(Halves::Adjacent.newest(&group), None, "{first} {second}");
        }
    }

    #[test]
    fn the_way_of_laying_out_groups_is_found_from_the_groups() {
        let new = group(Halves::Adjacent, Some(entry(1, 1)), None);
        let adjacent = group(Halves::Adjacent, Some(entry(1, 1)), Some(entry(2, 2)));
        let apart = group(Halves::Apart, Some(entry(1, 1)), Some(entry(2, 2)));
        assert_eq!(Halves::of([&new, &new].into_iter()), Ok(Halves::Adjacent));
        assert_eq!(Halves::of([&new, &adjacent].into_iter()), Ok(Halves::Adjacent));
        assert_eq!(Halves::of([&apart, &new].into_iter()), Ok(Halves::Apart));
        assert_eq!(Halves::of([&apart, &new, &adjacent].into_iter()), Err(2));
        assert_eq!(Halves::of([&new, &[0; 64]].into_iter()), Err(1));
    }

    #[test]
    fn a_half_keeps_the_mark_of_a_lost_old_block() {
        let lost = FlogEntry { old_is_lost: true, ..entry(3, 2) };
        assert_eq!(lost.emit()[4..8], [4, 0, 0, 0x40]);
        assert_eq!(FlogEntry::parse(&lost.emit()), Some(lost));
    }
}
