//! The regions of an engine by steering tag, and the one check that every access passes.
//!
//! ```text
//!             register               deregister, nothing at work
//!   (nothing) --------> registered ------------------------------> (nothing)
//!                           |                                          ^
//!                           | deregister, workers on it                | last one returns
//!                           +-------------------> closing -------------+
//! ```
//!
//! No access finds a closing region. Tags lie in a hash table because they are random; the table
//! hashes by one multiplication, which is safe because no peer chooses a key that is inserted.
//!
//! Spec: RFC 5041 §7.2 and RFC 5040 §4.8 for what the errors become on the wire.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;
use std::sync::Arc;

use basics::Random;
use pmem::Medium;

use super::keys::KeySource;
use crate::interface::{Access, Lkey, MemoryRegion, PeerOperations, QpId, RegisterError, Rkey};

/// The table.
#[derive(Debug)]
pub(super) struct Regions {
    registered: HashMap<u32, Region, BuildHasherDefault<TagHasher>>,
    /// The tags of each queue pair, by its place, to be dropped with the queue pair.
    owned: Vec<HashSet<u32>>,
    closing: Vec<Closing>,
    keys: KeySource,
    max: u32,
}

/// One registration.
#[derive(Debug)]
pub(super) struct Region {
    pub(super) medium: Arc<dyn Medium>,
    qp: QpId,
    /// The range in the medium, which the peer addresses as well: a tagged offset is a medium
    /// offset, so that 8-aligned on the wire is 8-aligned in the medium.
    range: Range<u64>,
    access: Access,
    at_work: u32,
}

#[derive(Debug)]
struct Closing {
    tag: u32,
    qp: QpId,
    at_work: u32,
}

/// Why an access was refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum AccessError {
    /// No region has this tag.
    Tag,
    /// The tag belongs to another queue pair.
    Stream,
    /// The region does not allow the access.
    Rights,
    /// The range goes beyond the region.
    Bounds,
    /// Offset and length do not fit 64 bits.
    Wrap,
}

impl Regions {
    pub(super) fn new(max: u32, random: Random) -> Self {
        let registered = HashMap::default();
        let (owned, closing) = (Vec::new(), Vec::new());
        Self { registered, owned, closing, keys: KeySource::new(random), max }
    }

    pub(super) fn register(
        &mut self,
        qp: QpId,
        medium: Arc<dyn Medium>,
        range: Range<u64>,
        access: Access,
    ) -> Result<MemoryRegion, RegisterError> {
        let Range { start, end } = range;
        if start >= end || end > medium.len() {
            return Err(RegisterError::ConfigRange { start, end, len: medium.len() });
        }
        if u32::try_from(self.registered.len()).is_ok_and(|len| len >= self.max) {
            return Err(RegisterError::RegionsExhausted { max: self.max });
        }
        let tag = loop {
            let tag = self.keys.draw().ok_or(RegisterError::HostRandom)?;
            let closing = self.closing.iter().any(|closing| closing.tag == tag);
            if !closing && !self.registered.contains_key(&tag) {
                break tag;
            }
        };
        let (rkey, lkey, access) = (Rkey(tag), Lkey(tag), access.with_implied());
        self.registered.insert(tag, Region { medium, qp, range, access, at_work: 0 });
        self.owned_by(qp).insert(tag);
        let (len, offers) = (end - start, PeerOperations::all());
        Ok(MemoryRegion { rkey, lkey, remote_addr_base: start, len, offers, unseen: false })
    }

    /// Ends a region; returns how many operations workers still have on it.
    pub(super) fn deregister(&mut self, qp: QpId, rkey: Rkey) -> Result<u32, RegisterError> {
        let Rkey(tag) = rkey;
        if self.registered.get(&tag).is_none_or(|region| region.qp != qp) {
            return Err(RegisterError::UnknownRegion(rkey));
        }
        let at_work = self.registered.remove(&tag).map_or(0, |region| region.at_work);
        self.owned_by(qp).remove(&tag);
        if at_work > 0 {
            self.closing.push(Closing { tag, qp, at_work });
        }
        Ok(at_work)
    }

    /// Ends all regions of a queue pair on which no operation is at work.
    pub(super) fn drop_all(&mut self, qp: QpId) {
        let tags = std::mem::take(self.owned_by(qp));
        for tag in tags {
            self.registered.remove(&tag);
        }
    }

    fn owned_by(&mut self, qp: QpId) -> &mut HashSet<u32> {
        let index = usize::try_from(qp.index).expect("usize has at least 32 bits here");
        if self.owned.len() <= index {
            self.owned.resize_with(index + 1, HashSet::new);
        }
        &mut self.owned[index]
    }

    /// The medium, and the place in it, of `len` bytes at `offset` of region `tag`, if `qp` may do
    /// `need`.
    pub(super) fn check(
        &self,
        qp: QpId,
        tag: u32,
        offset: u64,
        len: u64,
        need: Access,
    ) -> Result<&Region, AccessError> {
        let region = self.registered.get(&tag).ok_or(AccessError::Tag)?;
        if region.qp != qp {
            return Err(AccessError::Stream);
        }
        if !region.access.contains(need) {
            return Err(AccessError::Rights);
        }
        let end = offset.checked_add(len).ok_or(AccessError::Wrap)?;
        if offset < region.range.start || end > region.range.end {
            return Err(AccessError::Bounds);
        }
        Ok(region)
    }

    /// The same for a local slice, whose offset counts from the beginning of the region. Also
    /// returns the offset in the medium.
    pub(super) fn check_local(
        &self,
        qp: QpId,
        Lkey(tag): Lkey,
        offset: u64,
        len: u64,
        need: Access,
    ) -> Result<(&Region, u64), AccessError> {
        let start = self.registered.get(&tag).ok_or(AccessError::Tag)?.range.start;
        let offset = start.checked_add(offset).ok_or(AccessError::Wrap)?;
        Ok((self.check(qp, tag, offset, len, need)?, offset))
    }

    /// Notes that a worker has been given an operation on the region.
    pub(super) fn work_begins(&mut self, tag: u32) {
        if let Some(region) = self.registered.get_mut(&tag) {
            region.at_work += 1;
        }
    }

    /// Notes that a worker is done with an operation on the region; returns the region if it was
    /// closing and this was its last operation.
    pub(super) fn work_ends(&mut self, tag: u32) -> Option<(QpId, Rkey)> {
        if let Some(region) = self.registered.get_mut(&tag) {
            region.at_work -= 1;
            return None;
        }
        let index = self.closing.iter().position(|closing| closing.tag == tag)?;
        let closing = self.closing.get_mut(index)?;
        closing.at_work -= 1;
        if closing.at_work > 0 {
            return None;
        }
        let Closing { tag, qp, .. } = self.closing.swap_remove(index);
        Some((qp, Rkey(tag)))
    }
}

/// Spreads random tags over 64 bits: the table takes its bucket from the low bits and its
/// one-byte fingerprint from the high ones.
#[derive(Debug, Default)]
struct TagHasher(u64);

impl Hasher for TagHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        // Keys are u32, so this method is never called; the trait requires it.
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }

    fn write_u32(&mut self, tag: u32) {
        // 2^64 divided by the golden ratio, odd: every bit of the tag reaches the high bits.
        let mixed = (self.0 ^ u64::from(tag)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

#[cfg(test)]
mod tests {
    use basics::RandomSource;

    use super::*;

    const ONE: QpId = QpId { index: 1, generation: 0 };
    const OTHER: QpId = QpId { index: 4, generation: 2 };
    const LEN: u64 = 8192;

    fn regions(max: u32) -> Regions {
        Regions::new(max, Random::host())
    }

    fn medium() -> Arc<dyn Medium> {
        pmem::anonymous(LEN).unwrap()
    }

    /// A region of the bytes 64 to 4096 that ONE may read and write.
    fn registered(regions: &mut Regions) -> MemoryRegion {
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        regions.register(ONE, medium(), 64..4096, access).unwrap()
    }

    #[test]
    fn a_region_lies_in_its_medium_and_has_at_least_a_byte() {
        let mut regions = regions(8);
        let mut of = |range: Range<u64>| {
            let access = Access::REMOTE_READ;
            let found = regions.register(ONE, medium(), range, access);
            found.map(|region| (region.remote_addr_base, region.len))
        };
        assert_eq!(of(0..LEN), Ok((0, LEN)));
        assert_eq!(of(LEN - 1..LEN), Ok((LEN - 1, 1)));
        for (start, end) in [(0, LEN + 1), (8, 8), (9, 8)] {
            let error = RegisterError::ConfigRange { start, end, len: LEN };
            assert_eq!(of(start..end), Err(error));
        }
    }

    #[test]
    fn no_more_regions_than_the_limit_are_registered_at_once() {
        let mut regions = regions(2);
        let first = registered(&mut regions);
        registered(&mut regions);
        let again = |regions: &mut Regions| {
            regions.register(OTHER, medium(), 0..8, Access::REMOTE_READ).map(drop)
        };
        assert_eq!(again(&mut regions), Err(RegisterError::RegionsExhausted { max: 2 }));
        regions.deregister(ONE, first.rkey).unwrap();
        again(&mut regions).unwrap();
    }

    /// Yields each number from 7 on twice.
    struct Twice;

    impl RandomSource for Twice {
        fn fill(&self, out: &mut [u8]) {
            for (place, tag) in (0_u32..).zip(out.chunks_exact_mut(4)) {
                tag.copy_from_slice(&(7 + place / 2).to_be_bytes());
            }
        }
    }

    #[test]
    fn no_region_has_the_tag_of_another_or_of_one_that_is_not_over() {
        let mut regions = Regions::new(8, Random::given(Arc::new(Twice)));
        let first = registered(&mut regions).rkey;
        assert_eq!(first, Rkey(7));
        regions.work_begins(7);
        assert_eq!(regions.deregister(ONE, first), Ok(1));
        assert_eq!(registered(&mut regions).rkey, Rkey(8), "an operation on 7 may be at work");
        assert_eq!(registered(&mut regions).rkey, Rkey(9), "8 is another region's");
    }

    #[test]
    fn an_access_passes_with_the_tag_the_queue_pair_the_right_and_the_range() {
        let mut regions = regions(8);
        let Rkey(tag) = registered(&mut regions).rkey;
        let check = |qp, tag, offset, len, need| regions.check(qp, tag, offset, len, need).err();
        let (read, both) = (Access::REMOTE_READ, Access::REMOTE_READ | Access::REMOTE_WRITE);
        assert_eq!(check(ONE, tag, 64, 4032, both), None, "the whole");
        assert_eq!(check(ONE, tag, 4095, 1, read), None, "its last byte");
        assert_eq!(check(ONE, tag ^ 1, 64, 1, read), Some(AccessError::Tag));
        assert_eq!(check(OTHER, tag, 64, 1, read), Some(AccessError::Stream));
        let right = Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        assert_eq!(check(ONE, tag, 64, 1, right), Some(AccessError::Rights));
        assert_eq!(check(ONE, tag, 63, 2, read), Some(AccessError::Bounds));
        assert_eq!(check(ONE, tag, 64, 4033, read), Some(AccessError::Bounds));
        assert_eq!(check(ONE, tag, 4096, 1, read), Some(AccessError::Bounds));
        assert_eq!(check(ONE, tag, u64::MAX, 1, read), Some(AccessError::Wrap));
    }

    #[test]
    fn a_local_slice_counts_from_the_beginning_of_its_region() {
        let mut regions = regions(8);
        let lkey = registered(&mut regions).lkey;
        let check = |lkey, offset, len| {
            let found = regions.check_local(ONE, lkey, offset, len, Access::REMOTE_READ);
            found.map(|(_, offset)| offset)
        };
        assert_eq!(check(lkey, 0, 4032), Ok(64));
        assert_eq!(check(lkey, 4031, 1), Ok(4095));
        assert_eq!(check(lkey, 0, 4033), Err(AccessError::Bounds));
        assert_eq!(check(lkey, u64::MAX, 1), Err(AccessError::Wrap));
        assert_eq!(check(Lkey(lkey.0 ^ 1), 0, 1), Err(AccessError::Tag));
    }

    #[test]
    fn a_region_is_found_no_more_when_it_ends_and_is_over_with_its_last_operation() {
        let mut regions = regions(8);
        let rkey = registered(&mut regions).rkey;
        let Rkey(tag) = rkey;
        assert_eq!(regions.deregister(OTHER, rkey), Err(RegisterError::UnknownRegion(rkey)));
        regions.work_begins(tag);
        regions.work_begins(tag);
        regions.work_begins(tag);
        assert_eq!(regions.work_ends(tag), None, "it is registered");
        assert_eq!(regions.deregister(ONE, rkey), Ok(2));
        let found = regions.check(ONE, tag, 64, 1, Access::REMOTE_READ);
        assert_eq!(found.err(), Some(AccessError::Tag));
        assert_eq!(regions.deregister(ONE, rkey), Err(RegisterError::UnknownRegion(rkey)));
        assert_eq!(regions.work_ends(tag ^ 1), None);
        assert_eq!(regions.work_ends(tag), None, "one is left");
        assert_eq!(regions.work_ends(tag), Some((ONE, rkey)));
        assert_eq!(regions.work_ends(tag), None);
        let rkey = registered(&mut regions).rkey;
        assert_eq!(regions.deregister(ONE, rkey), Ok(0), "over at once");
        assert!(regions.closing.is_empty());
    }

    #[test]
    fn a_queue_pair_takes_its_own_regions_with_it() {
        let mut regions = regions(8);
        let (first, second) = (registered(&mut regions), registered(&mut regions));
        let kept = regions.register(OTHER, medium(), 0..8, Access::REMOTE_READ).unwrap();
        regions.deregister(ONE, first.rkey).unwrap();
        regions.drop_all(ONE);
        let found = |regions: &Regions, qp, Rkey(tag), at| {
            regions.check(qp, tag, at, 1, Access::REMOTE_READ).is_ok()
        };
        assert!(!found(&regions, ONE, second.rkey, 64));
        assert!(found(&regions, OTHER, kept.rkey, 0));
        assert_eq!(regions.registered.len(), 1);
        assert!(regions.owned_by(ONE).is_empty());
        assert_eq!(regions.owned_by(OTHER).len(), 1);
    }

    #[test]
    fn a_tag_is_spread_over_the_bits_that_the_table_looks_at() {
        let of = |tags: &[u32]| {
            let mut hasher = TagHasher::default();
            tags.iter().for_each(|tag| hasher.write_u32(*tag));
            hasher.finish()
        };
        // The multiplier, and its high half over the low one.
        assert_eq!(of(&[1]), 0x9e37_79b9_e17d_05ac);
        assert_eq!(of(&[0]), 0);
        assert_ne!(of(&[1, 1]), of(&[1]));
        assert_ne!(of(&[2, 1]), of(&[1, 1]), "each number counts");
        assert_ne!(of(&[1, 4]), of(&[1, 0]), "each bit of it, too");
        let mut hasher = TagHasher::default();
        hasher.write(&[1]);
        assert_eq!(hasher.finish(), of(&[1]));
    }
}
