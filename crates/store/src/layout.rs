//! Striping: which piece holds which byte of a region.
//!
//! ```text
//!   region   | unit 0 | unit 1 | unit 2 | unit 3 | unit 4 | ...       width 3
//!   piece 0  | unit 0 | unit 3 | ...
//!   piece 1  | unit 1 | unit 4 | ...
//!   piece 2  | unit 2 | ...
//! ```

/// How a region is cut into pieces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Striping {
    /// Length of the region in bytes.
    pub size: u64,
    /// Bytes that lie together.
    pub unit: u64,
    /// Number of pieces.
    pub width: u32,
}

/// Bytes that lie together in one piece.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Segment {
    /// The piece.
    pub piece: u32,
    /// Where in the piece.
    pub offset: u64,
    /// Where in the operation's bytes.
    pub at: usize,
    /// How many bytes.
    pub len: usize,
}

impl Striping {
    /// The length of a piece in bytes.
    pub fn piece_len(&self, piece: u32) -> u64 {
        let width = u64::from(self.width);
        let (whole, rest) = (self.size / self.unit, self.size % self.unit);
        let (rounds, over) = (whole / width, whole % width);
        let piece = u64::from(piece);
        let units = rounds + u64::from(piece < over);
        units * self.unit + if piece == over { rest } else { 0 }
    }

    /// The segments of a range, in order, none longer than `longest`. The caller has checked that the range lies in
    /// the region.
    pub fn segments(
        self,
        offset: u64,
        len: usize,
        longest: usize,
    ) -> impl Iterator<Item = Segment> {
        let mut at = 0;
        std::iter::from_fn(move || {
            if at == len {
                return None;
            }
            let place = offset + wide(at);
            let (unit, within) = (place / self.unit, place % self.unit);
            let width = u64::from(self.width);
            let piece = u32::try_from(unit % width).expect("below width, which is a u32");
            // Neighbouring units of a region of one piece are neighbours in the piece.
            let together = if self.width == 1 { u64::MAX } else { self.unit - within };
            let left = usize::try_from(together).unwrap_or(usize::MAX);
            let taken = left.min(len - at).min(longest);
            let offset = (unit / width) * self.unit + within;
            let segment = Segment { piece, offset, at, len: taken };
            at += taken;
            Some(segment)
        })
    }
}

pub(crate) fn wide(len: usize) -> u64 {
    u64::try_from(len).expect("usize has at most 64 bits here")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_byte_has_one_place_and_pieces_are_filled_without_gaps(
            size in 1_u64..2000, unit in 1_u64..100, width in 1_u32..9, longest in 1_usize..300,
        ) {
            let striping = Striping { size, unit, width };
            let lens: Vec<u64> = (0..width).map(|piece| striping.piece_len(piece)).collect();
            prop_assert_eq!(lens.iter().sum::<u64>(), size);
            let mut seen: Vec<Vec<bool>> =
                lens.iter().map(|len| vec![false; usize::try_from(*len).unwrap()]).collect();
            let mut next = 0;
            let len = usize::try_from(size).unwrap();
            for segment in striping.segments(0, len, longest) {
                prop_assert_eq!(segment.at, next);
                prop_assert!(segment.len <= longest && segment.len > 0);
                next += segment.len;
                let piece = &mut seen[usize::try_from(segment.piece).unwrap()];
                let start = usize::try_from(segment.offset).unwrap();
                for byte in &mut piece[start..start + segment.len] {
                    prop_assert!(!*byte);
                    *byte = true;
                }
            }
            prop_assert_eq!(next, len);
            prop_assert!(seen.iter().flatten().all(|byte| *byte));
        }

        #[test]
        fn a_part_of_a_range_lies_where_the_whole_range_says(
            size in 1_u64..2000, unit in 1_u64..100, width in 1_u32..9, from in 0_u64..2000, len in 1_usize..200,
        ) {
            prop_assume!(from + wide(len) <= size);
            let striping = Striping { size, unit, width };
            let place = |byte: u64| {
                let one = striping.segments(byte, 1, 1).next().unwrap();
                (one.piece, one.offset)
            };
            for segment in striping.segments(from, len, usize::MAX) {
                for index in 0..segment.len {
                    let expected = (segment.piece, segment.offset + wide(index));
                    prop_assert_eq!(place(from + wide(segment.at + index)), expected);
                }
            }
        }
    }
}
