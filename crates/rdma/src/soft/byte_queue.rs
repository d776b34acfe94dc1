//! A bounded queue of bytes that stays in one piece: framed in place at the tail, sent from the
//! head.
//!
//! ```text
//!   0          head              tail                  limit
//!   +----------+-----------------+---------------------+
//!   | gone     | queued          | room                |
//!   +----------+-----------------+---------------------+
//!              ^ position of the  ^ position of the
//!                first byte         next byte
//! ```
//!
//! A long queue has pages of its own, which the host supplies when they are first touched and takes
//! back when the connection ends. The allocator would do so only at first: it clears reused memory,
//! and an idle connection would then hold the whole of its queues.
//!
//! Positions count all bytes that ever went through, so that a work request can remember where
//! its last byte ends. When the room is too small the queued bytes move to the front; a drained
//! queue starts at the front again, which is the ordinary case and moves nothing.

use std::ops::{Deref, DerefMut, Range};

use memmap2::MmapMut;

/// See the module.
#[derive(Debug)]
pub(super) struct ByteQueue {
    bytes: Bytes,
    limit: usize,
    head: usize,
    tail: usize,
    head_position: u64,
}

impl ByteQueue {
    /// A queue of at most `limit` bytes.
    pub(super) fn new(limit: usize) -> Self {
        Self { bytes: Bytes::zeroed(limit), limit, head: 0, tail: 0, head_position: 0 }
    }

    /// A queue of at most `limit` bytes, with room for `reserve` more once
    /// [`ByteQueue::open_reserve`] is called.
    pub(super) fn with_reserve(limit: usize, reserve: usize) -> Self {
        Self { limit, ..Self::new(limit + reserve) }
    }

    /// Makes the reserve part of the room, for the last bytes of a connection.
    pub(super) fn open_reserve(&mut self) {
        self.limit = self.limit.max(self.bytes.len());
    }

    /// A queue that takes its memory only when first used.
    pub(super) fn unallocated(limit: usize) -> Self {
        Self { bytes: Bytes::Allocated(Vec::new()), limit, head: 0, tail: 0, head_position: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.tail - self.head
    }

    pub(super) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    /// Bytes that could still be queued.
    pub(super) fn room(&self) -> usize {
        self.limit - self.len()
    }

    /// The queued bytes.
    pub(super) fn queued(&self) -> &[u8] {
        &self.bytes[self.head..self.tail]
    }

    /// The whole room, in one piece, if it is at least `wanted` bytes; counts moved bytes.
    pub(super) fn room_of(&mut self, wanted: usize, moved: &mut u64) -> Option<&mut [u8]> {
        if self.room() < wanted {
            return None;
        }
        if self.bytes.is_empty() {
            self.bytes = Bytes::zeroed(self.limit);
        }
        if self.limit - self.tail < wanted {
            self.bytes.copy_within(self.head..self.tail, 0);
            *moved += u64::try_from(self.len()).expect("a buffer's length fits 64 bits");
            self.tail -= self.head;
            self.head = 0;
        }
        self.bytes.get_mut(self.tail..self.limit)
    }

    /// Takes `len` bytes that were written into the room.
    pub(super) fn commit(&mut self, len: usize) {
        assert!(len <= self.limit - self.tail, "more committed than there was room");
        self.tail += len;
    }

    /// Copies `bytes` in if there is room; returns their positions.
    pub(super) fn push(&mut self, bytes: &[u8], moved: &mut u64) -> Option<Range<u64>> {
        let room = self.room_of(bytes.len(), moved)?;
        room.get_mut(..bytes.len())?.copy_from_slice(bytes);
        let start = self.tail_position();
        self.commit(bytes.len());
        Some(start..self.tail_position())
    }

    /// Drops the first `len` queued bytes.
    pub(super) fn consume(&mut self, len: usize) {
        assert!(len <= self.len(), "more consumed than there was");
        self.head += len;
        self.head_position += u64::try_from(len).expect("a buffer's length fits 64 bits");
        if self.head == self.tail {
            self.head = 0;
            self.tail = 0;
        }
    }

    /// Drops everything before `position`.
    pub(super) fn consume_to(&mut self, position: u64) {
        let len = position.saturating_sub(self.head_position);
        self.consume(usize::try_from(len).expect("positions lie inside the buffer"));
    }

    /// The bytes between two positions that are still queued.
    pub(super) fn slice(&self, positions: Range<u64>) -> Option<&[u8]> {
        let start = usize::try_from(positions.start.checked_sub(self.head_position)?).ok()?;
        let end = usize::try_from(positions.end.checked_sub(self.head_position)?).ok()?;
        self.queued().get(start..end)
    }

    /// Position of the first queued byte: all before it are gone.
    pub(super) fn head_position(&self) -> u64 {
        self.head_position
    }

    /// Position behind the last queued byte.
    pub(super) fn tail_position(&self) -> u64 {
        self.head_position + u64::try_from(self.len()).expect("a buffer's length fits 64 bits")
    }
}

/// The memory of a queue.
#[derive(Debug)]
enum Bytes {
    Allocated(Vec<u8>),
    Mapped(MmapMut),
}

impl Bytes {
    fn zeroed(len: usize) -> Self {
        let mapped = (len >= MAPPED_FROM).then(|| MmapMut::map_anon(len));
        match mapped {
            Some(Ok(pages)) => Self::Mapped(pages),
            // The number of mappings of a process is limited.
            Some(Err(_)) | None => Self::Allocated(vec![0; len]),
        }
    }
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Allocated(bytes) => bytes,
            Self::Mapped(pages) => pages,
        }
    }
}

impl DerefMut for Bytes {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Allocated(bytes) => bytes,
            Self::Mapped(pages) => pages,
        }
    }
}

/// A queue of at least this length has pages of its own: several pages, most of which stay
/// untouched.
const MAPPED_FROM: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_a_byte_queue_in_the_order_they_entered() {
        let mut queue = ByteQueue::unallocated(7);
        let mut moved = 0;
        let (mut came, mut left) = (0_u8, 0_u8);
        for round in 0..200 {
            let len = round % 5;
            let bytes: Vec<u8> = (0..len).map(|i| came.wrapping_add(i)).collect();
            if queue.push(&bytes, &mut moved).is_some() {
                came = came.wrapping_add(len);
            } else {
                assert!(queue.room() < bytes.len());
            }
            let take = queue.len() / 2;
            for byte in &queue.queued()[..take] {
                assert_eq!(*byte, left);
                left = left.wrapping_add(1);
            }
            queue.consume(take);
        }
        assert!(moved > 0, "the test never came to the end of the buffer");
    }

    #[test]
    fn positions_outlive_moves() {
        let mut queue = ByteQueue::new(8);
        let mut moved = 0;
        queue.push(b"abcd", &mut moved).unwrap();
        let positions = queue.push(b"efg", &mut moved).unwrap();
        queue.consume(4);
        queue.push(b"hijk", &mut moved).unwrap();
        assert_eq!(moved, 3);
        assert_eq!(queue.slice(positions.clone()), Some(&b"efg"[..]));
        queue.consume_to(positions.end);
        assert_eq!(queue.slice(positions), None);
        assert_eq!(queue.queued(), b"hijk");
    }
}
