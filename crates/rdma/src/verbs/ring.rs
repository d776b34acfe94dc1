//! Registered memory for inline payloads: taken in posting order, free in the same order.
//!
//! ```text
//!   +------------------------------------------------+
//!   |      | oldest |  ...  | newest |               |
//!   +------------------------------------------------+
//!          ^ first                   ^ next            a payload never wraps: the end is skipped
//! ```

use std::sync::Arc;

use pmem::Medium;

use super::sys::device::Domain;
use super::sys::memory::{Memory, Wish};
use super::sys::queue::Piece;
use crate::interface::Access;

/// See the module.
#[derive(Debug)]
pub(super) struct Ring {
    memory: Memory,
    medium: Arc<dyn Medium>,
    room: Room,
}

impl Ring {
    /// A ring in `domain`; `None` if the host has no memory for it.
    pub(super) fn new(domain: &Arc<Domain>) -> Option<Self> {
        let medium = pmem::anonymous(RING_LEN).ok()?;
        let access = Access::empty();
        let wish = Wish { access, flush: None, on_demand: false, named: None, is_iwarp: false };
        let memory = Memory::register(domain, &medium, &(0..RING_LEN), wish).ok()?;
        Some(Self { memory, medium, room: Room::default() })
    }

    /// Copies a payload in and returns its place and the bytes to give back; `None` if there is no
    /// room.
    pub(super) fn put(&mut self, bytes: &[u8]) -> Option<(Piece, u64)> {
        let len = u64::try_from(bytes.len()).ok()?;
        let (offset, taken) = self.room.take(len)?;
        self.medium.place(offset, bytes).ok()?;
        let address = self.memory.address() + offset;
        let piece = Piece { address, len: u32::try_from(len).ok()?, lkey: self.memory.lkey() };
        Some((piece, taken))
    }

    /// Frees the oldest payload, which has been sent; `taken` is the number that [`Ring::put`]
    /// returned.
    pub(super) fn give_back(&mut self, taken: u64) {
        self.room.used -= taken;
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Room {
    next: u64,
    used: u64,
}

impl Room {
    /// A place, and how many bytes it takes, skipped ones included.
    fn take(&mut self, len: u64) -> Option<(u64, u64)> {
        let to_end = RING_LEN - self.next;
        let skipped = if len > to_end { to_end } else { 0 };
        let taken = skipped + len;
        if self.used + taken > RING_LEN {
            return None;
        }
        let offset = (self.next + skipped) % RING_LEN;
        self.next = (offset + len) % RING_LEN;
        self.used += taken;
        Some((offset, taken))
    }
}

/// Longest inline payload: an SMB Direct message or a piece of a push write.
pub(super) const INLINE_MAX: usize = 64 * 1024;
/// Room for four of the longest payloads: one being sent, one waiting, and two skipped at the end.
pub(super) const RING_LEN: u64 = 4 * INLINE_MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_never_wrap_and_never_overlap() {
        let mut room = Room::default();
        let piece = RING_LEN / 4 + 1;
        assert_eq!(room.take(piece), Some((0, piece)));
        assert_eq!(room.take(piece), Some((piece, piece)));
        assert_eq!(room.take(piece), Some((2 * piece, piece)));
        assert_eq!(room.take(piece), None, "the end is too short, and the front is taken");
        room.used -= piece;
        let skipped = RING_LEN - 3 * piece;
        assert_eq!(room.take(piece), Some((0, skipped + piece)));
        assert_eq!(room.take(0), Some((piece, 0)), "an empty payload takes nothing");
    }
}
