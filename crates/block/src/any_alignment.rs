//! Lets requests of any offset and length reach a device with larger blocks.
//!
//! ```text
//!   request        |   ==============   |
//!   blocks     |----|----|----|----|----|
//!                   read, change, write | whole blocks go straight | read, change, write
//! ```
//!
//! A write of a part of a block reads the block and writes it whole. Between the two nobody else may write the block,
//! or the other's bytes would be lost; so a part takes the block's lock for itself and whole blocks share theirs. A
//! front-end whose clients keep to the block size it announces never waits for such a lock.

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use crate::range::length_of;
use crate::{BlockDevice, BlockError, Extent, Geometry, Survives, Zeroing};

/// A device whose requests begin and end at any byte. The size and the unit of a crash stay those of the device below:
/// a part of a block is written with its whole block.
#[derive(Debug)]
pub struct AnyAlignment<D> {
    device: D,
    /// The lock of region `n` is number `n` modulo [`LOCKS`].
    locks: Box<[RwLock<()>]>,
}

impl<D: BlockDevice> AnyAlignment<D> {
    /// Wraps `device`.
    pub fn new(device: D) -> Self {
        Self { device, locks: (0..LOCKS_LEN).map(|_| RwLock::new(())).collect() }
    }

    /// The lock that covers the block at `offset`.
    fn lock_of(&self, offset: u64) -> &RwLock<()> {
        &self.locks[usize::try_from(offset / REGION % LOCKS).expect("below LOCKS")]
    }

    /// Shares the locks of a range of whole blocks, lowest number first: a thread that waits for a lock while it
    /// shares another one waits for a higher number, so no ring of waiting threads can form.
    fn share(&self, offset: u64, len: u64) -> Shared<'_> {
        let Some(last) = len.checked_sub(1) else { return Shared::default() };
        let (first, last) = (offset / REGION, (offset + last) / REGION);
        match last - first {
            0 => Shared { first: Some(shared(self.lock_of(offset))), ..Shared::default() },
            1 => {
                let low = (first % LOCKS).min(last % LOCKS) * REGION;
                let high = (first % LOCKS).max(last % LOCKS) * REGION;
                let (first, second) = (shared(self.lock_of(low)), shared(self.lock_of(high)));
                Shared { first: Some(first), second: Some(second), others: Vec::new() }
            }
            _ => {
                let mut numbers: Vec<u64> =
                    (first..=last).take(LOCKS_LEN).map(|region| region % LOCKS).collect();
                numbers.sort_unstable();
                let others =
                    numbers.into_iter().map(|number| shared(self.lock_of(number * REGION)));
                Shared { others: others.collect(), ..Shared::default() }
            }
        }
    }

    /// Writes a part of one block.
    fn change_part(
        &self,
        offset: u64,
        len: u64,
        survives: Survives,
        change: impl FnOnce(&mut [u8]),
    ) -> Result<(), BlockError> {
        let block = u64::from(self.device.geometry().block);
        let start = offset - offset % block;
        let mut whole = vec![0; usize::try_from(block).expect("at most 65,536")];
        let _alone = self.lock_of(start).write().unwrap_or_else(PoisonError::into_inner);
        self.device.read(start, &mut whole)?;
        let from = usize::try_from(offset - start).expect("inside of a block");
        change(&mut whole[from..from + usize::try_from(len).expect("inside of a block")]);
        self.device.write(start, &whole, survives)
    }

    /// Checks a range without regard to blocks. Only the device's last part of a block cannot be reached.
    fn any(&self) -> Geometry {
        Geometry { block: 1, ..self.device.geometry() }
    }

    fn write_whole(&self, offset: u64, bytes: &[u8], survives: Survives) -> Result<(), BlockError> {
        let _shared = self.share(offset, length_of(bytes));
        self.device.write(offset, bytes, survives)
    }
}

impl<D: BlockDevice> BlockDevice for AnyAlignment<D> {
    fn geometry(&self) -> Geometry {
        self.any()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> Result<(), BlockError> {
        self.any().check_read(offset, length_of(out))?;
        let parts = Parts::of(offset, length_of(out), self.device.geometry().block);
        if parts.is_whole() {
            return self.device.read(offset, out);
        }
        let (start, end) = parts.around();
        let mut whole = vec![0; usize::try_from(end - start).expect("a buffer and two blocks")];
        self.device.read(start, &mut whole)?;
        let from = usize::try_from(offset - start).expect("inside of a block");
        out.copy_from_slice(&whole[from..from + out.len()]);
        Ok(())
    }

    fn write(&self, offset: u64, bytes: &[u8], survives: Survives) -> Result<(), BlockError> {
        self.any().check_change(offset, length_of(bytes))?;
        let parts = Parts::of(offset, length_of(bytes), self.device.geometry().block);
        if parts.is_whole() {
            return self.write_whole(offset, bytes, survives);
        }
        let index = |at: u64| usize::try_from(at - offset).expect("inside of the buffer");
        for (start, end) in [parts.head, parts.tail].into_iter().flatten() {
            let part = &bytes[index(start)..index(end)];
            self.change_part(start, end - start, survives, |old| old.copy_from_slice(part))?;
        }
        match parts.middle {
            Some((start, end)) => {
                self.write_whole(start, &bytes[index(start)..index(end)], survives)
            }
            None => Ok(()),
        }
    }

    fn flush(&self) -> Result<(), BlockError> {
        self.device.flush()
    }

    fn write_zeroes(
        &self,
        offset: u64,
        len: u64,
        zeroing: Zeroing,
        survives: Survives,
    ) -> Result<(), BlockError> {
        self.any().check_change(offset, len)?;
        let parts = Parts::of(offset, len, self.device.geometry().block);
        for (start, end) in [parts.head, parts.tail].into_iter().flatten() {
            self.change_part(start, end - start, survives, |old| old.fill(0))?;
        }
        match parts.middle {
            Some((start, end)) => {
                let _shared = self.share(start, end - start);
                self.device.write_zeroes(start, end - start, zeroing, survives)
            }
            None => Ok(()),
        }
    }

    fn status(&self, offset: u64, len: u64) -> Result<Extent, BlockError> {
        self.any().check_status(offset, len)?;
        let (start, end) = Parts::of(offset, len, self.device.geometry().block).around();
        let extent = self.device.status(start, end - start)?;
        Ok(Extent { len: (start + extent.len - offset).min(len), state: extent.state })
    }

    fn resize(&self, size: u64) -> Result<u64, BlockError> {
        self.device.resize(size)
    }
}

/// A range, cut at the edges of blocks: each part as its first byte and the byte after its last.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Parts {
    block: u64,
    start: u64,
    end: u64,
    head: Option<(u64, u64)>,
    middle: Option<(u64, u64)>,
    tail: Option<(u64, u64)>,
}

impl Parts {
    /// The range was checked to lie in the device, so no sum wraps.
    fn of(offset: u64, len: u64, block: u32) -> Self {
        let (block, end) = (u64::from(block), offset + len);
        let (first, last) = (offset.next_multiple_of(block), end - end % block);
        let part = |from: u64, to: u64| (from < to).then_some((from, to));
        let (head, middle, tail) = match first > last {
            // All in one block, at neither of its ends.
            true => (part(offset, end), None, None),
            false => (part(offset, first), part(first, last), part(last, end)),
        };
        Self { block, start: offset, end, head, middle, tail }
    }

    fn is_whole(&self) -> bool {
        self.start.is_multiple_of(self.block) && self.end.is_multiple_of(self.block)
    }

    /// The whole blocks that hold the range.
    fn around(&self) -> (u64, u64) {
        (self.start - self.start % self.block, self.end.next_multiple_of(self.block))
    }
}

fn shared(lock: &RwLock<()>) -> RwLockReadGuard<'_, ()> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// The shared locks of a request. Up to two regions, as most requests have, need no allocation.
#[derive(Debug, Default)]
struct Shared<'l> {
    #[expect(dead_code, reason = "held until the request is done")]
    first: Option<RwLockReadGuard<'l, ()>>,
    #[expect(dead_code, reason = "held until the request is done")]
    second: Option<RwLockReadGuard<'l, ()>>,
    #[expect(dead_code, reason = "held until the request is done")]
    others: Vec<RwLockReadGuard<'l, ()>>,
}

/// Bytes that one lock covers: the largest block, so that no block lies in two regions.
const REGION: u64 = 64 << 10;
/// Locks of a device: requests of different regions seldom meet in one.
const LOCKS: u64 = 256;
const LOCKS_LEN: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn a_range_is_cut_at_the_edges_of_blocks() {
        let cut = |offset, len| {
            let parts = Parts::of(offset, len, 512);
            (parts.head, parts.middle, parts.tail)
        };
        assert_eq!(cut(0, 1024), (None, Some((0, 1024)), None));
        assert_eq!(cut(10, 20), (Some((10, 30)), None, None));
        assert_eq!(cut(0, 20), (None, None, Some((0, 20))));
        assert_eq!(cut(500, 12), (Some((500, 512)), None, None));
        assert_eq!(cut(500, 24), (Some((500, 512)), None, Some((512, 524))));
        assert_eq!(cut(500, 600), (Some((500, 512)), Some((512, 1024)), Some((1024, 1100))));
        assert_eq!(cut(512, 0), (None, None, None));
    }

    #[test]
    fn every_short_range_writes_its_bytes_and_no_others() {
        let disk = AnyAlignment::new(MemoryDevice::anonymous(2048).unwrap());
        for offset in [0, 1, 511, 512, 513, 1000] {
            for len in [0, 1, 11, 512, 513, 1024, 1030] {
                disk.write(0, &[1; 2048], Survives::Placed).unwrap();
                let bytes = vec![2; usize::try_from(len).unwrap()];
                disk.write(offset, &bytes, Survives::Placed).unwrap();
                let mut found = [0; 2048];
                disk.read(0, &mut found).unwrap();
                let written = (0_u64..).zip(found).filter(|(_, byte)| *byte == 2);
                let expected: Vec<u64> = (offset..offset + len).collect();
                assert_eq!(written.map(|(at, _)| at).collect::<Vec<_>>(), expected);
                let mut part = bytes.clone();
                disk.read(offset, &mut part).unwrap();
                assert_eq!(part, bytes);
                disk.write_zeroes(offset, len, Zeroing::MayFree, Survives::Placed).unwrap();
                disk.read(0, &mut found).unwrap();
                let zeroes = (0_u64..).zip(found).filter(|(_, byte)| *byte == 0);
                assert_eq!(zeroes.map(|(at, _)| at).collect::<Vec<_>>(), expected);
            }
        }
    }

    #[test]
    fn parts_of_one_block_from_two_threads_are_both_kept() {
        let disk = AnyAlignment::new(MemoryDevice::anonymous(512).unwrap());
        std::thread::scope(|scope| {
            for half in [0, 256] {
                let disk = &disk;
                scope.spawn(move || {
                    for round in 0..=255 {
                        disk.write(half, &[round; 256], Survives::Placed).unwrap();
                        let mut found = [0; 256];
                        disk.read(half, &mut found).unwrap();
                        assert_eq!(found, [round; 256]);
                    }
                });
            }
        });
    }

    #[test]
    fn a_request_beyond_the_end_is_refused_whatever_its_alignment() {
        let disk = AnyAlignment::new(MemoryDevice::anonymous(1024).unwrap());
        let no_room = BlockError::PeerNoRoom { offset: 1023, len: 2, size: 1024 };
        assert_eq!(disk.write(1023, &[0; 2], Survives::Placed), Err(no_room));
        let beyond = BlockError::PeerBeyondEnd { offset: 1023, len: 2, size: 1024 };
        assert_eq!(disk.read(1023, &mut [0; 2]), Err(beyond));
        assert_eq!(disk.status(1023, 2), Err(beyond));
    }
}
