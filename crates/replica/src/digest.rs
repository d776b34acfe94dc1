//! Digests of ranges: what `verify` compares, and what decides which blocks of a member with unknown contents are copied.
//!
//! ```text
//!   granule   64 KiB of a volume, or what is left at its end      digest: BLAKE3 of the bytes
//!   node      64 granules: 4 MiB                                  digest: BLAKE3 of the digests of its granules
//!   range     any                                                 digest: as a node of the range's granules
//! ```
//!
//! Two members exchange the digests of nodes first, 16 bytes for 4 MiB, and those of granules where nodes differ
//! ([`Compare`]). A granule that both digest alike is not copied, so two different granules with one digest would stay
//! different, and nobody would notice. Therefore the hash is a cryptographic one, keyed with the group and cut to 128 bits:
//! no accident and no file that somebody makes on purpose gives one digest twice. BLAKE3 takes 64 KiB at 6.0 GiB/s on one core
//! (AVX-512), SHA-256 at 1.7 (SHA-NI; both 2026-11-25), which is less than a wire of 25 Gbit/s carries.
//!
//! Holes are digested without being read: as zeroes, which data may be too.

use std::collections::VecDeque;

use block::{BlockDevice, BlockError, State};

use crate::names::GroupId;

/// The digest of a range.
pub type Digest = [u8; 16];

/// Makes digests of the volumes of a group.
#[derive(Clone, Debug)]
pub struct Digester {
    key: [u8; 32],
    zeroes: Digest,
}

impl Digester {
    /// For the volumes of `group`: two groups digest the same bytes differently.
    pub fn new(group: GroupId) -> Self {
        let key = blake3::derive_key(CONTEXT, &group.0);
        Self { zeroes: short(blake3::keyed_hash(&key, &[0; GRANULE_LEN])), key }
    }

    /// The digest of a granule's bytes.
    pub fn granule(&self, bytes: &[u8]) -> Digest {
        short(blake3::keyed_hash(&self.key, bytes))
    }

    /// The digest of a granule of `len` zeroes.
    pub fn zeroes(&self, len: u64) -> Digest {
        match usize::try_from(len) {
            Ok(GRANULE_LEN) => self.zeroes,
            Ok(len) => self.granule(&vec![0; len]),
            Err(_) => unreachable!("a granule is 64 KiB at most"),
        }
    }

    /// The digest of a node from those of its granules.
    pub fn node(&self, granules: &[Digest]) -> Digest {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        hasher.update(NODE);
        hasher.update(granules.as_flattened());
        short(hasher.finalize())
    }

    /// The digests of the granules in a range of `device`, which begins at a multiple of [`GRANULE`], in order. The last
    /// one may be about less than a granule.
    ///
    /// # Errors
    ///
    /// The range does not lie in the device, or the device cannot be read.
    ///
    /// # Panics
    ///
    /// `offset` is no multiple of [`GRANULE`].
    pub fn granules(
        &self,
        device: &dyn BlockDevice,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Digest>, BlockError> {
        assert!(offset.is_multiple_of(GRANULE), "{offset} is no granule's start");
        device.geometry().check_read(offset, len)?;
        let end = offset + len;
        let mut digests = Vec::with_capacity(index(len.div_ceil(GRANULE).min(RESERVED_MAX)));
        let mut bytes = vec![0; index(GRANULE.min(len))];
        let mut at = offset;
        // Where the last question about holes has ended, and whether it found one.
        let (mut known, mut is_hole) = (at, false);
        while at < end {
            let part = GRANULE.min(end - at);
            if known < at + part {
                let extent = device.status(at, end - at)?;
                (known, is_hole) = (at + extent.len, extent.state != State::Data);
            }
            if is_hole && known >= at + part {
                digests.push(self.zeroes(part));
            } else {
                let bytes = &mut bytes[..index(part)];
                device.read(at, bytes)?;
                digests.push(self.granule(bytes));
            }
            at += part;
        }
        Ok(digests)
    }

    /// The digests of the nodes in a range of `device`, which begins at a multiple of [`NODE_LEN`], in order.
    ///
    /// # Errors
    ///
    /// As [`Digester::granules`].
    ///
    /// # Panics
    ///
    /// `offset` is no multiple of [`NODE_LEN`].
    pub fn nodes(
        &self,
        device: &dyn BlockDevice,
        offset: u64,
        len: u64,
    ) -> Result<Vec<Digest>, BlockError> {
        assert!(offset.is_multiple_of(NODE_LEN), "{offset} is no node's start");
        let granules = self.granules(device, offset, len)?;
        Ok(granules.chunks(NODE_GRANULES).map(|node| self.node(node)).collect())
    }

    /// The digest of a range, as a record of kind verify has it. The range begins at any multiple of [`GRANULE`].
    ///
    /// # Errors
    ///
    /// As [`Digester::granules`].
    ///
    /// # Panics
    ///
    /// As [`Digester::granules`].
    pub fn range(
        &self,
        device: &dyn BlockDevice,
        offset: u64,
        len: u64,
    ) -> Result<Digest, BlockError> {
        Ok(self.node(&self.granules(device, offset, len)?))
    }
}

/// One side's conversation that finds what differs: it asks for the other side's digests and compares them with its own.
///
/// ```text
///   next_ask -> nodes of a stretch  -- answer --> those that differ: granules wanted
///   next_ask -> granules of a node  -- answer --> those that differ: ranges to copy
///   next_ask -> nothing: all asks are answered, or as many as may be are under way
/// ```
///
/// The owner reads its own digests when it has the answer, so that a block that changes meanwhile is compared as late as
/// can be; what changes afterwards it sends in any case.
#[derive(Debug)]
pub struct Compare {
    next: u64,
    end: u64,
    wanted: VecDeque<Ask>,
    /// At most [`ASKS_MAX`].
    under_way: Vec<Ask>,
}

/// Digests that are wanted of the other side.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Ask {
    /// Which.
    pub level: Level,
    /// Where the range begins, a multiple of [`NODE_LEN`].
    pub offset: u64,
    /// How long it is.
    pub len: u64,
}

/// What digests are about.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Level {
    /// Nodes, [`NODE_LEN`] each.
    Nodes,
    /// Granules, [`GRANULE`] each.
    Granules,
}

impl Ask {
    /// How many digests answer it.
    pub const fn digests(&self) -> u64 {
        self.len.div_ceil(self.unit())
    }

    const fn unit(&self) -> u64 {
        match self.level {
            Level::Nodes => NODE_LEN,
            Level::Granules => GRANULE,
        }
    }

    /// The digests of `device` that answer it.
    ///
    /// # Errors
    ///
    /// As [`Digester::granules`]; [`BlockError::PeerUnaligned`] where no such question is asked.
    pub fn answer(
        &self,
        digester: &Digester,
        device: &dyn BlockDevice,
    ) -> Result<Vec<Digest>, BlockError> {
        let Self { level, offset, len } = *self;
        let most = match level {
            Level::Nodes => STRETCH,
            Level::Granules => NODE_LEN,
        };
        if !offset.is_multiple_of(NODE_LEN) || len > most {
            let block = u32::try_from(NODE_LEN).expect("4 MiB");
            return Err(BlockError::PeerUnaligned { offset, len, block });
        }
        match level {
            Level::Nodes => digester.nodes(device, offset, len),
            Level::Granules => digester.granules(device, offset, len),
        }
    }
}

/// An answer that fits no question. Nothing has happened.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WrongAnswer {
    /// The question is not under way.
    #[error("digests of a range that were not asked for")]
    PeerNotAsked,
    /// The answer has not the digests that were asked for.
    #[error("{found} digests answer a question for {asked}")]
    PeerCount {
        /// How many there should be.
        asked: u64,
        /// How many there are.
        found: usize,
    },
}

impl Compare {
    /// Compares a volume of `size` bytes from `from` on, a multiple of [`NODE_LEN`]: where an earlier comparison stopped.
    pub fn new(from: u64, size: u64) -> Self {
        Self {
            next: from - from % NODE_LEN,
            end: size,
            wanted: VecDeque::new(),
            under_way: Vec::new(),
        }
    }

    /// The next question for the other side; `None` while [`ASKS_MAX`] are under way, and when nothing is left to ask.
    pub fn next_ask(&mut self) -> Option<Ask> {
        if self.under_way.len() == ASKS_MAX {
            return None;
        }
        let ask = self.wanted.pop_front().or_else(|| {
            let (offset, len) = (self.next, STRETCH.min(self.end.saturating_sub(self.next)));
            self.next += len;
            (len > 0).then_some(Ask { level: Level::Nodes, offset, len })
        })?;
        self.under_way.push(ask);
        Some(ask)
    }

    /// Compares the answer to `ask` with this side's digests of the same range: the ranges that differ, as offset and
    /// length, neighbours joined. Of nodes that differ nothing is known yet; their granules are asked for.
    ///
    /// # Errors
    ///
    /// The other side has answered something else.
    pub fn answered(
        &mut self,
        ask: Ask,
        ours: &[Digest],
        theirs: &[Digest],
    ) -> Result<Vec<(u64, u64)>, WrongAnswer> {
        let asked = self.under_way.iter().position(|one| *one == ask);
        let asked = asked.ok_or(WrongAnswer::PeerNotAsked)?;
        for digests in [ours, theirs] {
            if digests.len() as u64 != ask.digests() {
                let (asked, found) = (ask.digests(), digests.len());
                return Err(WrongAnswer::PeerCount { asked, found });
            }
        }
        self.under_way.swap_remove(asked);
        let starts = (ask.offset..).step_by(index(ask.unit()));
        let pairs = starts.zip(ours.iter().zip(theirs));
        let end = ask.offset + ask.len;
        let differing = pairs
            .filter(|(_, (ours, theirs))| ours != theirs)
            .map(|(start, _)| (start, ask.unit().min(end - start)));
        if ask.level == Level::Nodes {
            let level = Level::Granules;
            self.wanted.extend(differing.map(|(offset, len)| Ask { level, offset, len }));
            return Ok(Vec::new());
        }
        let mut ranges: Vec<(u64, u64)> = Vec::new();
        for (start, len) in differing {
            match ranges.last_mut() {
                Some((from, before)) if *from + *before == start => *before += len,
                _ => ranges.push((start, len)),
            }
        }
        Ok(ranges)
    }

    /// Whether everything has been asked and answered.
    pub fn is_done(&self) -> bool {
        self.under_way.is_empty() && self.wanted.is_empty() && self.next >= self.end
    }

    /// Where a comparison that has to begin again may begin: everything below is compared.
    pub fn compared_until(&self) -> u64 {
        let open = self.wanted.iter().chain(&self.under_way).map(|ask| ask.offset);
        open.min().map_or(self.next, |oldest| oldest.min(self.next))
    }
}

fn short(hash: blake3::Hash) -> Digest {
    *hash.as_bytes().first_chunk().expect("a hash has 32 bytes")
}

fn index(len: u64) -> usize {
    usize::try_from(len).expect("a granule, or a count of digests in memory")
}

/// Bytes of a granule, the last one of a volume aside: [`crate::message::DIGEST_GRANULE`].
pub const GRANULE: u64 = crate::message::DIGEST_GRANULE;
/// Granules of a node.
pub const NODE_GRANULES: usize = 64;
/// Bytes of a node.
pub const NODE_LEN: u64 = NODE_GRANULES as u64 * GRANULE;
/// Bytes of a volume whose nodes one question is about: 256 digests, 4 KiB of answer, a second of reading on a fast disk.
pub const STRETCH: u64 = 256 * NODE_LEN;
/// Questions under way at most: one is answered while the answer to the other is compared.
pub const ASKS_MAX: usize = 4;
const GRANULE_LEN: usize = 64 << 10;
const _: () = assert!(GRANULE_LEN as u64 == GRANULE);
/// Digests for which room is taken before they are there.
const RESERVED_MAX: u64 = 1 << 16;
/// What the key is for, as BLAKE3's key derivation wants it.
const CONTEXT: &str = "landfast replica 2026-11-25 digests of volumes";
/// Begins what a node hashes. No granule has these bytes as its whole contents: its length is a multiple of blocks.
const NODE: &[u8] = b"node";

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use block::{Extent, FileDevice, Geometry, Survives, Zeroing};

    use super::*;

    const GROUP: GroupId = GroupId([7; 16]);

    fn file(size: u64) -> FileDevice {
        let file = tempfile::tempfile().unwrap();
        file.set_len(size).unwrap();
        FileDevice::new(file).unwrap()
    }

    #[test]
    fn a_hole_and_zeroes_have_one_digest_and_any_bit_another() {
        let (one, other) = (file(3 * GRANULE + 512), file(3 * GRANULE + 512));
        other.write(0, &vec![0; index(3 * GRANULE + 512)], Survives::Placed).unwrap();
        let digester = Digester::new(GROUP);
        let all =
            |device: &FileDevice| digester.granules(device, 0, device.geometry().size).unwrap();
        assert_eq!(all(&one), all(&other));
        assert_eq!(all(&one).len(), 4);
        assert_ne!(all(&one)[3], all(&one)[0], "zeroes of another length");
        let mut block = [0; 512];
        block[511] = 1;
        other.write(GRANULE, &block, Survives::Placed).unwrap();
        let differs: Vec<_> = all(&one).iter().zip(all(&other)).map(|(a, b)| *a != b).collect();
        assert_eq!(differs, [false, true, false, false]);
        assert_ne!(digester.range(&one, 0, GRANULE), digester.range(&one, 0, 2 * GRANULE));
        let elsewhere = Digester::new(GroupId([8; 16]));
        assert_ne!(elsewhere.granules(&one, 0, GRANULE).unwrap()[0], all(&one)[0]);
    }

    #[test]
    fn a_digest_is_the_first_half_of_a_keyed_blake3() {
        // The other way to the same value: the streaming interface, byte by byte.
        let key = blake3::derive_key("landfast replica 2026-11-25 digests of volumes", &[7; 16]);
        let mut hasher = blake3::Hasher::new_keyed(&key);
        b"some bytes".iter().for_each(|byte| {
            hasher.update(&[*byte]);
        });
        let hash = hasher.finalize();
        assert_eq!(Digester::new(GROUP).granule(b"some bytes"), hash.as_bytes()[..16]);
    }

    /// A device that counts the bytes that are read.
    #[derive(Debug)]
    struct Counting(FileDevice, AtomicU64);

    impl BlockDevice for Counting {
        fn geometry(&self) -> Geometry {
            self.0.geometry()
        }
        fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError> {
            self.1.fetch_add(out.len() as u64, Ordering::Relaxed);
            self.0.read(offset, out)
        }
        fn write(&self, offset: u64, bytes: &[u8], survives: Survives) -> Result<(), BlockError> {
            self.0.write(offset, bytes, survives)
        }
        fn flush(&self) -> Result<(), BlockError> {
            self.0.flush()
        }
        fn write_zeroes(
            &self,
            offset: u64,
            len: u64,
            zeroing: Zeroing,
            survives: Survives,
        ) -> Result<(), BlockError> {
            self.0.write_zeroes(offset, len, zeroing, survives)
        }
        fn status(&self, offset: u64, len: u64) -> Result<Extent, BlockError> {
            self.0.status(offset, len)
        }
        fn resize(&self, size: u64) -> Result<u64, BlockError> {
            self.0.resize(size)
        }
    }

    #[test]
    fn holes_are_digested_without_being_read() {
        let device = Counting(file(1 << 30), AtomicU64::new(0));
        device.write(512 << 20, &[1; 4096], Survives::Placed).unwrap();
        let nodes = Digester::new(GROUP).nodes(&device, 0, 1 << 30).unwrap();
        assert_eq!(nodes.len(), 256);
        assert!(device.1.load(Ordering::Relaxed) <= 2 * GRANULE);
        assert_eq!(nodes.iter().filter(|node| **node != nodes[0]).count(), 1);
    }

    /// Compares two devices as two sides would: the ranges that differ, and how many digests were sent.
    fn compare(ours: &FileDevice, theirs: &FileDevice) -> (Vec<(u64, u64)>, u64) {
        let digester = Digester::new(GROUP);
        let mut compare = Compare::new(0, ours.geometry().size);
        let (mut ranges, mut sent, mut asks) = (Vec::new(), 0, VecDeque::new());
        while !compare.is_done() {
            while let Some(ask) = compare.next_ask() {
                asks.push_back(ask);
            }
            assert!(asks.len() <= ASKS_MAX);
            let ask: Ask = asks.pop_back().unwrap();
            let (mine, answer) = (ask.answer(&digester, ours), ask.answer(&digester, theirs));
            let answer = answer.unwrap();
            sent += answer.len() as u64;
            ranges.extend(compare.answered(ask, &mine.unwrap(), &answer).unwrap());
        }
        assert!(compare.compared_until() >= ours.geometry().size);
        ranges.sort_unstable();
        (ranges, sent)
    }

    #[test]
    fn a_comparison_finds_the_granules_that_differ_and_no_others() {
        let size = 3 * STRETCH / 2 + 512;
        let (ours, theirs) = (file(size), file(size));
        for device in [&ours, &theirs] {
            device.write(0, &[1; 4096], Survives::Placed).unwrap();
        }
        assert_eq!(compare(&ours, &theirs), (Vec::new(), 385));
        ours.write(GRANULE, &[2; 1024], Survives::Placed).unwrap();
        ours.write(3 * GRANULE - 512, &[2; 1024], Survives::Placed).unwrap();
        theirs.write(STRETCH + 5 * NODE_LEN, &[3; 512], Survives::Placed).unwrap();
        theirs.write(size - 512, &[3; 512], Survives::Placed).unwrap();
        let (ranges, sent) = compare(&ours, &theirs);
        let expected =
            [(GRANULE, 3 * GRANULE), (STRETCH + 5 * NODE_LEN, GRANULE), (size - 512, 512)];
        assert_eq!(ranges, expected);
        assert_eq!(sent, 385 + 2 * 64 + 1);
    }

    #[test]
    fn an_answer_of_another_length_is_refused() {
        let mut compare = Compare::new(0, NODE_LEN + 512);
        let ask = compare.next_ask().unwrap();
        assert_eq!(ask.digests(), 2);
        let wrong = compare.answered(ask, &[[0; 16]; 2], &[[0; 16]; 3]);
        assert_eq!(wrong, Err(WrongAnswer::PeerCount { asked: 2, found: 3 }));
        let other = Ask { offset: NODE_LEN, ..ask };
        let unasked = compare.answered(other, &[[0; 16]], &[[0; 16]]);
        assert_eq!(unasked, Err(WrongAnswer::PeerNotAsked));
        assert!(!compare.is_done());
        assert_eq!(compare.compared_until(), 0);
        compare.answered(ask, &[[0; 16]; 2], &[[0; 16]; 2]).unwrap();
        assert!(compare.is_done());
    }

    #[test]
    fn a_question_that_nobody_asks_is_refused() {
        let (device, digester) = (file(2 * NODE_LEN), Digester::new(GROUP));
        let ask = |level, offset, len| Ask { level, offset, len }.answer(&digester, &device);
        ask(Level::Granules, 512, 512).unwrap_err();
        ask(Level::Granules, 0, NODE_LEN + 512).unwrap_err();
        ask(Level::Nodes, 0, u64::MAX).unwrap_err();
        ask(Level::Nodes, NODE_LEN, 2 * NODE_LEN).unwrap_err();
        ask(Level::Nodes, u64::MAX - u64::MAX % NODE_LEN, 512).unwrap_err();
        assert_eq!(ask(Level::Nodes, 0, 2 * NODE_LEN).unwrap().len(), 2);
    }
}
