//! Where in a ring the bytes of a log lie.

use std::ops::Range;

use crate::format::RING_START;
use crate::lsn::Lsn;

/// A ring of `capacity` bytes behind the labels of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ring {
    pub(crate) capacity: u64,
}

impl Ring {
    /// The offset in the store of the byte at `lsn`.
    pub(crate) fn offset(self, lsn: Lsn) -> u64 {
        RING_START + lsn.0 % self.capacity
    }

    /// Bytes from `lsn` to the end of the ring.
    pub(crate) fn until_end(self, lsn: Lsn) -> u64 {
        self.capacity - lsn.0 % self.capacity
    }

    /// The one or two pieces of the store that hold `range`, each with its first LSN.
    pub(crate) fn pieces(self, range: Range<Lsn>) -> impl Iterator<Item = (Lsn, u64, u64)> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            let len = range.end.since(at).min(self.until_end(at));
            let piece = (at, self.offset(at), len);
            at = at.plus(len);
            (len > 0).then_some(piece)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_over_the_end_of_the_ring_has_two_pieces() {
        let ring = Ring { capacity: 4096 };
        let pieces: Vec<_> = ring.pieces(Lsn(8128)..Lsn(8256)).collect();
        let expected = [(Lsn(8128), RING_START + 4032, 64), (Lsn(8192), RING_START, 64)];
        assert_eq!(pieces, expected);
        assert_eq!(ring.pieces(Lsn(64)..Lsn(64)).count(), 0);
    }
}
